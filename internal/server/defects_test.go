package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/store"
)

// The tests of this file are numbered as the defects of the closest peer that
// Radial must not have. Defect 9 is in write_test.go, 15 in depend_test.go.

// dying stands before a store and dies with the nth write: before it, or right
// after its commit and before anybody is told. From then on nothing answers, as
// after the death of the process.
type dying struct {
	store.Store
	at     int64 // 1 is the first write; 0 never
	after  bool
	writes atomic.Int64
	dead   atomic.Bool
}

var errDead = core.Errorf(core.CodeUnavailable, "the process is dead")

func (d *dying) wrap(s store.Store) store.Store { d.Store = s; return d }

// write runs one write; the counting begins with arm.
func (d *dying) write(commit func() error) error {
	if d.dead.Load() {
		return errDead
	}
	at := atomic.LoadInt64(&d.at)
	if at == 0 || d.writes.Add(1) != at {
		return commit()
	}
	if d.after {
		if err := commit(); err != nil {
			return err
		}
	}
	d.dead.Store(true)
	return errDead
}

func (d *dying) read(err error) error {
	if d.dead.Load() {
		return errDead
	}
	return err
}

func (d *dying) Get(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error) {
	r, o, err := d.Store.Get(ctx, id)
	return r, o, d.read(err)
}

func (d *dying) Accept(ctx context.Context, w store.Write) (r core.Resource, err error) {
	err = d.write(func() error { r, err = d.Store.Accept(ctx, w); return err })
	return r, err
}

func (d *dying) AcceptDelete(ctx context.Context, w store.Delete) (r core.Resource, err error) {
	err = d.write(func() error { r, err = d.Store.AcceptDelete(ctx, w); return err })
	return r, err
}

func (d *dying) Lease(ctx context.Context, l store.Lease) (out []store.Leased, err error) {
	if d.dead.Load() {
		return nil, errDead
	}
	// A lease of nothing is no write.
	if n, _, err := d.Store.Pending(ctx); err != nil || n == 0 {
		return nil, err
	}
	err = d.write(func() error { out, err = d.Store.Lease(ctx, l); return err })
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (d *dying) Renew(ctx context.Context, op string, fence int64, until time.Time) error {
	if d.dead.Load() {
		return errDead
	}
	return d.Store.Renew(ctx, op, fence, until)
}

func (d *dying) Progress(ctx context.Context, op string, fence int64, s core.State) error {
	return d.write(func() error { return d.Store.Progress(ctx, op, fence, s) })
}

func (d *dying) SaveOutputs(ctx context.Context, op string, fence int64, put []core.Output, drop []core.ID) error {
	return d.write(func() error { return d.Store.SaveOutputs(ctx, op, fence, put, drop) })
}

func (d *dying) End(ctx context.Context, e store.Ending) error {
	return d.write(func() error { return d.Store.End(ctx, e) })
}

// TestDefect8_CrashBetweenWrites_D18 kills the control plane at every store write
// of a PUT and of a DELETE, before and after its commit: afterwards the operation
// ends, or nothing is there, and the resource can be written in any case.
func TestDefect8_CrashBetweenWrites_D18(t *testing.T) {
	t.Parallel()
	kinds := []string{"PUT", "DELETE"}
	for _, kind := range kinds {
		for _, after := range []bool{false, true} {
			if onPostgres && !after && os.Getenv("RADIAL_FAULT") != "all" {
				continue // nothing was committed: the store makes no difference
			}
			t.Run(fmt.Sprintf("%s killed, after the commit %v", kind, after), func(t *testing.T) {
				t.Parallel()
				for at := int64(1); ; at++ {
					if !crash(t, kind, at, after) {
						if at < 4 {
							t.Errorf("D-18: a %s has only %d writes to be killed at", kind, at-1)
						}
						return
					}
				}
			})
		}
	}
}

// crash says whether the process died.
func crash(t *testing.T, kind string, at int64, after bool) bool {
	world := map[string]bool{} // what exists outside
	d := &driver{
		execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
			o := output("web")
			o.State = core.OutputPlanned
			if err := run.Record(ctx, []core.Output{o}, nil); err != nil {
				return recipe.Result{}, err
			}
			world["web"] = true
			o.State = core.OutputMade
			return recipe.Result{Definition: run.Definition, Outputs: []core.Output{o}, Values: map[string]any{"host": "h"}}, nil
		},
		remove: func(_ context.Context, outputs []core.Output) error { delete(world, outputs[0].ID.Name()); return nil },
	}
	dying := &dying{after: after}
	a := start(t, Options{Wrap: dying.wrap, Recipes: engine(d), Lease: 500 * time.Millisecond, Workers: 1})
	body := withEnv(map[string]any{"password": "correct horse"})
	if kind == "DELETE" {
		a.succeed(a.want(a.send("PUT", made("a"), body), 201))
	}
	atomic.StoreInt64(&dying.at, at)
	got, err := a.try(kind, made("a"), body)
	if err != nil {
		t.Fatal(err)
	}
	if link := got.header.Get("Azure-AsyncOperation"); link != "" {
		// Until it has ended, or the process is dead.
		for !dying.dead.Load() {
			if got, err := a.try("GET", link, nil, "Prefer", "wait=1"); err == nil && got.status == 200 && core.State(got.body["status"].(string)).Terminal() {
				break
			}
		}
	}
	died := dying.dead.Load()
	a.Stop()
	b := &api{startInstance(t, Options{Dir: a.Dir, Recipes: engine(d), Lease: 500 * time.Millisecond}), t}
	where := fmt.Sprintf("D-18: %s killed at write %d (after %v)", kind, at, after)
	// Whatever was accepted ends.
	for _, op := range b.want(b.send("GET", version(statuses+"?live=true", ucp), nil), 200).body["value"].([]any) {
		id, _ := dig(op, "name").(string)
		end := b.want(b.send("GET", version(statuses+"/"+id, ucp), nil, "Prefer", "wait=20"), 200)
		if end.body["status"] != "Succeeded" {
			t.Errorf("%s: the operation is %s", where, end.raw)
		}
	}
	switch now := b.send("GET", made("a"), nil); {
	case now.status == 200 && now.prop("provisioningState") != "Succeeded":
		t.Errorf("%s: the resource is %s", where, now.raw)
	case now.status == 404 && len(world) > 0:
		t.Errorf("%s: %v leaked", where, world)
	case now.status != 200 && now.status != 404:
		t.Errorf("%s: answered %d", where, now.status)
	}
	b.succeed(b.want(b.send("PUT", made("a"), body), 201))
	b.succeed(b.want(b.send("DELETE", made("a"), nil), 202))
	b.want(b.send("GET", made("a"), nil), 404)
	if len(world) > 0 {
		t.Errorf("%s: at the end %v is left", where, world)
	}
	b.Stop()
	return died
}

// TestDefect10_InvalidPutChangesNothing_D9: a refused update of an existing
// resource leaves it byte-identical, its tag too, and queues nothing.
func TestDefect10_InvalidPutChangesNothing_D9(t *testing.T) {
	t.Parallel()
	a := start(t, Options{Recipes: engine(&driver{})})
	a.succeed(a.want(a.send("PUT", made("a"), withEnv(map[string]any{"size": "S", "password": "correct horse"})), 201))
	operations := func() string { return a.want(a.send("GET", version(statuses, ucp), nil), 200).raw }
	before, queued := a.want(a.send("GET", made("a"), nil), 200), operations()
	id := core.MustParseID(group + "/providers/" + madeType + "/a")
	row, _, err := a.Store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`{"properties":{"environment":"` + envID + `","size":7}}`, `{"properties":{"size":"S"}}`, `{"properties":{"environment":"` + envID + `","nothing":1}}`} {
		a.want(a.send("PUT", made("a"), bad), 400)
	}
	after := a.want(a.send("GET", made("a"), nil), 200)
	if after.raw != before.raw || after.header.Get("ETag") != before.header.Get("ETag") {
		t.Errorf("D-9: changed from %s to %s", before.raw, after.raw)
	}
	now, live, err := a.Store.Get(t.Context(), id)
	if err != nil || live != nil || cmp.Diff(row, now) != "" {
		t.Errorf("D-9: the row changed: %v, %v\n%s", err, live, cmp.Diff(row, now))
	}
	if n, _, err := a.Store.Pending(t.Context()); err != nil || n != 0 || operations() != queued {
		t.Errorf("D-9: %d operations wait, %v", n, err)
	}
}

// TestDefect11_RedeployForgetsOutputs_D31: what a new run no longer returns is
// deleted after it succeeded; what a failed one had and made is all known, and
// goes with the resource.
func TestDefect11_RedeployForgetsOutputs_D31(t *testing.T) {
	t.Parallel()
	one, two, three := output("one"), output("two"), output("three")
	var version_ atomic.Int64
	d := &driver{}
	d.execute = func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
		var outputs []core.Output
		switch version_.Load() {
		case 1:
			outputs = []core.Output{one, two}
		case 2:
			outputs = []core.Output{one}
		case 3: // plans a third, makes it, and fails
			if err := run.Record(ctx, []core.Output{three}, nil); err != nil {
				return recipe.Result{}, err
			}
			return recipe.Result{}, core.Errorf(core.CodeRecipeDeployment, "no quota")
		}
		return recipe.Result{Definition: run.Definition, Outputs: outputs}, run.Record(ctx, outputs, nil)
	}
	a := start(t, Options{Recipes: engine(d)})
	deployed := func(v int64, end string) string {
		t.Helper()
		version_.Store(v)
		if got := a.await(a.want(a.send("PUT", made("a"), withEnv(map[string]any{"size": fmt.Sprint(v)})), 201)); got.body["status"] != end {
			t.Fatalf("version %d ended as %s", v, got.raw)
		}
		var names []string
		list, _ := a.want(a.send("GET", made("a"), nil), 200).prop("status", "outputResources").([]any)
		for _, o := range list {
			names = append(names, dig(o, "localID").(string))
		}
		return strings.Join(names, ",")
	}
	if got := deployed(1, "Succeeded"); got != "one,two" {
		t.Errorf("D-31: version 1 has %s", got)
	}
	if got := deployed(2, "Succeeded"); got != "one" || len(d.gone) != 1 || !d.gone[0].Equal(two.ID) {
		t.Errorf("D-31: version 2 has %s, and deleted were %v", got, d.gone)
	}
	if got := deployed(1, "Succeeded"); got != "one,two" {
		t.Errorf("D-31: version 1 again has %s", got)
	}
	if got := deployed(3, "Failed"); got != "one,two,three" || len(d.gone) != 1 {
		t.Errorf("D-31: after a failed version 3 are known %s, and deleted were %v", got, d.gone)
	}
	a.succeed(a.want(a.send("DELETE", made("a"), nil), 202))
	if gone := uniqueIDs(d.gone); len(gone) != 3 || !gone[one.ID.Key()] || !gone[three.ID.Key()] {
		t.Errorf("D-31: the deletion took %v", d.gone)
	}
}

// TestDefect13_SecretSurvivesRetry_D28: a worker dies in the middle of a recipe;
// the rerun, by another one, has the secret.
func TestDefect13_SecretSurvivesRetry_D28(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	first := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
		if run.Context.Resource.Properties["password"] != "correct horse" {
			return recipe.Result{}, errors.New("the first run has no secret")
		}
		if err := run.Record(ctx, []core.Output{output("web")}, nil); err != nil {
			return recipe.Result{}, err
		}
		close(running)
		<-ctx.Done()
		return recipe.Result{}, ctx.Err()
	}}
	again := &driver{}
	dying := &dying{}
	a := start(t, Options{Wrap: dying.wrap, Recipes: engine(first), Lease: time.Second})
	started := a.want(a.send("PUT", made("a"), withEnv(map[string]any{"password": "correct horse"})), 201)
	<-running
	dying.dead.Store(true) // it renews nothing and ends nothing any more

	b := &api{startInstance(t, Options{Beside: a.Instance, Recipes: engine(again), Lease: time.Second}), t}
	link := started.header.Get("Azure-AsyncOperation")
	end := b.want(b.send("GET", link[strings.Index(link, "/planes"):], nil, "Prefer", "wait=30"), 200)
	if end.body["status"] != "Succeeded" || end.body["attempts"] != 2.0 {
		t.Fatalf("D-18: after the worker's death: %s", end.raw)
	}
	if got := again.last(t).Context.Resource.Properties["password"]; got != "correct horse" {
		t.Error("D-28: the rerun does not have the secret")
	}
	if secrets := b.want(b.send("POST", version(group+"/providers/"+madeType+"/a/listSecrets", testVersion), `{}`), 200); secrets.body["password"] != "correct horse" {
		t.Errorf("D-28: stored is %s", secrets.raw)
	}
}

// Parameters: recipe definition < environment < developer.
func TestParameters_D33(t *testing.T) {
	t.Parallel()
	d := &driver{}
	a := start(t, Options{})
	a.Stop()
	types := a.Server.Types()
	b := &api{startInstance(t, Options{Dir: a.Dir, Recipes: recipe.NewEngine(recipe.Options{
		Drivers: map[string]recipe.Driver{"bicep": d}, Canonical: types.Canonical,
		Load: func(ctx context.Context, id core.ID) (core.Resource, error) { return loaded(ctx, id) },
	})}), t}
	loaded = func(ctx context.Context, id core.ID) (core.Resource, error) {
		r, _, err := b.Store.Get(ctx, id)
		return r, err
	}
	const radius = "2025-08-01-preview"
	env := group + "/providers/Radius.Core/environments/next"
	b.want(b.send("PUT", version(group+"/providers/Radius.Core/recipePacks/pack", radius), props(map[string]any{"recipes": map[string]any{
		madeType: map[string]any{"kind": "bicep", "source": "test/made:1", "parameters": map[string]any{"a": "definition", "b": "definition", "c": "definition"}},
	}})), 200)
	b.want(b.send("PUT", version(env, radius), props(map[string]any{
		"recipePacks": []string{"pack"}, "providers": map[string]any{"kubernetes": map[string]any{"namespace": "default"}},
		"recipeParameters": map[string]any{madeType: map[string]any{"b": "environment", "c": "environment"}},
	})), 200)
	b.succeed(b.want(b.send("PUT", made("a"), props(map[string]any{"environment": env, "recipe": map[string]any{"parameters": map[string]any{"c": "developer"}}})), 201))
	if diff := cmp.Diff(map[string]any{"a": "definition", "b": "environment", "c": "developer"}, d.last(t).Parameters); diff != "" {
		t.Errorf("D-33 (-want +got):\n%s", diff)
	}
}

// loaded reads recipe packs for TestParameters_D33.
var loaded func(context.Context, core.ID) (core.Resource, error)
