package application

import (
	"context"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
)

func TestRefuseFiles(t *testing.T) {
	called := false
	kinds := map[string]dynamic.Kind{
		strings.ToLower(TypeEnvironment): {Check: func(context.Context, dynamic.Subject) error { called = true; return nil }},
		strings.ToLower(typePack):        {},
	}
	RefuseFiles(kinds)
	recipe := func(path string) map[string]any {
		return map[string]any{"templateKind": "template", "templatePath": path}
	}
	environment := func(paths ...string) dynamic.Subject {
		of := map[string]any{}
		for i, p := range paths {
			of[string(rune('a'+i))] = recipe(p)
		}
		return dynamic.Subject{Properties: map[string]any{"recipes": map[string]any{"My.Company/queues": of}}}
	}
	check := func(kind string, s dynamic.Subject) error { return kinds[strings.ToLower(kind)].Check(t.Context(), s) }

	if err := check(TypeEnvironment, environment("registry.example.com/r:1")); err != nil || !called {
		t.Errorf("a registry: %v, the kind's own check ran: %t", err, called)
	}
	if err := check(TypeEnvironment, dynamic.Subject{Properties: map[string]any{}}); err != nil {
		t.Errorf("no recipes: %v", err)
	}
	err := check(TypeEnvironment, environment("file:///a.json", "registry.example.com/r:1", "FILE:///c.json"))
	e := core.AsError(err)
	if !core.IsCode(err, core.CodeInvalidContent) || len(e.Details) != 2 || e.Target != "properties.recipes.My.Company/queues.a.templatePath" || !strings.Contains(e.Message, "--recipe-registry") {
		t.Errorf("two files: %v, target %q, %d details", err, e.Target, len(e.Details))
	}
	pack := dynamic.Subject{Properties: map[string]any{"recipes": map[string]any{"My.Company/queues": map[string]any{"kind": "template", "source": "file:///a.json"}}}}
	if err := check(typePack, pack); !core.IsCode(err, core.CodeInvalidContent) {
		t.Errorf("a pack: %v", err)
	}
}
