package ankka_test

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/installation/ankka"
)

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Metadata struct{ Name string }
	Spec     struct {
		Group, Scope string
		Names        struct {
			Kind, ListKind, Plural, Singular string
			ShortNames                       []string
		}
		Versions []struct {
			Name                     string
			Served, Storage          bool
			Schema                   struct{ OpenAPIV3Schema map[string]any }
			Subresources             struct{ Status *map[string]any }
			AdditionalPrinterColumns []struct{ Name, JSONPath string }
		}
	}
}

func load(t *testing.T, path string) definition {
	t.Helper()
	raw, err := ankka.Files.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d definition
	if err := yaml.Unmarshal(raw, &d); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return d
}

// The definitions are written by hand; this holds them to the Go types, both
// ways: an undeclared field in a server-side apply is refused.
func TestDefinitions_C53_C54_C65(t *testing.T) {
	types := map[string]struct {
		typ   reflect.Type
		short string
	}{
		v1alpha1.CloudResourceKind: {reflect.TypeFor[v1alpha1.CloudResource](), "cres"},
		v1alpha1.AnkkaServiceKind:  {reflect.TypeFor[v1alpha1.AnkkaService](), "asvc"},
		v1alpha1.AnkkaProjectKind:  {reflect.TypeFor[v1alpha1.AnkkaProject](), "aproj"},
	}
	for _, path := range ankka.CRDs {
		d := load(t, path)
		kind := d.Spec.Names.Kind
		want, ok := types[kind]
		delete(types, kind)
		plural := strings.ToLower(kind) + "s"
		if !ok || d.Spec.Group != v1alpha1.Group || d.Metadata.Name != plural+"."+v1alpha1.Group || d.Spec.Names.Plural != plural ||
			d.Spec.Scope != "Namespaced" || d.Spec.Names.ListKind != kind+"List" || !reflect.DeepEqual(d.Spec.Names.ShortNames, []string{want.short}) {
			t.Errorf("C-53: %s: %+v", path, d.Spec.Names)
			continue
		}
		if len(d.Spec.Versions) != 1 {
			t.Fatalf("C-53: %s has %d versions", kind, len(d.Spec.Versions))
		}
		v := d.Spec.Versions[0]
		if v.Name != v1alpha1.GroupVersion.Version || !v.Served || !v.Storage || v.Subresources.Status == nil || len(v.AdditionalPrinterColumns) < 3 {
			t.Errorf("C-53: %s: version %s, status %v", kind, v.Name, v.Subresources.Status)
		}
		compare(t, kind, want.typ, v.Schema.OpenAPIV3Schema, true)
	}
	if len(types) != 0 {
		t.Errorf("no definition of %v", types)
	}
}

// compare fails where a schema and a Go type name other fields.
func compare(t *testing.T, path string, typ reflect.Type, schema map[string]any, root bool) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[metav1.ObjectMeta]():
		return
	case typ == reflect.TypeFor[metav1.Time]():
		if schema["type"] != "string" || schema["format"] != "date-time" {
			t.Errorf("%s is %v %v in the schema, a time in Go", path, schema["type"], schema["format"])
		}
		return
	case typ.Kind() == reflect.Slice:
		items, _ := schema["items"].(map[string]any)
		if schema["type"] != "array" || items == nil {
			t.Errorf("%s is %v in the schema, a list in Go", path, schema["type"])
			return
		}
		compare(t, path+"[]", typ.Elem(), items, false)
		return
	case typ.Kind() == reflect.Map:
		items, _ := schema["additionalProperties"].(map[string]any)
		if schema["type"] != "object" || items == nil {
			t.Errorf("%s is %v in the schema, a map in Go", path, schema["type"])
			return
		}
		compare(t, path+"{}", typ.Elem(), items, false)
		return
	case typ.Kind() != reflect.Struct:
		want := map[reflect.Kind][2]string{reflect.String: {"string", ""}, reflect.Int32: {"integer", "int32"}, reflect.Int64: {"integer", "int64"}, reflect.Bool: {"boolean", ""}}[typ.Kind()]
		format, _ := schema["format"].(string)
		if schema["type"] != want[0] || format != want[1] {
			t.Errorf("%s is %v %s in the schema, %v in Go", path, schema["type"], format, want)
		}
		return
	}
	properties, _ := schema["properties"].(map[string]any)
	fields := map[string]reflect.Type{}
	optional := map[string]bool{}
	for i := range typ.NumField() {
		name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if options == "inline" || name == "" {
			continue
		}
		fields[name], optional[name] = typ.Field(i).Type, options == "omitempty"
	}
	if root {
		fields["apiVersion"], fields["kind"] = reflect.TypeFor[string](), reflect.TypeFor[string]()
		optional["apiVersion"], optional["kind"] = true, true
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if optional[name.(string)] {
			t.Errorf("%s.%s is required in the schema, and Go leaves it out when empty", path, name)
		}
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
		compare(t, path+"."+name, f, p, false)
	}
}

// A project names no account and no location of its own: there is nowhere to.
func TestDefinitions_C29(t *testing.T) {
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		for name, p := range properties {
			if l := strings.ToLower(name); strings.Contains(l, "account") || strings.Contains(l, "location") || strings.Contains(l, "provider") {
				t.Errorf("C-29: %s.%s", path, name)
			}
			walk(path+"."+name, p.(map[string]any))
		}
		if items, ok := schema["items"].(map[string]any); ok {
			walk(path+"[]", items)
		}
	}
	for _, path := range ankka.CRDs[1:] {
		d := load(t, path)
		spec := d.Spec.Versions[0].Schema.OpenAPIV3Schema["properties"].(map[string]any)["spec"].(map[string]any)
		walk(d.Spec.Names.Kind+".spec", spec)
	}
}

// `kubectl explain cloudresource` says of every field of a request and of its
// answer what it is.
func TestExplained_C54_C65(t *testing.T) {
	for _, path := range ankka.CRDs {
		d := load(t, path)
		if d.Spec.Names.Kind != v1alpha1.CloudResourceKind {
			continue
		}
		var walk func(path string, schema map[string]any)
		walk = func(path string, schema map[string]any) {
			if items, ok := schema["items"].(map[string]any); ok {
				schema = items
			}
			fields, _ := schema["properties"].(map[string]any)
			for name, field := range fields {
				if path == "" && (name == "apiVersion" || name == "kind" || name == "metadata") {
					continue // Kubernetes' own
				}
				schema := field.(map[string]any)
				if text, _ := schema["description"].(string); len(text) < 10 {
					t.Errorf("%s.%s is not described", path, name)
				}
				walk(path+"."+name, schema)
			}
		}
		walk("", d.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
}
