package clustertest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestMain(m *testing.M) { Main(m) }

func TestStart(t *testing.T) {
	c := Start(t)
	if again := Start(t); again != c {
		t.Error("a second Start in one package made another cluster")
	}
	ns := c.Namespace(t, "start")
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); err != nil {
		t.Errorf("the namespace that Namespace returned: %v", err)
	}
}
