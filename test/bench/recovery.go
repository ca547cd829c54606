package main

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/radial-project/radial/test/fault/plane"
)

const (
	inFlight = 1000
	// gateTime is what each operation of the recovery part takes outside.
	gateTime = 20 * time.Millisecond
)

// flight has operations accepted whose recipes wait at the gate.
func (b *bench) flight(c *plane.Client) ([]string, error) {
	if err := c.Prepare(b.ctx, "", ""); err != nil {
		return nil, err
	}
	links := make([]string, inFlight)
	err := spread(inFlight, func(i int) error {
		r, err := c.Send(b.ctx, http.MethodPut, fmt.Sprintf("%sr%d%s", plane.Made, i, plane.Version),
			fmt.Sprintf(`{"properties":{"n":%d,"environment":%q}}`, i, plane.Env))
		if err == nil && r.Operation() == "" {
			err = fmt.Errorf("PUT answered %d: %s", r.Status, r.Raw)
		}
		links[i] = r.Operation()
		return err
	})
	return links, err
}

// land waits for the end of all.
func (b *bench) land(c *plane.Client, links []string) error {
	return spread(len(links), func(i int) error {
		r, err := c.Await(b.ctx, links[i])
		if err == nil && r.Body.Status != "Succeeded" {
			err = fmt.Errorf("operation ended as %s", r.Raw)
		}
		return err
	})
}

// spread calls do for 0…n-1 from sixteen goroutines.
func spread(n int, do func(i int) error) error {
	var mu sync.Mutex
	var all error
	next := 0
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := i >= n || all != nil
				mu.Unlock()
				if stop {
					return
				}
				if err := do(i); err != nil {
					mu.Lock()
					all = errors.Join(all, err)
					mu.Unlock()
				}
			}
		})
	}
	running.Wait()
	return all
}

// recovery measures how long a thousand accepted operations take undisturbed,
// and after their server was killed: by a restart on SQLite, by another replica
// on PostgreSQL.
func (b *bench) recovery() error {
	key := filepath.Join(b.dir, "recovery.key")
	plain, err := b.recover(plane.Config{Store: filepath.Join(b.dir, "plain.db"), KeyFile: key, GateTime: gateTime}, undisturbed)
	if err != nil {
		return err
	}
	killed, err := b.recover(plane.Config{Store: filepath.Join(b.dir, "killed.db"), KeyFile: key, GateTime: gateTime}, restarted)
	if err != nil {
		return err
	}
	f := figure{Name: fmt.Sprintf("SQLite: %d operations in flight, from the kill to the last end", inFlight), Value: killed, Unit: "ms",
		Beside: plain, What: fmt.Sprintf("undisturbed; each takes %s", gateTime), Goal: "≤ 1.3× + 1 s"}
	f.Met = killed <= 1.3*plain+1000
	b.add(f)
	url, err := b.database("recovery")
	if errors.Is(err, errNoPostgres) {
		return nil
	}
	if err != nil {
		return err
	}
	killed, err = b.recover(plane.Config{Store: url, KeyFile: key, GateTime: gateTime}, takenOver)
	if err != nil {
		return err
	}
	b.add(figure{Name: fmt.Sprintf("PostgreSQL: %d operations in flight, from the kill to the last end by another replica", inFlight), Value: killed, Unit: "ms"}.atMost(20_000))
	return nil
}

type fate int

const (
	undisturbed fate = iota
	restarted
	takenOver
)

func (b *bench) recover(c plane.Config, f fate) (float64, error) {
	p, err := plane.Launch(c)
	if err != nil {
		return 0, err
	}
	defer p.Kill()
	client := plane.NewClient(p.URL)
	links, err := b.flight(client)
	if err != nil {
		return 0, err
	}
	next := p
	if f == takenOver {
		if next, err = plane.Launch(c); err != nil {
			return 0, err
		}
		defer next.Kill()
	}
	begun := time.Now()
	if f != undisturbed {
		p.Kill()
	}
	if f == restarted {
		if next, err = plane.Launch(c); err != nil {
			return 0, err
		}
		defer next.Kill()
	}
	if err := next.Open(); err != nil {
		return 0, err
	}
	err = b.land(plane.NewClient(next.URL), links)
	return milliseconds(time.Since(begun)), err
}
