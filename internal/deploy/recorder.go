package deploy

import (
	"context"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// Record keeps outputs in the store: put inserts or replaces, drop removes, in
// one commit.
type Record func(ctx context.Context, put []core.Output, drop []core.ID) error

// lastWrites bounds what is still written after a run was stopped: what was in
// flight then is recorded all the same.
const lastWrites = 5 * time.Second

// recorder writes outcomes in batches: while one commit is under way, what
// comes meanwhile gathers for the next.
type recorder struct {
	in   chan change
	done chan struct{}
	err  error // after done
}

type change struct {
	put  []core.Output
	drop []core.ID
	// ack, when not nil, is told when the change is written, or could not be.
	ack chan error
}

// startRecorder starts the recorder. failed is called once, when a commit
// fails; after that nothing more is written. Without record nothing is kept.
func startRecorder(ctx context.Context, record Record, failed func(error)) *recorder {
	r := &recorder{in: make(chan change, 64), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for c := range r.in {
			var all change
			var acks []chan error
			for more := true; more; {
				all.put = append(all.put, c.put...)
				all.drop = append(all.drop, c.drop...)
				if c.ack != nil {
					acks = append(acks, c.ack)
				}
				select {
				case next, ok := <-r.in:
					c, more = next, ok
				default:
					more = false
				}
			}
			if r.err == nil && record != nil {
				if r.err = write(ctx, record, all); r.err != nil {
					failed(r.err)
				}
			}
			for _, ack := range acks {
				ack <- r.err
			}
		}
	}()
	return r
}

// write records also after ctx has ended: the store itself refuses a run that
// lost its lease.
func write(ctx context.Context, record Record, c change) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
		defer cancel()
		return record(ctx, c.put, c.drop)
	}
	err := record(ctx, c.put, c.drop)
	if err != nil && ctx.Err() != nil { // it ended under the write
		return write(ctx, record, c)
	}
	return err
}

func (r *recorder) put(o core.Output) { r.in <- change{put: []core.Output{o}} }
func (r *recorder) drop(id core.ID)   { r.in <- change{drop: []core.ID{id}} }

// commit returns when outs are written.
func (r *recorder) commit(outs []core.Output) error {
	ack := make(chan error, 1)
	r.in <- change{put: outs, ack: ack}
	return <-ack
}

// close writes what is left and returns the error of a commit that failed.
func (r *recorder) close() error {
	close(r.in)
	<-r.done
	return r.err
}
