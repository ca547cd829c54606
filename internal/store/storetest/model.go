package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

var modelCases = map[string]func(*fixture){
	"D-17 D-18 D-45 K-5 K-49 any sequence of calls does what the model does": func(f *fixture) {
		f.start(nil)
		round := 0
		// One store for all sequences, each with groups of its own: opening
		// one costs more than playing in it.
		rapid.Check(f.T, func(t *rapid.T) {
			round++
			m := &model{T: t, f: f, prefix: fmt.Sprintf("m%d", round), now: f.now, rows: map[string]*modelRow{}, ops: map[string]*modelOp{}}
			defer func() {
				m.now = m.now.Add(time.Hour)
				if err := Drain(f.ctx, f.Store, m.now); err != nil {
					f.Errorf("after the sequence: %v", err)
				}
				f.now = m.now
			}()
			t.Repeat(map[string]func(*rapid.T){
				"accept":   m.accept,
				"delete":   m.delete,
				"lease":    m.lease,
				"renew":    m.renew,
				"progress": m.progress,
				"park":     m.park,
				"end":      m.end,
				"time":     m.time,
				"":         m.compare,
			})
		})
	},
}

// model says in plain maps what a store must do. It is called with what rapid
// draws, calls the store with the same, and compares.
type model struct {
	*rapid.T
	f      *fixture
	prefix string
	now    time.Time
	rows   map[string]*modelRow
	ops    map[string]*modelOp
	made   int
}

type modelRow struct {
	id       core.ID
	state    core.State
	etag     string
	touched  bool // the entity tag must have changed at the next comparison
	owner    string
	app      string // key
	implicit bool
	live     *modelOp
}

type modelOp struct {
	id, key, parent string
	verb            core.Verb
	state           core.State
	group           string
	created         int
	fence           int64
	until           time.Time
	leased          bool
	parked, ended   bool
}

func (m *model) names() (group string, id, application core.ID) {
	group = m.prefix + rapid.SampledFrom([]string{"-g", "-h"}).Draw(m.T, "group")
	id = ext(group, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.T, "name"))
	return group, id, app(group, rapid.SampledFrom([]string{"one", "two"}).Draw(m.T, "application"))
}

func (m *model) expectation(row *modelRow) string {
	stored := ""
	if row != nil {
		stored = row.etag
	}
	return rapid.SampledFrom([]string{"*", stored, stored, "", "stale"}).Draw(m.T, "expect")
}

// refusal is what the checks that all writes share answer.
func refusal(row *modelRow, expect string) core.Code {
	switch {
	case expect != "*" && (row == nil && expect != "" || row != nil && expect != row.etag):
		return store.Changed
	case row != nil && row.live != nil:
		return core.CodeConflict
	}
	return ""
}

func (m *model) wantCode(err error, want core.Code, doing string) bool {
	m.Helper()
	if got := core.CodeOf(err); got != want {
		m.Fatalf("%s: %q (%v), the model says %q", doing, got, err, want)
	}
	return want == ""
}

func (m *model) newOp(id core.ID, verb core.Verb) *core.Operation {
	m.made++
	return &core.Operation{ID: fmt.Sprintf("%s-op%d", m.prefix, m.made), ResourceID: id, Verb: verb, State: core.StateAccepted, Group: id.Group(), Created: m.now}
}

func (m *model) accept(t *rapid.T) {
	m.T = t
	group, id, application := m.names()
	row := m.rows[id.Key()]
	owner := rapid.SampledFrom([]string{"", "u1", "u2"}).Draw(t, "owner")
	w := store.Write{Resource: plain(id, core.StateSucceeded), Expect: m.expectation(row), Now: m.now,
		Replaces: rapid.SampledFrom([]string{"", "", "u1"}).Draw(t, "replaces")}
	if owner != "" {
		w.Resource.Owner = deployment("n", owner)
	}
	parents := rapid.Bool().Draw(t, "parents")
	w.Resource.Application = application
	if parents {
		implicit(group, application.Name())(&w)
	}
	var op *modelOp
	if rapid.Bool().Draw(t, "asynchronous") {
		w.Operation = m.newOp(id, core.VerbPut)
		w.Resource.State = core.StateAccepted
		if p := m.draw(t, "parent", func(o *modelOp) bool { return !o.ended }); p != nil && rapid.Bool().Draw(t, "child") {
			w.Operation.Parent = p.id
		}
		op = &modelOp{id: w.Operation.ID, key: id.Key(), parent: w.Operation.Parent, verb: core.VerbPut, state: core.StateAccepted, group: group, created: m.made}
	}
	want := core.Code("")
	if _, ok := m.rows[core.GroupID(group).Key()]; !ok && !parents {
		want = core.CodeNotFound
	}
	if want == "" {
		want = refusal(row, w.Expect)
	}
	if want == "" && row != nil && owner != "" && owner != row.owner && (w.Replaces == "" || w.Replaces != row.owner) {
		want = core.CodeNameConflict
	}
	_, err := m.f.Accept(m.f.ctx, w)
	if !m.wantCode(err, want, "accept "+id.String()) {
		return
	}
	for _, p := range w.Parents {
		if m.rows[p.ID.Key()] == nil {
			m.rows[p.ID.Key()] = &modelRow{id: p.ID, state: core.StateSucceeded, implicit: true, touched: true}
		}
	}
	left := ""
	if row == nil {
		row = &modelRow{id: id}
		m.rows[id.Key()] = row
	} else if row.app != application.Key() {
		left = row.app
	}
	row.state, row.app, row.live, row.touched = w.Resource.State, application.Key(), op, true
	if owner != "" {
		row.owner = owner
	}
	if op != nil {
		m.ops[op.id] = op
	}
	m.sweep(left, id)
}

// sweep removes implicit parents that a departure from an application left
// empty.
func (m *model) sweep(application string, id core.ID) {
	holds := func(belongs func(*modelRow) bool) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(m.rows)), belongs)
	}
	if a := m.rows[application]; a != nil && a.implicit && !holds(func(r *modelRow) bool { return r.app == application }) {
		delete(m.rows, application)
	}
	group := id.Scope().Key()
	if g := m.rows[group]; g != nil && g.implicit && !holds(func(r *modelRow) bool { return strings.HasPrefix(r.id.Key(), group+"/") }) {
		delete(m.rows, group)
	}
}

func (m *model) delete(t *rapid.T) {
	m.T = t
	_, id, _ := m.names()
	row := m.rows[id.Key()]
	d := store.Delete{ID: id, State: core.StateDeleting, Expect: m.expectation(row), OwnerUID: rapid.SampledFrom([]string{"", "", "u1"}).Draw(t, "uid"), Now: m.now}
	var op *modelOp
	if rapid.Bool().Draw(t, "asynchronous") {
		d.Operation = m.newOp(id, core.VerbDelete)
		op = &modelOp{id: d.Operation.ID, key: id.Key(), verb: core.VerbDelete, state: core.StateAccepted, group: id.Group(), created: m.made}
	}
	want := core.CodeNotFound
	if row != nil {
		if want = refusal(row, d.Expect); want == "" && d.OwnerUID != "" && d.OwnerUID != row.owner {
			want = core.CodeNameConflict
		}
	}
	_, err := m.f.AcceptDelete(m.f.ctx, d)
	if !m.wantCode(err, want, "delete "+id.String()) {
		return
	}
	if op == nil {
		m.drop(row)
		return
	}
	row.state, row.live, row.touched = core.StateDeleting, op, true
	m.ops[op.id] = op
}

func (m *model) drop(row *modelRow) {
	delete(m.rows, row.id.Key())
	m.sweep(row.app, row.id)
}

// draw picks one of the operations that fit, nil when none does.
func (m *model) draw(t *rapid.T, label string, fits func(*modelOp) bool) *modelOp {
	var names []string
	for id, o := range m.ops {
		if fits(o) {
			names = append(names, id)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return m.ops[rapid.SampledFrom(names).Draw(t, label)]
}

// holder picks an operation that was leased once, and a fence: the newest or
// an older one; ok says whether a call under it must pass.
func (m *model) holder(t *rapid.T) (o *modelOp, fence int64, want core.Code) {
	m.T = t
	o = m.draw(t, "operation", func(o *modelOp) bool { return o.fence > 0 })
	if o == nil {
		t.Skip("nothing was leased")
	}
	fence = o.fence
	if rapid.IntRange(0, 3).Draw(t, "stale") == 0 {
		fence--
	}
	if fence != o.fence || o.ended || o.parked || !o.leased {
		want = core.CodeFenced
	}
	return o, fence, want
}

func (m *model) lease(t *rapid.T) {
	m.T = t
	n := rapid.IntRange(1, 3).Draw(t, "n")
	waiting := map[string]bool{}
	for id, o := range m.ops {
		if !o.ended && !o.parked && !(o.leased && o.until.After(m.now)) {
			waiting[id] = true
		}
	}
	until := m.now.Add(leaseFor)
	got, err := m.f.Lease(m.f.ctx, store.Lease{Worker: "w", Max: n, Now: m.now, Until: until})
	m.wantCode(err, "", "lease")
	if len(got) != min(n, len(waiting)) {
		m.Fatalf("leased %v of %d that wait, asked for %d", operationIDs(got), len(waiting), n)
	}
	for _, l := range got {
		o := m.ops[l.Operation.ID]
		if o == nil || !waiting[o.id] {
			m.Fatalf("leased %s, which does not wait", l.Operation.ID)
		}
		delete(waiting, o.id)
		for id := range waiting {
			if older := m.ops[id]; older.group == o.group && older.created < o.created {
				m.Errorf("leased %s before the older %s of its group", o.id, id)
			}
		}
		if l.Operation.Fence <= o.fence || l.Resource.State != m.rows[o.key].state {
			m.Errorf("leased %+v after fence %d, resource %s", l.Operation, o.fence, l.Resource.State)
		}
		o.fence, o.leased, o.until = l.Operation.Fence, true, until
	}
}

func (m *model) renew(t *rapid.T) {
	o, fence, want := m.holder(t)
	until := m.now.Add(2 * leaseFor)
	if m.wantCode(m.f.Renew(m.f.ctx, o.id, fence, until), want, "renew "+o.id) {
		o.until = until
	}
}

func (m *model) progress(t *rapid.T) {
	o, fence, want := m.holder(t)
	if m.wantCode(m.f.Progress(m.f.ctx, o.id, fence, core.StateUpdating), want, "progress "+o.id) {
		o.state = core.StateUpdating
		m.rows[o.key].state, m.rows[o.key].touched = core.StateUpdating, true
	}
}

func (m *model) children(id string) bool {
	for _, o := range m.ops {
		if o.parent == id && !o.ended {
			return true
		}
	}
	return false
}

func (m *model) park(t *rapid.T) {
	o, fence, want := m.holder(t)
	if o.id == o.parent {
		t.Skip("its own child")
	}
	if m.wantCode(m.f.Park(m.f.ctx, o.id, fence), want, "park "+o.id) {
		o.leased, o.parked = false, m.children(o.id)
	}
}

func (m *model) end(t *rapid.T) {
	o, fence, want := m.holder(t)
	s := rapid.SampledFrom([]core.State{core.StateSucceeded, core.StateFailed}).Draw(t, "state")
	removed := o.verb == core.VerbDelete && s == core.StateSucceeded
	if !m.wantCode(m.f.End(m.f.ctx, store.Ending{Operation: o.id, Fence: fence, State: s, Removed: removed, Now: m.now}), want, "end "+o.id) {
		return
	}
	row := m.rows[o.key]
	o.ended, o.leased, o.state, row.live = true, false, s, nil
	if removed {
		m.drop(row)
	} else {
		row.state, row.touched = s, true
	}
	if p := m.ops[o.parent]; p != nil && p.parked && !m.children(p.id) {
		p.parked = false
	}
}

func (m *model) time(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 15).Draw(t, "seconds")) * time.Second)
}

// compare looks at everything after each call.
func (m *model) compare(t *rapid.T) {
	m.T = t
	stored := map[string]core.Resource{}
	for _, group := range []string{m.prefix + "-g", m.prefix + "-h"} {
		for _, q := range []store.Query{{Scope: core.GroupID(group)}, {Scope: core.GroupID(group), Type: store.TypeGroup}} {
			p, err := m.f.List(m.f.ctx, q)
			m.wantCode(err, "", "list")
			for _, r := range p.Resources {
				stored[r.ID.Key()] = r
			}
		}
	}
	for key, r := range stored {
		if m.rows[key] == nil {
			t.Errorf("%s is there and should not be", r.ID)
		}
	}
	for key, row := range m.rows {
		r, ok := stored[key]
		if !ok {
			t.Fatalf("%s is not there", row.id)
		}
		if r.State != row.state || r.Implicit != row.implicit || r.Owner.UID != row.owner {
			t.Errorf("%s is %s, implicit %t, of %q; the model says %s, %t, %q", row.id, r.State, r.Implicit, r.Owner.UID, row.state, row.implicit, row.owner)
		}
		if changed := r.ETag != row.etag; changed != row.touched {
			t.Errorf("%s: entity tag changed: %t, want %t", row.id, changed, row.touched)
		}
		row.etag, row.touched = r.ETag, false
		_, live, err := m.f.Get(m.f.ctx, row.id)
		m.wantCode(err, "", "get")
		if (live == nil) != (row.live == nil) || live != nil && (live.ID != row.live.id || live.State != row.live.state || live.Parked != row.live.parked) {
			t.Errorf("%s has live operation %+v, the model says %+v", row.id, live, row.live)
		}
	}
	running := 0
	for _, o := range m.ops {
		if !o.ended {
			running++
		}
	}
	if n, _, err := m.f.Pending(m.f.ctx); err != nil || n != running {
		t.Errorf("%d live operations (%v), the model says %d", n, err, running)
	}
}
