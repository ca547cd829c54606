package provision

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/servertest"
)

func TestRecipe_K13_K14_Created(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("db", radapp.RecipeSpec{SecretName: "redis"})
	r := b.awaitReady("db")

	group, _ := reference(r, "local").Scope()
	id := group.Resource("Applications.Datastores/redisCaches", "db")
	if r.Status.Resource != id.String() || r.Status.Scope != group.String() || r.Status.Environment != servertest.EnvironmentID("default") {
		t.Errorf("K-3 K-4 K-5: status is %+v", r.Status)
	}
	live, _, err := client.New(b.plane.URL, client.Options{}).Get(t.Context(), id, servertest.APIVersion)
	if err != nil {
		t.Fatal(err)
	}
	if live.Owner == nil || live.Owner.UID != string(r.UID) || live.Owner.Namespace != b.ns || live.Owner.Cluster != "local" {
		t.Errorf("K-49: the resource's owner is %+v", live.Owner)
	}
	if b.plane.Recipes.Runs(id.String()) != 1 {
		t.Errorf("K-13: the recipe ran %d times", b.plane.Recipes.Runs(id.String()))
	}
	s := b.secret("redis")
	if s == nil {
		t.Fatal("K-14: there is no Secret")
	}
	for k, v := range map[string]string{"host": "redis.example", "port": "6379", "password": "hunter2", "url": "redis://:hunter2@redis.example:6379"} {
		if string(s.Data[k]) != v {
			t.Errorf("K-14: key %s of the Secret is %q, want %q (it has %v)", k, s.Data[k], v, keys(s))
		}
	}
	if !madeBy(s, r) {
		t.Errorf("K-14: the Secret is not owned by the Recipe: %+v", s.OwnerReferences)
	}
	for _, hidden := range []string{"environment", "application", "provisioningState", "recipe", "status"} {
		if _, there := s.Data[hidden]; there {
			t.Errorf("the Secret holds %s", hidden)
		}
	}
	if e := b.events("db", radapp.ReasonReady); len(e) != 1 {
		t.Errorf("Ready is told by %d events, want one", len(e))
	}

	b.delete("db")
	b.awaitGone("db")
	if left := b.resources(); len(left) != 0 {
		t.Errorf("K-29: the control plane still has %v", left)
	}
	if b.plane.Recipes.Deletes(id.String()) != 1 {
		t.Error("the recipe's outputs were not deleted")
	}
	if s := b.secret("redis"); s != nil {
		t.Error("K-14: the Secret that the Recipe made outlives it")
	}
}

func keys(s *corev1.Secret) []string {
	var k []string
	for key := range s.Data {
		k = append(k, key)
	}
	slices.Sort(k)
	return k
}

func TestRecipe_K14_HandMade(t *testing.T) {
	b := setupCluster(t)
	hand := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "redis-secret", Namespace: b.ns},
		StringData: map[string]string{"url": "redis://old", "note": "mine", "host": "redis.example"}}
	if err := b.admin.Create(t.Context(), hand, kube.FieldOwner("kubectl-create")); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.recipe("db", radapp.RecipeSpec{SecretName: "redis-secret"})
	b.awaitReady("db")
	s := b.secret("redis-secret")
	if string(s.Data["url"]) != "redis://:hunter2@redis.example:6379" || string(s.Data["note"]) != "mine" || s.UID != hand.UID {
		t.Errorf("K-14: url is not taken over or note is touched: %v", keys(s))
	}
	if len(s.OwnerReferences) != 0 {
		t.Errorf("K-14: a hand-made Secret is owned now: %v", s.OwnerReferences)
	}
	b.delete("db")
	b.awaitGone("db")
	s = b.secret("redis-secret")
	if s == nil || s.UID != hand.UID {
		t.Fatal("K-14: the hand-made Secret is gone")
	}
	if got := keys(s); !slices.Equal(got, []string{"note"}) {
		t.Errorf("K-14: after the Recipe the Secret has %v, want only note", got)
	}
	if _, marked := s.Annotations[AnnotationRecipe]; marked {
		t.Error("the mark stays behind")
	}
}

func TestRecipe_K14_SecretConflict(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("first", radapp.RecipeSpec{SecretName: "shared"})
	b.awaitReady("first")
	before := b.secret("shared")
	b.recipe("second", radapp.RecipeSpec{SecretName: "shared"})
	r := b.awaitReason("second", radapp.ReasonSecretConflict)
	if m := condition(r, radapp.ConditionReady).Message; !strings.Contains(m, "first") || !strings.Contains(m, "shared") {
		t.Errorf("K-14: the condition names neither Recipe nor Secret: %s", m)
	}
	if condition(r, radapp.ConditionStalled) == nil {
		t.Error("K-28: a conflict that time does not solve is not Stalled")
	}
	if s := b.secret("shared"); s.ResourceVersion != before.ResourceVersion {
		t.Error("K-14: the second Recipe touched the first's Secret")
	}
	b.delete("first")
	b.awaitGone("first")
	b.awaitReady("second")
	if s := b.secret("shared"); s == nil || s.Annotations[AnnotationRecipe] != "second" {
		t.Errorf("K-14: the second does not take over: %+v", s)
	}
}

func TestRecipe_K15(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("db", radapp.RecipeSpec{SecretName: "one"})
	b.awaitReady("db")
	b.edit("db", func(r *radapp.Recipe) { r.Spec.SecretName = "two" })
	b.await("db", "in Secret two", func(r *radapp.Recipe) bool { return isReady(r) && secretName(r) == "two" })
	if s := b.secret("two"); s == nil || string(s.Data["password"]) != "hunter2" {
		t.Error("K-15: the data did not move")
	}
	if b.secret("one") != nil {
		t.Error("K-15: the Secret that the Recipe made under the old name stays")
	}
	b.edit("db", func(r *radapp.Recipe) { r.Spec.SecretName = "" })
	b.await("db", "without a Secret", func(r *radapp.Recipe) bool { return isReady(r) && r.Status.Secret == nil })
	if b.secret("two") != nil {
		t.Error("K-15: without secretName the Secret that the Recipe made stays")
	}
}

func TestRecipe_K4_MissingEnvironment(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("db", radapp.RecipeSpec{Environment: "prod"})
	r := b.awaitReason("db", radapp.ReasonEnvironmentNotFound)
	if m := condition(r, radapp.ConditionReady).Message; !strings.Contains(m, `"prod"`) || !strings.Contains(m, "radial env create prod") {
		t.Errorf("K-4: the condition does not name it and what to do: %s", m)
	}
	if e := b.events("db", radapp.ReasonEnvironmentNotFound); len(e) != 1 || !strings.Contains(e[0].Note, "prod") {
		t.Errorf("K-4: the missing environment is told by %d events, want one that names it", len(e))
	}
	b.plane.Environment("prod") // the change stream tells; no time is waited for
	r = b.awaitReady("db")
	if r.Status.Environment != servertest.EnvironmentID("prod") {
		t.Errorf("K-4: it went to %s", r.Status.Environment)
	}
	if e := b.events("db", radapp.ReasonEnvironmentNotFound); len(e) != 1 {
		t.Errorf("K-31: %d events for one cause", len(e))
	}
}

func TestRecipe_K4_AmbiguousEnvironment(t *testing.T) {
	b := setupCluster(t)
	radius := core.GroupID("default").Resource("Radius.Core/environments", "prod").String()
	b.plane.Environment("prod")
	b.plane.Put(radius, "2025-08-01-preview", `{"location":"global","properties":{"allowedNamespaces":["*"]}}`)
	b.start()
	b.recipe("db", radapp.RecipeSpec{Environment: "prod"})
	r := b.awaitReason("db", radapp.ReasonEnvironmentAmbiguous)
	if m := condition(r, radapp.ConditionReady).Message; !strings.Contains(m, radius) || !strings.Contains(m, servertest.EnvironmentID("prod")) {
		t.Errorf("K-4: the condition does not name both: %s", m)
	}
	b.plane.Delete(radius, "2025-08-01-preview")
	b.awaitReady("db")
}

func TestRecipe_K4_RefusedNamespace(t *testing.T) {
	b := setupCluster(t)
	b.plane.Put(servertest.EnvironmentID("closed"), servertest.APIVersion,
		`{"location":"global","properties":{"compute":{"kind":"kubernetes","namespace":"x"},"allowedNamespaces":["elsewhere"]}}`)
	b.start()
	b.recipe("db", radapp.RecipeSpec{Environment: "closed"})
	r := b.awaitReason("db", radapp.ReasonEnvironmentRefused)
	if m := condition(r, radapp.ConditionReady).Message; !strings.Contains(m, b.ns) {
		t.Errorf("K-4: the refusal does not name the namespace: %s", m)
	}
	b.plane.Put(servertest.EnvironmentID("closed"), servertest.APIVersion,
		`{"location":"global","properties":{"compute":{"kind":"kubernetes","namespace":"x"},"allowedNamespaces":["`+b.ns+`"]}}`)
	b.awaitReady("db")
}

func TestRecipe_K49_NameConflict(t *testing.T) {
	b := setupCluster(t)
	other := setupOther(b)
	app := "shared-" + b.ns
	b.start()
	other.start()
	b.recipe("db", radapp.RecipeSpec{Application: app})
	b.awaitReady("db")
	id := b.get("db").Status.Resource
	other.recipe("db", radapp.RecipeSpec{Application: app})
	r := other.awaitReason("db", radapp.ReasonNameConflict)
	if m := condition(r, radapp.ConditionReady).Message; !strings.Contains(m, b.ns+"/db") {
		t.Errorf("K-49: the condition does not name the first: %s", m)
	}
	if n := b.plane.Recipes.Runs(id); n != 1 {
		t.Errorf("K-49: the second ran the recipe (%d runs)", n)
	}
	b.delete("db")
	b.awaitGone("db")
	r = other.awaitReady("db")
	if r.Status.Resource != id {
		t.Errorf("K-49: it took over %s, want %s", r.Status.Resource, id)
	}
}

// setupOther is a second namespace and controller on the same control plane.
func setupOther(b *bundle) *bundle {
	b.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "provision-other-"}}
	if err := b.admin.Create(b.t.Context(), ns); err != nil {
		b.t.Fatal(err)
	}
	c := *b
	c.ns = ns.Name
	return &c
}

func TestRecipe_K49_SecondDeletesNothing(t *testing.T) {
	b := setupCluster(t)
	other := setupOther(b)
	app := "shared-" + b.ns
	b.start()
	other.start()
	b.recipe("db", radapp.RecipeSpec{Application: app})
	b.awaitReady("db")
	other.recipe("db", radapp.RecipeSpec{Application: app})
	other.awaitReason("db", radapp.ReasonNameConflict)
	other.delete("db")
	other.awaitGone("db")
	id := core.MustParseID(b.get("db").Status.Resource)
	if _, _, err := client.New(b.plane.URL, client.Options{}).Get(t.Context(), id, servertest.APIVersion); err != nil {
		t.Errorf("K-49: deleting the second deleted the first's: %v", err)
	}
}

func TestRecipe_K11_Parameters(t *testing.T) {
	b := setupCluster(t)
	seen := make(chan recipe.Request, 10)
	b.plane.Recipes.OnExecute(func(_ context.Context, r recipe.Request) (recipe.Result, error) {
		seen <- r
		return servertest.Result(), nil
	})
	b.start()
	b.recipe("db", radapp.RecipeSpec{Recipe: "big", Parameters: &runtime.RawExtension{Raw: []byte(`{"username":"me","size":{"gb":4}}`)}})
	b.awaitReady("db")
	p := (<-seen).Properties
	chosen, _ := p["recipe"].(map[string]any)
	parameters, _ := chosen["parameters"].(map[string]any)
	size, _ := parameters["size"].(map[string]any)
	if p["username"] != "me" || chosen["name"] != "big" || fmt.Sprint(size["gb"]) != "4" || parameters["username"] != nil {
		t.Errorf("K-11: the properties are %v", p)
	}
	b.edit("db", func(r *radapp.Recipe) { r.Spec.Parameters.Raw = []byte(`{"environment":"x"}`) })
	r := b.awaitReason("db", radapp.ReasonInvalidSpec)
	if m := condition(r, radapp.ConditionReady).Message; !strings.Contains(m, "spec.environment") {
		t.Errorf("K-11: a parameter that is a field of the spec: %s", m)
	}
}

func TestRecipe_K31_FailureIsRetriedAndToldOnce(t *testing.T) {
	b := setupCluster(t)
	b.plane.Recipes.OnExecute(func(context.Context, recipe.Request) (recipe.Result, error) {
		return recipe.Result{}, core.Errorf(core.CodeRecipeDeployment, "quota is used up")
	})
	b.start()
	b.recipe("db", radapp.RecipeSpec{})
	id := b.await("db", "failed twice", func(r *radapp.Recipe) bool {
		p := r.Status.Pairing
		return p != nil && p.Failure != nil && p.Failure.Count >= 2
	}).Status.Resource
	r := b.awaitReason("db", radapp.ReasonProvisioningFailed)
	if c := condition(r, radapp.ConditionReconciling); c == nil || c.Reason != "ProgressingWithRetry" {
		t.Errorf("K-28: a failure that is retried has no Reconciling: %+v", r.Status.Conditions)
	}
	if e := b.events("db", radapp.ReasonProvisioningFailed); len(e) != 1 || !strings.Contains(e[0].Note, "quota is used up") {
		t.Errorf("K-31: one cause is told by %d events", len(e))
	}
	b.plane.Recipes.OnExecute(nil)
	runs := b.plane.Recipes.Runs(id)
	// The operator mends the environment: it is tried at once, whatever the pause.
	b.plane.Environment("default")
	b.awaitReady("db")
	if n := b.plane.Recipes.Runs(id); n != runs+1 {
		t.Errorf("after the cause went the recipe ran %d more times", n-runs)
	}
}

func TestRecipe_K32_ServerDown(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("old", radapp.RecipeSpec{})
	b.awaitReady("old")
	b.plane.Stop()
	b.recipe("db", radapp.RecipeSpec{SecretName: "redis"})
	r := b.awaitReason("db", radapp.ReasonServerUnavailable)
	if m := condition(r, radapp.ConditionReady).Message; !strings.Contains(m, b.plane.URL) {
		t.Errorf("the condition does not name the server's URL: %s", m)
	}
	if !isReady(b.get("old")) {
		t.Error("what was provisioned stopped being Ready because the server is away")
	}
	b.plane.Start()
	b.awaitReady("db")
	if e := b.events("db", radapp.ReasonServerUnavailable); len(e) != 1 {
		t.Errorf("K-31: the outage is told by %d events", len(e))
	}
}

func TestRecipe_K27_RestartInFlight(t *testing.T) {
	b := setupCluster(t)
	gate := make(chan struct{})
	b.plane.Recipes.OnExecute(func(ctx context.Context, _ recipe.Request) (recipe.Result, error) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return servertest.Result(), nil
	})
	stop := b.start()
	b.recipe("db", radapp.RecipeSpec{})
	r := b.await("db", "in flight", func(r *radapp.Recipe) bool { return r.Status.Operation != nil })
	if r.Status.Operation.ResumeToken == "" || r.Status.Operation.OperationKind != paired.PUT {
		t.Errorf("K-27: the operation is %+v", r.Status.Operation)
	}
	stop()
	close(gate)
	b.start()
	r = b.awaitReady("db")
	if n := b.plane.Recipes.Runs(r.Status.Resource); n != 1 {
		t.Errorf("K-27: over a restart the recipe ran %d times", n)
	}
	if r.Status.Operation != nil {
		t.Error("the operation is still in the status")
	}
}

func TestRecipe_K29(t *testing.T) {
	// Each case ends the memory of a Recipe in its own way; deletion must leave
	// nothing.
	kill := func(b *bundle, r *reconciler) {
		b.dead = func(*http.Request) bool { return b.plane.Requests("PUT", "/db") > 0 }
		_, _ = b.reconcile(r, "db")
		b.dead = nil
		if s := b.get("db").Status; s.Operation != nil {
			b.t.Fatalf("the controller survived its end: %+v", s)
		}
	}
	for name, tc := range map[string]struct {
		reason string
		break_ func(*bundle, *reconciler)
	}{
		"K-29 killed between PUT and status": {"the status has nothing of the PUT", func(b *bundle, r *reconciler) {
			kill(b, r)
		}},
		"K-29 lost answer": {"nobody knows whether the PUT came through", func(b *bundle, r *reconciler) {
			b.plane.Lose(func(r *http.Request) bool { return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/db") })
			kill(b, r)
			b.plane.Lose(nil)
		}},
		"K-29 lost status": {"the ids are told from the spec", func(b *bundle, r *reconciler) {
			_, _ = b.reconcile(r, "db")
			b.wipeStatus("db")
		}},
		"K-29 vanished operation": {"the resource is asked", func(b *bundle, r *reconciler) {
			_, _ = b.reconcile(r, "db")
			b.forge("db", func(s *radapp.RecipeStatus) {
				s.Operation = &radapp.Operation{OperationKind: paired.PUT, ResumeToken: `{"type":"Resource","token":{"type":"x"}}`}
			})
		}},
		"K-29 edited after a kill": {"the id of the first PUT was stored before it", func(b *bundle, r *reconciler) {
			kill(b, r)
			b.edit("db", func(r *radapp.Recipe) { r.Spec.Type = "Applications.Messaging/rabbitMQQueues" })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setupCluster(t)
			b.recipe("db", radapp.RecipeSpec{})
			tc.break_(b, b.direct())
			if len(b.resources()) == 0 {
				t.Fatal("nothing was made that could leak")
			}
			b.start()
			b.delete("db")
			b.awaitGone("db")
			if left := b.resources(); len(left) != 0 {
				t.Errorf("%s: left behind: %v", tc.reason, left)
			}
		})
	}
}

// wipeStatus loses a Recipe's status.
func (b *bundle) wipeStatus(name string) {
	b.t.Helper()
	b.forge(name, func(s *radapp.RecipeStatus) { *s = radapp.RecipeStatus{} })
}

func (b *bundle) forge(name string, change func(*radapp.RecipeStatus)) {
	b.t.Helper()
	r := b.get(name)
	change(&r.Status)
	if err := b.admin.Status().Update(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
}

func TestRecipe_K29_WaitsForTheControlPlane(t *testing.T) {
	b := setupCluster(t)
	gate := make(chan struct{})
	b.plane.Recipes.OnDelete(func(ctx context.Context, _ recipe.Request) error {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return nil
	})
	b.start()
	b.recipe("db", radapp.RecipeSpec{})
	b.awaitReady("db")
	b.delete("db")
	r := b.await("db", "deleting", func(r *radapp.Recipe) bool {
		return r.Status.Operation != nil && r.Status.Operation.OperationKind == paired.DELETE
	})
	if !hasFinalizer(r) || condition(r, radapp.ConditionReady).Reason != radapp.ReasonDeleting {
		t.Errorf("K-29: while the control plane deletes: finalizers %v, %+v", r.Finalizers, r.Status.Conditions)
	}
	close(gate)
	b.awaitGone("db")
	if left := b.resources(); len(left) != 0 {
		t.Errorf("K-29: left behind: %v", left)
	}
}

func TestRecipe_K32_NoWriteWithoutChange(t *testing.T) {
	b := setupCluster(t)
	stop := b.start()
	b.recipe("db", radapp.RecipeSpec{SecretName: "redis"})
	b.awaitReady("db")
	stop()
	r := b.direct()
	api, plane := b.writes.Load(), b.plane.Writes()
	for range 3 {
		if res, err := b.reconcile(r, "db"); err != nil || res.RequeueAfter != 0 {
			t.Fatalf("a pass over what is settled is %+v, %v", res, err)
		}
	}
	if n := b.writes.Load() - api; n != 0 {
		t.Errorf("%d writes to the API server although nothing changed", n)
	}
	if n := b.plane.Writes() - plane; n != 0 {
		t.Errorf("%d writes to the control plane although nothing changed", n)
	}
}

func TestRecipe_K28_Kstatus(t *testing.T) {
	b := setupCluster(t)
	gate := make(chan struct{})
	b.plane.Recipes.OnExecute(func(ctx context.Context, _ recipe.Request) (recipe.Result, error) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return servertest.Result(), nil
	})
	kstatus := func(r *radapp.Recipe) status.Status {
		t.Helper()
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
		if err != nil {
			t.Fatal(err)
		}
		res, err := status.Compute(&unstructured.Unstructured{Object: u})
		if err != nil {
			t.Fatal(err)
		}
		return res.Status
	}
	b.start()
	b.recipe("db", radapp.RecipeSpec{})
	r := b.await("db", "in flight", func(r *radapp.Recipe) bool { return r.Status.Operation != nil })
	if s := kstatus(r); s != status.InProgressStatus {
		t.Errorf("K-28: while it provisions kstatus says %s", s)
	}
	close(gate)
	r = b.awaitReady("db")
	if s := kstatus(r); s != status.CurrentStatus {
		t.Errorf("K-28: when Ready kstatus says %s", s)
	}
	b.edit("db", func(r *radapp.Recipe) { r.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"recipe":1}`)} })
	r = b.awaitReason("db", radapp.ReasonInvalidSpec)
	if s := kstatus(r); s != status.FailedStatus {
		t.Errorf("K-28: when stalled kstatus says %s", s)
	}
	if r.Status.ObservedGeneration != r.Generation {
		t.Errorf("K-28: observedGeneration is %d, want %d", r.Status.ObservedGeneration, r.Generation)
	}
}

func TestRecipe_Move(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("db", radapp.RecipeSpec{})
	old := b.awaitReady("db").Status.Resource
	told := make(chan bool, 10)
	b.plane.Recipes.OnDelete(func(context.Context, recipe.Request) error {
		r := b.get("db") // whoever uses the Recipe knows the new by now
		told <- isReady(r) && r.Status.Resource != old
		return nil
	})
	b.edit("db", func(r *radapp.Recipe) { r.Spec.Type = "Applications.Messaging/rabbitMQQueues" })
	r := b.await("db", "Ready on the new", func(r *radapp.Recipe) bool {
		return isReady(r) && (r.Status.Pairing == nil || len(r.Status.Pairing.Previous) == 0)
	})
	if !<-told {
		t.Error("the old was deleted before the Recipe was Ready on the new")
	}
	if r.Status.Resource == old {
		t.Errorf("it is Ready on the old: %s", old)
	}
	for _, id := range b.resources() {
		if strings.EqualFold(id, old) {
			t.Errorf("the old resource stays: %s", id)
		}
	}
}

func TestRecipe_K12_Alias(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("db", radapp.RecipeSpec{Type: "Applications.Link/redisCaches", SecretName: "redis-secret"})
	r := b.awaitReady("db")
	if !strings.Contains(r.Status.Resource, "Applications.Datastores/redisCaches") {
		t.Errorf("K-12: the resource is %s", r.Status.Resource)
	}
	if s := b.secret("redis-secret"); s == nil || string(s.Data["url"]) == "" {
		t.Error("the Secret has no url")
	}
	b.delete("db")
	b.awaitGone("db")
	if left := b.resources(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRecipe_K47_DryRun(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("db", radapp.RecipeSpec{SecretName: "redis"})
	b.awaitReady("db")
	plane := b.plane.Writes()
	r := b.get("db")
	r.Spec.SecretName = "other"
	if err := b.admin.Update(t.Context(), r, kube.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if err := b.admin.Delete(t.Context(), b.get("db"), kube.DryRunAll); err != nil {
		t.Fatal(err)
	}
	// A real change afterwards passes through the same queue: what the dry runs
	// might have caused came before it.
	b.edit("db", func(r *radapp.Recipe) { r.Spec.AllowedNamespaces = []string{"x"} })
	b.await("db", "observed", func(r *radapp.Recipe) bool { return isReady(r) })
	if b.plane.Writes() != plane || b.secret("other") != nil {
		t.Error("K-47: a dry run changed something")
	}
}

func TestValues_K14(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("db", radapp.RecipeSpec{})
	id := core.MustParseID(b.awaitReady("db").Status.Resource)
	v, err := Values(t.Context(), client.New(b.plane.URL, client.Options{Timeout: time.Minute}), id, "")
	if err != nil || v["password"] != "hunter2" || v["host"] != "redis.example" {
		t.Errorf("Values = %d values, %v", len(v), err)
	}
}

// A Recipe whose finalizer was torn off leaves its resource to the next of its
// name: the first owner is verified gone, so the second takes over.
func TestRecipe_K49_OwnerGone(t *testing.T) {
	b := setupCluster(t)
	stop := b.start()
	b.recipe("db", radapp.RecipeSpec{})
	first := b.awaitReady("db")
	stop()
	b.edit("db", func(r *radapp.Recipe) { r.Finalizers = nil })
	b.delete("db")
	b.awaitGone("db")
	if len(b.resources()) == 0 {
		t.Fatal("nothing is left that one could take over")
	}
	second := b.recipe("db", radapp.RecipeSpec{})
	b.start()
	r := b.awaitReady("db")
	if r.Status.Resource != first.Status.Resource {
		t.Errorf("K-49: it has %s, want %s", r.Status.Resource, first.Status.Resource)
	}
	live, _, err := client.New(b.plane.URL, client.Options{}).Get(t.Context(), core.MustParseID(r.Status.Resource), servertest.APIVersion)
	if err != nil || live.Owner == nil || live.Owner.UID != string(second.UID) {
		t.Errorf("K-49: the owner is %+v, %v; want the second", live.Owner, err)
	}
	b.delete("db")
	b.awaitGone("db")
	if left := b.resources(); len(left) != 0 {
		t.Errorf("K-29: left behind: %v", left)
	}
}

// What the control plane loses or gets changed from elsewhere comes back, and
// what it rotates reaches the Secret, each told by the change stream.
func TestRecipe_K32_ChangesOfTheControlPlane(t *testing.T) {
	b := setupCluster(t)
	b.start()
	b.recipe("db", radapp.RecipeSpec{SecretName: "redis"})
	id := b.awaitReady("db").Status.Resource
	b.plane.Recipes.OnExecute(func(context.Context, recipe.Request) (recipe.Result, error) {
		r := servertest.Result()
		r.Secrets["password"] = "rotated"
		return r, nil
	})
	b.plane.Delete(id, servertest.APIVersion) // and so it is made again
	rotated := b.watch(&corev1.SecretList{}, "redis", func(e watch.Event) bool {
		s, ok := e.Object.(*corev1.Secret)
		return ok && string(s.Data["password"]) == "rotated"
	})
	if !rotated {
		t.Errorf("the Secret still holds what was; the recipe ran %d times", b.plane.Recipes.Runs(id))
	}
	b.awaitReady("db")
}
