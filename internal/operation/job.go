package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/telemetry"
)

// Causes with which a job's context ends.
var (
	errShutdown  = errors.New("the worker is shutting down")
	errLeaseLost = errors.New("another worker holds the operation now")
	errDeadline  = errors.New("the operation passed its deadline")
	errCanceled  = errors.New("the end of the operation was asked for")
)

// Canceled reports whether the context of a job ended because the end of its
// operation was asked for: it will not be run again, so that its controller
// answers with what is to be remembered of it. When the context ended for
// another reason, somebody goes on with the operation.
func Canceled(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errCanceled) }

// Job is one leased operation. Its methods are fenced: they fail with
// OperationFenced once another worker holds the operation.
type Job struct {
	store.Leased
	pool *Pool
	log  messages
}

// Progress says that work outside has begun: operation and resource show the
// state from now on.
func (j *Job) Progress(ctx context.Context, s core.State) error {
	return j.pool.o.Queue.Progress(ctx, j.Operation.ID, j.Operation.Fence, s)
}

// SaveOutputs records outputs of the resource (put inserts or replaces, drop
// removes).
func (j *Job) SaveOutputs(ctx context.Context, put []core.Output, drop []core.ID) error {
	if len(put) == 0 && len(drop) == 0 {
		return nil
	}
	return j.pool.o.Queue.SaveOutputs(ctx, j.Operation.ID, j.Operation.Fence, put, drop)
}

// run works on one leased operation to its end.
func (p *Pool) run(ctx context.Context, leased store.Leased) {
	job := &Job{Leased: leased, pool: p}
	job.log.job = job
	op := &job.Operation
	log := func() *slog.Logger { // made when there is something to say
		return p.o.Log.With("operation", op.ID, "verb", string(op.Verb), "resource", op.ResourceID.String())
	}

	ctx, span := telemetry.Operation(ctx, *op)
	var failure error
	defer func() { span.End(failure) }()
	defer p.o.Metrics.Begun(*op, p.o.Now())()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lease := p.hold(op, cancel)
	defer lease.stop()

	stopWatch := p.watchCancel(ctx, op, cancel)
	defer stopWatch()

	ending := store.Ending{Operation: op.ID, Fence: op.Fence, State: core.StateFailed, Parentless: op.Parent == ""}
	switch {
	case !op.CancelRequested.IsZero():
		ending.State, ending.Error = core.StateCanceled, canceledError()
	case op.Attempts > p.o.Attempts:
		ending.Error = core.Errorf(core.CodeInternal, "the operation was begun %d times and its worker ended each time before it did; the server's log says why. Repeat the request when that is mended", op.Attempts-1)
	case !op.Deadline.IsZero() && !p.o.Now().Before(op.Deadline):
		ending.State, ending.Error = core.StateCanceled, deadlineError(op)
	default:
		if !op.Deadline.IsZero() {
			timer := time.AfterFunc(op.Deadline.Sub(p.o.Now()), func() { cancel(errDeadline) })
			defer timer.Stop()
		}
		outcome, err := p.call(ctx, job)
		job.log.flush(ctx)
		switch {
		case err == nil && outcome.Park:
			p.park(ctx, op, log)
			return
		case err == nil && outcome.Failure == nil:
			ending.State, ending.Resource, ending.Removed = core.StateSucceeded, outcome.Resource, outcome.Removed
		case err == nil:
			ending.Error, ending.Resource, ending.Removed = outcome.Failure, outcome.Resource, outcome.Removed
			if errors.Is(context.Cause(ctx), errCanceled) {
				ending.State, ending.Error = core.StateCanceled, canceledError()
			}
		case errors.Is(context.Cause(ctx), errDeadline):
			ending.State, ending.Error = core.StateCanceled, deadlineError(op)
		case errors.Is(context.Cause(ctx), errCanceled):
			ending.State, ending.Error = core.StateCanceled, canceledError()
		case errors.Is(context.Cause(ctx), errShutdown):
			p.release(op, log)
			return
		case core.IsCode(err, core.CodeFenced), ctx.Err() != nil:
			failure = core.Errorf(core.CodeFenced, "the lease was lost")
			p.o.Metrics.LeaseLost()
			log().Warn("operation left to another worker", "reason", reason(ctx, err))
			return
		default:
			ending.Error = core.AsError(err)
		}
	}
	if ending.Error != nil {
		failure = ending.Error
	}
	p.end(ctx, ending, op, log)
}

func reason(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil {
		return cause.Error()
	}
	return err.Error()
}

func canceledError() *core.Error {
	return core.Errorf(core.CodeCanceled, "the operation was canceled on request. What it made so far is recorded: repeat the request to go on, or delete the resource")
}

// watchCancel ends the context when the end of the operation is asked for. A
// signal may stand for something else, so the operation is read to be sure.
func (p *Pool) watchCancel(ctx context.Context, op *core.Operation, cancel context.CancelCauseFunc) (stop func()) {
	if p.o.Canceled == nil || p.o.Operation == nil {
		return func() {}
	}
	asked, stop := p.o.Canceled(op.ID)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-asked:
			}
			for {
				now, err := p.o.Operation(ctx, op.ID)
				if err == nil {
					if !now.CancelRequested.IsZero() {
						cancel(errCanceled)
						return
					}
					break
				}
				if ctx.Err() != nil || !p.pause(time.Second) {
					return
				}
			}
		}
	}()
	return stop
}

// park waits for children without a slot. A store that is away leaves it to the
// lease's end: then the controller runs once more and parks again.
func (p *Pool) park(ctx context.Context, op *core.Operation, log func() *slog.Logger) {
	err := p.o.Queue.Park(context.WithoutCancel(ctx), op.ID, op.Fence)
	if err != nil && !core.IsCode(err, core.CodeFenced) {
		log().Warn("the operation could not park; it is taken up again when its lease ends", "error", err.Error())
	}
}

func deadlineError(op *core.Operation) *core.Error {
	return core.Errorf(core.CodeCanceled, "the operation did not end within %s, its deadline. What it made so far is recorded: repeat the request to go on, or delete the resource", op.Deadline.Sub(op.Created).Round(time.Second))
}

// call runs the controller and turns a panic into an error. The value of the
// panic may hold anything, so only the stack and its kind are logged.
func (p *Pool) call(ctx context.Context, job *Job) (outcome Outcome, err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		p.o.Log.Error("controller panicked", "operation", job.Operation.ID, "resource", job.Operation.ResourceID.String(),
			"kind", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
		err = core.Errorf(core.CodeInternal, "the controller of %s panicked, which is a defect of Radial; the server's log has its stack under operation %s", job.Operation.ResourceID.Type(), job.Operation.ID)
	}()
	return p.o.Controllers.Find(store.TypeOf(job.Operation.ResourceID), job.Operation.Verb).Run(ctx, job)
}

// end commits the end. A store that is away for a moment is asked again while
// the lease lasts; after that the operation is another worker's.
func (p *Pool) end(ctx context.Context, e store.Ending, op *core.Operation, log func() *slog.Logger) {
	if e.State != core.StateSucceeded {
		log().Info("operation ended", "state", string(e.State), "code", string(e.Error.Code), "error", e.Error.Message)
	}
	pause := 5 * time.Millisecond
	for {
		e.Now = p.o.Now()
		// A shutdown does not take back what was done: the end is committed.
		err := p.o.Queue.End(context.WithoutCancel(ctx), e)
		if core.IsCode(err, store.Changed) && e.Resource != nil && p.o.Renew != nil && p.o.Renew(context.WithoutCancel(ctx), e.Resource) {
			err = p.o.Queue.End(context.WithoutCancel(ctx), e)
		}
		switch {
		case err == nil:
			p.o.Metrics.Ended(*op, e.State, e.Now)
			return
		case core.IsCode(err, core.CodeFenced):
			p.o.Metrics.LeaseLost()
			log().Warn("operation was taken over before it could end")
			return
		case !core.IsCode(err, core.CodeUnavailable) && e.State == core.StateSucceeded:
			log().Error("the end of an operation was not accepted", "error", err.Error())
			e.State, e.Resource, e.Removed = core.StateFailed, nil, false
			e.Error = core.Errorf(core.CodeInternal, "the work was done but its result could not be stored; the server's log has the reason under operation %s", op.ID)
		case !core.IsCode(err, core.CodeUnavailable):
			log().Error("the end of an operation was not accepted", "error", err.Error())
			return
		}
		if errors.Is(context.Cause(ctx), errLeaseLost) || !p.pause(pause) {
			log().Warn("the end of an operation could not be stored; it is left to another worker", "error", err.Error())
			return
		}
		pause = min(pause*2, time.Second)
	}
}

// release gives the operation to whoever asks next.
func (p *Pool) release(op *core.Operation, log func() *slog.Logger) {
	if err := p.o.Queue.Renew(context.Background(), op.ID, op.Fence, p.o.Now()); err != nil && !core.IsCode(err, core.CodeFenced) {
		log().Warn("lease could not be given back; it ends by itself", "error", err.Error())
	}
}

// lease keeps an operation leased while its controller runs.
type lease struct {
	mu      sync.Mutex
	stopped bool
	renew   *time.Timer
	expire  *time.Timer
}

// hold renews at a third of the lease, and ends the context when four fifths of
// it have passed without a renewal.
func (p *Pool) hold(op *core.Operation, cancel context.CancelCauseFunc) *lease {
	l := &lease{}
	id, fence := op.ID, op.Fence
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire = time.AfterFunc(p.o.Lease*4/5, func() { cancel(errLeaseLost) })
	l.renew = time.AfterFunc(p.o.Lease/3, func() {
		begun := time.Now()
		ctx, done := context.WithTimeout(context.Background(), p.o.Lease/3)
		err := p.o.Queue.Renew(ctx, id, fence, p.o.Now().Add(p.o.Lease))
		done()
		if core.IsCode(err, core.CodeFenced) || core.IsCode(err, core.CodeNotFound) {
			cancel(errLeaseLost)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.stopped {
			return
		}
		if err != nil {
			l.renew.Reset(p.o.Lease / 15)
			return
		}
		l.expire.Reset(p.o.Lease*4/5 - time.Since(begun))
		l.renew.Reset(p.o.Lease / 3)
	})
	return l
}

func (l *lease) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.renew.Stop()
	l.expire.Stop()
}
