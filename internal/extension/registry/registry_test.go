package registry

import (
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/extension"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Registration{
		"Files=/usr/bin/files":             {Name: "Files", Path: "/usr/bin/files"},
		"Files@1.2.0=https://files.local/": {Name: "Files", Version: "1.2.0", URL: "https://files.local/"},
		"Files=http://127.0.0.1:1/?a=b":    {Name: "Files", URL: "http://127.0.0.1:1/?a=b"},
	} {
		got, err := Parse(text)
		if err != nil || got.Name != want.Name || got.Version != want.Version || got.URL != want.URL || got.Path != want.Path {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"Files", "Files=", ""} {
		if r, err := Parse(text); err == nil {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

func TestRegistrationsAreChecked(t *testing.T) {
	for want, list := range map[string][]Registration{
		"built in":        {{Name: "kubernetes", URL: "https://a"}},
		"a url or a path": {{Name: "A"}},
		"begin with a":    {{Name: "1A", URL: "https://a"}},
		"is none such":    {{Name: "A", Version: "latest", URL: "https://a"}},
		"clear text":      {{Name: "A", URL: "http://files.example.com"}},
		"user or pass":    {{Name: "A", URL: "https://u:geheim@files.example.com"}},
		"query":           {{Name: "A", URL: "https://files.example.com?code=1"}},
		"scheme":          {{Name: "A", URL: "ftp://files.example.com"}},
		"cannot be run":   {{Name: "A", Path: "/nowhere/extension"}},
		"cannot be read":  {{Name: "A", URL: "https://a", TokenFile: "/nowhere/token"}},
		"twice":           {{Name: "A", URL: "https://a"}, {Name: "a", Version: "1.0.0", URL: "https://b"}},
		"are for ext":     {{Name: "A", URL: "https://a", Args: []string{"x"}}},
	} {
		_, err := New(list, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("want %q in %v", want, err)
		}
	}
	for _, url := range []string{"http://localhost:1", "http://127.0.0.1:1/base/", "http://[::1]:1", "https://files.example.com/base"} {
		if _, err := New([]Registration{{Name: "A", URL: url}}, Options{}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestVersions(t *testing.T) {
	x := newRegistry(t, Options{},
		Registration{Name: "Files", Version: "1.2.0", URL: "https://a"}, Registration{Name: "Files", Version: "1.10.0", URL: "https://b"},
		Registration{Name: "Files", Version: "2.0.0-beta", URL: "https://c"}, Registration{Name: "Any", URL: "https://d"})
	for _, c := range []struct{ name, version, url, sent, fault string }{
		{name: "Files", version: "1.2.0", url: "https://a", sent: "1.2.0"},
		{name: "files", version: "1.3.0", url: "https://b", sent: "1.10.0"},
		{name: "Files", version: "1", url: "https://b", sent: "1.10.0"},
		{name: "Files", version: "", url: "https://c", sent: "2.0.0-beta"},
		{name: "Files", version: "1.11.0", fault: "known are Kubernetes, Any, Files@1.2.0, Files@1.10.0, Files@2.0.0-beta"},
		{name: "Files", version: "2.0.0", fault: "no version of the extension Files that an import of 2.0.0"},
		{name: "Any", version: "7.0.0", url: "https://d", sent: "7.0.0"},
		{name: "Any", version: "", fault: "which version"},
		{name: "File", version: "1.0.0", fault: `no extension "File" here: known are Kubernetes, Any, Files@1.2.0`},
	} {
		e, sent, err := x.find(c.name, c.version)
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s %s: %v, want %q", c.name, c.version, err, c.fault)
			}
			continue
		}
		if err != nil || e.URL != c.url || sent != c.sent {
			t.Errorf("%s %s: %+v, %s, %v", c.name, c.version, e, sent, err)
		}
	}
	if _, err := x.Resolve(t.Context(), extension.Scope{Extension: "Files", Version: "1.2.0", Type: "AzureResourceManager", ID: "/x"}, nil); err == nil || !strings.Contains(err.Error(), "scope") {
		t.Errorf("a scope of a cluster: %v", err)
	}
	if _, err := x.Resolve(t.Context(), extension.Scope{Extension: "Kubernetes"}, nil); err == nil || !strings.Contains(err.Error(), "no cluster") {
		t.Errorf("without a base: %v", err)
	}
}
