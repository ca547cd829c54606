package deployment_test

import (
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
)

// S-56: a managed object is not changed by the way around, its scale, nor a managed
// Pod deleted by an eviction; status stays everybody's who has the right, and the
// cluster's autoscaler goes on.
func TestStack_denySubresources_S56(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	name := "guarded-" + p.namespace
	group := p.namespace + ".example.com"
	template := `{` + head + `,` + p.k8s() + `,"resources":{
	 "web":{"import":"k8s","type":"apps/Deployment@v1","properties":{"metadata":{"name":"web"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},
	  "template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"example.invalid/x:1"}]}}}}},
	 "alone":{"import":"k8s","type":"core/Pod@v1","properties":{"metadata":{"name":"alone"},"spec":{"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"example.invalid/x:1"}]}}},
	 "kind":{"import":"k8s","type":"apiextensions.k8s.io/CustomResourceDefinition@v1","properties":{"metadata":{"name":"policies.` + group + `"},"spec":{"group":"` + group + `","scope":"Namespaced",
	  "names":{"kind":"Policy","plural":"policies","singular":"policy","listKind":"PolicyList"},"versions":[{"name":"v1","served":true,"storage":true,
	   "subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
	   "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}},"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}},
	 "custom":{"import":"k8s","type":"` + group + `/Policy@v1","dependsOn":["kind"],"properties":{"metadata":{"name":"custom"},"spec":{"replicas":1}}}}}`
	settings := func(mode, more string) string { return `"denySettings":{"mode":"` + mode + `"` + more + `}` }
	deployments := "/apis/apps/v1/namespaces/" + p.namespace + "/deployments/"
	policies := "/apis/" + group + "/v1/namespaces/" + p.namespace + "/policies/"
	change := func(c clientset.Interface, path string) error {
		return c.AppsV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Param("dryRun", "All").Body([]byte(changeOf(path))).Do(t.Context()).Error()
	}
	evict := func(c clientset.Interface, pod string) error {
		return c.PolicyV1().Evictions(p.namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: p.namespace}, DeleteOptions: &tryDelete})
	}
	mallory, friend := as(t, "mallory"), as(t, "friend", "friends")
	autoscaler := as(t, "system:serviceaccount:kube-system:horizontal-pod-autoscaler", "system:serviceaccounts:kube-system")

	p.apply(name, stackBody(template, settings("denyWriteAndDelete", `,"excludedPrincipals":["friends"]`)), "succeeded")
	for _, path := range []string{deployments + "web/scale", policies + "custom/scale"} {
		var refusal error
		p.eventually("scaling is denied", func() bool { refusal = change(mallory, path); return refusal != nil })
		if !strings.Contains(refusal.Error(), stacks+"/"+name) {
			t.Errorf("S-56: the refusal of %s does not name the stack: %v", path, refusal)
		}
		for who, c := range map[string]clientset.Interface{"an excluded one": friend, "the autoscaler": autoscaler} {
			if err := change(c, path); err != nil {
				t.Errorf("S-56: %s may not scale %s: %v", who, path, err)
			}
		}
	}
	for _, path := range []string{deployments + "web/status", policies + "custom/status"} {
		if err := change(mallory, path); err != nil {
			t.Errorf("S-56: status is denied at %s: %v", path, err)
		}
	}
	if err := evict(mallory, "alone"); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("S-56: a managed Pod is evicted: %v", err)
	}
	// What the Deployment's own controller made, and what nobody manages, is open.
	loose, err := p.client.AppsV1().Deployments(p.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	loose.ObjectMeta = metav1.ObjectMeta{Name: "loose"}
	if _, err := mallory.AppsV1().Deployments(p.namespace).Create(t.Context(), loose, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := change(mallory, deployments+"loose/scale"); err != nil {
		t.Errorf("S-56: what is not managed cannot be scaled: %v", err)
	}

	// An action that is allowed to everybody is so by its scale, too.
	p.apply(name, stackBody(template, settings("denyWriteAndDelete", `,"excludedActions":["apps/Deployment/write"]`)), "succeeded")
	p.eventually("scaling is allowed", func() bool { return change(mallory, deployments+"web/scale") == nil })
	if change(mallory, policies+"custom/scale") == nil {
		t.Error("S-56: the other is scaled")
	}
	// Where only deletions are denied, scaling is a change like others.
	p.apply(name, stackBody(template, settings("denyDelete", "")), "succeeded")
	p.eventually("scaling is allowed", func() bool { return change(mallory, policies+"custom/scale") == nil })
	if evict(mallory, "alone") == nil {
		t.Error("S-56: a managed Pod is evicted where deletions are denied")
	}
	// Let go, since a new kind's objects end when the garbage collector has learnt it.
	if end := p.remove(name, "&unmanageAction.Resources=detach", ""); end.body["status"] != "Succeeded" || p.policies() != 0 {
		t.Errorf("S-56: its deletion ended as %s; %d policies", end.raw, p.policies())
	}
}

// changeOf is a change of what a path leads to.
func changeOf(path string) string {
	if strings.HasSuffix(path, "/status") {
		return `{"metadata":{"annotations":{"said":"so"}},"status":{}}`
	}
	return `{"spec":{"replicas":3}}`
}
