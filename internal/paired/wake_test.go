package paired_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

// script is a change stream that plays what a test says.
type script []any

func (s script) Watch(_ context.Context, f func(arm.Change), o client.WatchOptions) error {
	for _, e := range s {
		switch e := e.(type) {
		case arm.Change:
			f(e)
		case error:
			o.Down(e)
		case func():
			e()
		}
	}
	return context.Canceled
}

func TestWaker_K32(t *testing.T) {
	t.Parallel()
	a, b := paired.Object{Kind: "Recipe", Namespace: "n", Name: "a"}, paired.Object{Kind: "Recipe", Namespace: "n", Name: "b"}
	d := paired.Object{Kind: "Deployment", Namespace: "n", Name: "d"}
	redis, env := core.MustParseID("/planes/radius/local/resourceGroups/g/providers/A.B/c/a"), core.MustParseID("/planes/radius/local/resourceGroups/g/providers/A.B/envs/e")
	var woken []string
	var w *paired.Waker
	check := func(what string, want ...string) func() {
		return func() {
			t.Helper()
			slices.Sort(woken)
			if !slices.Equal(woken, want) {
				t.Errorf("%s woke %v, want %v", what, woken, want)
			}
			woken = nil
		}
	}
	out := errors.New("outage")
	w = paired.NewWaker(script{
		arm.Change{Reset: true},
		check("a reset", "a", "b", "d"),
		arm.Change{ID: "/PLANES/radius/local/resourcegroups/G/providers/a.b/C/a"},
		check("the change of a resource, in any case", "a"),
		arm.Change{ID: env.String()},
		check("the change of an environment", "a", "d"),
		arm.Change{ID: "/planes/radius/local/resourceGroups/g/providers/A.B/c/other"},
		check("the change of what concerns nobody"),
		arm.Change{ID: "no id"},
		check("a line that is no id"),
		func() { w.Track(a, false, redis) },
		arm.Change{ID: env.String()},
		check("what concerned it before", "d"),
		func() { w.Forget(d) },
		arm.Change{ID: env.String()},
		check("what concerned one that is gone"),
		out,
		func() {
			if up, why := w.Connected(); up || !errors.Is(why, out) {
				t.Errorf("after the stream broke off Connected = %v, %v", up, why)
			}
			w.Track(a, true, redis)
		},
		arm.Change{Reset: true},
		func() {
			if up, _ := w.Connected(); !up || len(woken) != 2 || woken[0] != "a" {
				t.Errorf("a reconnect woke %v; what is in flight comes first", woken)
			}
		},
	}, slog.New(slog.DiscardHandler))
	for _, kind := range []string{"Recipe", "Deployment"} {
		w.Handle(kind, func(o paired.Object) { woken = append(woken, o.Name) })
	}
	select {
	case <-w.Followed():
		t.Error("it followed before it started")
	default:
	}
	w.Track(a, false, redis, env, core.ID{})
	w.Track(b, false)
	w.Track(d, false, env)
	if err := w.Start(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-w.Followed():
	default:
		t.Error("it does not tell that it followed")
	}
}
