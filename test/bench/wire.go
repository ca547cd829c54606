package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/radial-project/radial/test/fault/plane"
)

// The inert type that the measurements write.
const (
	benchType    = "Bench.Radial/notes"
	benchVersion = "2026-01-01"
	benchKind    = `namespace: Bench.Radial
types:
  notes:
    capabilities: ["ManualResourceProvisioning"]
    apiVersions:
      "2026-01-01":
        schema:
          type: object
          properties:
            text: {type: string}
            url: {type: string}
`
	benchJSON = `{"namespace":"Bench.Radial","types":{"notes":{"capabilities":["ManualResourceProvisioning"],"apiVersions":{"2026-01-01":` +
		`{"schema":{"type":"object","properties":{"text":{"type":"string"},"url":{"type":"string"}}}}}}}}`
	body = `{"location":"global","properties":{"text":"hello"}}`
)

// process is a running radial-server, the real program.
type process struct {
	*plane.Client
	cmd *exec.Cmd
}

// server starts a radial-server on a store: the path of a file, or a URL.
func (b *bench) server(store string, args ...string) (*process, error) {
	ready := filepath.Join(b.dir, fmt.Sprintf("ready-%d", time.Now().UnixNano()))
	log, err := os.OpenFile(filepath.Join(b.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(b.bin, "radial-server"), append([]string{"--developer-mode", "--listen", "127.0.0.1:0",
		"--store", store, "--key-file", filepath.Join(b.dir, "key"), "--ready-file", ready}, args...)...)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	limit := time.After(time.Minute)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-ended:
			return nil, fmt.Errorf("radial-server ended: see %s", log.Name())
		case <-limit:
			return nil, errors.Join(errors.New("radial-server was not ready within a minute"), cmd.Process.Kill())
		case <-tick.C:
			raw, err := os.ReadFile(ready)
			if err != nil {
				continue
			}
			tick.Stop()
			p := &process{plane.NewClient(strings.TrimSpace(string(raw))), cmd}
			return p, p.register(b.ctx)
		}
	}
}

func (p *process) register(ctx context.Context) error {
	if err := p.Do(ctx, http.MethodPut, plane.Group+plane.UCP, `{}`); err != nil {
		return err
	}
	return p.Do(ctx, http.MethodPut, "/planes/radius/local/providers/System.Resources/resourceproviders/Bench.Radial/manifest"+plane.UCP, benchJSON)
}

func (p *process) stop() { _ = p.cmd.Process.Signal(syscall.SIGTERM); _, _ = p.cmd.Process.Wait() }

// memory is a line of /proc/…/status in megabytes.
func (p *process) memory(name string) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc", name)
}

// processor is the processor time that the process has used, in milliseconds.
func (p *process) processor() (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// User and system time are the 14th and 15th field, in hundredths of a
	// second; the second is the name in parentheses.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", p.cmd.Process.Pid, len(fields))
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) * 10, errors.Join(err1, err2)
}

func notePath(prefix string, i int) string {
	return fmt.Sprintf("%s/providers/%s/%s%d?api-version=%s", plane.Group, benchType, prefix, i, benchVersion)
}

// load writes and deletes n resources from the given number of clients and
// returns the milliseconds of each PUT to Succeeded, and operations (PUTs and
// DELETEs) a second.
func (p *process) load(ctx context.Context, prefix string, n, clients int) ([]float64, float64, error) {
	times := make([]float64, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, clients)
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				path := notePath(prefix, i)
				t := time.Now()
				if err := p.Do(ctx, http.MethodPut, path, body); err != nil {
					errs <- err
					return
				}
				times[i] = milliseconds(time.Since(t))
				if err := p.Do(ctx, http.MethodDelete, path, ""); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start).Seconds()
	select {
	case err := <-errs:
		return nil, 0, err
	default:
	}
	return times, float64(2*n) / took, nil
}

// goals of one kind of store.
type goals struct {
	name  string
	rate  float64 // operations a second at 16 clients
	eight float64 // operations a second at 8 clients; 0 is not measured
	floor string
	bound bool // the ratio to the floor is a goal here
}

// writes measures a store on the wire: one client beside the floor in turns, so
// that both see the same machine, and then eight and sixteen.
func (b *bench) wire(store string, f floor, g goals) error {
	p, err := b.server(store)
	if err != nil {
		return err
	}
	defer p.stop()
	if _, _, err := p.load(b.ctx, "warm", 50, 2); err != nil {
		return err
	}
	var ours, theirs []float64
	const turns = 8
	for i := range turns {
		t, err := timeFloor(b.ctx, f, i*b.n, b.n/turns)
		if err != nil {
			return err
		}
		o, _, err := p.load(b.ctx, fmt.Sprintf("one%d-", i), b.n/turns, 1)
		if err != nil {
			return err
		}
		ours, theirs = append(ours, o...), append(theirs, t...)
	}
	p50 := figure{Name: g.name + ": PUT to Succeeded, one client, p50", Value: quantile(ours, .5), Unit: "ms", Beside: quantile(theirs, .5), What: g.floor}
	if g.bound {
		p50 = p50.ratioAtMost(2)
	}
	b.add(p50)
	b.add(figure{Name: g.name + ": PUT to Succeeded, one client, p99", Value: quantile(ours, .99), Unit: "ms", Beside: quantile(theirs, .99), What: "the same"})
	if g.eight > 0 {
		_, rate, err := p.load(b.ctx, "eight", b.n*6, 8)
		if err != nil {
			return err
		}
		b.add(figure{Name: g.name + ": operations at eight clients", Value: rate, Unit: "/s"}.atLeast(g.eight))
	}
	before, err := p.processor()
	if err != nil {
		return err
	}
	sixteen, rate, err := p.load(b.ctx, "sixteen", b.n*6, 16)
	if err != nil {
		return err
	}
	after, err := p.processor()
	if err != nil {
		return err
	}
	b.add(figure{Name: g.name + ": operations at sixteen clients", Value: rate, Unit: "/s"}.atLeast(g.rate))
	b.add(figure{Name: g.name + ": PUT to Succeeded, sixteen clients, p50", Value: quantile(sixteen, .5), Unit: "ms"})
	// What does not depend on who else uses the machine.
	b.add(figure{Name: g.name + ": processor time of the server an operation", Value: (after - before) / float64(b.n*12), Unit: "ms"})
	return nil
}

func (b *bench) sqlite() error {
	f, err := sqliteFloor(b.ctx, filepath.Join(b.dir, "floor.db"))
	if err != nil {
		return err
	}
	defer f.close()
	return b.wire(filepath.Join(b.dir, "wire.db"), f, goals{name: "SQLite", rate: 1500, eight: 1000, bound: true,
		floor: "three commits of the same rows, synchronous=FULL, and two loopback requests"})
}
