// Command river is the yardstick that bench measures beside Radial: it works
// no-op jobs of River (riverqueue.com) on a PostgreSQL database, each inserted
// in a transaction of its own, which is what a PUT to Succeeded is, less
// everything that a control plane does. Latency is that of one client that waits
// for each; throughput is that of clients that wait for none.
//
//	river -url postgres://… -n 2000 -clients 16
//
// It prints one JSON object: {"rate": jobs a second, "p50": milliseconds from
// insert to completed}.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type noop struct {
	N int `json:"n"`
}

func (noop) Kind() string { return "noop" }

type worker struct{ river.WorkerDefaults[noop] }

func (worker) Work(context.Context, *river.Job[noop]) error { return nil }

func main() {
	url := flag.String("url", "", "the database")
	n := flag.Int("n", 2000, "jobs")
	clients := flag.Int("clients", 16, "clients at once")
	flag.Parse()
	if err := run(context.Background(), *url, *n, *clients); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, n, clients int) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{})
	client, err := river.NewClient(driver, &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 32}},
		// As eager as it lets itself be configured.
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: river.FetchPollIntervalMin,
	})
	if err != nil {
		return err
	}
	events, cancel := client.SubscribeConfig(&river.SubscribeConfig{Kinds: []river.EventKind{river.EventKindJobCompleted}, ChanSize: n + 1000})
	defer cancel()
	if err := client.Start(ctx); err != nil {
		return err
	}
	// One client that waits, for the latency.
	var times []float64
	for i := range 120 {
		t := time.Now()
		if _, err := client.Insert(ctx, noop{N: i}, nil); err != nil {
			return err
		}
		<-events
		if i >= 20 { // connections and plans
			times = append(times, float64(time.Since(t).Microseconds())/1000)
		}
	}
	// Clients that do not wait, for the throughput: from the first insert to the
	// last completion.
	var next atomic.Int64
	var running sync.WaitGroup
	failed := make(chan error, clients)
	begun := time.Now()
	for range clients {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if _, err := client.Insert(ctx, noop{N: i}, nil); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	running.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	for range n {
		<-events
	}
	took := time.Since(begun).Seconds()
	slices.Sort(times)
	if err := json.NewEncoder(os.Stdout).Encode(map[string]float64{"rate": float64(n) / took, "p50": times[len(times)/2]}); err != nil {
		return err
	}
	return client.Stop(ctx)
}
