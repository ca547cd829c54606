package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/clustertest"
)

// TestKillDuringRendering_K39 kills the process while a container is rolled out:
// the next one goes on with what was made, and takes all of it away.
func TestKillDuringRendering_K39(t *testing.T) {
	clustertest.Long(t)
	cluster := clustertest.Start(t)
	t.Parallel()
	ns := cluster.Namespace(t, "rendered")
	kube, err := clientset.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := launch(t, dir, "--kubeconfig", cluster.Kubeconfig)
	p.must(200, "PUT", group+ucp, `{}`)
	environment, application := group+"/providers/Applications.Core/environments/e", group+"/providers/Applications.Core/applications/shop"
	p.must(200, "PUT", environment+ucp, `{"properties":{"compute":{"kind":"kubernetes","namespace":"`+ns+`"}}}`)
	p.must(200, "PUT", application+ucp, `{"properties":{"environment":"`+environment+`"}}`)
	pods, err := kube.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{LabelSelector: "radapp.io/resource=web"})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	// The pod waits for a gate, and the process for the pod.
	web := group + "/providers/Applications.Core/containers/web"
	started := p.must(201, "PUT", web+ucp, fmt.Sprintf(`{"properties":{"application":"%s","identity":{"kind":"systemAssigned"},
		"container":{"image":"registry.example.com/web:1","ports":{"http":{"containerPort":80}}},
		"runtimes":{"kubernetes":{"pod":{"schedulingGates":[{"name":"example.com/wait"}]}}}}}`, application))
	pod, ok := (<-pods.ResultChan()).Object.(*corev1.Pod)
	if !ok {
		t.Fatal("the watch for the pod ended")
	}
	link := strings.TrimPrefix(started.header.Get("Azure-AsyncOperation"), p.url)
	p.kill()

	p = launch(t, dir, "--kubeconfig", cluster.Kubeconfig)
	if _, err := kube.CoreV1().Pods(ns).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := p.must(200, "GET", link, "", "Prefer", "wait=50"); got.body["status"] != "Succeeded" {
		t.Fatalf("after the kill the operation is %s", got.raw)
	}
	shown := p.must(200, "GET", web+ucp, "")
	for _, id := range []string{"apps/Deployment/web", "core/Service/web", "core/ServiceAccount/web"} {
		if n := strings.Count(shown.raw, id); n != 1 {
			t.Errorf("%s is listed %d times: %s", id, n, shown.raw)
		}
	}
	sets, err := kube.AppsV1().ReplicaSets(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(sets.Items) != 1 {
		t.Errorf("%d ReplicaSets (%v)", len(sets.Items), err)
	}
	gone := p.must(202, "DELETE", web+ucp, "")
	if end := p.must(200, "GET", gone.header.Get("Azure-AsyncOperation"), "", "Prefer", "wait=50"); end.body["status"] != "Succeeded" {
		t.Fatalf("the deletion ended as %s", end.raw)
	}
	_, noDeployment := kube.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	_, noService := kube.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
	_, noAccount := kube.CoreV1().ServiceAccounts(ns).Get(t.Context(), "web", metav1.GetOptions{})
	for _, err := range []error{noDeployment, noService, noAccount} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("something is left: %v", err)
		}
	}
}
