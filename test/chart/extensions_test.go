package chart

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	extensions "github.com/radial-project/radial/internal/extension/registry"
)

// Extensions of the values are the server's: their registrations are taken by
// the program, and the files that these name are mounted.
func TestExtensions_S47(t *testing.T) {
	t.Parallel()
	var server, config *unstructured.Unstructured
	for _, o := range render(t, "radial-system", `
server:
  extensions:
    - {name: Files, version: 1.0.0, url: "https://files.tools.svc", caConfigMap: files-ca, tokenSecret: files-token}
    - {name: Plain, url: "https://plain.example.com"}
`) {
		switch o.GetKind() + "/" + o.GetName() {
		case "Deployment/radial-server":
			server = o
		case "ConfigMap/radial-server":
			config = o
		}
	}
	text, _, err := unstructured.NestedString(config.Object, "data", "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Extensions []extensions.Registration `json:"extensions"`
	}
	if err := yaml.Unmarshal([]byte(text), &said); err != nil {
		t.Fatal(err)
	}
	if len(said.Extensions) != 2 {
		t.Fatalf("%+v\n%s", said, text)
	}
	for _, r := range said.Extensions {
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
	raw, err := yaml.Marshal(server.Object)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{said.Extensions[0].CAFile, said.Extensions[0].TokenFile} {
		if dir := file[:strings.LastIndexByte(file, '/')+1]; dir == "" || !strings.Contains(string(raw), "mountPath: "+strings.TrimSuffix(dir, "/")) {
			t.Errorf("%q is not mounted", file)
		}
	}
	for _, want := range []string{"name: files-ca", "secretName: files-token"} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("no %q in the pod", want)
		}
	}
}
