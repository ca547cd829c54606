package scope_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/radial-project/radial/internal/scope/armtest"
	"github.com/radial-project/radial/internal/template"
)

// TestDocumentation plans the templates of docs/scopes.md.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/scopes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1)
	want := []struct{ parameter, value, scope string }{{"aks", armtest.ClusterID("c"), "AzureResourceManager"}, {"kubeConfig", "k", "UserOwned"}}
	if len(blocks) != len(want) {
		t.Fatalf("%d templates, want %d", len(blocks), len(want))
	}
	for i, b := range blocks {
		tpl, err := template.Parse(b[1])
		if err != nil {
			t.Fatal(err)
		}
		p, err := tpl.Plan(template.Options{Parameters: map[string]any{want[i].parameter: want[i].value}})
		if err != nil {
			t.Fatal(err)
		}
		x := p.Resources[0].Extension
		if s, err := x.Scope(x.Config); err != nil || s.Type != want[i].scope {
			t.Errorf("template %d: %+v, %v", i, s, err)
		}
	}
}
