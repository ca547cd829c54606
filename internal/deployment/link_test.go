package deployment_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deployment"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/template"
)

// fetched notes what is asked of a registry.
type fetched struct{ paths []string }

func (f *fetched) Fetch(_ context.Context, r oci.Reference) (oci.Content, error) {
	f.paths = append(f.paths, r.Path)
	return oci.Content{Data: []byte("{}")}, nil
}

// A template that is linked must not make the server reach into its network: only
// the hosts that were named are asked, also after a redirect.
func TestLinksReachNamedHostsOnly(t *testing.T) {
	inner := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("the inner server was asked")
	}))
	defer inner.Close()
	big := strings.Repeat("x", 4<<20+1)
	outer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, strings.Replace(inner.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		case "/down":
			http.Redirect(w, r, strings.Replace("http://"+r.Host, "127.0.0.1", "localhost", 1), http.StatusFound)
		case "/big":
			_, _ = w.Write([]byte(big))
		default:
			_, _ = w.Write([]byte(`{"a":1}`))
		}
	}))
	defer outer.Close()
	registry := &fetched{}
	get := deployment.Links(deployment.LinkOptions{Hosts: []string{"127.0.0.1", "registry.example:5000"}, Fetcher: registry, Client: outer.Client()})
	for uri, want := range map[string]string{
		outer.URL + "/t.json":                      "",
		"oci://registry.example:5000/t:1":          "",
		"br:registry.example:5000/t:1":             "",
		"br:other.example/t:1":                     "other.example",
		"oci://169.254.169.254/t:1":                "169.254.169.254",
		"https://169.254.169.254/latest/meta-data": "--template-hosts",
		outer.URL + "/redirect":                    "localhost",
		outer.URL + "/down":                        "another scheme",
		outer.URL + "/big":                         "more than",
		"http://127.0.0.1/t.json":                  "https://",
		"file:///etc/passwd":                       "developer mode",
		"ftp://127.0.0.1/t":                        "ftp",
		"t.json":                                   "absolute",
	} {
		_, err := get(t.Context(), template.Link{URI: uri})
		if want == "" && err != nil || want != "" && (!core.IsCode(err, core.CodeInvalidLink) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", uri, err, want)
		}
	}
	if len(registry.paths) != 2 {
		t.Errorf("the registry was asked for %q", registry.paths)
	}
	if _, err := get(t.Context(), template.Link{ID: "/subscriptions/x/templateSpecs/y"}); !core.IsCode(err, core.CodeInvalidLink) {
		t.Errorf("a template spec: %v", err)
	}
}
