package stack_test

import (
	"fmt"
	"testing"

	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/stack"
)

// BenchmarkUpdate is what the logic itself costs of an update that keeps 700
// objects and drops 700.
func BenchmarkUpdate(b *testing.B) {
	names := make([]string, 700)
	for i := range names {
		names[i] = fmt.Sprintf("m-%d", i)
	}
	many, few := of(names...), of(names[:350]...)
	w := newWorld()
	s := &session{record: stack.Record{ID: stackID}}
	m := stack.New(stack.Options{Engine: deploy.New(deploy.EngineOptions{Resolver: w})})
	bench := &bench{w: w, s: s, m: m}
	for b.Loop() {
		for _, text := range []string{many, few} {
			out, err := m.Update(b.Context(), s, stack.Update{Request: bench.request(text), Unmanage: stack.Delete})
			if err != nil || out.Failure != nil {
				b.Fatal(err, out.Failure)
			}
		}
		w.calls = nil
	}
}
