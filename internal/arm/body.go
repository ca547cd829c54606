package arm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

// MaxBody is the largest body that a request may have, in bytes.
const MaxBody = 1 << 20

// bodyTimeout is how long a client may take to send its body, so that a slow
// one does not hold a connection for ever.
const bodyTimeout = 30 * time.Second

// Media types of request bodies.
const (
	MediaJSON       = "application/json"
	MediaMergePatch = "application/merge-patch+json"
	MediaYAML       = "application/yaml"
)

// ReadBody reads the whole body: 413 above MaxBody, 415 for a media type that is
// not among those accepted. No Content-Type at all reads as the first.
func ReadBody(w http.ResponseWriter, r *Request, accepted ...string) ([]byte, error) {
	return ReadLarge(w, r, MaxBody, accepted...)
}

// ReadLarge is ReadBody with another bound, in bytes, for routes whose bodies are
// documents.
func ReadLarge(w http.ResponseWriter, r *Request, most int64, accepted ...string) ([]byte, error) {
	if err := checkMedia(r.Header.Get("Content-Type"), accepted); err != nil {
		return nil, err
	}
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	// Not every writer knows deadlines (a test's recorder): then there is none.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return nil, tooLarge(most)
	case err != nil:
		return nil, core.Errorf(core.CodeBadRequest, "the request's body could not be read to its end: %v", err)
	}
	return body, nil
}

func tooLarge(most int64) error {
	return core.Errorf(core.CodeTooLarge, "the request's body is larger than %d bytes", most)
}

func checkMedia(header string, accepted []string) error {
	if header == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(header)
	if charset := params["charset"]; err == nil && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		for _, a := range accepted {
			if media == a {
				return nil
			}
		}
	}
	return core.Errorf(core.CodeMediaType, "the Content-Type %q is not supported: send %s in UTF-8", header, strings.Join(accepted, " or "))
}

// Decode reads one JSON object into v. Numbers keep the digits they were sent
// with. The error never quotes the body: it may hold a secret.
func Decode(body []byte, v any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return core.Errorf(core.CodeInvalidContent, "the request has no body: send a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &kind):
			field := kind.Field
			if field == "" {
				return core.Errorf(core.CodeInvalidContent, "the request's body is not a JSON object")
			}
			return core.Errorf(core.CodeInvalidContent, "%s must be %s, not %s", field, jsonKind(kind.Type.Kind().String()), kindOf(kind.Value)).WithTarget(field)
		case errors.As(err, &syntax):
			return core.Errorf(core.CodeInvalidContent, "the request's body is not valid JSON: fault at byte %d", syntax.Offset)
		default:
			return core.Errorf(core.CodeInvalidContent, "the request's body is not valid JSON: it ends too early")
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return core.Errorf(core.CodeInvalidContent, "the request's body holds more than one JSON value")
	}
	return nil
}

// kindOf cuts the literal that encoding/json puts behind the kind of a number.
func kindOf(value string) string {
	kind, _, _ := strings.Cut(value, " ")
	return "a JSON " + kind
}

func jsonKind(kind string) string {
	switch kind {
	case "map", "struct":
		return "a JSON object"
	case "slice", "array":
		return "a JSON array"
	case "bool":
		return "true or false"
	default:
		return "a JSON " + kind
	}
}

// ReadPut reads the body of a PUT. Absent properties are an empty object.
func ReadPut(w http.ResponseWriter, r *Request) (wire.Put, error) {
	var put wire.Put
	body, err := ReadBody(w, r, MediaJSON)
	if err != nil {
		return put, err
	}
	if err := Decode(body, &put); err != nil {
		return put, err
	}
	if put.Properties == nil {
		put.Properties = map[string]any{}
	}
	return put, nil
}

// ReadObject reads a JSON object; an empty body is an empty object.
func ReadObject(w http.ResponseWriter, r *Request, accepted ...string) (map[string]any, error) {
	body, err := ReadBody(w, r, accepted...)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	if len(bytes.TrimSpace(body)) == 0 {
		return object, nil
	}
	if err := Decode(body, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, core.Errorf(core.CodeInvalidContent, "the request's body is null: send a JSON object")
	}
	return object, nil
}
