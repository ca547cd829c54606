package extensionsdk

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/radial-project/radial/extensionsdk/rpc"
)

// echo is an extension whose resources say what was asked.
type echo struct{}

func (echo) resource(typ string, config map[string]any, configID string, identifiers map[string]any) Resource {
	return Resource{Type: typ, Identifiers: identifiers, Config: config, ConfigID: configID, Properties: map[string]any{"asked for": configID}}
}

func (e echo) Preview(_ context.Context, s Specification) (Resource, error) {
	return e.resource(s.Type, s.Config, s.ConfigID, s.Properties), nil
}

func (e echo) CreateOrUpdate(_ context.Context, s Specification) (Answer, error) {
	switch s.Type {
	case "Plain":
		return Answer{}, errors.New("no error of ours")
	case "Nothing":
		return Answer{}, nil
	case "Slow":
		r := e.resource(s.Type, s.Config, s.ConfigID, s.Properties)
		r.Status, r.RetryAfterSeconds = "Running", Wait(7)
		return Answer{Resource: &r}, nil
	}
	return Answer{Operation: &Operation{Status: "Running", Handle: map[string]any{"n": 1}}}, nil
}

func (e echo) Get(_ context.Context, r Reference) (Resource, error) {
	if r.Type == "Missing" {
		return Resource{}, Errorf(CodeNotFound, "none").At("/identifiers")
	}
	if r.Type == "Failed" {
		return Resource{Status: Failed, Error: &Error{Code: "Why", Message: "because", Inner: map[string]any{"a": 1}, Details: []ErrorDetail{{Code: "D", Message: "d", Target: "/x"}}}}, nil
	}
	return e.resource(r.Type, r.Config, r.ConfigID, r.Identifiers), nil
}

func (e echo) Delete(_ context.Context, r Reference) (Answer, error) {
	if r.Type == "Missing" {
		return Answer{}, Errorf(CodeNotFound, "none")
	}
	return Answer{}, nil
}

func TestHTTP(t *testing.T) {
	s := httptest.NewServer(HTTP(echo{}, HTTPOptions{Token: func() (string, error) { return "right", nil }}))
	defer s.Close()
	for name, c := range map[string]struct {
		path, body, token string
		status            int
		says              string
	}{
		"get":                 {"resource/get", `{"type":"A","identifiers":{"id":12345678901234567}}`, "right", 200, `"identifiers":{"id":12345678901234567}`},
		"no token":            {"resource/get", `{}`, "", 401, "Unauthorized"},
		"a wrong token":       {"resource/get", `{}`, "wrong", 401, "Unauthorized"},
		"no JSON":             {"resource/get", `{"type":`, "right", 400, "InvalidRequest"},
		"two values":          {"resource/get", `{} {}`, "right", 400, "InvalidRequest"},
		"of another type":     {"resource/get", `{"type":1}`, "right", 400, "InvalidRequest"},
		"too large":           {"resource/get", `{"type":"` + strings.Repeat("x", MaxRequest) + `"}`, "right", 413, "RequestTooLarge"},
		"missing":             {"resource/get", `{"type":"Missing"}`, "right", 404, `"target":"/identifiers"`},
		"delete of missing":   {"resource/delete", `{"type":"Missing"}`, "right", 204, ""},
		"delete":              {"resource/delete", `{"type":"A"}`, "right", 204, ""},
		"an operation":        {"resource/createOrUpdate", `{"type":"A"}`, "right", 202, `"operationHandle":{"n":1}`},
		"any error":           {"resource/createOrUpdate", `{"type":"Plain"}`, "right", 500, "no error of ours"},
		"an answer of none":   {"resource/createOrUpdate", `{"type":"Nothing"}`, "right", 500, "neither a resource nor an operation"},
		"no such call":        {"resource/list", `{}`, "right", 404, ""},
		"nothing to follow":   {"longRunningOperation/get", `{}`, "right", 404, ""},
		"members that are up": {"resource/preview", `{"type":"A"}`, "right", 200, `"identifiers":{},"properties":{`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/1.0.0/"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(name, err)
		}
		var said bytes.Buffer
		_, _ = said.ReadFrom(response.Body)
		response.Body.Close()
		if response.StatusCode != c.status || !strings.Contains(said.String(), c.says) {
			t.Errorf("%s: %d %s, want %d %s", name, response.StatusCode, said.String(), c.status, c.says)
		}
	}
	r := httptest.NewRequest("POST", "/1/resource/createOrUpdate", strings.NewReader(`{"type":"Slow"}`))
	w := httptest.NewRecorder()
	if HTTP(echo{}, HTTPOptions{}).ServeHTTP(w, r); w.Code != 200 || w.Header().Get("Retry-After") != "7" {
		t.Errorf("on its way: %d, Retry-After %s", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestGRPC(t *testing.T) {
	dir, err := os.MkdirTemp("", "sdk")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, echo{}, []string{"--socket", socket}, t.Output()) }()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := rpc.NewBicepExtensionClient(conn)
	if _, err := client.Ping(t.Context(), &rpc.Empty{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	var header metadata.MD
	config := `{"url":"x"}`
	a, err := client.Get(metadata.AppendToOutgoingContext(t.Context(), ConfigIDHeader, "here"),
		&rpc.ResourceReference{Type: "A", Identifiers: `{"id":1}`, Config: &config}, grpc.Header(&header))
	if err != nil || a.GetResource().GetProperties() != `{"asked for":"here"}` || a.GetErrorData() != nil || len(header.Get(ConfigIDHeader)) != 1 {
		t.Errorf("%v, %v, %v", a, header, err)
	}
	for typ, want := range map[string]string{"Missing": CodeNotFound, "Failed": "Why", "Broken": CodeInvalid} {
		identifiers := "{}"
		if typ == "Broken" {
			identifiers = "[]"
		}
		a, err := client.Get(t.Context(), &rpc.ResourceReference{Type: typ, Identifiers: identifiers})
		if e := a.GetErrorData().GetError(); err != nil || a.GetResource() != nil || e.GetCode() != want {
			t.Errorf("%s: %v, %v", typ, a, err)
		}
	}
	if a, err := client.Delete(t.Context(), &rpc.ResourceReference{Type: "Missing", Identifiers: "{}"}); err != nil || a.GetErrorData() != nil {
		t.Errorf("delete of what is not there: %v, %v", a, err)
	}
	if a, err := client.CreateOrUpdate(t.Context(), &rpc.ResourceSpecification{Type: "A", Properties: "{}"}); err != nil || a.GetErrorData().GetError().GetCode() != "InternalError" {
		t.Errorf("an operation that cannot be followed: %v, %v", a, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestRun(t *testing.T) {
	for _, args := range [][]string{{}, {"--socket", "a", "--http", "1"}, {"--http", "0", "--tls-cert", "x"}, {"--unknown"}} {
		if err := Run(t.Context(), echo{}, args, t.Output()); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := Run(t.Context(), echo{}, []string{"--http", taken.Addr().String()}, t.Output()); err == nil {
		t.Error("an address that is taken")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := Run(ctx, echo{}, []string{"--http", "0"}, t.Output()); err != nil {
		t.Errorf("told to end: %v", err)
	}
}
