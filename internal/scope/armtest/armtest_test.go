package armtest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// TestRotate holds the fake to what tests rely on: what it hands out works, and
// after a rotation only the new does.
func TestRotate(t *testing.T) {
	clustertest.Long(t) // the API server believes a token for ten seconds
	arm := Start(t)
	aks := arm.AddCluster(t, ClusterID("c"), clustertest.Start(t).Config)
	use := func(kubeconfig []byte) error {
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		_, err = clientOf(t, config).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	}
	ask := func(authorization string) (int, []byte) {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, arm.URL+aks.ID()+"/listClusterAdminCredential?api-version=1", http.NoBody)
		r.Header.Set("Authorization", authorization)
		res, err := arm.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var body struct {
			Kubeconfigs []struct{ Value string }
		}
		_ = json.NewDecoder(res.Body).Decode(&body)
		if len(body.Kubeconfigs) == 0 {
			return res.StatusCode, nil
		}
		kubeconfig, err := base64.StdEncoding.DecodeString(body.Kubeconfigs[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, kubeconfig
	}
	if status, _ := ask("Bearer forged"); status != http.StatusUnauthorized {
		t.Errorf("a token of nobody: %d", status)
	}
	_, first := ask("Bearer " + arm.issue("server"))
	if err := use(first); err != nil {
		t.Fatal(err)
	}
	aks.Rotate(t)
	if err := use(first); err == nil {
		t.Error("the old token is good after a rotation")
	}
	status, next := ask("Bearer " + arm.issue("server"))
	if err := use(next); status != http.StatusOK || err != nil {
		t.Errorf("after a rotation: %d, %v", status, err)
	}
	aks.Remove()
	if status, _ := ask("Bearer " + arm.issue("server")); status != http.StatusNotFound {
		t.Errorf("a removed cluster: %d", status)
	}
	if calls := arm.Calls(); len(calls) != 4 || calls[1].Path != aks.ID()+"/listClusterAdminCredential" || calls[1].Subject != "server" {
		t.Errorf("calls: %+v", calls)
	}
}

func TestFront(t *testing.T) {
	arm := Start(t)
	aks := arm.AddFront(t, ClusterID("f"), clustertest.Start(t).Config)
	use := func(kubeconfig []byte) error {
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		_, err = clientOf(t, config).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	}
	first := aks.Kubeconfig()
	if err := use(first); err != nil {
		t.Fatal(err)
	}
	aks.Rotate(t)
	if err := use(first); !apierrors.IsUnauthorized(err) {
		t.Errorf("the old token: %v", err)
	}
	if err := use(aks.Kubeconfig()); err != nil {
		t.Errorf("the new token: %v", err)
	}
}
