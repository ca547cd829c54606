package deploy

import "context"

// runGraph calls do for 0 … len(needs)-1, each after those that it needs,
// at most parallel at a time. One that fails stops those that need it,
// directly or not; the rest runs. When ctx ends, nothing more is started.
//
// errs[i] is what do returned; notRun lists those that were not called, in
// order. needs must have no cycle.
func runGraph(ctx context.Context, needs [][]int, parallel int, do func(ctx context.Context, i int) error) (errs []error, notRun []int) {
	n := len(needs)
	errs = make([]error, n)
	waits := make([]int, n)      // unfinished needs of each
	neededBy := make([][]int, n) // the reverse
	for i, list := range needs {
		waits[i] = len(list)
		for _, j := range list {
			neededBy[j] = append(neededBy[j], i)
		}
	}
	var ready []int
	for i := range n {
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	called := make([]bool, n)
	ended := make(chan int)
	running := 0
	for {
		for len(ready) > 0 && running < parallel && ctx.Err() == nil {
			i := ready[0]
			ready = ready[1:]
			called[i] = true
			running++
			go func() {
				errs[i] = do(ctx, i)
				ended <- i
			}()
		}
		if running == 0 {
			break
		}
		i := <-ended
		running--
		if errs[i] != nil {
			continue // what needs it keeps waiting, and so is never called
		}
		for _, j := range neededBy[i] {
			if waits[j]--; waits[j] == 0 {
				ready = append(ready, j)
			}
		}
	}
	for i := range n {
		if !called[i] {
			notRun = append(notRun, i)
		}
	}
	return errs, notRun
}
