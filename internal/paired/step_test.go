package paired_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/servertest"
)

// bundle is a control plane and one pairing on it.
type bundle struct {
	t      *testing.T
	plane  *servertest.Plane
	client *client.Client
	runner *paired.Runner
	now    time.Time
	goal   paired.Goal
	mem    paired.Memory
}

func setup(t *testing.T) *bundle {
	t.Parallel()
	b := &bundle{t: t, plane: servertest.Start(t), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	b.client = client.New(b.plane.URL, client.Options{})
	b.runner = &paired.Runner{API: b.client, Now: func() time.Time { return b.now }}
	b.goal = goalOf(t, "Applications.Datastores/redisCaches", "db", "one")
	return b
}

func goalOf(t *testing.T, kind, name, uid string) paired.Goal {
	t.Helper()
	group := core.GroupID("default-demo")
	return paired.Goal{
		ID: group.Resource(kind, name), APIVersion: servertest.APIVersion,
		Body: arm.Put{
			Resource: arm.Resource{
				Location: "global",
				Properties: map[string]any{
					"environment": servertest.EnvironmentID("default"),
					"application": group.Resource("Applications.Core/applications", "demo").String(),
				},
				Owner: &arm.Owner{Cluster: "local", Namespace: "demo", Kind: "Recipe", Name: name, UID: uid},
			},
			ImplicitParents: true,
		},
	}
}

func (b *bundle) apply() paired.Outcome {
	b.t.Helper()
	out, err := b.runner.Apply(b.t.Context(), b.goal, &b.mem)
	if err != nil {
		b.t.Fatalf("Apply: %v", err)
	}
	return out
}

// settle steps until nothing is in flight, waiting by long poll in between.
func (b *bundle) settle(step func() (paired.Outcome, error)) paired.Outcome {
	b.t.Helper()
	for range 20 {
		out, err := step()
		if err != nil {
			b.t.Fatal(err)
		}
		if out.State != paired.InProgress {
			return out
		}
		if b.mem.Operation == nil { // one whose token was lost: the change stream tells
			b.await(func(r *arm.Resource) bool { return r == nil || client.State(r).Terminal() })
			continue
		}
		if err := b.client.Wait(b.t.Context(), b.mem.Operation.ResumeToken); err != nil {
			b.t.Logf("the operation ended with: %v", err)
		}
	}
	b.t.Fatal("twenty steps were not enough")
	return paired.Outcome{}
}

func (b *bundle) applied() paired.Outcome {
	b.t.Helper()
	return b.settle(func() (paired.Outcome, error) { return b.runner.Apply(b.t.Context(), b.goal, &b.mem) })
}

func (b *bundle) removed() paired.Outcome {
	b.t.Helper()
	return b.settle(func() (paired.Outcome, error) {
		return b.runner.Remove(b.t.Context(), b.goal.ID, b.goal.APIVersion, b.goal.Body.Owner.UID, &b.mem)
	})
}

func (b *bundle) missing(id core.ID) {
	b.t.Helper()
	if _, _, err := b.client.Get(b.t.Context(), id, servertest.APIVersion); !core.IsCode(err, core.CodeNotFound) {
		b.t.Errorf("%s is left behind (%v)", id, err)
	}
}

func TestApply_K27(t *testing.T) {
	b := setup(t)
	gate := make(chan struct{})
	b.plane.Recipes.OnExecute(func(ctx context.Context, _ recipe.Request) (recipe.Result, error) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return servertest.Result(), nil
	})
	if out := b.apply(); out.State != paired.InProgress || b.mem.Operation == nil || b.mem.Operation.OperationKind != paired.PUT {
		t.Fatalf("K-27: the first step of an asynchronous type is %+v with memory %+v", out, b.mem)
	}
	puts := b.plane.Requests("PUT", "/db")
	if out := b.apply(); out.State != paired.InProgress {
		t.Errorf("K-27: a step beside a running operation is %+v", out)
	}
	b.goal.Body.Properties["recipe"] = map[string]any{"name": "default"} // the goal changes meanwhile
	if out := b.apply(); out.State != paired.InProgress || b.plane.Requests("PUT", "/db") != puts {
		t.Errorf("K-27: a second operation was begun beside the first: %+v", out)
	}
	// A new process has nothing but the stored memory.
	b.runner = &paired.Runner{API: client.New(b.plane.URL, client.Options{}), Now: b.runner.Now}
	close(gate)
	if out := b.applied(); out.State != paired.Done || out.Resource.ID != b.goal.ID.String() {
		t.Fatalf("K-27: the end is %+v", out)
	}
	if b.mem.AppliedHash != b.goal.Hash() || b.mem.Operation != nil {
		t.Errorf("K-30: the memory of success is %+v", b.mem)
	}
	if n := b.plane.Recipes.Runs(b.goal.ID.String()); n != 2 {
		t.Errorf("the recipe ran %d times for two goals", n)
	}
	writes := b.plane.Writes()
	if out := b.apply(); out.State != paired.Done || b.plane.Writes() != writes {
		t.Errorf("K-27: a step on what is up to date wrote: %+v", out)
	}
}

func TestApply_K27_Synchronous(t *testing.T) {
	b := setup(t)
	b.goal = goalOf(t, "Applications.Core/applications", "shop", "one")
	delete(b.goal.Body.Properties, "application")
	if out := b.apply(); out.State != paired.Done || b.mem.Operation != nil {
		t.Errorf("a synchronous answer does not go straight on: %+v, %+v", out, b.mem)
	}
}

func TestApply_K30_DriftIsPutBack(t *testing.T) {
	b := setup(t)
	b.applied()
	b.plane.Delete(b.goal.ID.String(), servertest.APIVersion)
	b.await(func(r *arm.Resource) bool { return r == nil })
	if out := b.applied(); out.State != paired.Done {
		t.Errorf("a resource deleted in the control plane is not made again: %+v", out)
	}
	if _, _, err := b.client.Get(t.Context(), b.goal.ID, b.goal.APIVersion); err != nil {
		t.Error(err)
	}
}

// await waits, by the change stream, until the goal's resource is as asked; nil
// stands for none.
func (b *bundle) await(as func(*arm.Resource) bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	met := false
	_ = b.client.Watch(ctx, func(arm.Change) {
		live, _, err := b.client.Get(ctx, b.goal.ID, b.goal.APIVersion)
		if (err == nil || core.IsCode(err, core.CodeNotFound)) && as(live) {
			met = true
			cancel()
		}
	}, client.WatchOptions{})
	if !met {
		b.t.Fatalf("%s did not come to what was waited for", b.goal.ID)
	}
}

func TestApply_K29_VanishedOperation(t *testing.T) {
	b := setup(t)
	b.apply()
	if b.mem.Operation == nil {
		t.Fatal("no operation to lose")
	}
	b.plane.Refuse(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(strings.ToLower(r.URL.Path), "operationstatuses") {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	if out := b.applied(); out.State != paired.Done {
		t.Fatalf("a vanished operation is never got over: %+v", out)
	}
	if n := b.plane.Recipes.Runs(b.goal.ID.String()); n != 1 {
		t.Errorf("the recipe ran %d times because its operation vanished", n)
	}
	b.mem.Operation = &paired.Operation{ResumeToken: "{broken", OperationKind: paired.PUT}
	if out := b.apply(); out.State != paired.Done || b.mem.Operation != nil {
		t.Errorf("a corrupt token is never got over: %+v, %+v", out, b.mem)
	}
	b.mem.Operation = &paired.Operation{ResumeToken: "{broken", OperationKind: paired.DELETE}
	b.plane.Refuse(nil)
	if out := b.removed(); out.State != paired.Done {
		t.Errorf("a corrupt token blocks deletion: %+v", out)
	}
	b.missing(b.goal.ID)
}

// TestRemove_K29_Refused: what a memory holds beyond what the server serves
// never blocks a deletion.
func TestRemove_K29_Refused(t *testing.T) {
	b := setup(t)
	b.applied()
	if b.mem.APIVersion != b.goal.APIVersion {
		t.Fatalf("the memory says version %q", b.mem.APIVersion)
	}
	b.mem.APIVersion = "1999-01-01" // its type has lost that version since
	b.mem.Previous = []paired.Former{{ID: core.GroupID("default-demo").Resource("Applications.Datastores/redisCaches", "before").String(), APIVersion: "1999-01-01"}}
	out := b.settle(func() (paired.Outcome, error) {
		return b.runner.Remove(t.Context(), b.goal.ID, b.mem.APIVersion, b.goal.Body.Owner.UID, &b.mem)
	})
	if out.State != paired.Done {
		t.Fatalf("K-29: a version that is gone blocks deletion: %+v", out)
	}
	b.missing(b.goal.ID)

	for _, status := range []int{http.StatusForbidden, http.StatusMethodNotAllowed} {
		b.plane.Refuse(nil)
		b.mem = paired.Memory{}
		b.apply()
		b.plane.Refuse(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(strings.ToLower(r.URL.Path), "operationstatuses") {
				return false
			}
			w.WriteHeader(status)
			return true
		})
		if _, err := b.runner.Remove(t.Context(), b.goal.ID, b.goal.APIVersion, b.goal.Body.Owner.UID, &b.mem); err != nil {
			t.Errorf("K-29: an operation that nobody may ask after (%d) blocks deletion: %v", status, err)
		}
		b.plane.Refuse(nil)
		b.mem.Operation = nil
		b.removed()
	}
}

func TestApply_K29_LostAnswer(t *testing.T) {
	b := setup(t)
	b.plane.Lose(func(r *http.Request) bool { return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/db") })
	if _, err := b.runner.Apply(t.Context(), b.goal, &b.mem); !core.IsCode(err, core.CodeUnavailable) {
		t.Fatalf("a lost answer is %v, want ServiceUnavailable", err)
	}
	b.plane.Lose(nil)
	b.mem = paired.Memory{} // and the process is killed before it saves anything
	if out := b.removed(); out.State != paired.Done {
		t.Fatalf("deletion ends as %+v", out)
	}
	b.missing(b.goal.ID)
	b.missing(core.GroupID("default-demo")) // the implicit parents went with it
}

func TestApply_K31(t *testing.T) {
	b := setup(t)
	b.plane.Recipes.OnExecute(func(context.Context, recipe.Request) (recipe.Result, error) {
		return recipe.Result{}, core.Errorf(core.CodeRecipeDeployment, "quota is used up")
	})
	out := b.applied()
	if out.State != paired.Failed || out.Err.Code != core.CodeRecipeDeployment || !strings.Contains(out.Err.Message, "quota is used up") {
		t.Fatalf("a failed recipe is %+v", out)
	}
	if out.RetryAfter <= 0 {
		t.Error("a failed goal is never tried again")
	}
	runs := b.plane.Recipes.Runs(b.goal.ID.String())
	for range 5 {
		if again := b.apply(); again.State != paired.Failed {
			t.Fatalf("before its time a failed goal is %+v", again)
		}
	}
	if b.plane.Recipes.Runs(b.goal.ID.String()) != runs {
		t.Error("K-31: woken steps retried before the pause was over")
	}
	b.plane.Recipes.OnExecute(nil)
	b.goal.RetryOn = "the environment changed"
	if out := b.applied(); out.State != paired.Done || b.mem.Failure != nil {
		t.Errorf("a changed environment does not retry at once: %+v", out)
	}
}

func TestApply_8_1_2_FailedUpdateIsNotDone(t *testing.T) {
	b := setup(t)
	b.applied()
	b.plane.Recipes.OnExecute(func(context.Context, recipe.Request) (recipe.Result, error) {
		return recipe.Result{}, core.Errorf(core.CodeRecipeDeployment, "once")
	})
	b.goal.Body.Properties["recipe"] = map[string]any{"name": "other"}
	if out := b.applied(); out.State != paired.Failed {
		t.Fatalf("a failed update is %+v", out)
	}
	b.now = b.now.Add(time.Hour)
	if out := b.applied(); out.State != paired.Failed || b.mem.Failure.Count != 2 {
		t.Errorf("the retry of a failed update is %+v, memory %+v", out, b.mem.Failure)
	}
	b.plane.Recipes.OnExecute(nil)
	b.now = b.now.Add(time.Hour)
	if out := b.applied(); out.State != paired.Done || b.mem.AppliedHash != b.goal.Hash() {
		t.Errorf("K-30: after success it is %+v", out)
	}
}

func TestApply_K49(t *testing.T) {
	b := setup(t)
	b.applied()
	first, second := b.mem, paired.Memory{}
	rival := goalOf(t, "Applications.Datastores/redisCaches", "db", "two")
	rival.Body.Owner.Namespace = "other"
	writes := b.plane.Writes()
	out, err := b.runner.Apply(t.Context(), rival, &second)
	if err != nil || out.State != paired.Failed || out.Conflict == nil || out.Conflict.UID != "one" || !strings.Contains(out.Err.Message, "demo/db") {
		t.Fatalf("the second object gets %+v, %v", out, err)
	}
	if b.plane.Writes() != writes {
		t.Error("the second object changed something")
	}
	if out, err := b.runner.Remove(t.Context(), rival.ID, rival.APIVersion, "two", &second); err != nil || out.State != paired.Done {
		t.Fatalf("removing the second is %+v, %v", out, err)
	}
	if _, _, err := b.client.Get(t.Context(), b.goal.ID, b.goal.APIVersion); err != nil {
		t.Fatalf("deleting the second deleted the first's: %v", err)
	}

	// The second takes over when the first is verified gone, and not before.
	unknown := errors.New("the API server is away")
	answer := unknown
	b.runner.Gone = func(_ context.Context, o arm.Owner) (bool, error) {
		if o.UID != "one" {
			t.Errorf("asked about owner %+v", o)
		}
		return answer == nil, answer
	}
	second = paired.Memory{}
	if _, err := b.runner.Apply(t.Context(), rival, &second); !errors.Is(err, unknown) {
		t.Errorf("an unknown fate of the first is taken as %v", err)
	}
	answer = nil
	b.mem, b.goal = second, rival
	if out := b.applied(); out.State != paired.Done {
		t.Fatalf("the second does not take over: %+v", out)
	}
	b.mem, b.goal = first, goalOf(t, "Applications.Datastores/redisCaches", "db", "one")
	if out := b.removed(); out.State != paired.Done {
		t.Fatalf("the late removal of the first is %+v", out)
	}
	if _, _, err := b.client.Get(t.Context(), rival.ID, rival.APIVersion); err != nil {
		t.Errorf("the late removal of the first deleted the second's: %v", err)
	}
}

func TestApply_MovesToAnotherID(t *testing.T) {
	b := setup(t)
	b.applied()
	old := b.goal.ID
	b.goal = goalOf(t, "Applications.Messaging/rabbitMQQueues", "db", "one")
	out := b.applied()
	if out.State != paired.Done || !out.Cleaning || out.Resource.ID != b.goal.ID.String() {
		t.Fatalf("the new resource is %+v", out)
	}
	if _, _, err := b.client.Get(t.Context(), old, servertest.APIVersion); err != nil {
		t.Errorf("the old went before the new was told: %v", err)
	}
	if out := b.settle(func() (paired.Outcome, error) { return b.runner.Clean(t.Context(), "one", &b.mem) }); out.State != paired.Done {
		t.Fatalf("cleaning is %+v", out)
	}
	b.missing(old)
	if out := b.apply(); out.State != paired.Done || out.Cleaning {
		t.Errorf("after cleaning it is %+v", out)
	}
}

func TestApply_AliasIsNoMove(t *testing.T) {
	b := setup(t)
	b.goal = goalOf(t, "Applications.Link/redisCaches", "db", "one")
	canonical := core.GroupID("default-demo").Resource("Applications.Datastores/redisCaches", "db")
	if out := b.applied(); out.State != paired.Done || !strings.EqualFold(out.Resource.ID, canonical.String()) {
		t.Fatalf("by its other name: %+v", out)
	}
	writes := b.plane.Writes()
	if out := b.apply(); out.State != paired.Done || out.Cleaning || b.plane.Writes() != writes {
		t.Errorf("a second step takes the alias for a move: %+v, %+v", out, b.mem)
	}
	b.goal = goalOf(t, "Applications.Datastores/redisCaches", "db", "one")
	if out := b.applied(); out.State != paired.Done || out.Cleaning {
		t.Errorf("K-12: today's name of the same resource is taken for another: %+v, %+v", out, b.mem)
	}
	b.goal = goalOf(t, "Applications.Link/redisCaches", "db", "one")
	if out := b.applied(); out.State != paired.Done || out.Cleaning {
		t.Errorf("K-12: and the way back: %+v, %+v", out, b.mem)
	}
	if out := b.removed(); out.State != paired.Done {
		t.Fatalf("%+v", out)
	}
	b.missing(canonical)
}

func TestApply_ServerDown(t *testing.T) {
	b := setup(t)
	b.plane.Stop()
	_, err := b.runner.Apply(t.Context(), b.goal, &b.mem)
	if !core.IsCode(err, core.CodeUnavailable) || !strings.Contains(err.Error(), b.plane.URL) {
		t.Fatalf("a server that is down is %v, want ServiceUnavailable with its URL", err)
	}
	if b.mem.Failure != nil {
		t.Error("an outage counts as a failure of the goal")
	}
	b.plane.Start()
	if out := b.applied(); out.State != paired.Done {
		t.Errorf("after the outage it is %+v", out)
	}
}

func TestFindParents_K4(t *testing.T) {
	b := setup(t)
	find := func(env string) (paired.Parents, error) {
		return paired.FindParents(t.Context(), b.client, paired.Reference{Namespace: "demo", Environment: env})
	}
	if p, err := find(""); err != nil || p.Environment.String() != servertest.EnvironmentID("default") || p.Application.Name() != "demo" || p.ETag == "" {
		t.Errorf("K-4: the default environment is %+v, %v", p, err)
	}
	_, err := find("prod")
	if !core.IsCode(err, core.CodeNotFound) || !strings.Contains(err.Error(), `"prod"`) || !strings.Contains(err.Error(), "radial env create prod") {
		t.Errorf("K-4: a missing environment is %v; it must name it and what to do", err)
	}
	radius := core.GroupID("default").Resource("Radius.Core/environments", "prod")
	b.plane.Put(radius.String(), "2025-08-01-preview", `{"location":"global","properties":{"allowedNamespaces":["*"]}}`)
	if p, err := find("prod"); err != nil || !p.Environment.Equal(radius) || p.Application.Provider != "Radius.Core" {
		t.Errorf("K-4: an environment of Radius.Core is %+v, %v", p, err)
	}
	b.plane.Environment("prod")
	if _, err := find("prod"); !core.IsCode(err, core.CodeConflict) || !strings.Contains(err.Error(), radius.String()) {
		t.Errorf("K-4: a name that both kinds have is %v; it must name both", err)
	}
	if p, err := find(radius.String()); err != nil || !p.Environment.Equal(radius) {
		t.Errorf("K-4: a full id is %+v, %v", p, err)
	}
	if _, err := find("/planes/nonsense"); !core.IsCode(err, core.CodeBadRequest) {
		t.Errorf("K-4: a broken id is %v", err)
	}
}
