package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/servertest"
)

// checkout returns the folder that a variable names, and skips where it names none.
func checkout(t *testing.T, variable, of string) string {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		t.Skipf("%s is not set: it names a checkout of %s, whose recorded files this test plays", variable, of)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return dir
}

func radius(t *testing.T) string {
	return checkout(t, "RADIUS_CHECKOUT", "github.com/radius-project/radius")
}

func readJSON(t *testing.T, path ...string) any {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return mustJSON(t, string(raw))
}

func mustJSON(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// plane is a control plane of the test's own, whose recipes answer what the
// test says.
type plane struct {
	*servertest.Plane
	t *testing.T
}

func start(t *testing.T) *plane {
	t.Helper()
	p := &plane{Plane: servertest.Start(t), t: t}
	p.recipeAnswers(nil, nil)
	return p
}

// recipeAnswers makes every recipe return these values and secrets.
func (p *plane) recipeAnswers(values, secrets map[string]any) {
	p.Recipes.OnExecute(func(context.Context, recipe.Request) (recipe.Result, error) {
		return recipe.Result{Values: values, Secrets: secrets}, nil
	})
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   any // nil where there is none
	raw    string
}

func (a answer) errorCode() string {
	e, _ := a.body.(map[string]any)
	inner, _ := e["error"].(map[string]any)
	code, _ := inner["code"].(string)
	return code
}

// request sends a body (nil for none, otherwise JSON) to a path with its query.
func (p *plane) request(method, target string, body any) answer {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	var in io.Reader
	if body != nil {
		raw, ok := body.([]byte)
		if !ok {
			var err error
			if raw, err = json.Marshal(body); err != nil {
				p.t.Fatal(err)
			}
		}
		in = bytes.NewReader(raw)
	}
	if !strings.HasPrefix(target, "http") {
		target = p.URL + target
	}
	req, err := http.NewRequestWithContext(ctx, method, target, in)
	if err != nil {
		p.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, raw: string(raw)}
	if len(bytes.TrimSpace(raw)) > 0 {
		a.body = mustJSON(p.t, string(raw))
	}
	return a
}

// finish waits for the operation that an answer names, if it names one, and
// returns the operation's end ("" where there is none).
func (p *plane) finish(a answer) string {
	p.t.Helper()
	follow := a.header.Get("Azure-AsyncOperation")
	if follow == "" || a.status >= 300 {
		return ""
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		req, err := http.NewRequestWithContext(p.t.Context(), "GET", follow, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		req.Header.Set("Prefer", "wait=30")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			p.t.Fatal(err)
		}
		var status struct{ Status string }
		err = json.NewDecoder(res.Body).Decode(&status)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 {
			p.t.Fatalf("GET %s: %s, %v", follow, res.Status, err)
		}
		if status.Status == "Succeeded" || status.Status == "Failed" || status.Status == "Canceled" {
			return status.Status
		}
	}
	p.t.Fatalf("%s does not end", follow)
	return ""
}

// must sends a request that prepares a pair, and waits for its end.
func (p *plane) must(method, target string, body any) answer {
	p.t.Helper()
	a := p.request(method, target, body)
	if a.status >= 300 {
		p.t.Fatalf("prepare %s %s: %d %s", method, target, a.status, a.raw)
	}
	p.finish(a)
	return a
}

// sendYAML puts a manifest as it lies in its file.
func (p *plane) sendYAML(target string, raw []byte) (int, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), "PUT", target, bytes.NewReader(raw))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/yaml")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// fetch gets what is no JSON.
func (p *plane) fetch(target string) answer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), "GET", p.URL+target, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{status: res.StatusCode, header: res.Header, raw: string(raw)}
}
