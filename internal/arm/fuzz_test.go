package arm

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/fuzztest"
)

// FuzzEnvelope reads any body as a resource and as a patch, and answers what is
// wrong with it: the answer is an error envelope with a code and a message, of
// a status in the four hundreds, and quotes none of the values sent.
func FuzzEnvelope(f *testing.F) {
	f.Add("application/json", []byte(`{"location":"global","tags":{"a":"b"},"properties":{"password":"needle"}}`))
	f.Add("application/json; charset=utf-8", []byte(`{"owner":{"uid":1},"implicitParents":"yes"}`))
	f.Add("application/merge-patch+json", []byte(`{"properties":{"a":null}}`))
	f.Add("text/plain", []byte(`x`))
	f.Add("", []byte("{\"tags\":{\"\xff\":[]}}{}"))
	f.Add("application/json", []byte(strings.Repeat(`{"a":`, 2_000)))
	f.Fuzz(func(t *testing.T, media string, body []byte) {
		fuzztest.Bounded(t, len(media)+len(body), func() {
			read := func(use func(*httptest.ResponseRecorder, *Request) error) {
				request := httptest.NewRequest("PUT", "/planes/radius/local", strings.NewReader(string(body)))
				request.Header["Content-Type"] = []string{media}
				r, err := Parse(request)
				if err != nil {
					t.Fatal(err)
				}
				w := httptest.NewRecorder()
				err = use(w, r)
				if err == nil {
					return
				}
				var known *core.Error
				if !errors.As(err, &known) {
					t.Fatalf("an error that is none of ours: %v", err)
				}
				WriteError(w, err)
				var envelope struct {
					Error *struct{ Code, Message string }
				}
				if err := json.Unmarshal(w.Body.Bytes(), &envelope); err != nil || envelope.Error == nil || envelope.Error.Code == "" || envelope.Error.Message == "" {
					t.Fatalf("no envelope (%v): %s", err, w.Body)
				}
				if w.Code < 400 || w.Code > 499 {
					t.Fatalf("status %d: %s", w.Code, w.Body)
				}
			}
			read(func(w *httptest.ResponseRecorder, r *Request) error {
				put, err := ReadPut(w, r)
				if err == nil {
					if put.Properties == nil {
						t.Fatal("no properties")
					}
					if _, err := json.Marshal(put); err != nil {
						t.Fatal(err)
					}
				}
				return err
			})
			read(func(w *httptest.ResponseRecorder, r *Request) error {
				object, err := ReadObject(w, r, MediaMergePatch, MediaJSON)
				if err == nil && object == nil {
					t.Fatal("neither an object nor an error")
				}
				return err
			})
		})
	})
}
