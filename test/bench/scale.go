package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/test/fault/plane"
)

const (
	small = 100
	large = 100_000
	drawn = 10_000 // resources in the graph that has a goal
)

// fill makes a store with an application of n resources, each connected to the
// one before and with an output in a cluster.
func fill(ctx context.Context, location string, n int) error {
	s, err := plane.Open(ctx, location, func([]store.Change) {})
	if err != nil {
		return err
	}
	defer s.Close()
	group := core.GroupID("g")
	environment, application := group.Resource("Applications.Core/environments", "env"), group.Resource("Applications.Core/applications", "app")
	now := time.Now().UTC()
	member := func(i int) core.ID { return group.Resource(benchType, fmt.Sprintf("stored%d", i)) }
	i := -5
	next := func() (store.Record, error) {
		defer func() { i++ }()
		r := core.Resource{Location: "global", State: core.StateSucceeded, APIVersion: "2023-10-01-preview", ETag: fmt.Sprintf(`"fill-%d"`, i),
			SystemData: core.SystemData{CreatedAt: now, LastModifiedAt: now}}
		record := store.ResourceRecord{}
		switch {
		case i == -5:
			return store.Record{Manifest: &store.ManifestRecord{Namespace: "Bench.Radial", Manifest: json.RawMessage(benchJSON)}}, nil
		case i == -4:
			r.ID = core.ID{Plane: group.Plane}
		case i == -3:
			r.ID = group
		case i == -2:
			r.ID, r.Properties = environment, json.RawMessage(`{"compute":{"kind":"kubernetes","namespace":"default"}}`)
		case i == -1:
			r.ID, r.Environment, r.Properties = application, environment, json.RawMessage(fmt.Sprintf(`{"environment":%q}`, environment))
		case i < n:
			r.ID, r.APIVersion, r.Application, r.Environment = member(i), benchVersion, application, environment
			before := member(max(i-1, 0))
			r.Properties = json.RawMessage(fmt.Sprintf(`{"text":"hello","environment":%q,"application":%q,"connections":{"before":{"source":%q}}}`, environment, application, before))
			record.Edges = []core.Edge{{From: r.ID, To: before, Kind: core.EdgeConnection, Name: "before"}}
			record.Outputs = []core.Output{{ID: core.KubernetesID(core.LocalCluster, "default", "core", "ConfigMap", fmt.Sprintf("stored%d", i)), State: core.OutputMade, Managed: true}}
		default:
			return store.Record{}, io.EOF
		}
		record.Resource = r
		return store.Record{Resource: &record}, nil
	}
	return s.Import(ctx, next)
}

// scale measures whether a write costs more beside many stored resources: two
// servers run at once and are asked in turns.
func (b *bench) scale() error {
	var servers []*process
	for _, n := range []int{small, large} {
		path := filepath.Join(b.dir, fmt.Sprintf("scale-%d.db", n))
		if err := fill(b.ctx, path, n); err != nil {
			return err
		}
		p, err := b.server(path)
		if err != nil {
			return err
		}
		defer p.stop()
		if _, _, err := p.load(b.ctx, "warm", 50, 2); err != nil {
			return err
		}
		servers = append(servers, p)
	}
	times := [2][]float64{}
	const turns = 8
	for i := range turns {
		for j, p := range servers {
			t, _, err := p.load(b.ctx, fmt.Sprintf("turn%d-", i), b.n/turns, 1)
			if err != nil {
				return err
			}
			times[j] = append(times[j], t...)
		}
	}
	b.add(figure{Name: fmt.Sprintf("PUT to Succeeded beside %d stored resources, p50", large), Value: quantile(times[1], .5), Unit: "ms",
		Beside: quantile(times[0], .5), What: fmt.Sprintf("beside %d", small)}.ratioAtMost(1.3))
	return nil
}

// graph measures the drawing of large applications, and what a server then
// holds in memory.
func (b *bench) graph() error {
	for _, n := range []int{drawn, large} {
		path := filepath.Join(b.dir, fmt.Sprintf("graph-%d.db", n))
		if err := fill(b.ctx, path, n); err != nil {
			return err
		}
		p, err := b.server(path)
		if err != nil {
			return err
		}
		defer p.stop()
		idle, err := p.memory("VmRSS")
		if err != nil {
			return err
		}
		if n == large {
			t := time.Now()
			if got, err := p.listAll(b.ctx); err != nil || got != n {
				return fmt.Errorf("the list has %d resources: %w", got, err)
			}
			b.add(figure{Name: fmt.Sprintf("list of %d resources, all pages", n), Value: milliseconds(time.Since(t)), Unit: "ms"})
		}
		var times []float64
		var size int64
		for range 7 {
			t := time.Now()
			if size, err = p.Size(b.ctx, http.MethodPost, plane.App+"/getGraph"+plane.UCP, ``); err != nil {
				return err
			}
			times = append(times, milliseconds(time.Since(t)))
		}
		f := figure{Name: fmt.Sprintf("graph of %d resources (%d kB), p50", n, size>>10), Value: quantile(times, .5), Unit: "ms"}
		if n == drawn {
			f = f.atMost(100)
		}
		b.add(f)
		if n == large {
			after, err := p.memory("VmRSS")
			if err != nil {
				return err
			}
			b.add(figure{Name: fmt.Sprintf("resident memory after list and graph of %d", n), Value: after, Unit: "MB", Beside: idle, What: "before"}.atMost(200))
		}
	}
	return nil
}

// listAll walks all pages of the list.
func (p *process) listAll(ctx context.Context) (int, error) {
	n := 0
	for link := plane.Group + "/providers/" + benchType + "?api-version=" + benchVersion; link != ""; {
		r, err := p.Send(ctx, http.MethodGet, link, "")
		if err != nil {
			return n, err
		}
		var page struct {
			Value    []struct{} `json:"value"`
			NextLink string     `json:"nextLink"`
		}
		if err := json.Unmarshal([]byte(r.Raw), &page); err != nil {
			return n, err
		}
		n += len(page.Value)
		link = page.NextLink
		if i := len(p.Base); len(link) > i && link[:i] == p.Base {
			link = link[i:]
		}
	}
	return n, nil
}
