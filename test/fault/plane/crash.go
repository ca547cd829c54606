package plane

import (
	"context"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Mode is when, at a write of the store, the process dies.
type Mode string

// The modes. During races the kill against the commit: either may win, and the
// caller never learns which.
const (
	Before Mode = "before"
	During Mode = "during"
	After  Mode = "after"
)

// Crash is a store that kills its process (SIGKILL) at a given write, counted
// from when it was armed. Only calls that change something count: a lease that
// found no work is none, and so has no Before and no During.
type Crash struct {
	store.Store

	mu     sync.Mutex
	armed  bool
	at     int
	mode   Mode
	writes []string
}

// Arm begins to count; at -1 never kills.
func (c *Crash) Arm(at int, m Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.at, c.mode, c.writes = true, at, m, nil
}

// Writes are the names of the writes since Arm.
func (c *Crash) Writes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.writes...)
}

// next counts a write and says whether, and when, it is the last.
func (c *Crash) next(name string) Mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed {
		return ""
	}
	c.writes = append(c.writes, name)
	if len(c.writes)-1 != c.at {
		return ""
	}
	return c.mode
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (c *Crash) write(name string, do func() error) error {
	mode := c.next(name)
	switch mode {
	case Before:
		die()
	case During:
		go func() { _ = do() }()
		runtime.Gosched()
		die()
	}
	err := do()
	if mode == After {
		die()
	}
	return err
}

func (c *Crash) Accept(ctx context.Context, w store.Write) (r core.Resource, err error) {
	err = c.write("Accept", func() error { r, err = c.Store.Accept(ctx, w); return err })
	return r, err
}

func (c *Crash) AcceptDelete(ctx context.Context, d store.Delete) (r core.Resource, err error) {
	err = c.write("AcceptDelete", func() error { r, err = c.Store.AcceptDelete(ctx, d); return err })
	return r, err
}

func (c *Crash) Lease(ctx context.Context, l store.Lease) ([]store.Leased, error) {
	leased, err := c.Store.Lease(ctx, l)
	if err == nil && len(leased) > 0 && c.next("Lease") != "" {
		die()
	}
	return leased, err
}

func (c *Crash) Renew(ctx context.Context, op string, fence int64, until time.Time) error {
	return c.write("Renew", func() error { return c.Store.Renew(ctx, op, fence, until) })
}

func (c *Crash) Progress(ctx context.Context, op string, fence int64, s core.State) error {
	return c.write("Progress", func() error { return c.Store.Progress(ctx, op, fence, s) })
}

func (c *Crash) Park(ctx context.Context, op string, fence int64) error {
	return c.write("Park", func() error { return c.Store.Park(ctx, op, fence) })
}

func (c *Crash) SaveOutputs(ctx context.Context, op string, fence int64, put []core.Output, drop []core.ID) error {
	return c.write("SaveOutputs", func() error { return c.Store.SaveOutputs(ctx, op, fence, put, drop) })
}

func (c *Crash) Append(ctx context.Context, op string, fence int64, messages []store.Message) error {
	return c.write("Append", func() error { return c.Store.Append(ctx, op, fence, messages) })
}

func (c *Crash) End(ctx context.Context, e store.Ending) error {
	return c.write("End", func() error { return c.Store.End(ctx, e) })
}

func (c *Crash) Cancel(ctx context.Context, x store.Cancel) (op core.Operation, err error) {
	err = c.write("Cancel", func() error { op, err = c.Store.Cancel(ctx, x); return err })
	return op, err
}
