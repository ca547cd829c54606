package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite"
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
)

// arm measures PUT to Succeeded on the wire, beside the floor of the same
// machine in the same minute: two loopback requests and three commits.
func (b *bench) arm() error {
	manifest, err := b.file("bench-type.yaml", benchKind)
	if err != nil {
		return err
	}
	if _, err := b.radial("resource-type", "create", "-f", manifest); err != nil {
		return err
	}
	u, err := os.ReadFile(filepath.Join(b.dir, "server.url"))
	if err != nil {
		return err
	}
	w := &wire{base: strings.TrimSpace(string(u)), c: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	if _, _, err := w.load(b.ctx, "warm", 50, 1); err != nil {
		return err
	}
	floor, err := b.floor(b.n)
	if err != nil {
		return err
	}
	one, _, err := w.load(b.ctx, "one", b.n, 1)
	if err != nil {
		return err
	}
	b.add(figure{Name: "PUT to Succeeded, one client, p50", Value: quantile(one, .5), Unit: "ms",
		Beside: quantile(floor, .5), What: "2 loopback requests + 3 commits, synchronous=FULL", Goal: "≤ 3 ms"})
	b.add(figure{Name: "PUT to Succeeded, one client, p99", Value: quantile(one, .99), Unit: "ms", Beside: quantile(floor, .99), What: "the same"})
	eight, rate, err := w.load(b.ctx, "eight", b.n*4, 8)
	if err != nil {
		return err
	}
	b.add(figure{Name: "PUT to Succeeded, eight clients, p50", Value: quantile(eight, .5), Unit: "ms"})
	b.add(figure{Name: "operations at eight clients", Value: rate, Unit: "/s", Goal: "≥ 1000 /s"})
	return nil
}

// wire speaks the ARM wire as a client does.
type wire struct {
	base string
	c    *http.Client
}

// load writes and deletes n resources from the given number of clients and
// returns the milliseconds of each PUT to Succeeded, sorted, and operations
// (PUTs and DELETEs) a second.
func (w *wire) load(ctx context.Context, prefix string, n, clients int) ([]float64, float64, error) {
	times := make([]float64, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, clients)
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				u := fmt.Sprintf("%s/planes/radius/local/resourceGroups/default/providers/%s/%s%d?api-version=%s", w.base, benchType, prefix, i, benchVersion)
				t := time.Now()
				if err := w.do(ctx, http.MethodPut, u, `{"location":"global","properties":{"text":"hello"}}`); err != nil {
					errs <- err
					return
				}
				times[i] = float64(time.Since(t).Microseconds()) / 1000
				if err := w.do(ctx, http.MethodDelete, u, ""); err != nil {
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
	slices.Sort(times)
	return times, float64(2*n) / took, nil
}

// do sends a write and waits for its operation to succeed.
func (w *wire) do(ctx context.Context, method, url, body string) error {
	resp, err := w.send(ctx, method, url, body)
	if err != nil {
		return err
	}
	for status := resp.Header.Get("Azure-AsyncOperation"); status != ""; {
		resp, err := w.send(ctx, http.MethodGet, status, "")
		if err != nil {
			return err
		}
		var op struct {
			Status string
			Error  json.RawMessage
		}
		if err := json.Unmarshal(resp.body, &op); err != nil {
			return err
		}
		switch op.Status {
		case "Succeeded":
			return nil
		case "Failed", "Canceled":
			return fmt.Errorf("%s %s: %s: %s", method, url, op.Status, op.Error)
		}
	}
	return nil
}

type response struct {
	*http.Response
	body []byte
}

func (w *wire) send(ctx context.Context, method, url, body string) (*response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodGet {
		req.Header.Set("Prefer", "wait=30")
	}
	resp, err := w.c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, bytes.TrimSpace(data))
	}
	return &response{resp, data}, nil
}

// floor times what any server must pay: two loopback requests and three
// commits of a row of the same size to SQLite on the same disk.
func (b *bench) floor(n int) ([]float64, error) {
	db, err := sql.Open("sqlite", filepath.Join(b.dir, "floor.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(b.ctx, "CREATE TABLE t(k TEXT PRIMARY KEY, v TEXT) STRICT"); err != nil {
		return nil, err
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(rw, `{"status":"Succeeded"}`)
	}))
	if srv.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	srv.Start()
	defer srv.Close()
	w := &wire{c: srv.Client()}
	row := strings.Repeat("x", 600)
	times := make([]float64, n)
	for i := range times {
		t := time.Now()
		for _, m := range []string{http.MethodPut, http.MethodGet} {
			if _, err := w.send(b.ctx, m, srv.URL, `{}`); err != nil {
				return nil, err
			}
		}
		for c := range 3 {
			if _, err := db.ExecContext(b.ctx, "INSERT INTO t VALUES(?,?)", fmt.Sprintf("%d/%d", i, c), row); err != nil {
				return nil, err
			}
		}
		times[i] = float64(time.Since(t).Microseconds()) / 1000
	}
	slices.Sort(times)
	return times, nil
}

// quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*q))]
}
