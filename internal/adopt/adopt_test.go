package adopt

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/internal/core"
)

// TestAdopt_K1: enabling a running Deployment makes an application and a
// container, and touches nothing of the workload.
func TestAdopt_K1(t *testing.T) {
	s := start(t)
	d := s.deployment()
	s.create(t, d)
	d = s.awaitRolledOut(t, d)
	template, sets := marshal(d.Spec), s.replicaSets(t, d)

	s.update(t, d, set(AnnotationEnabled, "true"))
	d = s.awaitReady(t, d)

	if diff := cmp.Diff(string(template), string(marshal(d.Spec))); diff != "" {
		t.Errorf("K-1 the spec changed\n%s", diff)
	}
	d = s.awaitRolledOut(t, d)
	after := s.replicaSets(t, d)
	if len(after) != 1 || after[0].UID != sets[0].UID || after[0].Generation != sets[0].Generation {
		t.Errorf("K-1 ReplicaSets before %d, after %d, or another one", len(sets), len(after))
	}
	for _, w := range s.writes.matching("/deployments/web") {
		if strings.Contains(w, `"spec"`) {
			t.Errorf("K-1 the controller wrote to the spec: %s", w)
		}
	}

	c := s.container(t, "web")
	want := map[string]any{
		"application":          s.group().Resource("Applications.Core/applications", s.ns).String(),
		"environment":          core.GroupID("default").Resource("Applications.Core/environments", "default").String(),
		"resourceProvisioning": "manual",
		"container":            map[string]any{"image": "app:1"},
		"resources":            []any{map[string]any{"id": "/planes/kubernetes/local/namespaces/" + s.ns + "/providers/apps/Deployment/web"}},
	}
	for k, v := range want {
		if diff := cmp.Diff(v, c.Properties[k]); diff != "" {
			t.Errorf("K-3 K-4 K-8 property %s of the container\n%s", k, diff)
		}
	}
	if c.Owner == nil || c.Owner.UID != string(d.UID) || c.Owner.Namespace != s.ns || c.Owner.Cluster != "local" {
		t.Errorf("K-49 the container's owner is %+v", c.Owner)
	}
	if _, _, err := s.api.Get(t.Context(), s.group().Resource("Applications.Core/applications", s.ns), containerVersion); err != nil {
		t.Errorf("K-1 the application: %v", err)
	}
}

// TestAdopt_K3_K4: annotations name another application and environment.
func TestAdopt_K3_K4(t *testing.T) {
	s := start(t)
	s.environment(t, "prod", s.ns)
	d := s.deployment(set(AnnotationEnabled, "true"), set(AnnotationApplication, "shop"), set(AnnotationEnvironment, "prod"))
	s.create(t, d)
	d = s.awaitReady(t, d)
	group := core.GroupID(core.ImplicitGroup("local", "prod", "shop"))
	if got, want := ParseStatus(d).Container, containerID(group, "web").String(); !strings.EqualFold(got, want) {
		t.Errorf("container %s, want %s", got, want)
	}
	// Another application: the new one is made, the old one goes with its group.
	s.update(t, d, set(AnnotationApplication, "mall"))
	s.awaitReady(t, d)
	s.awaitNoResource(t, containerID(group, "web"), containerVersion)
}

// TestAdopt_K4_missing: an environment that is not there is a condition and one
// event, both saying what to do, and its appearance is enough.
func TestAdopt_K4_missing(t *testing.T) {
	s := start(t)
	d := s.deployment(set(AnnotationEnabled, "true"), set(AnnotationEnvironment, "staging"))
	s.create(t, d)
	d = s.awaitReason(t, d, ReasonEnvironment)
	if c := ParseStatus(d).ready(); !strings.Contains(c.Message, "staging") || !strings.Contains(c.Message, "radial env create staging") {
		t.Errorf("the condition does not say what to do: %q", c.Message)
	}
	calls := s.calls.total()
	time.Sleep(1500 * time.Millisecond) // a retry on a timer would show here
	if again := s.calls.total(); again != calls {
		t.Errorf("%d calls to the control plane while waiting for an environment", again-calls)
	}
	s.environment(t, "staging", "*")
	s.awaitReady(t, d)
	if n := withReason(s.events(t, "web"), ReasonEnvironment); n != 1 {
		t.Errorf("%d events about the environment, want 1: %q", n, s.events(t, "web"))
	}
}

// TestAdopt_K4_refused: an environment that does not list the namespace is
// refused, whatever the annotation says.
func TestAdopt_K4_refused(t *testing.T) {
	s := start(t)
	s.environment(t, "closed", "somewhere-else")
	d := s.deployment(set(AnnotationEnvironment, "closed"), connect("redis", "db"))
	s.create(t, s.recipe("db"), d)
	d = s.awaitReason(t, d, ReasonRefused)
	if PauseOf(d) != Held || len(present(d)) > 0 {
		t.Errorf("refused, yet pause %s and entries %v", PauseOf(d), present(d))
	}
	s.environment(t, "closed", "somewhere-else", s.ns)
	s.awaitReady(t, d)
}

// TestHold_K23: Recipe and Deployment applied together give one ReplicaSet
// ever, with all variables, and the controller needs few writes for it.
func TestHold_K23(t *testing.T) {
	s := prepare(t)
	// With the clock at rest nothing outlives a second, however slow the machine.
	at := time.Now()
	s.now = func() time.Time { return at }
	s.control(t)
	count := s.countReplicaSets(t)
	d := s.deployment(connect("redis", "db"))
	begun := time.Now()
	s.create(t, d, s.recipe("db"))
	d = s.awaitReady(t, d)
	took := time.Since(begun)
	d = s.awaitRolledOut(t, d)
	t.Logf("applied to Ready %s, to rolled out %s", took.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))

	if n := count(); n != 1 {
		t.Errorf("%d ReplicaSets ever, want 1", n)
	}
	var pods corev1.PodList
	if err := s.user.List(t.Context(), &pods, kube.InNamespace(s.ns)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 {
		t.Fatalf("%d pods, want 1", len(pods.Items))
	}
	if diff := cmp.Diff(wantEnv("first"), s.env(t, pods.Items[0].Spec.Containers[0])); diff != "" {
		t.Errorf("K-17 variables of the pod (-want +got)\n%s", diff)
	}
	if text := string(marshal(d)); strings.Contains(text, "first") {
		t.Errorf("K-17 a secret value stands in the Deployment: %s", text)
	}

	t.Run("K-28 the status is one line of the JSON that the rule names", func(t *testing.T) {
		text := d.Annotations[AnnotationStatus]
		var keys map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &keys); err != nil || strings.Contains(text, "\n") {
			t.Fatalf("%v: %s", err, text)
		}
		got := sortedKeys(keys)
		want := []string{"application", "conditions", "container", "environment", "observedHash", "phrase", "scope"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("members (-want +got)\n%s", diff)
		}
		if s := ParseStatus(d); s.Phrase != PhraseReady || s.ready().Reason != ReasonReady {
			t.Errorf("status %s", text)
		}
	})
	t.Run("K-28 at most two annotation writes a rollout", func(t *testing.T) {
		if writes := s.writes.matching("/deployments/web", AnnotationStatus); len(writes) > 2 {
			t.Errorf("%d writes of the status: %q", len(writes), writes)
		}
		if writes := s.writes.matching("/deployments/web"); len(writes) > 5 {
			t.Errorf("%d writes of the Deployment: %q", len(writes), writes)
		}
	})
	t.Run("K-8 the connection is an edge of the container", func(t *testing.T) {
		got := s.container(t, "web").Properties["connections"]
		want := map[string]any{"redis": map[string]any{"source": s.group().Resource("Applications.Datastores/redisCaches", "db").String()}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
	t.Run("the Secret is immutable, named by its content and the Deployment's", func(t *testing.T) {
		names := secretsOf("web", &d.Spec.Template)
		var secret corev1.Secret
		if err := s.user.Get(t.Context(), kube.ObjectKey{Namespace: s.ns, Name: names[0]}, &secret); err != nil {
			t.Fatal(err)
		}
		if secret.Immutable == nil || !*secret.Immutable || len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != d.UID {
			t.Errorf("immutable %v, owners %v", secret.Immutable, secret.OwnerReferences)
		}
		if names[0] != "web-connections-"+d.Spec.Template.Annotations[AnnotationHash] {
			t.Errorf("Secret %s, hash %s", names[0], d.Spec.Template.Annotations[AnnotationHash])
		}
	})
	t.Run("K-19 K-27 zero writes when nothing changed, after a restart of the controller", func(t *testing.T) {
		s.writes.reset()
		s.calls.reset()
		s.control(t) // a restart reconciles everything anew
		// Something that comes after: when it is Ready, so was the first looked at.
		other := s.deployment(set(AnnotationEnabled, "true"))
		other.Name = "zz"
		s.create(t, other)
		s.awaitReady(t, other)
		if w := s.writes.matching("/deployments/web"); len(w) > 0 {
			t.Errorf("writes to the cluster: %q", w)
		}
		if w := s.writes.matching("/secrets"); len(w) > 0 {
			t.Errorf("writes of Secrets: %q", w)
		}
		if w := s.calls.matching("PUT ", "/containers/web"); len(w) > 0 {
			t.Errorf("writes to the control plane: %q", w)
		}
	})
	t.Run("K-32 nothing is asked on a timer", func(t *testing.T) {
		calls := s.calls.total()
		time.Sleep(3 * time.Second)
		if n := s.calls.total() - calls; n > 0 {
			t.Errorf("%d calls in three idle seconds", n)
		}
	})
}

// TestHold_K23_waits: the rollout waits as long as the recipe takes, says so,
// and starts with its end.
func TestHold_K23_waits(t *testing.T) {
	s := start(t)
	open := s.recipes.shut("db")
	count := s.countReplicaSets(t)
	d := s.deployment(connect("redis", "db"))
	s.create(t, d)
	d = s.awaitReason(t, d, ReasonRecipeNotFound)
	if c := ParseStatus(d); c.Phrase != PhraseWaiting || !strings.Contains(c.ready().Message, "no Recipe db in namespace "+s.ns) {
		t.Errorf("status %s", c.Text())
	}
	s.create(t, s.recipe("db"))
	s.awaitReason(t, d, ReasonRecipeNotReady)
	if n := count(); n != 0 {
		t.Errorf("%d ReplicaSets before the data is there", n)
	}
	// A change meanwhile is held, too, and rolls with the rest.
	s.update(t, d, image("2"))
	begun := time.Now()
	open()
	s.awaitRolledOut(t, d)
	t.Logf("recipe done to rolled out: %s", time.Since(begun).Round(time.Millisecond))
	d = s.awaitReady(t, d)
	if n := count(); n != 1 {
		t.Errorf("%d ReplicaSets ever, want 1", n)
	}
	if got := d.Spec.Template.Spec.Containers[0].Image; got != "app:2" {
		t.Errorf("image %s", got)
	}
	events := s.events(t, "web")
	if withReason(events, ReasonRecipeNotFound) != 1 {
		t.Errorf("K-31 one event per cause: %q", events)
	}
}

// TestPaused_K24: a user's pause stays through adoption, injection and
// re-apply; after the user ends it, one ReplicaSet has everything.
func TestPaused_K24(t *testing.T) {
	s := start(t)
	count := s.countReplicaSets(t)
	d := s.deployment(connect("redis", "db"), pause)
	s.create(t, s.recipe("db"), d)
	d = s.awaitDeployment(t, d, "Ready while paused", func(d *appsv1.Deployment) bool {
		return settled(d) && ParseStatus(d).ready().Reason == ReasonPaused
	})
	s.update(t, d, image("2"))
	d = s.awaitDeployment(t, d, "Ready while paused", func(d *appsv1.Deployment) bool {
		return settled(d) && ParseStatus(d).ready().Reason == ReasonPaused
	})
	if PauseOf(d) != Users || count() != 0 {
		t.Errorf("pause %s with %d ReplicaSets, want the user's with none", PauseOf(d), count())
	}
	s.mustKubectl(t, "", "-n", s.ns, "rollout", "resume", "deployment/web")
	d = s.awaitRolledOut(t, d)
	if n := count(); n != 1 {
		t.Errorf("%d ReplicaSets ever, want 1", n)
	}
	if diff := cmp.Diff(wantEnv("first"), s.env(t, d.Spec.Template.Spec.Containers[0])); diff != "" {
		t.Errorf("variables (-want +got)\n%s", diff)
	}
}

// TestPaused_K24_declared: a server-side apply of paused: true over a held
// object is the user's word, though it changes nothing there.
func TestPaused_K24_declared(t *testing.T) {
	s := start(t)
	open := s.recipes.shut("db")
	defer open()
	d := s.deployment(connect("redis", "db"))
	s.create(t, s.recipe("db"), d)
	s.mustKubectl(t, manifest("web", "web", "app:1", "  paused: true\n"), "-n", s.ns, "apply", "--server-side", "--force-conflicts", "--field-manager=chart", "-f", "-")
	open()
	d = s.awaitDeployment(t, d, "Ready while paused", func(d *appsv1.Deployment) bool {
		return settled(d) && ParseStatus(d).ready().Reason == ReasonPaused
	})
	if PauseOf(d) != Users {
		t.Errorf("pause %s, want the user's", PauseOf(d))
	}
}

// TestHandBack_K7: without annotations everything of ours goes and the object
// is as its user wrote it.
func TestHandBack_K7(t *testing.T) {
	for name, off := range map[string][]change{
		"annotations removed": {unset(AnnotationConnection + "redis")},
		"switched off":        {set(AnnotationEnabled, "false")},
	} {
		t.Run("K-7 "+name, func(t *testing.T) {
			s := start(t)
			own := func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "OWN", Value: "1"}}
				d.Spec.Template.Annotations = map[string]string{"example.com/own": "1"}
			}
			d := s.deployment(connect("redis", "db"), own)
			s.create(t, s.recipe("db"), d)
			d = s.awaitReady(t, d)
			d = s.awaitRolledOut(t, d)
			secrets := secretsOf("web", &d.Spec.Template)
			count := s.countReplicaSets(t)

			s.update(t, d, off...)
			d = s.awaitDeployment(t, d, "handed back", func(d *appsv1.Deployment) bool {
				_, status := d.Annotations[AnnotationStatus]
				return !status && len(d.Finalizers) == 0 && !d.Spec.Paused
			})
			d = s.awaitRolledOut(t, d)
			plain := deployment(own)
			got := d.Spec.Template
			if diff := cmp.Diff(plain.Spec.Template.Spec.Containers[0].Env, got.Spec.Containers[0].Env); diff != "" {
				t.Errorf("env (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(plain.Spec.Template.Annotations, got.Annotations); diff != "" {
				t.Errorf("annotations of the template (-want +got)\n%s", diff)
			}
			if n := count(); n != 2 {
				t.Errorf("%d ReplicaSets, want the old one and one new", n)
			}
			s.awaitNoResource(t, containerID(s.group(), "web"), containerVersion)
			for _, m := range d.ManagedFields {
				if m.Manager == FieldManager && strings.Contains(string(m.FieldsV1.GetRawBytes()), "f:env") {
					t.Errorf("the controller still owns %s", m.FieldsV1.GetRawBytes())
				}
			}
			// The old ReplicaSet still finds what it ran with; with it the data goes.
			var secret corev1.Secret
			if err := s.user.Get(t.Context(), kube.ObjectKey{Namespace: s.ns, Name: secrets[0]}, &secret); err != nil {
				t.Fatalf("K-46 the data of an old revision: %v", err)
			}
			for _, rs := range s.replicaSets(t, d) {
				if slices.Contains(secretsOf("web", &rs.Spec.Template), secrets[0]) {
					if err := s.user.Delete(t.Context(), &rs); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.awaitGone(t, &secret, &corev1.SecretList{}, 45*time.Second)
		})
	}
}

// TestHandBack_replaced_K7: a replace with a file that knows nothing of Radial
// takes finalizer and status off with the annotations; the container goes all
// the same.
func TestHandBack_replaced_K7(t *testing.T) {
	for name, how := range map[string]change{"enabled": set(AnnotationEnabled, "true"), "connected": connect("redis", "db")} {
		t.Run("K-7 "+name, func(t *testing.T) {
			s := start(t)
			d := s.deployment(how)
			s.create(t, s.recipe("db"), d)
			d = s.awaitReady(t, d)
			plain := s.deployment()
			if err := s.user.Update(t.Context(), plain); err != nil {
				t.Fatal(err)
			}
			s.awaitNoResource(t, containerID(s.group(), "web"), containerVersion)
			// The resource goes first, what stands on the object after it.
			d = s.awaitDeployment(t, d, "handed back", func(d *appsv1.Deployment) bool { return !ours(d) })
			d = s.awaitRolledOut(t, d)
			if ours(d) {
				t.Errorf("left behind: %s", show(d))
			}
		})
	}
}

// TestHandBack_released: a Deployment that loses its connection before its
// data ever came is released as it is.
func TestHandBack_released(t *testing.T) {
	s := start(t)
	d := s.deployment(connect("redis", "missing"))
	s.create(t, d)
	s.awaitReason(t, d, ReasonRecipeNotFound)
	s.update(t, d, noAnnotations)
	d = s.awaitRolledOut(t, d)
	if len(d.Finalizers) > 0 || len(d.Spec.Template.Annotations) > 0 {
		t.Errorf("left behind: %s", show(d))
	}
}

// TestContainers_K9: every container and init container gets the data unless
// some are named; an unknown name is a condition.
func TestContainers_K9(t *testing.T) {
	s := start(t)
	more := func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "migrate", Image: "app:1"}}
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "proxy", Image: "app:1"})
	}
	d := s.deployment(connect("redis", "db"), more)
	s.create(t, s.recipe("db"), d)
	d = s.awaitReady(t, d)
	with := func(d *appsv1.Deployment) []string { return sortedKeys(present(d)) }
	if diff := cmp.Diff([]string{"migrate", "proxy", "web"}, with(d)); diff != "" {
		t.Errorf("containers with data (-want +got)\n%s", diff)
	}
	s.update(t, d, set(AnnotationContainers, "proxy, sidecar"))
	d = s.awaitReady(t, d)
	if diff := cmp.Diff([]string{"proxy"}, with(d)); diff != "" {
		t.Errorf("containers with data (-want +got)\n%s", diff)
	}
	found := false
	for _, c := range ParseStatus(d).Conditions {
		found = found || c.Type == ConditionUnknownContainer && strings.Contains(c.Message, "sidecar") && c.Status == metav1.ConditionTrue
	}
	if !found {
		t.Errorf("no condition about the unknown container: %s", d.Annotations[AnnotationStatus])
	}
}
