package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/test/fault/plane"
)

// What a history is made of.
const (
	histories        = 200
	historiesSampled = 40
	historyClients   = 8
	historyRequests  = 14 // of each client
	historyResources = 3
)

// call is what a client asked for of one resource; or, as verb "end", that an
// operation ended, which happens by itself between the call of its write and
// the moment somebody was told.
type call struct {
	id      int // the resource
	verb    string
	n       int // what a PUT writes
	ifMatch string
	ifNone  bool
	// key is the operation of an accepted write, and of its end.
	key int64
}

// reply is what came back.
type reply struct {
	status int
	n      int
	tag    string
	state  string
}

// row is a resource as the sequential specification has it. It is compared by
// ==, so all of it is state.
type row struct {
	exists   bool
	n        int
	tag      string // "" while no client has seen it
	not      string // the tag before, which the unseen one differs from
	live     int64
	deleting bool
}

// bind says whether the row's tag may be t, and what is known then.
func (r row) bind(t string) (row, bool) {
	if r.tag != "" {
		return r, r.tag == t
	}
	r.tag = t
	return r, t != "" && t != r.not
}

// step is the specification: D-17 (one live operation), D-19 (resource and
// operation change together) and D-22 (entity tags), for one resource at a time.
func step(state, input, output any) (bool, any) {
	r, in, out := state.(row), input.(call), output.(reply)
	switch in.verb {
	case "end":
		if r.live != in.key {
			return false, r
		}
		if r.deleting {
			return true, row{}
		}
		return true, row{exists: true, n: r.n, not: r.tag}
	case http.MethodGet:
		if !r.exists {
			return out.status == http.StatusNotFound, r
		}
		bound, ok := r.bind(out.tag)
		want := string(core.StateSucceeded)
		if r.deleting {
			want = string(core.StateDeleting)
		} else if r.live != 0 {
			want = string(core.StateAccepted)
		}
		return ok && out.status == http.StatusOK && out.n == r.n && out.state == want, bound
	}
	// A write. First what its sender demands, then what the resource allows.
	if in.verb == http.MethodDelete && !r.exists {
		return out.status == http.StatusNoContent, r
	}
	if in.ifNone && r.exists {
		return out.status == http.StatusPreconditionFailed, r
	}
	if in.ifMatch != "" {
		bound, may := r.bind(in.ifMatch)
		if out.status == http.StatusPreconditionFailed {
			return !r.exists || r.tag != in.ifMatch, r // an unseen tag may be another
		}
		if !r.exists || !may {
			return false, r
		}
		r = bound
	}
	switch {
	case r.live != 0:
		return out.status == http.StatusConflict, r
	case in.verb == http.MethodDelete:
		return out.status == http.StatusAccepted, row{exists: true, n: r.n, not: r.tag, live: in.key, deleting: true}
	default:
		return out.status == http.StatusCreated, row{exists: true, n: in.n, tag: out.tag, live: in.key}
	}
}

var specification = porcupine.Model{
	Init: func() any { return row{} },
	Step: step,
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, historyResources)
		for _, o := range history {
			id := o.Input.(call).id
			parts[id] = append(parts[id], o)
		}
		return parts
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

// recording is a history under way.
type recording struct {
	start time.Time
	keys  atomic.Int64

	mu  sync.Mutex
	all []porcupine.Operation
}

func (r *recording) now() int64 { return time.Since(r.start).Nanoseconds() }

func (r *recording) add(client int, in call, begun int64, out reply) {
	ended := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, porcupine.Operation{ClientId: client, Input: in, Call: begun, Output: out, Return: ended})
}

// record lets eight clients loose on three resources, and returns what they saw
// once every operation has ended. Clients take the endpoints in turn.
func record(ctx context.Context, name string, rnd *rand.Rand, endpoints []*plane.Client) ([]porcupine.Operation, error) {
	r := &recording{start: time.Now()}
	var running sync.WaitGroup
	failures := make(chan error, historyClients*(historyRequests+1))
	for c := range historyClients {
		mine := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
		running.Go(func() {
			if err := r.client(ctx, c, name, mine, endpoints[c%len(endpoints)], &running, failures); err != nil {
				failures <- err
			}
		})
	}
	running.Wait()
	close(failures)
	var err error
	for e := range failures {
		err = errors.Join(err, e)
	}
	return r.all, err
}

func (r *recording) client(ctx context.Context, c int, name string, rnd *rand.Rand, api *plane.Client, running *sync.WaitGroup, failures chan<- error) error {
	seen := make([]string, historyResources)
	for i := range historyRequests {
		in := call{id: rnd.IntN(historyResources), n: c*1000 + i}
		var header []string
		body := ""
		switch p := rnd.IntN(20); {
		case p < 6:
			in.verb = http.MethodGet
		case p < 15:
			in.verb, body = http.MethodPut, fmt.Sprintf(`{"properties":{"n":%d}}`, in.n)
		default:
			in.verb = http.MethodDelete
		}
		if in.verb != http.MethodGet {
			switch p := rnd.IntN(10); {
			case p < 4 && seen[in.id] != "":
				in.ifMatch = seen[in.id]
				header = []string{"If-Match", in.ifMatch}
			case p == 4 && in.verb == http.MethodPut:
				in.ifNone = true
				header = []string{"If-None-Match", "*"}
			}
		}
		in.key = r.keys.Add(1)
		path := fmt.Sprintf("%s%s-%d%s", plane.Inert, name, in.id, plane.Version)
		begun := r.now()
		got, err := api.Send(ctx, in.verb, path, body, header...)
		if err != nil {
			return err
		}
		out := reply{status: got.Status, tag: got.Header.Get("ETag")}
		if n, ok := got.Body.Properties["n"].(float64); ok {
			out.n = int(n)
		}
		out.state, _ = got.Body.Properties["provisioningState"].(string)
		r.add(c, in, begun, out)
		if out.tag != "" && got.Status < 300 {
			seen[in.id] = out.tag
		}
		link := got.Operation()
		if link == "" {
			continue
		}
		await := func() error {
			got, err := api.Await(ctx, link)
			if err != nil {
				return err
			}
			if got.Body.Status != string(core.StateSucceeded) {
				return fmt.Errorf("operation %s ended as %s", link, got.Raw)
			}
			r.add(historyClients+int(in.key), call{id: in.id, verb: "end", key: in.key}, begun, reply{})
			return nil
		}
		if rnd.IntN(2) == 0 {
			if err := await(); err != nil {
				return err
			}
			continue
		}
		running.Go(func() {
			if err := await(); err != nil {
				failures <- err
			}
		})
	}
	return nil
}

// culprit is the part of a history that is not linearizable, a line an
// operation with the microseconds of its call and return.
func culprit(history []porcupine.Operation) string {
	one := specification
	one.Partition = nil
	var b strings.Builder
	for _, part := range specification.Partition(history) {
		if porcupine.CheckOperations(one, part) {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, o := range part {
			fmt.Fprintf(&b, "%8d %8d client %3d  %s\n", o.Call/1000, o.Return/1000, o.ClientId, specification.DescribeOperation(o.Input, o.Output))
		}
	}
	return b.String()
}

// replicasOf starts as many planes on one store as its kind allows, up to two,
// each behind wrap.
func replicasOf(t *testing.T, k kind, wrap func(store.Store) store.Store) []*plane.Client {
	t.Helper()
	h := prepared(t, k.fresh(t), "", "")
	n := 1
	if k.replicas {
		n = 2
	}
	var endpoints []*plane.Client
	for range n {
		p, err := plane.Start(t.Context(), h.config, wrap)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Stop)
		endpoints = append(endpoints, plane.NewClient(p.URL))
	}
	return endpoints
}

// TestLinearizable_D17 checks what eight clients saw of PUT, GET and DELETE,
// with and without If-Match and If-None-Match, against a specification in which
// everything happens one after the other.
func TestLinearizable_D17(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run("D-17 D-19 D-22 "+k.name, func(t *testing.T) {
			t.Parallel()
			rnd := random(t)
			endpoints := replicasOf(t, k, nil)
			n := historiesSampled
			if all() {
				n = histories
			}
			counts := map[int]int{}
			for i := range n {
				history, err := record(patient(t), fmt.Sprintf("h%d", i), rnd, endpoints)
				if err != nil {
					t.Fatal(err)
				}
				if result := porcupine.CheckOperationsTimeout(specification, history, patience); result != porcupine.Ok {
					t.Fatalf("history %d is not linearizable (%s):\n%s", i, result, culprit(history))
				}
				for _, o := range history {
					counts[o.Output.(reply).status]++
				}
			}
			// A history in which nothing was refused would prove little.
			t.Logf("%d histories, answers by status (0 are ends): %v", n, counts)
			for _, status := range []int{200, 201, 202, 204, 404, 409, 412} {
				if counts[status] == 0 {
					t.Errorf("no client ever saw a %d", status)
				}
			}
		})
	}
}

// TestHistoryFindsDefects breaks the store on purpose: the check must see it.
func TestHistoryFindsDefects(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(store.Store) store.Store{
		"reads of what was before":      func(s store.Store) store.Store { return &stale{Store: s, rows: map[string]core.Resource{}} },
		"writes over what was not read": func(s store.Store) store.Store { return blind{s} },
	} {
		for _, k := range kinds() {
			t.Run(name+" "+k.name, func(t *testing.T) {
				t.Parallel()
				rnd := random(t)
				endpoints := replicasOf(t, k, wrap)
				for i := range histories {
					history, err := record(patient(t), fmt.Sprintf("h%d", i), rnd, endpoints)
					if err != nil {
						t.Fatal(err)
					}
					if porcupine.CheckOperationsTimeout(specification, history, patience) == porcupine.Illegal {
						t.Logf("seen in history %d", i)
						return
					}
				}
				t.Error("no history showed it")
			})
		}
	}
}

// stale answers every third read with the row of the read before.
type stale struct {
	store.Store
	mu   sync.Mutex
	n    int
	rows map[string]core.Resource
}

func (s *stale) Get(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error) {
	r, op, err := s.Store.Get(ctx, id)
	if err != nil {
		return r, op, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, ok := s.rows[id.Key()]
	s.rows[id.Key()] = r
	if s.n++; ok && s.n%3 == 0 {
		return before, op, nil
	}
	return r, op, nil
}

// blind commits whatever the row has become since it was read, which takes it a
// moment, so that the row has the time.
type blind struct{ store.Store }

func (s blind) Accept(ctx context.Context, w store.Write) (core.Resource, error) {
	w.Expect = "*"
	time.Sleep(2 * time.Millisecond)
	return s.Store.Accept(ctx, w)
}
