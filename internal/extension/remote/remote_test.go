package remote

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/contract"
)

// bench is an extension that a test writes by hand, and a client of it.
type bench struct {
	*testing.T
	server *httptest.Server
	waits  []time.Duration
	o      Options
}

func newBench(t *testing.T, h http.HandlerFunc) *bench {
	b := &bench{T: t, server: httptest.NewServer(h)}
	t.Cleanup(b.server.Close)
	b.o = Options{Name: "Hand", URL: b.server.URL + "/base", Sleep: func(_ context.Context, d time.Duration) error {
		b.waits = append(b.waits, d)
		return nil
	}}
	return b
}

func (b *bench) carrier() contract.Carrier {
	b.Helper()
	c, err := New(b.o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c.Version("1.2.3")
}

var file = sdk.Reference{Type: "File", Identifiers: map[string]any{"path": "a"}, Config: map[string]any{"x": "y"}, ConfigID: "here"}

func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// The requests are the contract's: paths, bodies, headers.
func TestRequests_S47(t *testing.T) {
	type request struct {
		path, method string
		header       http.Header
		body         map[string]any
	}
	var got []request
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		got = append(got, request{r.URL.Path, r.Method, r.Header, body})
		respond(w, 200, `{"type":"File","identifiers":{"id":9007199254740993},"properties":{"n":1.5},"status":"Succeeded"}`)
	})
	c := b.carrier()
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	spec := sdk.Specification{Type: "File", APIVersion: "v1", Properties: map[string]any{"path": "a"}, Config: map[string]any{"x": "y"}}
	preview := spec
	preview.Metadata = &sdk.SpecificationMetadata{Unevaluated: []string{"/properties/b"}}
	p, err := c.Preview(ctx, preview)
	if err != nil {
		t.Fatal(err)
	}
	if id := p.Identifiers["id"]; id != int64(9007199254740993) {
		t.Errorf("a large number became %v (%T)", id, id)
	}
	for _, call := range []func() error{
		func() error { _, err := c.CreateOrUpdate(ctx, spec); return err },
		func() error { _, err := c.Get(ctx, file); return err },
		func() error { _, err := c.Delete(ctx, file); return err },
		func() error { _, err := c.Follow(ctx, map[string]any{"op": "1"}); return err },
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	bodies := []string{
		`{"apiVersion":"v1","config":{"x":"y"},"metadata":{"unevaluated":["/properties/b"]},"properties":{"path":"a"},"type":"File"}`,
		`{"apiVersion":"v1","config":{"x":"y"},"properties":{"path":"a"},"type":"File"}`,
		`{"config":{"x":"y"},"configId":"here","identifiers":{"path":"a"},"type":"File"}`,
		`{"config":{"x":"y"},"configId":"here","identifiers":{"path":"a"},"type":"File"}`,
		`{"op":"1"}`,
	}
	for i, path := range []string{"resource/preview", "resource/createOrUpdate", "resource/get", "resource/delete", "longRunningOperation/get"} {
		raw, err := json.Marshal(got[i].body)
		if err != nil {
			t.Fatal(err)
		}
		if got[i].path != "/base/1.2.3/"+path || got[i].method != "POST" || string(raw) != bodies[i] {
			t.Errorf("%s %s %s, want POST /base/1.2.3/%s %s", got[i].method, got[i].path, raw, path, bodies[i])
		}
		for _, name := range []string{"x-ms-client-request-id", "x-ms-correlation-request-id", "Referer", "Traceparent", "Accept-Language"} {
			if got[i].header.Get(name) == "" {
				t.Errorf("%s: no header %s", path, name)
			}
		}
	}
}

func TestAnswers_S47(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header map[string]string
		body   string
		// get, create and delete are what the error of each call must hold, ""
		// for none.
		get, create, delete string
		code                core.Code
	}{
		"none there":         {status: 404, body: `{"error":{"code":"Whatever","message":"none"}}`, get: sdk.CodeNotFound, create: "Whatever", delete: sdk.CodeNotFound},
		"a wrong path":       {status: 404, body: `<html>no such page</html>`, get: "does not serve version 1.2.3", create: "status 404", delete: "does not serve", code: core.CodeTarget},
		"a redirect":         {status: 307, header: map[string]string{"Location": "http://elsewhere.example.com/"}, get: "redirects are not followed", create: "redirect", delete: "redirect", code: core.CodeTarget},
		"who are you":        {status: 401, get: "tokenFile", create: "tokenFile", delete: "tokenFile", code: core.CodeTarget},
		"a broken extension": {status: 500, body: "oops", get: "status 500", create: "status 500", delete: "status 500", code: core.CodeTarget},
		"no JSON":            {status: 200, body: "hello", get: "not what the contract says", create: "not what the contract says", delete: "not what the contract says", code: core.CodeTarget},
		"two values":         {status: 200, body: `{} {}`, get: "not what the contract says", create: "not what", delete: "not what", code: core.CodeTarget},
		"deleted":            {status: 204, get: "not what the contract says", create: "not what", delete: "", code: core.CodeTarget},
		"deleted, with 200":  {status: 200, body: " ", get: "not what", create: "not what", delete: "", code: core.CodeTarget},
		"made":               {status: 201, body: `{"type":"File","identifiers":{}}`},
		"on its way":         {status: 202, body: `{"status":"Running","operationHandle":{"a":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				respond(w, c.status, c.body)
			})
			carrier := b.carrier()
			_, get := carrier.Get(t.Context(), file)
			_, create := carrier.CreateOrUpdate(t.Context(), sdk.Specification{Type: "File"})
			_, remove := carrier.Delete(t.Context(), file)
			for call, pair := range map[string]struct {
				err  error
				want string
			}{"get": {get, c.get}, "create": {create, c.create}, "delete": {remove, c.delete}} {
				said := ""
				var refused *sdk.Error
				switch {
				case errors.As(pair.err, &refused):
					said = refused.Code
				case pair.err != nil:
					said = pair.err.Error()
					if !core.IsCode(pair.err, c.code) || !strings.Contains(said, "the extension Hand at http://127.0.0.1") {
						t.Errorf("%s: %s %v", call, core.CodeOf(pair.err), pair.err)
					}
				}
				if (pair.want == "") != (pair.err == nil) || !strings.Contains(said, pair.want) {
					t.Errorf("%s: %v, want %q", call, pair.err, pair.want)
				}
			}
			if len(b.waits) > 0 {
				t.Errorf("asked again after %v", b.waits)
			}
		})
	}
}

// Who is too busy is asked again when it wants to be; who does not answer, with
// growing pauses; both end.
func TestAskedAgain(t *testing.T) {
	ok := `{"type":"File","identifiers":{"path":"a"}}`
	for name, c := range map[string]struct {
		answers []func(w http.ResponseWriter)
		waits   []time.Duration
		fault   string
	}{
		"429 with Retry-After": {
			answers: []func(http.ResponseWriter){busy(429, "3"), busy(429, "1")},
			waits:   []time.Duration{3 * time.Second, time.Second},
		},
		"503 and 502 without": {
			answers: []func(http.ResponseWriter){busy(503, ""), busy(502, "")},
			waits:   []time.Duration{500 * time.Millisecond, time.Second},
		},
		"a connection that breaks": {
			answers: []func(http.ResponseWriter){breaks, breaks, breaks},
			waits:   []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second},
		},
		"always": {
			answers: []func(http.ResponseWriter){busy(503, "2"), busy(503, "2"), busy(503, "2"), busy(503, "2"), busy(503, "2")},
			waits:   []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second},
			fault:   "asked 5 times",
		},
		"for too long": {
			answers: []func(http.ResponseWriter){busy(429, "3600")},
			fault:   "asked again in 1h0m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			b := newBench(t, func(w http.ResponseWriter, _ *http.Request) {
				if n++; n <= len(c.answers) {
					c.answers[n-1](w)
					return
				}
				respond(w, 200, ok)
			})
			_, err := b.carrier().CreateOrUpdate(t.Context(), sdk.Specification{Type: "File"})
			if (err == nil) != (c.fault == "") || err != nil && (!strings.Contains(err.Error(), c.fault) || !core.IsCode(err, core.CodeTarget)) {
				t.Errorf("%v, want %q", err, c.fault)
			}
			if !slices.Equal(b.waits, c.waits) {
				t.Errorf("asked again after %v, want %v", b.waits, c.waits)
			}
		})
	}
}

func busy(status int, after string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		respond(w, status, `{"error":{"code":"TooManyRequests","message":"later"}}`)
	}
}

func breaks(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

// The token is read anew for each call, shown to nobody but the extension, and
// the extension's certificate must be of the authority that was given.
func TestTokenAndAuthority(t *testing.T) {
	var shown []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
		respond(w, 400, `{"error":{"code":"Refused","message":"what is `+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+` to me"}}`)
	}))
	defer s.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o := Options{Name: "Hand", URL: s.URL, TokenFile: write("token", "token-canary-1\n"), Sleep: func(context.Context, time.Duration) error { return nil }}
	untrusting, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := untrusting.Version("1").Get(t.Context(), file); !core.IsCode(err, core.CodeTarget) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that is not known: %v", err)
	}
	o.CAFile = write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	target := contract.NewTarget(c.Version("1"), contract.Options{Extension: "Hand", Place: c.Place(), Own: c.Secrets()})
	ref := extension.Ref{Type: "File", Identifiers: json.RawMessage(`{"path":"a"}`)}
	_, err = target.Get(t.Context(), ref)
	write("token", "token-canary-2")
	_, again := target.Get(t.Context(), ref)
	if !slices.Equal(shown, []string{"Bearer token-canary-1", "Bearer token-canary-2"}) {
		t.Errorf("shown: %v", shown)
	}
	for _, err := range []error{err, again} {
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v", err)
		}
	}
}
