package installation

import (
	"io/fs"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/api/radapp"
)

// The definition is written by hand; this holds it to the Go types.
func TestCRD_K11(t *testing.T) {
	raw, err := fs.ReadFile(Files, "crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name            string
				Served, Storage bool
				Schema          struct{ OpenAPIV3Schema map[string]any }
				Subresources    struct{ Status *map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		t.Fatal(err)
	}
	if len(crd.Spec.Versions) != 2 {
		t.Fatalf("K-11: %d versions", len(crd.Spec.Versions))
	}
	for _, v := range crd.Spec.Versions {
		if want := v.Name == radapp.GroupVersion.Version; !v.Served || v.Storage != want || v.Subresources.Status == nil {
			t.Errorf("K-11: version %s: served %v, stored %v", v.Name, v.Served, v.Storage)
		}
		if !reflect.DeepEqual(v.Schema, crd.Spec.Versions[0].Schema) {
			t.Errorf("K-11: version %s has a schema of its own", v.Name)
		}
	}
	compare(t, "", reflect.TypeFor[radapp.Recipe](), crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
}

// compare fails where a schema and a Go type name other fields.
func compare(t *testing.T, path string, typ reflect.Type, schema map[string]any) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[metav1.ObjectMeta]() || typ == reflect.TypeFor[metav1.Time]() || typ == reflect.TypeFor[runtime.RawExtension]():
		return
	case typ.Kind() == reflect.Slice:
		items, _ := schema["items"].(map[string]any)
		if schema["type"] != "array" || items == nil {
			t.Errorf("%s is %v in the schema, a list in Go", path, schema["type"])
			return
		}
		compare(t, path+"[]", typ.Elem(), items)
		return
	case typ.Kind() != reflect.Struct:
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Int64: "integer", reflect.Bool: "boolean"}[typ.Kind()]
		if schema["type"] != want {
			t.Errorf("%s is %v in the schema, %s in Go", path, schema["type"], want)
		}
		return
	}
	properties, _ := schema["properties"].(map[string]any)
	fields := map[string]reflect.Type{}
	for i := range typ.NumField() {
		name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if options == "inline" || name == "" {
			continue
		}
		fields[name] = typ.Field(i).Type
	}
	if path == "" {
		fields["apiVersion"], fields["kind"] = reflect.TypeFor[string](), reflect.TypeFor[string]()
	}
	for name := range properties {
		if fields[name] == nil {
			t.Errorf("%s.%s is in the schema and not in Go", path, name)
		}
	}
	for name, f := range fields {
		p, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("%s.%s is in Go and not in the schema", path, name)
			continue
		}
		compare(t, path+"."+name, f, p)
	}
}

// What the accounts may do with Secrets is the first thing that a reader of
// the grants looks for.
func TestGrants_SecretsAreNeverListed(t *testing.T) {
	names, err := fs.Glob(Files, "*.yaml")
	if err != nil || len(names) < 4 {
		t.Fatalf("manifests: %v, %v", names, err)
	}
	rules := 0
	for _, name := range names {
		raw, err := fs.ReadFile(Files, name)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(raw), "\n---\n") {
			var role struct {
				Kind  string
				Rules []struct{ APIGroups, Resources, Verbs []string }
			}
			if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, r := range role.Rules {
				rules++
				for _, list := range [][]string{r.APIGroups, r.Resources, r.Verbs} {
					for _, v := range list {
						if v == "*" {
							t.Errorf("%s: a grant of %s is everything", name, role.Kind)
						}
					}
				}
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						if resource == "secrets" && (verb == "list" || verb == "watch" || verb == "deletecollection") {
							t.Errorf("%s: grants %s on Secrets", name, verb)
						}
					}
				}
			}
		}
	}
	if rules == 0 {
		t.Error("no grant was looked at")
	}
}
