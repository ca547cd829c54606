package adopt

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
)

// TestRotate_K19: a changed value rolls the pods once, an unchanged one rolls
// nothing.
func TestRotate_K19(t *testing.T) {
	s := start(t)
	recipe, d := s.recipe("db"), s.deployment(connect("redis", "db"))
	s.create(t, recipe, d)
	s.awaitReady(t, d)
	d = s.awaitRolledOut(t, d)
	count := s.countReplicaSets(t)
	old := secretsOf("web", &d.Spec.Template)[0]

	s.rotate(t, recipe, "second")
	d = s.awaitDeployment(t, d, "rotated", func(d *appsv1.Deployment) bool {
		return settled(d) && len(secretsOf("web", &d.Spec.Template)) == 1 && secretsOf("web", &d.Spec.Template)[0] != old
	})
	s.awaitReady(t, d)
	d = s.awaitRolledOut(t, d)
	if diff := cmp.Diff(wantEnv("second"), s.env(t, d.Spec.Template.Spec.Containers[0])); diff != "" {
		t.Errorf("variables (-want +got)\n%s", diff)
	}
	if n := count(); n != 2 {
		t.Errorf("%d ReplicaSets ever, want the old one and one new", n)
	}
	var secret corev1.Secret
	if err := s.user.Get(t.Context(), kube.ObjectKey{Namespace: s.ns, Name: old}, &secret); err != nil {
		t.Fatalf("K-46 the data of the old revision: %v", err)
	}
	if o := secret.OwnerReferences; len(o) != 1 || o[0].Kind != "ReplicaSet" {
		t.Errorf("the old Secret's owners are %v, want the ReplicaSet that refers to it", o)
	}

	// The recipe runs again and answers the same.
	runs := s.server.Recipes.Runs(s.group().Resource("Applications.Datastores/redisCaches", "db").String())
	if err := s.user.Patch(t.Context(), recipe, kube.RawPatch(types.MergePatchType, []byte(`{"spec":{"parameters":{"size":"another"}}}`))); err != nil {
		t.Fatal(err)
	}
	s.awaitRecipe(t, recipe)
	if again := s.server.Recipes.Runs(s.group().Resource("Applications.Datastores/redisCaches", "db").String()); again != runs+1 {
		t.Fatalf("the recipe ran %d times, want once more than %d", again, runs)
	}
	after := s.awaitReady(t, d)
	if after.Annotations[AnnotationStatus] != d.Annotations[AnnotationStatus] && after.Spec.Template.Annotations[AnnotationHash] != d.Spec.Template.Annotations[AnnotationHash] {
		t.Error("an equal answer moved the template")
	}
	if n := count(); n != 2 {
		t.Errorf("%d ReplicaSets ever after an equal answer, want 2", n)
	}
}

// TestConflict_K49: two Deployments with one id never share it: the second says
// who has it, changes nothing, and takes over when the first goes.
func TestConflict_K49(t *testing.T) {
	s := start(t)
	other := s.Namespace(t, "second")
	first := s.deployment(set(AnnotationEnabled, "true"), set(AnnotationApplication, "shared-"+s.ns))
	s.create(t, first)
	s.awaitReady(t, first)

	second := start2(t, s, other)
	d := inNamespace(other, deployment(set(AnnotationEnabled, "true"), set(AnnotationApplication, "shared-"+s.ns), image("2")))
	second.create(t, d)
	d = second.awaitReason(t, d, ReasonNameConflict)
	if c := ParseStatus(d).ready(); !strings.Contains(c.Message, s.ns+"/web") {
		t.Errorf("the condition does not name the first: %q", c.Message)
	}
	id := containerID(core.GroupID(core.ImplicitGroup("local", "default", "shared-"+s.ns)), "web")
	if r, _, err := s.api.Get(t.Context(), id, containerVersion); err != nil || r.Owner.Namespace != s.ns {
		t.Errorf("%v: the container belongs to %+v, want namespace %s", err, r.Owner, s.ns)
	}

	// Deleting the second deletes nothing of the first's.
	if err := s.user.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	s.awaitGone(t, d, &appsv1.DeploymentList{}, limit)
	if r, _, err := s.api.Get(t.Context(), id, containerVersion); err != nil || r.Owner.UID != string(first.UID) {
		t.Errorf("after the second's deletion: %v, owner %+v", err, r)
	}

	d = inNamespace(other, deployment(set(AnnotationEnabled, "true"), set(AnnotationApplication, "shared-"+s.ns), image("2")))
	second.create(t, d)
	second.awaitReason(t, d, ReasonNameConflict)
	if err := s.user.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second.awaitReady(t, d)
	if r, _, err := s.api.Get(t.Context(), id, containerVersion); err != nil || r.Owner.Namespace != other {
		t.Errorf("%v: after the first went the container belongs to %+v, want namespace %s", err, r.Owner, other)
	}
}

// start2 runs a second controller, for another namespace, with the same control
// plane.
func start2(t *testing.T, s *system, ns string) *system {
	t.Helper()
	n := &system{world: s.world, ns: ns, server: s.server, api: s.api, recipes: s.recipes, now: s.now}
	n.control(t)
	return n
}

// TestRemoval_K29: the finalizer goes as soon as the deletion is accepted, and
// the container and all that was made for it go.
func TestRemoval_K29(t *testing.T) {
	s := start(t)
	d := s.deployment(connect("redis", "db"))
	recipe := s.recipe("db")
	s.create(t, recipe, d)
	d = s.awaitReady(t, d)
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = s.ns, secretsOf("web", &d.Spec.Template)[0]
	for _, o := range []kube.Object{d, recipe} { // as helm uninstall does
		if err := s.user.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitGone(t, d, &appsv1.DeploymentList{}, limit)
	s.awaitNoResource(t, containerID(s.group(), "web"), containerVersion)
	s.awaitNoResource(t, s.group(), containerVersion) // K-5: with its last member
	s.awaitGone(t, secret, &corev1.SecretList{}, limit)
}

// TestRemoval_K29_lost: neither a lost status nor a corrupt one, nor a first
// PUT whose answer was lost, keeps a deletion or leaks the container.
func TestRemoval_K29_lost(t *testing.T) {
	for name, spoil := range map[string]change{
		"status lost":    unset(AnnotationStatus),
		"status corrupt": set(AnnotationStatus, "{"),
		"status of another object": set(AnnotationStatus,
			`{"container":"/planes/radius/local/resourceGroups/other/providers/Applications.Core/containers/web","operation":{"resumeToken":"{}","operationKind":"PUT"}}`),
	} {
		t.Run("K-29 "+name, func(t *testing.T) {
			s := start(t)
			d := s.deployment(set(AnnotationEnabled, "true"))
			s.create(t, d)
			d = s.awaitReady(t, d)
			s.stop()
			s.update(t, d, spoil)
			s.control(t)
			if err := s.user.Delete(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			s.awaitGone(t, d, &appsv1.DeploymentList{}, limit)
			s.awaitNoResource(t, containerID(s.group(), "web"), containerVersion)
		})
	}
	t.Run("K-29 answer of the first PUT lost", func(t *testing.T) {
		s := start(t)
		s.server.Lose(func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/containers/web")
		})
		d := s.deployment(set(AnnotationEnabled, "true"))
		s.create(t, d)
		s.awaitDeployment(t, d, "finalizer", func(d *appsv1.Deployment) bool { return slices.Contains(d.Finalizers, Finalizer) })
		if err := s.user.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		s.awaitGone(t, d, &appsv1.DeploymentList{}, limit)
		s.awaitNoResource(t, containerID(s.group(), "web"), containerVersion)
	})
}

// TestRemoval_K29_unreachable: with the server away, a deletion waits ten
// seconds and no longer; the container goes when the server is back, also
// after a restart of the controller.
func TestRemoval_K29_unreachable(t *testing.T) {
	clustertest.Long(t)
	s := start(t)
	d := s.deployment(set(AnnotationEnabled, "true"))
	s.create(t, d)
	d = s.awaitReady(t, d)
	s.server.Stop()
	begun := time.Now()
	if err := s.user.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	s.awaitGone(t, d, &appsv1.DeploymentList{}, 25*time.Second)
	if took := time.Since(begun); took < 8*time.Second {
		t.Errorf("gone after %s: the server was not given its ten seconds", took)
	}
	var stones corev1.ConfigMapList
	if err := s.user.List(t.Context(), &stones, kube.InNamespace(installation.Namespace), kube.HasLabels{TombstoneLabel}); err != nil {
		t.Fatal(err)
	}
	if len(stones.Items) != 1 || stones.Items[0].Data[keyObject] != s.ns+"/web" {
		t.Fatalf("tombstones %v, want one of %s/web", stones.Items, s.ns)
	}
	s.control(t) // whoever comes after replays it
	s.server.Start()
	s.awaitNoResource(t, containerID(s.group(), "web"), containerVersion)
	s.awaitGone(t, &stones.Items[0], &corev1.ConfigMapList{}, limit)
}

// TestRemoval_K29_refused: a server that refuses a deletion holds an object no
// longer than one that does not answer.
func TestRemoval_K29_refused(t *testing.T) {
	clustertest.Long(t)
	s := start(t)
	d := s.deployment(set(AnnotationEnabled, "true"))
	s.create(t, d)
	d = s.awaitReady(t, d)
	s.server.Refuse(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	begun := time.Now()
	if err := s.user.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	s.awaitGone(t, d, &appsv1.DeploymentList{}, 25*time.Second)
	if took := time.Since(begun); took < 8*time.Second {
		t.Errorf("gone after %s: the server was not given its ten seconds", took)
	}
	s.server.Refuse(nil)
	s.awaitNoResource(t, containerID(s.group(), "web"), containerVersion)
}

// TestServerDown_K23: with the server away a rollout is held and nothing
// breaks; it goes on when the server is back.
func TestServerDown_K23(t *testing.T) {
	s := start(t)
	recipe, d := s.recipe("db"), s.deployment(connect("redis", "db"))
	s.create(t, recipe, d)
	d = s.awaitReady(t, d)
	s.awaitRolledOut(t, d)
	s.server.Stop()

	// What is Ready stays so, even for a controller that starts meanwhile.
	s.writes.reset()
	s.control(t)
	other := s.deployment(set(AnnotationEnabled, "true"))
	other.Name = "zz"
	s.create(t, other)
	s.awaitReason(t, other, ReasonServerUnavailable)
	if w := s.writes.matching("/deployments/web"); len(w) > 0 {
		t.Errorf("an outage of the server was written to a Deployment that is Ready: %q", w)
	}

	s.update(t, d, image("2"))
	d = s.awaitReason(t, d, ReasonServerUnavailable)
	if PauseOf(d) != Held {
		t.Errorf("pause %s, want held", PauseOf(d))
	}
	s.server.Start()
	s.awaitReady(t, d)
	s.awaitRolledOut(t, d)
	if n := withReason(s.events(t, "web"), ReasonServerUnavailable); n != 1 {
		t.Errorf("%d events, want one: %q", n, s.events(t, "web"))
	}
}

// TestResume_K27: an operation that outlives a second is in the status with its
// resume token, and a controller that starts anew finishes it without another
// PUT.
func TestResume_K27(t *testing.T) {
	s := start(t)
	s.server.Refuse(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/operationStatuses/") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":"x","name":"x","status":"Updating","startTime":"2026-01-01T00:00:00Z"}`))
		return true
	})
	d := s.deployment(set(AnnotationEnabled, "true"))
	s.create(t, d)
	d = s.awaitReason(t, d, ReasonUpdating)
	op := ParseStatus(d).Operation
	if op == nil || op.OperationKind != "PUT" || op.ResumeToken == "" || ParseStatus(d).Phrase != PhraseUpdating {
		t.Fatalf("K-28 status %s", d.Annotations[AnnotationStatus])
	}
	s.stop()
	s.server.Refuse(nil)
	s.control(t)
	d = s.awaitReady(t, d)
	if ParseStatus(d).Operation != nil {
		t.Errorf("the ended operation is still in the status: %s", d.Annotations[AnnotationStatus])
	}
	if n := s.server.Requests(http.MethodPut, "/containers/web"); n != 1 {
		t.Errorf("%d PUTs of the container, want 1", n)
	}
}

// TestControllerAway_K25: while the controller is away, writes are accepted
// and held, and released when it is back.
func TestControllerAway_K25(t *testing.T) {
	s := start(t)
	recipe, d := s.recipe("db"), s.deployment(connect("redis", "db"))
	s.create(t, recipe, d)
	d = s.awaitReady(t, d)
	s.awaitRolledOut(t, d)
	count := s.countReplicaSets(t)
	s.stop()
	d = s.update(t, d, image("2"))
	if PauseOf(d) != Held {
		t.Errorf("pause %s, want held", PauseOf(d))
	}
	s.control(t)
	s.awaitReady(t, d)
	s.awaitRolledOut(t, d)
	if n := count(); n != 2 {
		t.Errorf("%d ReplicaSets ever, want 2", n)
	}
}

// TestLate_K25: a Deployment written while admission was not there is paused
// until its data is there, and an event says what may have happened.
func TestLate_K25(t *testing.T) {
	s := start(t)
	open := s.recipes.shut("db")
	d := s.deployment(connect("redis", "db"))
	// The account that the policy lets through, with an administrator's grants.
	if err := s.impersonating(t, controllerUser).Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d = s.awaitDeployment(t, d, "paused", func(d *appsv1.Deployment) bool { return PauseOf(d) == Held })
	s.create(t, s.recipe("db"))
	open()
	d = s.awaitReady(t, d)
	d = s.awaitRolledOut(t, d)
	if diff := cmp.Diff(wantEnv("first"), s.env(t, d.Spec.Template.Spec.Containers[0])); diff != "" {
		t.Errorf("variables (-want +got)\n%s", diff)
	}
	if n := withReason(s.events(t, "web"), ReasonHeldLate); n != 1 {
		t.Errorf("%d events, want 1: %q", n, s.events(t, "web"))
	}
}

// TestMisspelt: an annotation that says nothing is a condition and one event
// with the one that was meant; an object without any of ours is never spoken
// of.
func TestMisspelt_K31(t *testing.T) {
	s := start(t)
	stranger := s.deployment()
	stranger.Name = "stranger"
	d := s.deployment(set("radapp.io/conection-redis", "db"))
	s.create(t, stranger, d)
	d = s.awaitReason(t, d, ConditionAnnotation)
	if c := ParseStatus(d).ready(); !strings.Contains(c.Message, "did you mean radapp.io/connection-redis?") {
		t.Errorf("message %q", c.Message)
	}
	if len(d.Finalizers) > 0 {
		t.Errorf("K-2 adopted by a misspelt annotation: %v", d.Finalizers)
	}
	s.awaitRolledOut(t, d)
	s.update(t, d, unset("radapp.io/conection-redis"), set(AnnotationEnabled, "true"), set("radapp.io/conection-redis", "db"))
	d = s.awaitReady(t, d) // adopted by the right one, and still told about the other
	if !slices.ContainsFunc(ParseStatus(d).Conditions, func(c condition) bool { return c.Type == ConditionAnnotation }) {
		t.Errorf("status %s", d.Annotations[AnnotationStatus])
	}
	if n := withReason(s.events(t, "web"), ConditionAnnotation); n != 1 {
		t.Errorf("%d events, want 1: %q", n, s.events(t, "web"))
	}
	if e := s.events(t, "stranger"); len(e) > 0 {
		t.Errorf("events about an object that nobody adopted: %q", e)
	}
	if w := s.writes.matching("/deployments/stranger"); len(w) > 0 {
		t.Errorf("writes to an object that nobody adopted: %q", w)
	}
}

// TestCollision_K18: properties that claim one variable are a condition that
// names both, and none of them gets it.
func TestCollision_K18(t *testing.T) {
	s := start(t)
	d := s.deployment(connect("db.a", "db"), connect("db-a", "db"))
	s.create(t, s.recipe("db"), d)
	d = s.awaitReady(t, d)
	i := slices.IndexFunc(ParseStatus(d).Conditions, func(c condition) bool { return c.Type == ConditionCollision })
	if i < 0 {
		t.Fatalf("status %s", d.Annotations[AnnotationStatus])
	}
	if m := ParseStatus(d).Conditions[i].Message; !strings.Contains(m, `"db.a"`) || !strings.Contains(m, `"db-a"`) || !strings.Contains(m, "CONNECTION_DB_A_HOST") {
		t.Errorf("message %q", m)
	}
	if len(present(d)) > 0 {
		t.Errorf("injected all the same: %v", present(d))
	}
}
