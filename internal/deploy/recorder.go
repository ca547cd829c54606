package deploy

import (
	"context"

	"github.com/radial-project/radial/internal/core"
)

// Record keeps outputs in the store: put inserts or replaces, drop removes, in
// one commit.
type Record func(ctx context.Context, put []core.Output, drop []core.ID) error

// recorder writes outcomes in batches: while one commit is under way, what
// comes meanwhile gathers for the next.
type recorder struct {
	in   chan change
	done chan struct{}
	err  error // after done
}

type change struct {
	put  *core.Output
	drop *core.ID
}

// startRecorder starts the recorder. failed is called once, when a commit
// fails; after that nothing more is written.
func startRecorder(ctx context.Context, record Record, failed func(error)) *recorder {
	r := &recorder{in: make(chan change, 64), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for c := range r.in {
			var put []core.Output
			var drop []core.ID
			for more := true; more; {
				if c.put != nil {
					put = append(put, *c.put)
				}
				if c.drop != nil {
					drop = append(drop, *c.drop)
				}
				select {
				case next, ok := <-r.in:
					c, more = next, ok
				default:
					more = false
				}
			}
			if r.err != nil {
				continue
			}
			if r.err = record(ctx, put, drop); r.err != nil {
				failed(r.err)
			}
		}
	}()
	return r
}

func (r *recorder) put(o core.Output) { r.in <- change{put: &o} }
func (r *recorder) drop(id core.ID)   { r.in <- change{drop: &id} }

// close writes what is left and returns the error of a commit that failed.
func (r *recorder) close() error {
	close(r.in)
	<-r.done
	return r.err
}
