package container_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/connection"
	"github.com/radial-project/radial/internal/core"
)

// refused holds an error to a code, to what it is about and what it says.
func (s *stage) refused(err error, code core.Code, says ...string) {
	s.Helper()
	if err == nil || core.CodeOf(err) != code {
		s.Errorf("it ended with %v, want %s", err, code)
		return
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			s.Errorf("%q is not in: %v", text, err)
		}
	}
}

// What cannot be rendered is refused before anything is stored, an update too.
func TestRefusedBeforeItIsStored_K39(t *testing.T) {
	s := newStage(t)
	web := s.id(containers, "web")
	never := s.web(`{"restartPolicy":"Never"}`)
	s.refused(s.try(web, never), core.CodeInvalidContent, "properties.restartPolicy")
	if _, _, err := s.api.Get(t.Context(), web, version); !core.IsCode(err, core.CodeNotFound) {
		t.Errorf("it is stored: %v", err)
	}
	s.put(web, s.web(""))
	s.refused(s.try(web, never), core.CodeInvalidContent, "properties.restartPolicy")
	if r := s.get(web); r.Properties["restartPolicy"] != nil || r.Properties["provisioningState"] != "Succeeded" || r.Properties["recipe"] != nil {
		t.Errorf("it is now %v", r.Properties)
	}
}

// Where a container runs is the environment's to say.
func TestNamespace_K39_K4(t *testing.T) {
	s := newStage(t)
	other := s.id(containers, "other")
	in := func(ns string) map[string]any {
		return s.web(`{"extensions":[{"kind":"kubernetesNamespace","namespace":"` + ns + `"}]}`)
	}
	t.Run("K-4 a namespace that it does not open is refused", func(t *testing.T) {
		s.refused(s.try(other, in("kube-system")), core.CodeForbidden, "kube-system", "--allow-namespace")
	})
	t.Run("K-4 * opens none: whoever writes a container has no rights in a namespace to show", func(t *testing.T) {
		s.environment("test", map[string]any{"allowedNamespaces": []any{"*"}})
		s.refused(s.try(other, in("kube-system")), core.CodeForbidden, "kube-system", "do not name it")
		app := s.id("Applications.Core/applications", "elsewhere")
		s.put(app, map[string]any{"environment": s.id("Applications.Core/environments", "test").String(), "extensions": []any{map[string]any{"kind": "kubernetesNamespace", "namespace": "kube-system"}}})
		properties := s.web("")
		properties["application"] = app.String()
		s.refused(s.try(other, properties), core.CodeForbidden, "kube-system")
	})
	t.Run("one that is not there is an error that says so", func(t *testing.T) {
		s.environment("test", map[string]any{"allowedNamespaces": []any{"not-there"}})
		err := s.try(other, in("not-there"))
		if err == nil || !strings.Contains(err.Error(), `no namespace "not-there"`) || !strings.Contains(err.Error(), "kubectl create namespace") {
			t.Errorf("it ended with %v", err)
		}
		if r := s.get(other); r.Properties["provisioningState"] != "Failed" {
			t.Errorf("it is %v", r.Properties["provisioningState"])
		}
	})
	t.Run("K-39 one that it opens is used", func(t *testing.T) {
		ns := s.ns + "-open"
		if _, err := s.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.environment("test", map[string]any{"allowedNamespaces": []any{ns}})
		s.put(other, in(ns))
		if _, err := s.kube.AppsV1().Deployments(ns).Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("K-4 what the environment closed meanwhile is not written again", func(t *testing.T) {
		s.environment("test", nil)
		s.refused(s.try(other, in(s.ns+"-open")), core.CodeForbidden, "--allow-namespace")
	})
}

// An object of somebody else's is never taken over.
func TestTakesNothingOver_K39(t *testing.T) {
	s := newStage(t)
	mine := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
	if _, err := s.kube.CoreV1().Services(s.ns).Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	web := s.id(containers, "web")
	err := s.try(web, s.web(`{"container":{"image":"registry.example.com/web:1","ports":{"http":{"containerPort":80}}}}`))
	if err == nil || !strings.Contains(err.Error(), "was not made by Radial") {
		t.Errorf("it ended with %v", err)
	}
	s.absent("Deployment", "web")
	s.remove(web)
	if _, err := s.kube.CoreV1().Services(s.ns).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("the other's Service: %v", err)
	}
}

// Values of a secret store arrive through the container's own Secret, and nowhere
// else.
func TestSecretStore_K39(t *testing.T) {
	s := newStage(t)
	keys := s.id("Applications.Core/secretStores", "keys")
	application := s.id("Applications.Core/applications", "shop").String()
	s.put(keys, map[string]any{"application": application, "data": map[string]any{"api": map[string]any{"value": "sesame-open"}}})
	web := s.id(containers, "web")
	properties := s.web(`{"container":{"image":"registry.example.com/web:1","env":{"API_KEY":{"valueFrom":{"secretRef":{"source":"` + keys.String() + `","key":"api"}}}}}}`)
	r := s.put(web, properties)
	hash := s.deployment("web").Spec.Template.Annotations[connection.HashAnnotation]
	kept, err := s.kube.CoreV1().Secrets(s.ns).Get(t.Context(), connection.SecretName("web", hash), metav1.GetOptions{})
	if err != nil || string(kept.Data["API_KEY"]) != "sesame-open" {
		t.Errorf("the Secret has %v (%v)", len(kept.Data), err)
	}
	row, _, err := s.kept.Get(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal([]any{r, row, s.deployment("web")})
	if err != nil || strings.Contains(string(shown), "sesame") {
		t.Errorf("the value is in %s (%v)", shown, err)
	}
	t.Run("of another application and environment gives nothing", func(t *testing.T) {
		s.put(s.id("Applications.Core/environments", "far"), map[string]any{"compute": map[string]any{"kind": "kubernetes", "namespace": s.ns}})
		far := s.id("Applications.Core/secretStores", "far")
		s.put(far, map[string]any{"environment": s.id("Applications.Core/environments", "far").String(), "data": map[string]any{"api": map[string]any{"value": "sesame-far"}}})
		err := s.try(web, s.web(`{"container":{"image":"registry.example.com/web:1","env":{"API_KEY":{"valueFrom":{"secretRef":{"source":"`+far.String()+`","key":"api"}}}}}}`))
		if err == nil || !strings.Contains(err.Error(), "API_KEY") || strings.Contains(err.Error(), "sesame") {
			t.Errorf("it ended with %v", err)
		}
	})
}

// A container that becomes manual is nobody's work any more: what was rendered
// goes.
func TestBecomesManual_K39_K8(t *testing.T) {
	s := newStage(t)
	web := s.id(containers, "web")
	s.put(web, s.web(""))
	manual := s.web(`{"resourceProvisioning":"manual","resources":[{"id":"/planes/kubernetes/local/namespaces/x/providers/apps/Deployment/mine"}]}`)
	r := s.put(web, manual)
	if o := outputs(r); len(o) != 1 || o["/planes/kubernetes/local/namespaces/x/providers/apps/Deployment/mine"] {
		t.Errorf("it stands for %v", o)
	}
	s.absent("Deployment", "web")
}

// A control plane that ends while a container is rolled out goes on with it when
// it is back: what was made is known, and is made once.
func TestGoesOnAfterARestart_K39(t *testing.T) {
	s := newStage(t)
	web := s.id(containers, "web")
	properties := s.web(`{"runtimes":{"kubernetes":{"pod":{"schedulingGates":[{"name":"example.com/wait"}]}}}}`)
	pods, err := s.kube.CoreV1().Pods(s.ns).Watch(t.Context(), metav1.ListOptions{LabelSelector: "radapp.io/resource=web"})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	a, err := s.api.Put(t.Context(), web, version, arm.Put{Resource: arm.Resource{Properties: properties}})
	if err != nil {
		t.Fatal(err)
	}
	event := <-pods.ResultChan()
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		t.Fatalf("the watch answers %+v", event)
	}
	s.Stop()
	if _, err := s.kube.CoreV1().Pods(s.ns).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Start()
	if err := s.api.Wait(t.Context(), a.Token); err != nil {
		t.Fatal(err)
	}
	if o := outputs(s.get(web)); len(o) != 1 {
		t.Errorf("it stands for %v", o)
	}
	sets, err := s.kube.AppsV1().ReplicaSets(s.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(sets.Items) != 1 {
		t.Errorf("%d ReplicaSets (%v)", len(sets.Items), err)
	}
	s.remove(web)
	s.absent("Deployment", "web")
}

// Nothing is started without its data: a connection to what has not been made
// fails the run, and one to another application's environment carries nothing.
func TestConnectionThatCarriesNothing_K17_K21(t *testing.T) {
	s := newStage(t)
	environment, application := s.id("Applications.Core/environments", "test").String(), s.id("Applications.Core/applications", "shop").String()
	connected := func(to core.ID) map[string]any {
		properties := s.web("")
		properties["connections"] = map[string]any{"redis": map[string]any{"source": to.String()}}
		return properties
	}
	web, broken := s.id(containers, "web"), s.id(caches, "broken")
	if err := s.try(broken, map[string]any{"environment": environment, "application": application, "recipe": map[string]any{"name": "not-registered"}}); err == nil {
		t.Fatal("a recipe that is not registered ran")
	}
	s.refused(s.try(web, connected(broken)), core.CodeConflict, "connection redis", "broken", "Failed")
	s.absent("Deployment", "web")

	t.Run("K-21 of another application and environment", func(t *testing.T) {
		s.environment("far", nil)
		far := s.id(caches, "far")
		s.put(far, map[string]any{"environment": s.id("Applications.Core/environments", "far").String()})
		a, err := s.api.Put(t.Context(), web, version, arm.Put{Resource: arm.Resource{Properties: connected(far)}})
		if err == nil {
			err = s.api.Wait(t.Context(), a.Token)
		}
		if err != nil {
			t.Fatal(err)
		}
		if env := s.deployment("web").Spec.Template.Spec.Containers[0].Env; len(env) > 0 {
			t.Errorf("it carries %v", env)
		}
		said, err := s.api.Messages(t.Context(), client.OperationName(a.Token), 0, false)
		if err != nil {
			t.Fatal(err)
		}
		if raw, _ := json.Marshal(said); !strings.Contains(string(raw), "connection redis leads to "+far.String()) {
			t.Errorf("the operation says %s", raw)
		}
	})
}
