package deployment_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/clustertest"
)

// as is another user of the cluster, who may do anything there.
func as(t *testing.T, user string, groups ...string) clientset.Interface {
	t.Helper()
	config := rest.CopyConfig(clustertest.Start(t).Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:masters")}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var tryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}

// denied waits until the deletion of an object by a user is refused: API servers
// take up a policy moments after it is there.
func (p *plane) denied(c clientset.Interface, name string, want bool) (message string) {
	p.Helper()
	p.eventually("the policy is in force, or ended", func() bool {
		err := c.CoreV1().ConfigMaps(p.namespace).Delete(p.Context(), name, tryDelete)
		if err != nil {
			message = err.Error()
		}
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			p.Fatal(err)
		}
		return (err != nil) == want
	})
	return message
}

func patch(t *testing.T, c clientset.Interface, namespace, name string) error {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (p *plane) policies() int {
	p.Helper()
	list, err := p.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	bindings, err := p.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	n := 0
	for _, policy := range list.Items {
		for _, v := range policy.Spec.Validations {
			if strings.Contains(v.Message, stacks+"/guarded-"+p.namespace) {
				n++
			}
		}
	}
	for _, b := range bindings.Items {
		if strings.HasSuffix(b.Annotations["radapp.io/resource-id"], "/guarded-"+p.namespace) {
			n++
		}
	}
	return n
}

// S-56 on a real API server: others are denied, with a message that names the
// stack; Radial, the cluster's own controllers and the excluded are not.
func TestStack_deny_S56(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	name := "guarded-" + p.namespace
	settings := func(mode, more string) string { return `"denySettings":{"mode":"` + mode + `"` + more + `}` }
	web := `,"web":{"import":"k8s","type":"apps/Deployment@v1","properties":{"metadata":{"name":"web"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},
	  "template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"example.invalid/x:1"}]}}}}}`
	of := func(web string, names ...string) string {
		template := p.maps("", names...)
		return template[:strings.LastIndex(template, "}}")] + web + "}}"
	}
	mallory, friend := as(t, "mallory"), as(t, "friend", "friends")
	unmanaged := configMap("loose")
	if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Create(t.Context(), unmanaged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	p.apply(name, stackBody(of("", "a", "b", "c"), settings("denyDelete", "")), "succeeded")
	if n := p.policies(); n != 4 {
		t.Errorf("S-56: %d policies and bindings", n)
	}
	message := p.denied(mallory, "a", true)
	for _, want := range []string{stacks + "/" + name, "denyDelete", "excludedPrincipals"} {
		if !strings.Contains(message, want) {
			t.Errorf("S-56: the refusal does not say %q: %s", want, message)
		}
	}
	if err := patch(t, mallory, p.namespace, "a"); err != nil {
		t.Errorf("S-56: denyDelete denies a change: %v", err)
	}
	if err := mallory.CoreV1().ConfigMaps(p.namespace).Delete(t.Context(), "loose", metav1.DeleteOptions{}); err != nil {
		t.Errorf("S-56: what is not managed is denied: %v", err)
	}
	if err := mallory.CoreV1().Namespaces().Delete(t.Context(), p.namespace, tryDelete); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), name) {
		t.Errorf("S-56: the namespace around: %v", err)
	}
	if err := p.client.CoreV1().ConfigMaps(p.namespace).Delete(t.Context(), "a", tryDelete); err != nil {
		t.Errorf("S-56: Radial itself is denied: %v", err)
	}
	// Ours passes: b goes.
	if got := p.apply(name, stackBody(of("", "a", "c"), settings("denyDelete", "")), "succeeded"); listed(got, "deletedResources") != "b" {
		t.Errorf("S-56: %s", got.raw)
	}

	// Changes too, but by the excluded; and a Deployment is rolled out under it.
	got := p.apply(name, stackBody(of(web, "a", "c"), settings("denyWriteAndDelete", `,"excludedPrincipals":["friends"],"excludedActions":["core/Secret/*"]`)), "succeeded")
	if at(got.body, "properties", "resources", 0, "denyStatus") != "denyWriteAndDelete" {
		t.Errorf("S-56: %s", got.raw)
	}
	p.eventually("changes are denied", func() bool { return patch(t, mallory, p.namespace, "a") != nil })
	if err := patch(t, friend, p.namespace, "a"); err != nil {
		t.Errorf("S-56: the excluded is denied: %v", err)
	}
	if _, err := mallory.AppsV1().Deployments(p.namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}); err == nil {
		t.Error("S-56: a Deployment was changed")
	}
	p.apply(name, stackBody(of(strings.Replace(web, "x:1", "x:2", 1), "a", "c"), settings("denyWriteAndDelete", `,"excludedPrincipals":["friends"]`)), "succeeded")

	// The garbage collector still collects: c belongs to an object that goes.
	owner, err := p.client.CoreV1().ConfigMaps(p.namespace).Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("S-56: Radial itself is denied: %v", err)
	}
	if err := mallory.CoreV1().ConfigMaps(p.namespace).Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.eventually("the garbage collector takes c", func() bool {
		_, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "c", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})

	// Off again, and with the stack.
	p.apply(name, stackBody(of("", "a"), ""), "succeeded")
	if n := p.policies(); n != 0 {
		t.Errorf("S-56: %d policies and bindings are left", n)
	}
	p.denied(mallory, "a", false)
	p.apply(name, stackBody(of("", "a"), settings("denyDelete", "")), "succeeded")
	p.denied(mallory, "a", true)
	if end := p.remove(name, "", ""); end.body["status"] != "Succeeded" || p.policies() != 0 || p.there() != "" {
		t.Errorf("S-56: its deletion ended as %s; %d policies, there %q", end.raw, p.policies(), p.there())
	}
}

// A namespace of managed objects that Radial's own user deletes comes to its end:
// the controller that empties it is not denied.
func TestStack_denyNamespace_S56(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	name := "guarded-" + p.namespace
	p.apply(name, stackBody(p.maps("", "a"), `"denySettings":{"mode":"denyWriteAndDelete"}`), "succeeded")
	p.denied(as(t, "mallory"), "a", true)
	if err := p.client.CoreV1().Namespaces().Delete(t.Context(), p.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.eventually("the namespace ends", func() bool {
		_, err := p.client.CoreV1().Namespaces().Get(t.Context(), p.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if end := p.remove(name, "", ""); end.body["status"] != "Succeeded" || p.policies() != 0 {
		t.Errorf("S-56: its deletion ended as %s; %d policies", end.raw, p.policies())
	}
}
