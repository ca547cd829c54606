package deploy

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/template"
)

// TestUpstream_S13 runs the compiled templates of a checkout of github.com/Azure/bicep
// to their end, against a control plane that takes every type and answers what was
// written. Those that need more than that (values that Azure makes up, parameters
// that a sample does not guess) must fail by one of the engine's own codes; of the
// others, validate names what the deployment answers, and a second attempt makes
// nothing.
func TestUpstream_S13(t *testing.T) {
	dir := os.Getenv("BICEP_CHECKOUT")
	if dir == "" {
		t.Skip("set BICEP_CHECKOUT to a checkout of github.com/Azure/bicep to run its templates")
	}
	ran, ended := 0, 0
	err := filepath.WalkDir(filepath.Join(dir, "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		parsed, err := template.Parse(text)
		if err != nil {
			return nil // no template, or one of those that package template knows
		}
		ran++
		s := newSeat(t)
		q := s.request(string(text))
		q.Parameters = guessed(parsed)
		v, refused := s.e.Validate(t.Context(), q)
		res, err := s.e.Deploy(t.Context(), q)
		if err != nil {
			if core.IsCode(err, core.CodeInternal) {
				t.Errorf("%s: %v", path, err)
			}
			return nil
		}
		ended++
		if refused != nil {
			t.Errorf("%s: validate refuses what deploys: %v", path, refused)
			return nil
		}
		var before, after []string
		for _, a := range v.Resources {
			before = append(before, a.Key())
		}
		for _, a := range res.Resources {
			after = append(after, a.Key())
		}
		if len(v.Unknown) == 0 && !cmp.Equal(before, after) {
			t.Errorf("S-13: %s: %s", path, cmp.Diff(before, after))
		}
		for _, id := range before {
			if !slices.Contains(after, id) {
				t.Errorf("S-13: %s: validate names %s, which was not made", path, id)
			}
		}
		calls := len(s.w.calls("put")) + len(s.w.calls("apply"))
		q.Previous = s.j.previous()
		if _, err := s.e.Deploy(t.Context(), q); err != nil || len(s.w.calls("put"))+len(s.w.calls("apply")) != calls {
			t.Errorf("S-45: %s: a second attempt: %v", path, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d templates ran to their end", ended, ran)
	if ended < 250 {
		t.Errorf("only %d of %d templates ran to their end", ended, ran)
	}
}

// guessed are values for the parameters that have none.
func guessed(p *template.Template) map[string]any {
	values := map[string]any{}
	for _, q := range p.Parameters() {
		if !q.Required {
			continue
		}
		var d struct {
			AllowedValues []any `json:"allowedValues"`
		}
		_ = json.Unmarshal(q.Definition, &d) // without, it is a guess
		switch strings.ToLower(q.Type) {
		case "string", "securestring":
			values[q.Name] = "abcdefghijklmno"
		case "int":
			values[q.Name] = 3
		case "bool":
			values[q.Name] = true
		case "array":
			values[q.Name] = []any{}
		default:
			values[q.Name] = map[string]any{}
		}
		if len(d.AllowedValues) > 0 {
			values[q.Name] = d.AllowedValues[0]
		}
	}
	return values
}
