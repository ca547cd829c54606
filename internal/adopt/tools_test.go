package adopt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/clustertest"
)

// manifest is a Deployment as a chart renders it, with one container. extra is
// further YAML of the spec.
func manifest(name, container, image, extra string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %s
  annotations:
    radapp.io/connection-redis: db
spec:
%s  replicas: 1
  selector:
    matchLabels: {app: %[1]s}
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      containers:
        - name: %[3]s
          image: %[4]s
          ports: [{containerPort: 3000}]
          env:
            - name: OWN
              value: mine
`, name, extra, container, image)
}

// tool is a way in which teams apply what they render.
type tool struct {
	name string
	// apply installs and upgrades. before is what was applied last, "" at
	// first.
	apply func(t *testing.T, s *system, before, now string)
}

var tools = []tool{
	{"kubectl apply", func(t *testing.T, s *system, _, now string) {
		s.mustKubectl(t, now, "-n", s.ns, "apply", "-f", "-")
	}},
	{"kubectl apply --server-side", func(t *testing.T, s *system, _, now string) {
		s.mustKubectl(t, now, "-n", s.ns, "apply", "--server-side", "-f", "-")
	}},
	{"Helm's server-side apply", func(t *testing.T, s *system, _, now string) {
		s.mustKubectl(t, now, "-n", s.ns, "apply", "--server-side", "--field-manager=helm", "-f", "-")
	}},
	{"Argo CD's forced server-side apply", func(t *testing.T, s *system, _, now string) {
		s.mustKubectl(t, now, "-n", s.ns, "apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller", "-f", "-")
	}},
	{"Helm's three-way merge", threeWay},
	{"kubectl replace", func(t *testing.T, s *system, before, now string) {
		if before == "" {
			s.mustKubectl(t, now, "-n", s.ns, "create", "-f", "-")
			return
		}
		s.mustKubectl(t, now, "-n", s.ns, "replace", "-f", "-")
	}},
}

// threeWay is what Helm 3 does: the patch from the old manifest to the new one,
// over what is live.
func threeWay(t *testing.T, s *system, before, now string) {
	t.Helper()
	asJSON := func(text string) []byte {
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if before == "" {
		d := new(appsv1.Deployment)
		if err := json.Unmarshal(asJSON(now), d); err != nil {
			t.Fatal(err)
		}
		d.Namespace = s.ns
		if err := s.user.Create(t.Context(), d, kube.FieldOwner("helm")); err != nil {
			t.Fatal(err)
		}
		return
	}
	live := new(appsv1.Deployment)
	if err := s.user.Get(t.Context(), kube.ObjectKey{Namespace: s.ns, Name: "web"}, live); err != nil {
		t.Fatal(err)
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(live)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(asJSON(before), asJSON(now), marshal(live), meta, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.user.Patch(t.Context(), live, kube.RawPatch(types.StrategicMergePatchType, patch), kube.FieldOwner("helm")); err != nil {
		t.Fatal(err)
	}
}

// TestReapply_K6: what is injected survives every tool's re-apply, none meets a
// conflict, each upgrade is one ReplicaSet, and a renamed container takes the
// data along and leaves nothing behind.
func TestReapply_K6(t *testing.T) {
	clustertest.Long(t)
	s := start(t)
	s.create(t, s.recipe("db"))
	for _, tool := range tools {
		t.Run("K-6 "+tool.name, func(t *testing.T) {
			d := s.deployment()
			want := wantEnv("first")
			want["OWN"] = "mine"
			check := func(step, container, image string) *appsv1.Deployment {
				t.Helper()
				d := s.awaitReady(t, d)
				d = s.awaitRolledOut(t, d)
				cs := d.Spec.Template.Spec.Containers
				if len(cs) != 1 || cs[0].Name != container || cs[0].Image != image {
					t.Fatalf("%s: containers %s", step, marshal(cs))
				}
				if diff := cmp.Diff(want, s.env(t, cs[0])); diff != "" {
					t.Errorf("%s: variables (-want +got)\n%s", step, diff)
				}
				return d
			}
			sets := func() int { return len(s.replicaSets(t, d)) }

			first := manifest("web", "web", "app:1", "")
			tool.apply(t, s, "", first)
			check("install", "web", "app:1")
			if n := sets(); n != 1 {
				t.Errorf("install: %d ReplicaSets, want 1", n)
			}

			tool.apply(t, s, first, first)
			check("the same again", "web", "app:1")
			if n := sets(); n != 1 {
				t.Errorf("the same again: %d ReplicaSets, want 1", n)
			}

			second := manifest("web", "web", "app:2", "")
			tool.apply(t, s, first, second)
			check("upgrade", "web", "app:2")
			if n := sets(); n != 2 {
				t.Errorf("upgrade: %d ReplicaSets, want 2", n)
			}

			third := manifest("web", "site", "app:2", "")
			tool.apply(t, s, second, third)
			check("container renamed", "site", "app:2")
			if n := sets(); n != 3 {
				t.Errorf("container renamed: %d ReplicaSets, want 3", n)
			}

			own := strings.Replace(third, "- name: OWN\n              value: mine", "- name: CONNECTION_REDIS_HOST\n              value: mine", 1)
			tool.apply(t, s, third, own)
			delete(want, "OWN")
			want["CONNECTION_REDIS_HOST"] = "mine"
			check("K-17 a variable of the user's", "site", "app:2")
			d = s.awaitDeployment(t, d, "condition about the variable", func(d *appsv1.Deployment) bool {
				for _, c := range ParseStatus(d).Conditions {
					if c.Type == ConditionOverridden && strings.Contains(c.Message, "site: CONNECTION_REDIS_HOST") {
						return true
					}
				}
				return false
			})
			if err := s.user.Delete(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			s.awaitGone(t, d, &appsv1.DeploymentList{}, limit)
		})
	}
}

// TestReapply_K6_paused: a chart that says paused: false meets no conflict and
// releases nothing.
func TestReapply_K6_paused(t *testing.T) {
	clustertest.Long(t)
	s := start(t)
	for _, tool := range tools[:5] {
		t.Run("K-6 "+tool.name, func(t *testing.T) {
			open := s.recipes.shut("db")
			defer open()
			recipe := s.recipe("db")
			s.create(t, recipe)
			first, second := manifest("web", "web", "app:1", "  paused: false\n"), manifest("web", "web", "app:2", "  paused: false\n")
			d := s.deployment()
			tool.apply(t, s, "", first)
			tool.apply(t, s, first, second)
			if err := s.user.Get(t.Context(), kube.ObjectKeyFromObject(d), d); err != nil {
				t.Fatal(err)
			}
			if PauseOf(d) != Held {
				t.Errorf("pause %s, want held", PauseOf(d))
			}
			open()
			d = s.awaitReady(t, d)
			tool.apply(t, s, second, first)
			d = s.awaitReady(t, d)
			s.awaitRolledOut(t, d)
			for _, o := range []kube.Object{d, recipe} {
				if err := s.user.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			s.awaitGone(t, d, &appsv1.DeploymentList{}, limit)
			s.awaitGone(t, recipe, &radapp.RecipeList{}, limit)
		})
	}
}

// TestOperations_K46: what people do to Deployments works on adopted ones.
func TestOperations_K46(t *testing.T) {
	s := start(t)
	recipe := s.recipe("db")
	d := s.deployment(connect("redis", "db"))
	s.create(t, recipe, d)
	ready := func() *appsv1.Deployment {
		t.Helper()
		d = s.awaitReady(t, d)
		return s.awaitRolledOut(t, d)
	}
	d = ready()
	kubectl := func(args ...string) {
		t.Helper()
		s.mustKubectl(t, "", append([]string{"-n", s.ns}, args...)...)
	}

	kubectl("rollout", "restart", "deployment/web")
	d = ready()
	if n := len(s.replicaSets(t, d)); n != 2 {
		t.Errorf("after a restart %d ReplicaSets, want 2", n)
	}

	kubectl("set", "image", "deployment/web", "web=app:2")
	d = ready()

	kubectl("scale", "deployment/web", "--replicas=3")
	d = s.awaitDeployment(t, d, "scaled", func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 3 })
	if n := len(s.replicaSets(t, d)); n != 3 {
		t.Errorf("after scaling %d ReplicaSets, want 3", n)
	}

	kubectl("rollout", "pause", "deployment/web")
	kubectl("set", "image", "deployment/web", "web=app:3")
	kubectl("rollout", "resume", "deployment/web")
	d = ready()
	if n := len(s.replicaSets(t, d)); n != 4 {
		t.Errorf("after pause, change and resume %d ReplicaSets, want 4", n)
	}

	// The data moves on, then the user rolls back to a revision with old data
	// and old annotations: the old ReplicaSet still has its Secret, and the new
	// pods get today's.
	s.rotate(t, recipe, "second")
	d = s.awaitDeployment(t, d, "rotated", func(d *appsv1.Deployment) bool {
		return settled(d) && PauseOf(d) == Free && s.env(t, d.Spec.Template.Spec.Containers[0])["CONNECTION_REDIS_PASSWORD"] == "second"
	})
	d = ready()
	for _, rs := range s.replicaSets(t, d) {
		s.env(t, rs.Spec.Template.Spec.Containers[0]) // fails where a Secret is missing
	}
	kubectl("rollout", "undo", "deployment/web", "--to-revision=1")
	d = ready()
	if got := d.Spec.Template.Spec.Containers[0].Image; got != "app:1" {
		t.Errorf("after the rollback image %s, want app:1", got)
	}
	if diff := cmp.Diff(wantEnv("second"), s.env(t, d.Spec.Template.Spec.Containers[0])); diff != "" {
		t.Errorf("after the rollback, variables (-want +got)\n%s", diff)
	}

	// What a rollback copied is ours by what it refers to: handing back takes it.
	s.update(t, d, unset(AnnotationConnection+"redis"))
	d = s.awaitDeployment(t, d, "handed back", func(d *appsv1.Deployment) bool { return len(d.Finalizers) == 0 && !d.Spec.Paused })
	if env := d.Spec.Template.Spec.Containers[0].Env; len(env) > 0 || d.Spec.Template.Annotations[AnnotationHash] != "" {
		t.Errorf("K-7 after a rollback and handing back: %s", show(d))
	}
	// And rolling back to a connected revision adopts again, by its annotations.
	d = s.awaitRolledOut(t, d)
	kubectl("rollout", "undo", "deployment/web")
	d = ready()
	if diff := cmp.Diff(wantEnv("second"), s.env(t, d.Spec.Template.Spec.Containers[0])); diff != "" {
		t.Errorf("after rolling back to a connected revision, variables (-want +got)\n%s", diff)
	}
	s.update(t, d, unset(AnnotationConnection+"redis"))
	d = s.awaitDeployment(t, d, "handed back", func(d *appsv1.Deployment) bool { return len(d.Finalizers) == 0 && !d.Spec.Paused })
	if env := d.Spec.Template.Spec.Containers[0].Env; len(env) > 0 {
		t.Errorf("K-7 entries that kubectl owns since its rollback stay: %s", marshal(env))
	}
}
