package deploy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestGraph_S43 plays random graphs with random failures (part of S-43): each
// node runs after what it needs, never more than the bound at a time, exactly
// those that need a failed one, directly or not, do not run, and the rest does.
func TestGraph_S43(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(t, "n")
		parallel := rapid.IntRange(1, 5).Draw(t, "parallel")
		needs := make([][]int, n)
		fails := make([]bool, n)
		for i := range n {
			fails[i] = rapid.IntRange(0, 5).Draw(t, "fails") == 0
			for j := range i {
				if rapid.IntRange(0, 4).Draw(t, "edge") == 0 {
					needs[i] = append(needs[i], j)
				}
			}
		}
		var mu sync.Mutex
		done := make([]bool, n)
		running, most := 0, 0
		bad := errors.New("bad")
		errs, notRun := runGraph(context.Background(), needs, parallel, func(_ context.Context, i int) error {
			mu.Lock()
			running++
			most = max(most, running)
			for _, j := range needs[i] {
				if !done[j] {
					t.Errorf("%d ran before %d, which it needs", i, j)
				}
			}
			mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			running--
			done[i] = !fails[i]
			if fails[i] {
				return bad
			}
			return nil
		})
		if most > parallel {
			t.Errorf("%d ran at a time, the bound is %d", most, parallel)
		}
		blocked := make([]bool, n)
		for i := range n {
			for _, j := range needs[i] {
				blocked[i] = blocked[i] || blocked[j] || fails[j]
			}
			if slices.Contains(notRun, i) != blocked[i] {
				t.Errorf("node %d: not run is %t, want %t", i, !blocked[i], blocked[i])
			}
			if (errs[i] != nil) != (fails[i] && !blocked[i]) {
				t.Errorf("node %d: error %v", i, errs[i])
			}
		}
	})
}

// TestGraphUsesItsBound holds two nodes until both have started.
func TestGraphUsesItsBound(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	runGraph(t.Context(), make([][]int, 2), 2, func(context.Context, int) error {
		both.Done()
		both.Wait()
		return nil
	})
}

func TestGraphStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	errs, notRun := runGraph(ctx, make([][]int, 3), 1, func(context.Context, int) error {
		cancel()
		return nil
	})
	if len(notRun) != 2 || errs[0] != nil {
		t.Errorf("after the context ended in the first: not run %v, errors %v", notRun, errs)
	}
}
