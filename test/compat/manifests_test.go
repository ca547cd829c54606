package compat

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/cli"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
)

// TestManifestRecordings_D5_D16 reads the manifests that the peer's own tests
// read: those that it takes, we take, and those that it refuses, we refuse,
// each with the place of the fault.
func TestManifestRecordings_D5_D16(t *testing.T) {
	root := radius(t)
	refused := map[string]string{ // and what the fault must name
		"pkg/cli/manifest/testdata/duplicate-key.yaml":          "types: line 8: the key stands twice",
		"pkg/cli/manifest/testdata/invalid-yaml.yaml":           "line 2",
		"pkg/cli/manifest/testdata/missing-required-field.json": "namespace: is required",
		"pkg/cli/manifest/testdata/missing-required-field.yaml": "namespace: is required",
	}
	seen := map[string]bool{}
	read := 0
	for _, pattern := range []string{
		"pkg/cli/manifest/testdata/*.*", "pkg/cli/manifest/testdata/registerdirectory/*",
		"pkg/ucp/integrationtests/resourceproviders/testdata/manifests*/*.yaml",
		"deploy/manifest/built-in-providers/*/*.yaml",
		"test/functional-portable/dynamicrp/noncloud/resources/testdata/testresourcetypes.yaml",
		"test/functional-portable/ucp/noncloud/testdata/resourceprovider.yaml",
	} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("the checkout has no %s: %v", pattern, err)
		}
		for _, file := range files {
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			name = filepath.ToSlash(name)
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			read++
			_, err = manifest.Parse(raw)
			want, refuse := refused[name]
			seen[name] = refuse
			switch {
			case !refuse && err != nil:
				t.Errorf("D-16: %s is refused: %v", name, err)
			case refuse && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("D-5: %s: %v, want a fault that names %q", name, err, want)
			case refuse && core.CodeOf(err) != core.CodeInvalidContent:
				t.Errorf("D-5: %s: code %s", name, core.CodeOf(err))
			}
		}
	}
	for name := range refused {
		if !seen[name] {
			t.Errorf("the checkout has no %s", name)
		}
	}
	t.Logf("%d manifests", read)
}

// createTypes registers a file of types by our command line.
func createTypes(t *testing.T, url, path string) (exit int, out string) {
	t.Helper()
	var said bytes.Buffer
	exit = cli.Run(t.Context(), cli.Surroundings{
		Args: []string{"radial", "resource-type", "create", "-f", path, "--server", url}, In: strings.NewReader(""),
		Out: &said, Err: &said, Getenv: func(string) string { return "" },
	})
	return exit, said.String()
}

// TestSchemaRules_D16: what the schema language of the peer takes or refuses,
// and ours. Where the two part, ours takes more; the reasons are in
// docs/compatibility.md.
func TestSchemaRules_D16(t *testing.T) {
	for _, c := range []struct {
		rule, property string
		peer, ours     bool
	}{
		{"a string with pattern and bounds", `{type: string, pattern: "^[a-z]+$", minLength: 1, maxLength: 9}`, true, true},
		{"a pattern that is none", `{type: string, pattern: "("}`, false, false},
		{"an unknown type", `{type: "null"}`, false, false},
		{"an enum", `{type: string, enum: [a, b]}`, true, true},
		{"a list", `{type: array, items: {type: string}, minItems: 1, uniqueItems: true}`, true, true},
		{"a map", `{type: object, additionalProperties: {type: string}}`, true, true},
		{"additionalProperties: true", `{type: object, additionalProperties: true}`, false, false},
		{"properties and additionalProperties", `{type: object, properties: {a: {type: string}}, additionalProperties: {type: string}}`, false, true},
		{"additionalProperties: false beside properties", `{type: object, properties: {a: {type: string}}, additionalProperties: false}`, true, true},
		{"allOf", `{allOf: [{type: object, properties: {a: {type: string}}}]}`, false, true},
		{"anyOf", `{anyOf: [{type: string}, {type: integer}]}`, false, true},
		{"oneOf", `{oneOf: [{type: string}, {type: integer}]}`, false, true},
		{"not", `{type: string, not: {enum: [a]}}`, false, false},
		{"discriminator", `{oneOf: [{type: string}], discriminator: {propertyName: kind}}`, false, false},
		{"a reference into another file", `{$ref: "other.yaml#/a"}`, false, false},
		{"a reference to another host", `{$ref: "https://example.com/a.json"}`, false, false},
		{"a reference inside the document, which is resolved", `{$ref: "#/$defs/word"}`, true, true},
		{"x-radius-sensitive on a string", `{type: string, x-radius-sensitive: true}`, true, true},
		{"x-radius-sensitive on an object", `{type: object, properties: {a: {type: string}}, x-radius-sensitive: true}`, true, true},
		{"x-radius-sensitive on a number", `{type: integer, x-radius-sensitive: true}`, false, true},
		{"x-radius-sensitive on a list", `{type: array, items: {type: string}, x-radius-sensitive: true}`, false, true},
		{"type: any outside platformOptions", `{type: object, additionalProperties: {type: any}}`, false, false},
		{"a misspelt keyword", `{type: string, minlength: 3}`, true, false},
	} {
		text := "namespace: Test.Rules\ntypes: {aa: {apiVersions: {2025-01-01: {schema: {type: object, $defs: {word: {type: string}}, properties: {x: " + c.property + "}}}}}}"
		_, err := manifest.Parse([]byte(text))
		if (err == nil) != c.ours {
			t.Errorf("D-16: %s: %v, want taken: %v", c.rule, err, c.ours)
		}
		if c.peer && !c.ours && c.rule != "a misspelt keyword" {
			t.Errorf("%s: the peer takes it and ours does not", c.rule)
		}
	}
	for property, ours := range map[string]bool{
		"status: {type: object}": false, "recipe: {type: object}": false, "provisioningState: {type: string}": false,
		"application: {type: object}": false, "environment: {type: integer}": false, "connections: {type: string}": false,
		"environment: {type: string}": true, "application: {type: string}": true, "codeReference: {type: string}": true,
		"connections: {type: object, additionalProperties: {type: object, properties: {source: {type: string}}}}": true,
		"platformOptions: {type: object, additionalProperties: {type: any}}":                                      true,
		"secrets: {type: object, properties: {name: {type: string, readOnly: true}, password: {type: string}}}":   true,
	} {
		_, err := manifest.Parse([]byte("namespace: Test.Rules\ntypes: {aa: {apiVersions: {2025-01-01: {schema: {type: object, properties: {" + property + "}}}}}}"))
		if (err == nil) != ours {
			t.Errorf("D-16: %s: %v, want taken: %v", property, err, ours)
		}
	}
}

// contributed are the manifests of the contributed types: of type t, the file
// t/t.yaml.
func contributed(t *testing.T) map[string][]byte {
	t.Helper()
	root := checkout(t, "CONTRIB_CHECKOUT", "github.com/radius-project/resource-types-contrib")
	out := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(path) != filepath.Base(filepath.Dir(path))+".yaml" {
			return err
		}
		raw, err := os.ReadFile(path)
		out[path] = raw
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 16 {
		t.Errorf("%d manifests are contributed, 16 were when this was written: %v", len(out), slices.Sorted(maps.Keys(out)))
	}
	return out
}

// TestContributedTypes_D1_D5_D16 registers every contributed type unchanged:
// through the API, and through our command line, each on a control plane of its
// own; and through the peer's command line where there is one.
func TestContributedTypes_D1_D5_D16(t *testing.T) {
	files := contributed(t)
	registered := func(t *testing.T, p *plane, raw []byte) {
		t.Helper()
		m, err := manifest.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		for name, typ := range m.Types {
			for version, v := range typ.APIVersions {
				target := "/planes/radius/local/providers/System.Resources/resourceProviders/" + m.Namespace + "/resourceTypes/" + name + "/apiVersions/" + version + ucpVersion
				a := p.request("GET", target, nil)
				got, _ := a.body.(map[string]any)
				props, _ := got["properties"].(map[string]any)
				var found []difference
				compare(m.Namespace+"/"+name, "$", mustJSON(t, string(v.Schema)), props["schema"], func(d difference) {
					if !strings.HasPrefix(d.at, "$.properties.") || !strings.HasPrefix(d.what, "extra") { // rad merges common ones
						found = append(found, d)
					}
				})
				if a.status != 200 || len(found) > 0 {
					t.Errorf("D-5: %s/%s %s: %d, %v", m.Namespace, name, version, a.status, found)
				}
			}
		}
	}
	t.Run("D-1 D-5 D-16 API", func(t *testing.T) {
		p := start(t)
		for _, path := range slices.Sorted(maps.Keys(files)) {
			m, err := manifest.Parse(files[path])
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			// One file of a namespace after the other: a manifest sent whole would
			// take away the types of the file before.
			base := "/planes/radius/local/providers/System.Resources/resourceProviders/" + m.Namespace
			p.must("PUT", base+ucpVersion, map[string]any{"location": "global", "properties": map[string]any{}})
			for name, typ := range m.Types {
				p.must("PUT", base+"/resourceTypes/"+name+ucpVersion, map[string]any{"properties": map[string]any{"description": typ.Description}})
				for version, v := range typ.APIVersions {
					p.must("PUT", base+"/resourceTypes/"+name+"/apiVersions/"+version+ucpVersion, map[string]any{"properties": map[string]any{"schema": v.Schema}})
				}
			}
			registered(t, p, files[path])
		}
	})
	t.Run("D-5 whole", func(t *testing.T) {
		for _, path := range slices.Sorted(maps.Keys(files)) {
			p := start(t)
			m, err := manifest.Parse(files[path])
			if err != nil {
				t.Fatal(err)
			}
			target := p.URL + "/planes/radius/local/providers/System.Resources/resourceProviders/" + m.Namespace + "/manifest" + ucpVersion
			if status, body := p.sendYAML(target, files[path]); status >= 300 {
				t.Errorf("D-5: %s: %d %s", path, status, body)
				continue
			}
			registered(t, p, files[path])
		}
	})
	t.Run("D-1 D-5 radial", func(t *testing.T) {
		p := start(t)
		paths := slices.Sorted(maps.Keys(files))
		for _, path := range paths {
			if exit, out := createTypes(t, p.URL, path); exit != 0 {
				t.Errorf("D-1: radial resource-type create -f %s: exit %d:\n%s", path, exit, out)
			}
		}
		for _, path := range paths { // each is still there when all are
			registered(t, p, files[path])
		}
	})
	t.Run("D-1 rad", func(t *testing.T) {
		p := start(t)
		r := newRad(t, p.URL)
		for _, path := range slices.Sorted(maps.Keys(files)) {
			if out, exit := r.run("resource-type", "create", "-f", path, "-o", "json"); exit != 0 {
				t.Errorf("D-1: rad resource-type create -f %s: exit %d:\n%s", path, exit, out)
				continue
			}
			registered(t, p, files[path])
		}
	})
}
