package container_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/connection"
	"github.com/radial-project/radial/internal/core"
)

// A container is rendered into a Deployment that is rolled out and a Service,
// gets the data of its connection through a Secret alone, follows its changes,
// and goes with all that was made for it.
func TestContainerRuns_K39_K20_K17_K19(t *testing.T) {
	s := newStage(t)
	cache := s.id(caches, "db")
	s.put(cache, map[string]any{"environment": s.id("Applications.Core/environments", "test").String(), "application": s.id("Applications.Core/applications", "shop").String()})
	web := s.id(containers, "web")
	properties := s.web(`{"container":{"image":"registry.example.com/web:1","env":{"GREETING":{"value":"[hello]"}},
	  "ports":{"http":{"containerPort":8080,"port":80}}}}`)
	properties["connections"] = map[string]any{"redis": map[string]any{"source": cache.String()}}
	r := s.put(web, properties)

	d := s.deployment("web")
	if d.Status.ReadyReplicas != 1 {
		t.Errorf("the operation ended before the Deployment was ready: %+v", d.Status)
	}
	env := map[string]corev1.EnvVar{}
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		env[e.Name] = e
	}
	if env["GREETING"].Value != "[hello]" {
		t.Errorf("a value that looks like an expression became %q", env["GREETING"].Value)
	}
	hash := d.Spec.Template.Annotations[connection.HashAnnotation]
	secret := connection.SecretName("web", hash)
	for _, name := range []string{"CONNECTION_REDIS_HOST", "CONNECTION_REDIS_PORT", "CONNECTION_REDIS_PASSWORD"} {
		e := env[name]
		if e.Value != "" || e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil || e.ValueFrom.SecretKeyRef.Name != secret || e.ValueFrom.SecretKeyRef.Key != name {
			t.Errorf("K-17: %s is %+v, want the key of Secret %s", name, e, secret)
		}
	}
	kept, err := s.kube.CoreV1().Secrets(s.ns).Get(t.Context(), secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]string{}
	for k, v := range kept.Data {
		data[k] = string(v)
	}
	if diff := cmp.Diff(map[string]string{"CONNECTION_REDIS_HOST": "cache.example", "CONNECTION_REDIS_PORT": "6379", "CONNECTION_REDIS_PASSWORD": "hunter2-first"}, data); diff != "" || kept.Immutable == nil || !*kept.Immutable {
		t.Errorf("K-20: the Secret is immutable: %v\n%s", kept.Immutable, diff)
	}
	service, err := s.kube.CoreV1().Services(s.ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p := service.Spec.Ports[0]; p.Port != 80 || p.TargetPort.IntValue() != 8080 || p.Name != "http" {
		t.Errorf("the port is %+v", p)
	}
	pods, err := s.kube.CoreV1().Pods(s.ns).List(t.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: service.Spec.Selector})})
	if err != nil || len(pods.Items) != 1 {
		t.Errorf("the Service selects %d pods (%v)", len(pods.Items), err)
	}
	made := func(kind, name string) string {
		group := "core"
		if kind == "Deployment" {
			group = "apps"
		}
		return fmt.Sprintf("/planes/kubernetes/local/namespaces/%s/providers/%s/%s/%s", s.ns, group, kind, name)
	}
	want := map[string]bool{made("Deployment", "web"): true, made("Service", "web"): true, made("Secret", secret): true}
	if diff := cmp.Diff(want, outputs(r)); diff != "" {
		t.Errorf("status.outputResources\n%s", diff)
	}
	s.shows(cache, web)

	t.Run("again changes nothing", func(t *testing.T) {
		s.put(web, properties)
		again := s.deployment("web")
		if again.Generation != d.Generation || again.Spec.Template.Annotations[connection.HashAnnotation] != hash {
			t.Errorf("K-19: generation %d became %d", d.Generation, again.Generation)
		}
	})
	t.Run("K-19 a changed value rolls the pods", func(t *testing.T) {
		s.cacheRecipe("hunter2-second")
		s.put(cache, map[string]any{"environment": s.id("Applications.Core/environments", "test").String(), "application": s.id("Applications.Core/applications", "shop").String()})
		r := s.put(web, properties)
		now := s.deployment("web").Spec.Template.Annotations[connection.HashAnnotation]
		if now == hash {
			t.Error("the hash stays")
		}
		want := map[string]bool{made("Deployment", "web"): true, made("Service", "web"): true, made("Secret", connection.SecretName("web", now)): true}
		if diff := cmp.Diff(want, outputs(r)); diff != "" {
			t.Errorf("status.outputResources\n%s", diff)
		}
		s.absent("Secret", secret)
	})
	t.Run("what is no longer rendered goes", func(t *testing.T) {
		without := s.web("")
		r := s.put(web, without)
		if diff := cmp.Diff(map[string]bool{made("Deployment", "web"): true}, outputs(r)); diff != "" {
			t.Errorf("status.outputResources\n%s", diff)
		}
		s.absent("Service", "web")
		if d := s.deployment("web"); len(d.Spec.Template.Spec.Containers[0].Env) > 0 || d.Spec.Template.Annotations[connection.HashAnnotation] != "" {
			t.Errorf("the pod template still has %v", d.Spec.Template.Spec.Containers[0].Env)
		}
		s.put(web, properties)
	})
	t.Run("deleted with all that was rendered, and no more", func(t *testing.T) {
		secret := connection.SecretName("web", s.deployment("web").Spec.Template.Annotations[connection.HashAnnotation])
		s.remove(web)
		s.absent("Deployment", "web")
		s.absent("Service", "web")
		s.absent("Secret", secret)
		if _, err := s.kube.CoreV1().ConfigMaps(s.ns).Get(t.Context(), "db", metav1.GetOptions{}); err != nil {
			t.Errorf("what the cache's recipe made: %v", err)
		}
	})
}

func (s *stage) absent(kind, name string) {
	s.Helper()
	var err error
	switch kind {
	case "Deployment":
		_, err = s.kube.AppsV1().Deployments(s.ns).Get(s.Context(), name, metav1.GetOptions{})
	case "Service":
		_, err = s.kube.CoreV1().Services(s.ns).Get(s.Context(), name, metav1.GetOptions{})
	case "ServiceAccount":
		_, err = s.kube.CoreV1().ServiceAccounts(s.ns).Get(s.Context(), name, metav1.GetOptions{})
	default:
		_, err = s.kube.CoreV1().Secrets(s.ns).Get(s.Context(), name, metav1.GetOptions{})
	}
	if !apierrors.IsNotFound(err) {
		s.Errorf("%s %s is there (%v)", kind, name, err)
	}
}

// shows asks the graph for the edge from the container to what it is connected
// to, and all that anybody is shown for the secret.
func (s *stage) shows(cache, web core.ID) {
	s.Helper()
	var graph struct {
		Resources []struct {
			ID          string `json:"id"`
			Connections []struct {
				ID        string `json:"id"`
				Direction string `json:"direction"`
			} `json:"connections"`
			OutputResources []struct {
				ID string `json:"id"`
			} `json:"outputResources"`
		} `json:"resources"`
	}
	if err := s.api.Action(s.Context(), s.id("Applications.Core/applications", "shop"), "getGraph", version, map[string]any{}, &graph); err != nil {
		s.Fatal(err)
	}
	edges, objects := 0, 0
	for _, r := range graph.Resources {
		if r.ID != web.String() {
			continue
		}
		objects = len(r.OutputResources)
		for _, c := range r.Connections {
			if c.ID == cache.String() && c.Direction == "Outbound" {
				edges++
			}
		}
	}
	raw, err := json.Marshal(graph)
	if err != nil || edges != 1 || objects != 3 {
		s.Errorf("%d edges and %d objects of the container are in the graph %s (%v)", edges, objects, raw, err)
	}
	// Nothing that is kept or shown holds the password.
	shown, err := json.Marshal([]any{s.get(web), s.get(cache), json.RawMessage(raw)})
	if err != nil {
		s.Fatal(err)
	}
	row, _, err := s.kept.Get(s.Context(), web)
	if err != nil {
		s.Fatal(err)
	}
	inventory, err := s.kept.Outputs(s.Context(), web)
	if err != nil {
		s.Fatal(err)
	}
	kept, err := json.Marshal([]any{row, inventory})
	if err != nil {
		s.Fatal(err)
	}
	for _, text := range []string{string(shown), string(kept)} {
		if strings.Contains(text, "hunter2") {
			s.Errorf("the password is in %s", text)
		}
	}
	var secrets map[string]any
	if err := s.api.Action(s.Context(), web, "listSecrets", version, nil, &secrets); err != nil && !core.IsCode(err, core.CodeNotFound) && !core.IsCode(err, core.CodeMethodNotAllowed) {
		s.Error(err)
	}
	if len(secrets) > 0 {
		s.Errorf("listSecrets answers %v", slices.Sorted(maps.Keys(secrets)))
	}
}
