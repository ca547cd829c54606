package chart

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/internal/scope"
)

// Member clusters of the values are the server's, and their kubeconfigs lie where
// it looks for them.
func TestMemberClusters(t *testing.T) {
	t.Parallel()
	var server, config *unstructured.Unstructured
	for _, o := range render(t, "radial-system", `
server:
  memberClusters:
    - {name: east, kubeconfigSecret: east-kubeconfig}
  azure: {scopes: [/subscriptions/1111], workloadIdentity: true}
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
		MemberCluster []string `json:"memberCluster"`
		AzureScopes   []string `json:"azureScopes"`
	}
	if err := yaml.Unmarshal([]byte(text), &said); err != nil {
		t.Fatal(err)
	}
	if len(said.MemberCluster) != 1 || len(said.AzureScopes) != 1 {
		t.Fatalf("%+v\n%s", said, text)
	}
	name, path, err := scope.ParseMember(said.MemberCluster[0])
	if err != nil || name != "east" {
		t.Fatalf("%q, %v", name, err)
	}
	raw, err := yaml.Marshal(server.Object)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mountPath: " + strings.TrimSuffix(path, "/kubeconfig"), "secretName: east-kubeconfig", `azure.workload.identity/use: "true"`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("no %q in the pod", want)
		}
	}
}
