package observe

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/radial-project/radial/internal/store"
)

// queueTimeout bounds what a scrape may ask of the store, queueFresh how often.
const (
	queueTimeout = 2 * time.Second
	queueFresh   = time.Second
)

var (
	live = prometheus.NewDesc("radial_operations_live", "Operations that have not ended, by what they wait for: waiting for a worker, leased by one, parked until others end.", []string{"waiting_for"}, nil)
	wait = prometheus.NewDesc("radial_operations_oldest_waiting_seconds", "Age of the operation that has waited longest for a worker, 0 when none waits.", nil, nil)
	keys = prometheus.NewDesc("radial_keyset_versions", "Versions of the data keyset, by state.", []string{"state"}, nil)
	age  = prometheus.NewDesc("radial_keyset_primary_created_seconds", "When the version of the data keyset that seals was made, in seconds since 1970.", nil, nil)
	up   = prometheus.NewDesc("radial_store_up", "1 when the store answered the question for this scrape, else 0.", nil, nil)
)

// Collect returns a collector of what the store knows: the queue and the
// keysets, read when they are asked for, once a second at most.
func Collect(s store.Store) prometheus.Collector { return &collector{s: s, now: time.Now} }

type collector struct {
	s   store.Store
	now func() time.Time

	mu     sync.Mutex
	asked  time.Time
	counts store.Counts
	keys   []store.Keyset
	err    error
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{live, wait, keys, age, up} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.asked) >= queueFresh {
		ctx, cancel := context.WithTimeout(context.Background(), queueTimeout)
		defer cancel()
		if c.counts, c.err = c.s.Counts(ctx, now); c.err == nil {
			c.keys, c.err = c.s.Versions(ctx)
		}
		c.asked = now
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if c.err != nil {
		gauge(up, 0)
		return
	}
	gauge(up, 1)
	gauge(live, float64(c.counts.Waiting), "worker")
	gauge(live, float64(c.counts.Leased), "end")
	gauge(live, float64(c.counts.Parked), "others")
	oldest := 0.0
	if !c.counts.Oldest.IsZero() {
		oldest = max(now.Sub(c.counts.Oldest), 0).Seconds()
	}
	gauge(wait, oldest)
	states := map[store.KeysetState]int{store.KeysetAdded: 0, store.KeysetPrimary: 0, store.KeysetRetired: 0, store.KeysetDisabled: 0}
	for _, k := range c.keys {
		states[k.State]++
		if k.State == store.KeysetPrimary && !k.Created.IsZero() {
			gauge(age, float64(k.Created.Unix()))
		}
	}
	for s, n := range states {
		gauge(keys, float64(n), string(s))
	}
}
