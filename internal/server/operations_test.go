package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
)

// statuses is where all operations are found.
const statuses = "/planes/radius/local/providers/System.Resources/locations/global/operationStatuses"

// operationID is the id of the operation that an answer started.
func (g answer) operationID() string {
	link, _, _ := strings.Cut(g.header.Get("Azure-AsyncOperation"), "?")
	return link[strings.LastIndexByte(link, '/')+1:]
}

func withEnv(v map[string]any) map[string]any {
	v["environment"] = envID
	return props(v)
}

func TestCancel_D20(t *testing.T) {
	t.Parallel()
	running := make(chan struct{}, 10)
	var hang atomic.Bool
	hang.Store(true)
	d := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
		if err := run.Record(ctx, []core.Output{output("half")}, nil); err != nil {
			return recipe.Result{}, err
		}
		running <- struct{}{}
		if hang.Load() {
			<-ctx.Done()
			return recipe.Result{}, ctx.Err()
		}
		return recipe.Result{Definition: run.Definition, Outputs: []core.Output{output("half")}}, nil
	}}
	a := start(t, Options{Recipes: engine(d), Workers: 1})

	first := a.want(a.send("PUT", made("a"), withEnv(map[string]any{})), 201)
	<-running
	// The only worker is busy, so this one waits.
	second := a.want(a.send("PUT", made("b"), withEnv(map[string]any{})), 201)
	cancel := func(op string) answer { return a.send("POST", version(statuses+"/"+op+"/cancel", ucp), `{}`) }

	got := a.want(cancel(second.operationID()), 202)
	if got.body["status"] != "Canceled" {
		t.Errorf("D-20: one that no worker holds ends at once, but it is %s", got.raw)
	}
	got = a.want(cancel(first.operationID()), 202)
	if got.header.Get("Azure-AsyncOperation") == "" || got.header.Get("Location") == "" {
		t.Errorf("D-20: the answer says not how to follow it: %v", got.header)
	}
	for _, started := range []answer{first, second} {
		end := a.await(started)
		if end.body["status"] != "Canceled" || dig(end.body, "error", "code") != "OperationCanceled" || end.body["endTime"] == nil {
			t.Errorf("D-20: after the cancellation: %s", end.raw)
		}
		if got := a.want(cancel(started.operationID()), 409); got.code() != "Conflict" || !strings.Contains(got.message(), "Canceled") {
			t.Errorf("D-20: a second cancellation: %s", got.raw)
		}
	}
	a.want(cancel("11111111-1111-1111-1111-111111111111"), 404)

	// What was made is known, and both resources can be written again.
	for _, name := range []string{"a", "b"} {
		if got := a.want(a.send("GET", made(name), nil), 200); got.prop("provisioningState") != "Canceled" {
			t.Errorf("D-19: %s is %s", name, got.raw)
		}
	}
	if got := a.want(a.send("GET", made("a"), nil), 200); fmt.Sprint(got.prop("status", "outputResources")) == "<nil>" {
		t.Errorf("D-31: a canceled run forgot what it made: %s", got.raw)
	}
	hang.Store(false)
	a.succeed(a.want(a.send("PUT", made("a"), withEnv(map[string]any{})), 201))
}

func TestOperations_D20(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	fail.Store(true)
	d := &driver{}
	proceed := make(chan struct{})
	d.execute = func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		run.Progress("making the first thing")
		<-proceed
		run.Progress("making the second thing")
		if fail.Load() {
			return recipe.Result{Definition: run.Definition}, core.Errorf(core.CodeRecipeDeployment, "no quota left")
		}
		return recipe.Result{Definition: run.Definition, Values: map[string]any{"host": "h"}}, nil
	}
	a := start(t, Options{Recipes: engine(d)})
	started := a.want(a.send("PUT", made("a"), withEnv(map[string]any{"password": "needle-of-the-log"})), 201)
	log := func(after int, header ...string) []any {
		t.Helper()
		got := a.want(a.send("GET", version(fmt.Sprintf("%s/%s/messages?after=%d", statuses, started.operationID(), after), ucp), nil, header...), 200)
		return got.body["value"].([]any)
	}
	first := log(0, "Prefer", "wait=20")
	if len(first) != 1 || dig(first[0], "text") != "making the first thing" || dig(first[0], "seq") != 1.0 {
		t.Fatalf("while it runs the log is %v", first)
	}
	if none := log(1); len(none) != 0 {
		t.Errorf("after the first message comes %v", none)
	}
	time.AfterFunc(10*time.Millisecond, func() { close(proceed) })
	if second := log(1, "Prefer", "wait=20"); len(second) == 0 || dig(second[0], "text") != "making the second thing" {
		t.Errorf("the held answer is %v", second)
	}
	if end := a.await(started); end.body["status"] != "Failed" {
		t.Fatalf("it ended as %s", end.raw)
	}
	if all := log(0); strings.Contains(mustJSON(all), "needle") || len(all) < 2 {
		t.Errorf("the log is %v", all)
	}
	if none := log(99, "Prefer", "wait=20"); len(none) != 0 { // at once, as it has ended
		t.Errorf("the log goes on with %v", none)
	}

	// Listed: what it does, for whom, and how it ended.
	list := func(query string) []any {
		t.Helper()
		return a.want(a.send("GET", version(statuses+query, ucp), nil), 200).body["value"].([]any)
	}
	id := group + "/providers/" + madeType + "/a"
	found := list("?resource=" + id)
	if len(found) != 1 || dig(found[0], "name") != started.operationID() || dig(found[0], "verb") != "PUT" || dig(found[0], "resourceId") != id ||
		dig(found[0], "status") != "Failed" || dig(found[0], "error", "message") != "no quota left" {
		t.Errorf("the list is %v", found)
	}
	if live := list("?live=true&group=default"); len(live) != 0 {
		t.Errorf("live operations are %v", live)
	}
	a.want(a.send("GET", version(statuses+"?live=perhaps", ucp), nil), 400)

	// Retried: the same again, with the secret (D-28), and only once.
	retry := func(op string) answer { return a.send("POST", version(statuses+"/"+op+"/retry", ucp), `{}`) }
	fail.Store(false)
	again := a.want(retry(started.operationID()), 202)
	a.succeed(again)
	if run := d.last(t); run.Context.Resource.Properties["password"] != "needle-of-the-log" {
		t.Error("D-28: a retried operation does not have the secret")
	}
	if got := a.want(retry(started.operationID()), 409); !strings.Contains(got.message(), again.operationID()) {
		t.Errorf("a retry of what was followed: %s", got.raw)
	}
	if got := a.want(retry(again.operationID()), 409); !strings.Contains(got.message(), "succeeded") {
		t.Errorf("a retry of what succeeded: %s", got.raw)
	}
	a.want(retry("11111111-1111-1111-1111-111111111111"), 404)
}

// A recipe has a deadline of its own: its operation ends as Failed, with what it
// made recorded, long before the operation's would be over.
func TestRecipeDeadline_D47(t *testing.T) {
	t.Parallel()
	d := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
		if run.Owner.Name() != "slow" {
			return recipe.Result{Definition: run.Definition}, nil
		}
		if err := run.Record(ctx, []core.Output{output("half")}, nil); err != nil {
			return recipe.Result{}, err
		}
		<-ctx.Done()
		return recipe.Result{}, ctx.Err()
	}}
	a := start(t, Options{Recipes: engine(d), RecipeDeadline: 300 * time.Millisecond})
	end := a.await(a.want(a.send("PUT", made("slow"), withEnv(map[string]any{})), 201))
	if end.body["status"] != "Failed" || dig(end.body, "error", "code") != "RecipeDeploymentFailed" || !strings.Contains(end.raw, "300ms") {
		t.Errorf("D-47: the operation ended as %s", end.raw)
	}
	if got := a.want(a.send("GET", made("slow"), nil), 200); !strings.Contains(got.raw, "half") || got.prop("recipe", "recipeStatus") != "executionError" {
		t.Errorf("D-47: GET answers %s", got.raw)
	}
	a.succeed(a.want(a.send("PUT", made("quick"), withEnv(map[string]any{})), 201))
}

// The end of an operation that waits for others is theirs, too: a cascade that is
// canceled stops deleting.
func TestCancelCascade_D20(t *testing.T) {
	t.Parallel()
	removing := make(chan struct{}, 10)
	d := &driver{
		execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
			o := output(run.Owner.Name())
			return recipe.Result{Definition: run.Definition, Outputs: []core.Output{o}}, run.Record(ctx, []core.Output{o}, nil)
		},
		remove: func(ctx context.Context, _ []core.Output) error {
			removing <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		},
	}
	a := start(t, Options{Recipes: engine(d), Workers: 1})
	for _, name := range []string{"a", "b"} {
		a.succeed(a.want(a.send("PUT", made(name), withEnv(map[string]any{})), 201))
	}
	cascade := a.want(a.send("DELETE", version(envID+"?cascade=true", ucp), nil), 202)
	<-removing // by the only worker: the cascade is parked, and one of the two waits
	got := a.want(a.send("POST", version(statuses+"/"+cascade.operationID()+"/cancel", ucp), `{}`), 202)
	if got.body["status"] != "Canceled" {
		t.Errorf("D-20: the cascade is %s", got.raw)
	}
	for _, name := range []string{"a", "b"} {
		list := a.want(a.send("GET", version(statuses+"?resource="+group+"/providers/"+madeType+"/"+name, ucp), nil), 200)
		child, _ := dig(list.body["value"].([]any)[0], "name").(string)
		end := a.want(a.send("GET", version(statuses+"/"+child, ucp), nil, "Prefer", "wait=20"), 200)
		if end.body["status"] != "Canceled" || dig(end.body, "error", "code") != "OperationCanceled" {
			t.Errorf("D-20: the deletion of %s is %s", name, end.raw)
		}
		a.want(a.send("GET", made(name), nil), 200)
	}
	a.want(a.send("GET", version(envID, ucp), nil), 200)
}
