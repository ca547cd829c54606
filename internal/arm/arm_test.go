package arm

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/fuzztest"
)

func parse(t *testing.T, target string, header ...string) *Request {
	t.Helper()
	r := httptest.NewRequest("GET", target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	req, err := Parse(r)
	if err != nil {
		t.Fatalf("Parse(%s): %v", target, err)
	}
	return req
}

func TestParse_D3(t *testing.T) {
	for _, c := range []struct {
		reason, target string
		base           string
		segments       []string
		version        string
	}{
		{"D-3 without prefix", "/planes/Radius/local?api-version=v1", "", []string{"planes", "Radius", "local"}, "v1"},
		{"D-3 the prefix in any case", "/APIS/api.UCP.dev/v1alpha3/planes?API-Version=v2", "/APIS/api.UCP.dev/v1alpha3", []string{"planes"}, "v2"},
		{"D-3 only a whole prefix is one", "/apis/api.ucp.dev/v1alpha33/planes", "", []string{"apis", "api.ucp.dev", "v1alpha33", "planes"}, ""},
		{"D-3 escaped characters belong to names", "/planes/a%25b/c%2Bd/", "", []string{"planes", "a%b", "c+d"}, ""},
	} {
		got := parse(t, c.target)
		if got.Base != c.base || got.APIVersion != c.version {
			t.Errorf("%s: base %q, version %q", c.reason, got.Base, got.APIVersion)
		}
		if diff := cmp.Diff(c.segments, got.Segments); diff != "" {
			t.Errorf("%s: segments (-want +got):\n%s", c.reason, diff)
		}
	}
	for reason, path := range map[string]string{
		"a slash in a name":       "/planes/a%2Fb",
		"a NUL":                   "/planes/a%00b",
		"a line break":            "/planes/a%0Ab",
		"bytes that are no UTF-8": "/planes/a%FFb",
		"an empty segment":        "/planes//local",
		"the folder above":        "/planes/%2e%2e/x",
		"a look-alike of a word":  "/planes/radius/local/providers/A.B/c/d/listSecret%C5%BF",
		"a look-alike of a name":  "/planes/%E2%84%AA",
		"a very long name":        "/planes/" + strings.Repeat("x", 261),
	} {
		_, err := Parse(&http.Request{URL: mustURL(t, path)})
		if !core.IsCode(err, core.CodeBadRequest) {
			t.Errorf("%s: %v, want BadRequest", reason, err)
		}
	}
}

// TestQueryReadsTheSame_D46: the authoriser and the server each read the query,
// and one that spells a parameter in several ways must not mean two things.
func TestQueryReadsTheSame_D46(t *testing.T) {
	r := parse(t, "/planes/radius/local?CASCADE=false&Cascade=true&cascadE=false")
	first := r.Query("cascade")
	for range 200 {
		if again := r.Query("cascade"); again != first {
			t.Fatalf("D-46: cascade is %q and then %q", first, again)
		}
	}
}

func mustURL(t *testing.T, path string) *url.URL {
	t.Helper()
	u, err := url.Parse("http://x" + path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestRoutes(t *testing.T) {
	var rs Routes
	answer := func(name string) map[string]Handler {
		return map[string]Handler{"GET": func(w http.ResponseWriter, r *Request) error {
			return WriteJSON(w, 200, map[string]any{"route": name, "vars": r.Vars})
		}}
	}
	rs.Handle("planes/{plane}/providers/System.Resources", answer("special"))
	rs.Handle("planes/{plane}/providers/{rest...}", answer("general"))
	for target, want := range map[string]string{
		"/PLANES/local/providers/system.resources":  `{"route":"special","vars":{"plane":"local"}}`,
		"/planes/local/providers/system.resource":   `{"route":"general","vars":{"plane":"local","rest":"system.resource"}}`,
		"/planes/local/providers/Other/things/name": `{"route":"general","vars":{"plane":"local","rest":"Other/things/name"}}`,
	} {
		r := parse(t, target)
		h, _, err := rs.Find(r)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		w := httptest.NewRecorder()
		if err := h(w, r); err != nil || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %v, %s; want %s", target, err, w.Body, want)
		}
	}
	for _, target := range []string{"/planes/local/providers", "/planes", "/other"} {
		if _, _, err := rs.Find(parse(t, target)); !core.IsCode(err, core.CodeNotFound) {
			t.Errorf("%s: %v, want NotFound", target, err)
		}
	}
}

func TestWait_D21(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "wait=5": 5 * time.Second, "respond-async, Wait=10": 10 * time.Second, `wait="3"`: 3 * time.Second,
		"wait=0": 0, "wait=-4": 0, "wait=soon": 0, "wait": 0, "wait=100000000000": MaxWait, "wait=86400": MaxWait, "waiting=5": 0,
	} {
		if got := parse(t, "/x", "Prefer", header).Wait(); got != want {
			t.Errorf("D-21: Prefer: %s waits %s, want %s", header, got, want)
		}
	}
}

func TestPreconditions(t *testing.T) {
	id := core.GroupID("g")
	for _, c := range []struct {
		header, value, etag string
		ok                  bool
	}{
		{"If-Match", `"a"`, "a", true}, {"If-Match", `a`, "a", true}, {"If-Match", `W/"a"`, "a", true},
		{"If-Match", `"a"`, "b", false}, {"If-Match", `"a"`, "", false}, {"If-Match", "*", "a", true}, {"If-Match", "*", "", false},
		{"If-None-Match", "*", "", true}, {"If-None-Match", "*", "a", false}, {"If-None-Match", `"a"`, "a", false}, {"If-None-Match", `"a"`, "b", true},
		{"X-Other", "*", "a", true},
	} {
		err := parse(t, "/x", c.header, c.value).Preconditions().Check(id, c.etag)
		if (err == nil) != c.ok || !c.ok && !core.IsCode(err, core.CodePrecondition) {
			t.Errorf("%s: %s against %q: %v", c.header, c.value, c.etag, err)
		}
	}
}

func TestBody(t *testing.T) {
	for _, c := range []struct {
		reason, media, body string
		code                core.Code
	}{
		{"JSON", "application/json; charset=utf-8", `{"properties":{}}`, ""},
		{"no media type is JSON", "", `{}`, ""},
		{"another charset", "application/json; charset=latin1", `{}`, core.CodeMediaType},
		{"a form", "application/x-www-form-urlencoded", `a=b`, core.CodeMediaType},
		{"too large", "application/json", `{"location":"` + strings.Repeat("x", MaxBody) + `"}`, core.CodeTooLarge},
		{"nothing", "application/json", ``, core.CodeInvalidContent},
		{"half", "application/json", `{"properties":{`, core.CodeInvalidContent},
		{"two", "application/json", `{}{}`, core.CodeInvalidContent},
		{"a list", "application/json", `[]`, core.CodeInvalidContent},
		{"properties of another kind", "application/json", `{"properties":"needle"}`, core.CodeInvalidContent},
		{"tags of another kind", "application/json", `{"tags":{"a":7}}`, core.CodeInvalidContent},
	} {
		r := httptest.NewRequest("PUT", "/x", strings.NewReader(c.body))
		if c.media != "" {
			r.Header.Set("Content-Type", c.media)
		}
		req, err := Parse(r)
		if err != nil {
			t.Fatal(err)
		}
		put, err := ReadPut(httptest.NewRecorder(), req)
		if core.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want code %q", c.reason, err, c.code)
		}
		if err == nil && put.Properties == nil {
			t.Errorf("%s: no properties", c.reason)
		}
		if err != nil && strings.Contains(err.Error(), "needle") {
			t.Errorf("%s: the error quotes the body: %v", c.reason, err)
		}
	}
}

func TestNumbersKeepTheirDigits(t *testing.T) {
	r := httptest.NewRequest("PUT", "/x", strings.NewReader(`{"properties":{"n":9007199254740993,"f":1.10}}`))
	req, err := Parse(r)
	if err != nil {
		t.Fatal(err)
	}
	put, err := ReadPut(httptest.NewRecorder(), req)
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := json.Marshal(put.Properties); string(raw) != `{"f":1.10,"n":9007199254740993}` {
		t.Errorf("the properties are %s", raw)
	}
}

func TestPage(t *testing.T) {
	r := parse(t, Prefix+"/planes/radius/local/providers/N.S/a%25b?top=2&api-version=v1")
	link := r.NextLink("key/of the%last\x00row")
	next := parse(t, link)
	page, err := next.Page()
	if err != nil || page.Limit != 2 || page.After != "key/of the%last\x00row" || next.APIVersion != "v1" || next.Base != Prefix {
		t.Errorf("%s reads as %+v, %v", link, page, err)
	}
	if diff := cmp.Diff(r.Segments, next.Segments); diff != "" {
		t.Errorf("segments (-want +got):\n%s", diff)
	}
	again := parse(t, next.NextLink("second"))
	if page, err := again.Page(); err != nil || page.After != "second" {
		t.Errorf("the link after a link reads as %+v, %v", page, err)
	}
	if r.NextLink("") != "" {
		t.Error("the last page has a link")
	}
	if _, err := parse(t, "/x?skipToken=***").Page(); !core.IsCode(err, core.CodeBadRequest) {
		t.Errorf("a forged token: %v", err)
	}
}

func TestErrorEnvelope(t *testing.T) {
	w := httptest.NewRecorder()
	e := core.Errorf(core.CodeNameConflict, "taken").WithTarget("/planes/radius/local").WithDetails(*core.Errorf(core.CodeBadRequest, "inner"))
	e.Info = []core.ErrorInfo{{Type: "owner", Info: core.Owner{Cluster: "local", UID: "u"}}}
	WriteError(w, e)
	want := `{"error":{"code":"NameConflict","message":"taken","target":"/planes/radius/local","details":[{"code":"BadRequest","message":"inner"}],` +
		`"additionalInfo":[{"type":"owner","info":{"cluster":"local","namespace":"","kind":"","name":"","uid":"u"}}]}}`
	if w.Code != 409 || strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	raw, _ := json.Marshal(ErrorOf(e))
	if `{"error":`+string(raw)+`}` != want {
		t.Errorf("on an operation it is %s", raw)
	}
	w = httptest.NewRecorder()
	if WriteError(w, core.Errorf(core.CodeUnavailable, "away")); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestWriteEach(t *testing.T) {
	write := func(values ...any) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		err := WriteEach(w, 200, "items", func(yield func(any) error) error {
			for _, v := range values {
				if err := yield(v); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			WriteError(w, err)
		}
		return w
	}
	for want, values := range map[string][]any{"{\"items\":[]}\n": nil, "{\"items\":[1]}\n": {1}, "{\"items\":[1,\"a\",{}]}\n": {1, "a", struct{}{}}} {
		if w := write(values...); w.Code != 200 || w.Body.String() != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
			t.Errorf("%d %q, want %q", w.Code, w.Body, want)
		}
	}
	if w := write(func() {}); w.Code != 500 || !strings.Contains(w.Body.String(), "error") {
		t.Errorf("a fault before the first is %d %q", w.Code, w.Body)
	}
	defer func() {
		if r := recover(); r != http.ErrAbortHandler {
			t.Errorf("a fault after the first ends in %v", r)
		}
	}()
	w := write(1, func() {})
	t.Errorf("a fault after the first is %d %q", w.Code, w.Body)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"/planes/radius/local", "/apis/api.ucp.dev/v1alpha3/planes/a%2Fb", "/%", "//", "/planes/x/../y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		fuzztest.Bounded(t, len(path), func() {
			u, err := url.ParseRequestURI("/" + strings.TrimPrefix(path, "/"))
			if err != nil {
				return
			}
			r, err := Parse(&http.Request{URL: u, Host: "h"})
			if err != nil {
				if !core.IsCode(err, core.CodeBadRequest) {
					t.Fatalf("%q: %v", path, err)
				}
				return
			}
			for _, s := range r.Segments {
				if strings.ContainsAny(s, "/\\\x00\n") {
					t.Fatalf("%q has the segment %q", path, s)
				}
			}
			if id, err := r.ID(); err == nil {
				again, err := core.ParseID(id.String())
				if err != nil || !again.Equal(id) {
					t.Fatalf("%q is %s, which reads as %s, %v", path, id, again, err)
				}
			}
		})
	})
}
