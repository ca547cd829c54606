// Package audit keeps the decisions about who may do what: one [Record] each,
// with no bodies and no secrets.
//
// # Guarantees
//
//   - [Log.Record] never blocks a request.
//   - Nothing is lost silently: what finds the queue full is counted, logged as
//     an error, and recorded itself, as a record that says how many are missing,
//     as soon as there is room. A sink that fails is tried again with the same
//     records until the log is closed.
//   - Records reach the sink in the order in which they came.
package audit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Record is one decision.
type Record struct {
	At time.Time `json:"at"`
	// Request is the id that the answer carried (x-ms-request-id).
	Request string `json:"request"`
	// Principal is "user:name" or "serviceAccount:namespace/name", "" for a
	// caller who did not prove who they are. Authentication is how they did.
	Principal      string `json:"principal,omitempty"`
	Authentication string `json:"authentication,omitempty"`
	// Source is the address that the request came from.
	Source string `json:"source,omitempty"`
	// Verb is what was wanted of ID.
	Verb    string `json:"verb"`
	ID      string `json:"id,omitempty"`
	Method  string `json:"method,omitempty"`
	Allowed bool   `json:"allowed"`
	// Reason is the role that allowed it, or what was missing.
	Reason string `json:"reason,omitempty"`
	// Lost is set in the record that stands for others which were lost.
	Lost int64 `json:"lost,omitempty"`
}

// VerbLost is the verb of a record that stands for lost ones.
const VerbLost = "audit-lost"

// Sink keeps records. Append keeps all of them or returns an error; after an
// error it may be given the same ones again.
type Sink interface {
	Append(ctx context.Context, records []Record) error
}

// Options of a Log. Sink is required.
type Options struct {
	Sink Sink
	// Queue is how many records may wait; 0 is 16,384: about ten seconds at the
	// highest rate of writes that one SQLite file takes.
	Queue int
	// Batch is how many go to the sink at a time; 0 is 512.
	Batch int
	// Linger is how long the first record of a batch waits for others; 0 is
	// 50 ms.
	Linger time.Duration
	Log    *slog.Logger
	Now    func() time.Time
	// Retry is the pause after the n-th failure of the sink in a row, from 1;
	// nil doubles from 100 ms to 10 s.
	Retry func(n int) time.Duration
}

// Log takes records and hands them to a sink in batches.
type Log struct {
	o       Options
	queue   chan Record
	closing chan struct{}
	done    chan struct{}
	once    sync.Once
	// ctx ends when the time to close is over.
	ctx    context.Context
	cancel context.CancelFunc

	// mu keeps records from entering the queue after it was drained for the
	// last time.
	mu     sync.RWMutex
	closed bool

	dropped, written, failures atomic.Int64
	// untold are those dropped that no record tells of yet.
	untold atomic.Int64
}

// New starts a log. Close it to have everything written.
func New(o Options) *Log {
	if o.Queue == 0 {
		o.Queue = 16384
	}
	if o.Batch == 0 {
		o.Batch = 512
	}
	if o.Linger == 0 {
		o.Linger = 50 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Retry == nil {
		o.Retry = func(n int) time.Duration { return min(100*time.Millisecond<<min(n-1, 10), 10*time.Second) }
	}
	l := &Log{o: o, queue: make(chan Record, o.Queue), closing: make(chan struct{}), done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go l.run()
	return l
}

// Record takes one record. It never blocks.
func (l *Log) Record(r Record) {
	if r.At.IsZero() {
		r.At = l.o.Now().UTC()
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.closed {
		select {
		case l.queue <- r:
			return
		default:
		}
	}
	l.dropped.Add(1)
	if l.untold.Add(1) == 1 { // once until it has been recorded: a full queue must not flood the log
		l.o.Log.Error("decisions are missing from the audit log: its queue is full because the sink does not keep up", "queue", l.o.Queue)
	}
}

// Dropped counts records that were lost.
func (l *Log) Dropped() int64 { return l.dropped.Load() }

// Written counts records that the sink has.
func (l *Log) Written() int64 { return l.written.Load() }

// Close writes what waits, until ctx ends. The error says how many records
// could not be written.
func (l *Log) Close(ctx context.Context) error {
	l.once.Do(func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		close(l.closing)
	})
	stop := context.AfterFunc(ctx, l.cancel)
	defer stop()
	<-l.done
	if n := l.untold.Load(); n > 0 {
		return fmt.Errorf("%d decisions could not be written to the audit log", n)
	}
	return nil
}

func (l *Log) run() {
	defer close(l.done)
	defer l.cancel()
	for {
		select {
		case r := <-l.queue:
			l.write(l.gather([]Record{r}))
		case <-l.closing:
			l.drain()
			return
		}
	}
}

// drain writes what is left once nothing more can come in.
func (l *Log) drain() {
	for {
		batch := l.take(nil)
		if len(batch) == 0 && l.untold.Load() == 0 {
			return
		}
		if !l.write(batch) {
			if left := l.take(nil); len(left) > 0 {
				l.lose(len(left))
				continue
			}
			return
		}
	}
}

// take adds what waits to a batch, without waiting.
func (l *Log) take(batch []Record) []Record {
	for len(batch) < l.o.Batch {
		select {
		case r := <-l.queue:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// gather fills a batch until it is full, the linger is over or the log closes.
func (l *Log) gather(batch []Record) []Record {
	timer := time.NewTimer(l.o.Linger)
	defer timer.Stop()
	for len(batch) < l.o.Batch {
		select {
		case r := <-l.queue:
			batch = append(batch, r)
		case <-timer.C:
			return batch
		case <-l.closing:
			return l.take(batch)
		}
	}
	return batch
}

// write gives a batch to the sink until it takes it or the log's time is over;
// false says that it was lost.
func (l *Log) write(batch []Record) bool {
	untold := l.untold.Load()
	if untold > 0 {
		batch = append(batch, Record{At: l.o.Now().UTC(), Verb: VerbLost, Lost: untold,
			Reason: fmt.Sprintf("%d decisions were made and could not be recorded", untold)})
	}
	for n := 1; ; n++ {
		err := l.o.Sink.Append(l.ctx, batch)
		if err == nil {
			l.written.Add(int64(len(batch)))
			l.untold.Add(-untold)
			return true
		}
		l.failures.Add(1)
		if n == 1 {
			l.o.Log.Error("the audit log cannot be written; it is tried again", "records", len(batch), "error", err.Error())
		}
		pause := time.NewTimer(l.o.Retry(n))
		select {
		case <-pause.C:
		case <-l.ctx.Done():
			pause.Stop()
			if untold > 0 {
				batch = batch[:len(batch)-1] // those it tells of are counted already
			}
			l.lose(len(batch))
			return false
		}
	}
}

func (l *Log) lose(n int) {
	l.dropped.Add(int64(n))
	l.untold.Add(int64(n))
}

// Describe implements [prometheus.Collector].
func (l *Log) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, c) }

var (
	descWritten  = prometheus.NewDesc("radial_audit_records_total", "Decisions written to the audit log.", nil, nil)
	descDropped  = prometheus.NewDesc("radial_audit_records_lost_total", "Decisions that could not be written to the audit log.", nil, nil)
	descFailures = prometheus.NewDesc("radial_audit_write_failures_total", "Attempts to write to the audit log that failed.", nil, nil)
	descWaiting  = prometheus.NewDesc("radial_audit_queue_records", "Decisions that wait to be written.", nil, nil)
)

// Collect implements [prometheus.Collector].
func (l *Log) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.MustNewConstMetric(descWritten, prometheus.CounterValue, float64(l.written.Load()))
	c <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(l.dropped.Load()))
	c <- prometheus.MustNewConstMetric(descFailures, prometheus.CounterValue, float64(l.failures.Load()))
	c <- prometheus.MustNewConstMetric(descWaiting, prometheus.GaugeValue, float64(len(l.queue)))
}
