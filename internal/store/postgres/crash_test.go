package postgres_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/pgtest"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(func() { pgtest.Main(m) }, map[string]func(dsn string) error{"crash": childCrash, "hold": childHold, "write": childWrite})
}

// killer is a connection that kills the process at a point of its writes.
type killer struct {
	net.Conn
	writes *atomic.Int64
	point  int64
}

func (k killer) Write(p []byte) (int, error) {
	storetest.Die(k.point, k.writes.Add(1)-1, func() { _, _ = k.Conn.Write(p[:len(p)/2]) })
	return k.Conn.Write(p)
}

// childCrash plays the steps, and the effects that it counts are writes to the
// server.
func childCrash(dsn string) error {
	point, err := storetest.CrashPoint()
	if err != nil {
		return err
	}
	var writes atomic.Int64
	ctx := context.Background()
	s, err := postgres.Open(ctx, dsn, postgres.Options{}.WithDial(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return killer{conn, &writes, point}, nil
	}))
	if err != nil {
		return err
	}
	if err := storetest.Play(ctx, s, storetest.CrashSteps()); err != nil {
		return err
	}
	fmt.Println("effects", writes.Load())
	return nil
}

// crashTime is after all leases of the play.
var crashTime = time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)

// TestCrash_D18 kills a process before and in the middle of what it sends to the
// server; the queue runs empty once the leases ran out.
func TestCrash_D18(t *testing.T) {
	t.Parallel()
	empty := pgtest.Database(t)
	s, err := postgres.Open(t.Context(), empty, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	pgtest.Alone(t, empty)
	storetest.Crash{
		Prepare: func(t *testing.T) string { return pgtest.Copy(t, empty) },
		Open: func(t *testing.T, dsn string) store.Store {
			pgtest.Alone(t, dsn)
			return openAt(t, dsn)
		},
		Now: crashTime, Sample: 40, Effects: 2,
	}.Run(t)
}
