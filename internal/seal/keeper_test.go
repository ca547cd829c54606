package seal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/pgtest"
	"github.com/radial-project/radial/internal/schema"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// onPostgres says on which store the tests run: on both, one after the other.
var onPostgres bool

func TestMain(m *testing.M) {
	code := m.Run()
	onPostgres = true
	code = max(code, m.Run())
	pgtest.Stop()
	os.Exit(code)
}

// house is a store with rows that hold secrets, and a clock.
type house struct {
	t        testing.TB
	dir      string
	database string
	kek      KEK
	feed     *feed.Broker
	store.Store
	now time.Time
}

var keeperSchema = func() *schema.Schema {
	s, err := schema.Compile(json.RawMessage(`{"type":"object","properties":{
		"password":{"type":"string","x-radius-sensitive":true},
		"host":{"type":"string"},
		"list":{"type":"array","items":{"type":"object","properties":{"value":{"type":"string","x-radius-sensitive":true}}}},
		"data":{"type":"object","additionalProperties":{"type":"object","properties":{"a.b":{"type":"object","x-radius-sensitive":true,"properties":{"x":{"type":"integer"}}}}}}}}`))
	if err != nil {
		panic(err)
	}
	return s
}()

func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), kek: testKey(t, 1), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	if onPostgres {
		h.database = pgtest.Database(t)
	}
	h.open()
	t.Cleanup(func() { _ = h.Close() })
	for _, id := range []core.ID{{Plane: core.Segment{Type: "radius", Name: "local"}}, core.GroupID("g")} {
		h.accept(core.Resource{ID: id, State: core.StateSucceeded, Properties: []byte("{}")}, "*")
	}
	return h
}

func (h *house) open() {
	h.t.Helper()
	h.feed = feed.New()
	ctx, clock := context.Background(), func() time.Time { return h.now }
	var err error
	if onPostgres {
		h.Store, err = postgres.Open(ctx, h.database, postgres.Options{Listener: h.feed.Publish, Clock: clock})
	} else {
		h.Store, err = sqlite.Open(ctx, filepath.Join(h.dir, "radial.db"), sqlite.Options{Listener: h.feed.Publish, Clock: clock})
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) accept(r core.Resource, expect string) core.Resource {
	h.t.Helper()
	out, err := h.Accept(context.Background(), store.Write{Resource: r, Expect: expect, Now: h.now})
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

func (h *house) sealer() *Sealer {
	h.t.Helper()
	return open(h.t, h.Store, h.kek)
}

func (h *house) keeper(name string, s *Sealer, over KeeperStore) *Keeper {
	if over == nil {
		over = h.Store
	}
	k := NewKeeper(KeeperOptions{Store: over, Sealer: s, Name: name, MaxAge: -1, Grace: time.Hour, Rate: 1e6, Now: func() time.Time { return h.now }})
	return k
}

func rowID(i int) core.ID {
	return core.GroupID("g").Resource("Applications.Core/extenders", fmt.Sprintf("r%03d", i))
}

// row is a resource full of secrets, sealed by s.
func row(t testing.TB, s *Sealer, i int) core.Resource {
	t.Helper()
	props := map[string]any{
		"host": "h", "password": fmt.Sprintf("canary-password-%d", i), "list": []any{map[string]any{"value": fmt.Sprintf("canary-item-%d", i)}},
		"data": map[string]any{"m": map[string]any{"a.b": map[string]any{"x": i}}},
	}
	r := core.Resource{ID: rowID(i), State: core.StateSucceeded}
	if err := keeperSchema.WalkSensitive(props, func(path string, v any) (any, error) { return s.Seal(r.ID, path, v) }); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.Properties, err = json.Marshal(props); err != nil {
		t.Fatal(err)
	}
	sealed, err := s.Seal(r.ID, SecretPath("url"), fmt.Sprintf("canary-secret-%d", i))
	if err != nil {
		t.Fatal(err)
	}
	r.Secrets = map[string]json.RawMessage{"url": sealed}
	s.Stamp(&r)
	return r
}

// opens reports what is wrong with a stored row.
func opens(s *Sealer, r core.Resource, i int) error {
	var props map[string]any
	if err := json.Unmarshal(r.Properties, &props); err != nil {
		return err
	}
	if err := keeperSchema.WalkSensitive(props, func(path string, v any) (any, error) { return s.Open(r.ID, path, v) }); err != nil {
		return err
	}
	v, err := s.Open(r.ID, SecretPath("url"), r.Secrets["url"])
	if err != nil {
		return err
	}
	raw, err := json.Marshal(props)
	want := fmt.Sprintf(`{"data":{"m":{"a.b":{"x":%d}}},"host":"h","list":[{"value":"canary-item-%d"}],"password":"canary-password-%d"}`, i, i, i)
	if err != nil || string(raw) != want || v != fmt.Sprintf("canary-secret-%d", i) {
		return fmt.Errorf("it holds %s and %v, want %s", raw, v, want)
	}
	return nil
}

// readable checks every row of n through s, and returns all sealed texts.
func (h *house) readable(s *Sealer, n int, when string) (texts []string) {
	h.t.Helper()
	for i := range n {
		r, _, err := h.Get(context.Background(), rowID(i))
		if err == nil {
			err = opens(s, r, i)
		}
		if err != nil {
			h.t.Fatalf("%s, row %d: %v", when, i, err)
		}
		texts = append(texts, sealedTexts(r)...)
	}
	return texts
}

func sealedTexts(r core.Resource) (out []string) {
	for _, raw := range append([]json.RawMessage{r.Properties}, r.Secrets["url"]) {
		for _, part := range strings.Split(string(raw), `"$sealed":"`)[1:] {
			text, _, _ := strings.Cut(part, `"`)
			out = append(out, text)
		}
	}
	return out
}

// files returns all bytes of the store's files. PostgreSQL keeps what was
// overwritten until its own clean-up, and in its log: there what it answers is
// all there is.
func (h *house) files() []byte {
	h.t.Helper()
	if onPostgres {
		page, err := h.List(context.Background(), store.Query{})
		if err != nil {
			h.t.Fatal(err)
		}
		versions, err := h.Versions(context.Background())
		if err != nil {
			h.t.Fatal(err)
		}
		var out []byte
		for _, r := range page.Resources {
			out = append(out, r.Properties...)
			for _, s := range r.Secrets {
				out = append(out, s...)
			}
		}
		for _, v := range versions {
			out = append(out, v.Wrapped...)
		}
		return out
	}
	paths, err := filepath.Glob(filepath.Join(h.dir, "radial.db*"))
	if err != nil || len(paths) == 0 {
		h.t.Fatalf("no files: %v", err)
	}
	var out []byte
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			h.t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

func (h *house) states() (out []string) {
	h.t.Helper()
	versions, err := h.Versions(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, v := range versions {
		state := string(v.State)
		if destroyed(v) {
			state = "Destroyed"
		}
		out = append(out, state)
	}
	return out
}

func (h *house) wantStates(when string, want ...string) {
	h.t.Helper()
	if got := h.states(); !slices.Equal(got, want) {
		h.t.Fatalf("%s: versions are %v, want %v", when, got, want)
	}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestRotation_D24(t *testing.T) {
	const rows = 25
	ctx := context.Background()
	h := newHouse(t)
	a, b := h.sealer(), h.sealer()
	ka, kb := h.keeper("a", a, nil), h.keeper("b", b, nil)
	etags := map[int]string{}
	for i := range rows {
		etags[i] = h.accept(row(t, a, i), "").ETag
	}
	for _, k := range []*Keeper{ka, kb} {
		if err := k.Acknowledge(ctx); err != nil {
			t.Fatal(err)
		}
	}
	old := h.readable(b, rows, "at first")
	advance := func(want bool) {
		t.Helper()
		if more := must[bool](t)(ka.Advance(ctx)); more != want {
			t.Fatalf("more is %t, want %t; versions are %v", more, want, h.states())
		}
	}
	advance(false)

	must[store.Keyset](t)(ka.Rotate(ctx))
	if _, err := ka.Rotate(ctx); !core.IsCode(err, core.CodeConflict) {
		t.Errorf("a rotation on top of one: %v", err)
	}
	if err := ka.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	advance(true)
	h.wantStates("while b has not acknowledged", "Primary", "Added")
	if s := must[Status](t)(ka.Status(ctx)); !slices.Equal(s.Waiting, []string{"b"}) || s.Key != "the test" {
		t.Errorf("status is %+v", s)
	}
	h.readable(a, rows, "added")
	if err := kb.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	leased := h.live(a, rows) // one more, in the hands of a worker
	advance(true)
	h.wantStates("promoted, with a row in work", "Retired", "Primary")
	h.readable(b, rows, "b knows the version, not yet that it is promoted")
	if r := row(t, b, rows+1); r.Keyset != 1 {
		t.Errorf("b seals with %d before it is told", r.Keyset)
	}
	r, _, err := h.Get(ctx, rowID(rows))
	if err != nil || r.Keyset != 1 {
		t.Errorf("the row in work names %d, %v", r.Keyset, err)
	}
	h.end(leased)
	advance(false)
	h.wantStates("sealed again", "Disabled", "Primary")
	for i := range rows {
		r, _, err := h.Get(ctx, rowID(i))
		if err != nil || r.ETag != etags[i] || r.Keyset != 2 {
			t.Errorf("row %d has tag %q (was %q), version %d, %v", i, r.ETag, etags[i], r.Keyset, err)
		}
	}
	fresh := h.readable(b, rows, "sealed again")
	files := h.files()
	for _, text := range old {
		if bytes.Contains(files, []byte(text)) {
			t.Fatalf("the files still hold what the old key sealed")
		}
	}
	for _, text := range fresh {
		if !bytes.Contains(files, []byte(text)) {
			t.Fatalf("the files do not hold what the new key sealed")
		}
	}
	if bytes.Contains(files, []byte("canary")) {
		t.Error("the files hold a secret in the clear")
	}
	versions := must[[]store.Keyset](t)(h.Versions(ctx))
	wrapped := versions[0].Wrapped
	h.now = h.now.Add(time.Hour)
	advance(false)
	h.wantStates("after the grace", "Destroyed", "Primary")
	if bytes.Contains(h.files(), wrapped) {
		t.Error("the files still hold the destroyed key, wrapped")
	}
	if v := must[*Sealer](t)(Open(ctx, h.Store, h.kek)); v.ring.Load().versions[1] != nil {
		t.Error("a new process has the destroyed key")
	}

	// And a second time, by age.
	ka.o.MaxAge = 90 * 24 * time.Hour
	h.now = h.now.Add(ka.o.MaxAge)
	if err := errors.Join(ka.Acknowledge(ctx), kb.Acknowledge(ctx)); err != nil {
		t.Fatal(err)
	}
	advance(true) // b has not loaded it
	h.wantStates("by age", "Destroyed", "Primary", "Added")
	if err := kb.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	advance(false)
	h.wantStates("twice", "Destroyed", "Disabled", "Primary")
	h.now = h.now.Add(time.Hour)
	advance(false)
	h.readable(h.sealer(), rows, "after two rotations, in a new process")
	h.readable(b, rows, "after two rotations")
}

// live makes a row whose operation a worker holds.
func (h *house) live(s *Sealer, i int) store.Leased {
	h.t.Helper()
	ctx := context.Background()
	r := row(h.t, s, i)
	r.State = core.StateAccepted
	op := &core.Operation{ID: fmt.Sprintf("op-%d", i), ResourceID: r.ID, Verb: core.VerbPut, State: core.StateAccepted, Group: "g", Created: h.now, Deadline: h.now.Add(time.Hour)}
	if _, err := h.Accept(ctx, store.Write{Resource: r, Operation: op, Expect: "", Now: h.now}); err != nil {
		h.t.Fatal(err)
	}
	l, err := h.Lease(ctx, store.Lease{Worker: "w", Max: 1, Now: h.now, Until: h.now.Add(time.Minute)})
	if err != nil || len(l) != 1 {
		h.t.Fatalf("lease: %v, %v", l, err)
	}
	return l[0]
}

func (h *house) end(l store.Leased) {
	h.t.Helper()
	err := h.End(context.Background(), store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: core.StateSucceeded, Resource: &l.Resource, Now: h.now})
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestCutOff_D24: a replica that was away through a whole rotation opens what it
// meets, and loses no write of its own.
func TestCutOff_D24(t *testing.T) {
	ctx := context.Background()
	h := newHouse(t)
	a, away := h.sealer(), h.sealer()
	ka, kaway := h.keeper("a", a, nil), h.keeper("away", away, nil)
	if err := errors.Join(ka.Acknowledge(ctx), kaway.Acknowledge(ctx)); err != nil {
		t.Fatal(err)
	}
	first := h.accept(row(t, a, 0), "")
	late := row(t, away, 1) // sealed, not yet committed
	h.now = h.now.Add(2 * liveBeats * DefaultBeat)
	must[store.Keyset](t)(ka.Rotate(ctx))
	if err := ka.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	if must[bool](t)(ka.Advance(ctx)) {
		t.Fatal("a replica that is gone is waited for")
	}
	h.wantStates("rotated without it", "Disabled", "Primary")
	if err := opens(away, first, 0); err != nil {
		t.Errorf("what it had read before: %v", err)
	}
	h.readable(away, 1, "it is back")
	_, err := h.Accept(ctx, store.Write{Resource: late, Now: h.now})
	if !core.IsCode(err, store.Changed) {
		t.Fatalf("a write sealed with a disabled version: %v", err)
	}
	if !away.Renew(ctx, &late) || late.Keyset != 2 {
		t.Fatalf("the write is not sealed again: version %d", late.Keyset)
	}
	stored := h.accept(late, "")
	if err := opens(a, stored, 1); err != nil {
		t.Error(err)
	}
	if away.Renew(ctx, &late) {
		t.Error("a write that was refused for another reason is sealed again")
	}
	// And another at once: nothing that it has just looked for keeps it from looking again.
	must[store.Keyset](t)(ka.Rotate(ctx))
	if err := ka.Acknowledge(ctx); err != nil {
		t.Fatal(err)
	}
	must[bool](t)(ka.Advance(ctx))
	h.wantStates("rotated without it again", "Disabled", "Disabled", "Primary")
	h.readable(away, 2, "it is back again")
}

// errKilled stands for the end of the process.
var errKilled = errors.New("killed")

// mortal is a store whose process dies at the n-th write, before or after it is
// committed.
type mortal struct {
	store.Store
	mu     sync.Mutex
	left   int
	after  bool
	dead   bool
	writes int
}

func (m *mortal) write(f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errKilled
	}
	m.writes++
	if m.left--; m.left == 0 {
		m.dead = true
		if m.after {
			_ = f()
		}
		return errKilled
	}
	return f()
}

func (m *mortal) AddKeyset(ctx context.Context, w []byte, now time.Time) (k store.Keyset, err error) {
	err = m.write(func() (err error) { k, err = m.Store.AddKeyset(ctx, w, now); return err })
	return k, err
}

func (m *mortal) PromoteKeyset(ctx context.Context, v int64, since, now time.Time) error {
	return m.write(func() error { return m.Store.PromoteKeyset(ctx, v, since, now) })
}

func (m *mortal) DisableKeyset(ctx context.Context, v int64, now time.Time) error {
	return m.write(func() error { return m.Store.DisableKeyset(ctx, v, now) })
}

func (m *mortal) Rewrap(ctx context.Context, v int64, w []byte) error {
	return m.write(func() error { return m.Store.Rewrap(ctx, v, w) })
}

func (m *mortal) Reseal(ctx context.Context, r store.Resealing) error {
	return m.write(func() error { return m.Store.Reseal(ctx, r) })
}

func (m *mortal) Heartbeat(ctx context.Context, r store.Replica) error {
	return m.write(func() error { return m.Store.Heartbeat(ctx, r) })
}

// TestKilled_D24 kills a rotation at its writes, one after the other: nothing is
// unreadable then, and the next process ends the rotation.
func TestKilled_D24(t *testing.T) {
	const rows = 6
	ctx := context.Background()
	// whole goes through a rotation, destruction included, as far as it comes.
	whole := func(h *house, m *mortal, s *Sealer, name string) {
		k := h.keeper(name, s, m)
		if err := k.Acknowledge(ctx); err != nil {
			return
		}
		if slices.Equal(h.states(), []string{"Primary"}) {
			if _, err := k.Rotate(ctx); err != nil {
				return
			}
		}
		for range 5 {
			_ = k.Acknowledge(ctx)
			_, _ = k.Advance(ctx)
			h.now = h.now.Add(time.Hour)
		}
	}
	play := func(t *testing.T, point int, after bool) int {
		h := newHouse(t)
		s := h.sealer()
		for i := range rows {
			h.accept(row(t, s, i), "")
		}
		m := &mortal{Store: h.Store, left: point, after: after}
		whole(h, m, s, "first")
		h.readable(h.sealer(), rows, "after the kill")
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h.open()
		s = h.sealer()
		h.readable(s, rows, "after the restart")
		whole(h, &mortal{Store: h.Store}, s, "second")
		h.readable(s, rows, "at the end")
		h.readable(h.sealer(), rows, "at the end, in a new process")
		h.wantStates("at the end", "Destroyed", "Primary")
		left, err := h.List(ctx, store.Query{SealedBefore: 2})
		if err != nil || len(left.Resources) > 0 {
			t.Errorf("%d rows are left, %v", len(left.Resources), err)
		}
		return m.writes
	}
	total := play(t, 0, false) // not killed at all
	if total < rows+5 {
		t.Fatalf("a rotation has %d writes", total)
	}
	type kill struct {
		point int
		after bool
	}
	var kills []kill
	for p := 1; p <= total; p++ {
		kills = append(kills, kill{p, false}, kill{p, true})
	}
	if os.Getenv("RADIAL_FAULT") != "all" {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d; RADIAL_FAULT=all plays all %d", seed, len(kills))
		rnd := rand.New(rand.NewPCG(seed, 0))
		rnd.Shuffle(len(kills), func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
		kills = kills[:map[bool]int{false: 8, true: 3}[onPostgres]]
	}
	for _, k := range kills {
		t.Run(fmt.Sprintf("D-24 killed at write %d, committed %t", k.point, k.after), func(t *testing.T) { play(t, k.point, k.after) })
	}
}

// TestKeepers_D24 runs two replicas as a server does: a rotation that one is
// asked for goes to its end by itself, under a load of writes.
func TestKeepers_D24(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h := newHouse(t)
	sealers := []*Sealer{h.sealer(), h.sealer()}
	var keepers []*Keeper
	var running sync.WaitGroup
	start := time.Now()
	for i, s := range sealers {
		changed, stop := h.feed.Alert(store.ChangeKeysets, "")
		defer stop()
		k := NewKeeper(KeeperOptions{
			Store: h.Store, Sealer: s, Changed: changed, Name: fmt.Sprint("r", i), Beat: 100 * time.Millisecond, Grace: time.Second, MaxAge: -1,
			Rate: 1e6, Now: func() time.Time { return h.now.Add(time.Since(start)) },
		})
		keepers = append(keepers, k)
		running.Go(func() { k.Run(ctx) })
	}
	writing, stopWriting := context.WithCancel(ctx)
	var writes sync.WaitGroup
	for w := range 2 {
		writes.Go(func() {
			for n := 0; writing.Err() == nil; n++ {
				i := w*10 + n%10
				r := row(t, sealers[w], i)
				_, err := h.Accept(ctx, store.Write{Resource: r, Expect: "*", Now: h.now})
				if core.IsCode(err, store.Changed) && sealers[w].Renew(ctx, &r) {
					_, err = h.Accept(ctx, store.Write{Resource: r, Expect: "*", Now: h.now})
				}
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
				got, _, err := h.Get(ctx, r.ID)
				if err == nil {
					err = opens(sealers[1-w], got, i)
				}
				if err != nil {
					t.Errorf("the other replica: %v", err)
					return
				}
			}
		})
	}
	moved, stopMoved := h.feed.Alert(store.ChangeKeysets, "")
	defer stopMoved()
	deadline := time.After(time.Minute)
	for n := range 2 {
		must[store.Keyset](t)(keepers[n].Rotate(ctx))
		want := []string{"Destroyed", "Primary"}
		if n == 1 {
			want = []string{"Destroyed", "Destroyed", "Primary"}
		}
		for !slices.Equal(h.states(), want) {
			select {
			case <-moved:
			case <-time.After(20 * time.Millisecond): // destruction tells nobody
			case <-deadline:
				t.Fatalf("versions are %v, want %v", h.states(), want)
			}
		}
	}
	stopWriting()
	writes.Wait()
	if t.Failed() {
		return
	}
	h.readable(h.sealer(), 20, "at the end")
	cancel()
	running.Wait()
	if left, err := h.Replicas(context.Background(), time.Time{}); err != nil || len(left) > 0 {
		t.Errorf("replicas that stopped are left: %v, %v", left, err)
	}
}

func TestWrappingKeyChanges_D24(t *testing.T) {
	ctx := context.Background()
	h := newHouse(t)
	path := filepath.Join(h.dir, "key")
	one, two := must[string](t)(NewKey(bytes.NewReader(bytes.Repeat([]byte{1}, 32)))), must[string](t)(NewKey(bytes.NewReader(bytes.Repeat([]byte{2}, 32))))
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(one)
	h.kek = must[KEK](t)(LoadKey(path))
	s := h.sealer()
	k := h.keeper("a", s, nil)
	h.accept(row(t, s, 0), "")
	before := must[[]store.Keyset](t)(h.Versions(ctx))[0].Wrapped
	write("# the new one\n" + two + one)
	if err := k.Rewrap(ctx); err != nil {
		t.Fatal(err)
	}
	after := must[[]store.Keyset](t)(h.Versions(ctx))[0].Wrapped
	if bytes.Equal(before, after) {
		t.Error("the keyset is wrapped as before")
	}
	if err := k.Rewrap(ctx); err != nil || !bytes.Equal(after, must[[]store.Keyset](t)(h.Versions(ctx))[0].Wrapped) {
		t.Errorf("it is wrapped again for nothing: %v", err)
	}
	write(two)
	if err := k.Rewrap(ctx); err != nil {
		t.Fatal(err)
	}
	h.kek = must[KEK](t)(LoadKey(path))
	h.readable(h.sealer(), 1, "with the new key alone")
	write(one)
	old := must[KEK](t)(LoadKey(path))
	if _, err := Open(ctx, h.Store, old); err == nil || !strings.Contains(err.Error(), "does not open with the key in "+path) {
		t.Errorf("with the old key alone: %v", err)
	}
	if err := k.Rewrap(ctx); !errors.Is(err, ErrOtherKey) {
		t.Errorf("the key file was exchanged under the server: %v", err)
	}
	h.readable(s, 1, "which goes on with what it has")

	// From one kind of key to another.
	third := testKey(t, 3)
	h.kek = WithFormer(third, h.kek)
	write(two)
	s = h.sealer()
	if err := h.keeper("b", s, nil).Rewrap(ctx); err != nil {
		t.Fatal(err)
	}
	h.kek = third
	h.readable(h.sealer(), 1, "with the third key alone")
}

// TestResealPaths_D24: whatever place a schema gives a sensitive value, it is
// sealed again there without the schema; what only looks sealed stays as it is.
func TestResealPaths_D24(t *testing.T) {
	ctx := context.Background()
	h := newHouse(t)
	s := h.sealer()
	k := h.keeper("a", s, nil)
	shapes := map[string]struct{ schema, value string }{
		"named":            {`{"type":"object","properties":{"a.b":{"type":"object","properties":{"c":{"type":"string","x-radius-sensitive":true}}}}}`, `{"a.b":{"c":"v"}}`},
		"array of arrays":  {`{"type":"object","properties":{"l":{"type":"array","items":{"type":"array","items":{"type":"string","x-radius-sensitive":true}}}}}`, `{"l":[["v"],["w","x"]]}`},
		"map of maps":      {`{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"string","x-radius-sensitive":true}}}}}`, `{"m":{"[*]":{"a":"v"},"b":{"c.d":"w"}}}`},
		"root map":         {`{"type":"object","additionalProperties":{"type":"string","x-radius-sensitive":true}}`, `{"x":"v","y":"w"}`},
		"whole object":     {`{"type":"object","properties":{"o":{"type":"object","x-radius-sensitive":true,"additionalProperties":{"type":"string"}}}}`, `{"o":{"a":"v"}}`},
		"map beside names": {`{"type":"object","properties":{"m":{"type":"object","properties":{"n":{"type":"string","x-radius-sensitive":true}},"additionalProperties":{"type":"string","x-radius-sensitive":true}}}}`, `{"m":{"n":"v","o":"w"}}`},
	}
	id := core.GroupID("g").Resource("Applications.Core/extenders", "x")
	for name, shape := range shapes {
		t.Run("D-24 "+name, func(t *testing.T) {
			sch, err := schema.Compile(json.RawMessage(shape.schema))
			if err != nil {
				t.Fatal(err)
			}
			var props map[string]any
			if err := json.Unmarshal([]byte(shape.value), &props); err != nil {
				t.Fatal(err)
			}
			if err := sch.WalkSensitive(props, func(path string, v any) (any, error) { return s.Seal(id, path, v) }); err != nil {
				t.Fatal(err)
			}
			raw := must[[]byte](t)(json.Marshal(props))
			r := core.Resource{ID: id, Properties: raw}
			s.Stamp(&r)
			primary := s.ring.Load().primary.Version
			if r.Keyset != primary {
				t.Fatalf("stamped %d", r.Keyset)
			}
			must[store.Keyset](t)(k.Rotate(ctx))
			if err := k.Acknowledge(ctx); err != nil {
				t.Fatal(err)
			}
			must[bool](t)(k.Advance(ctx))
			next, dead, err := s.reseal(r)
			if err != nil || dead > 0 || next.Keyset != primary+1 {
				t.Fatalf("%d do not open, version %d, %v", dead, next.Keyset, err)
			}
			s.Stamp(&next)
			if next.Keyset != primary+1 {
				t.Errorf("a value is left with version %d", next.Keyset)
			}
			var again map[string]any
			if err := json.Unmarshal(next.Properties, &again); err != nil {
				t.Fatal(err)
			}
			if err := sch.WalkSensitive(again, func(path string, v any) (any, error) { return s.Open(id, path, v) }); err != nil {
				t.Fatal(err)
			}
			if raw := must[[]byte](t)(json.Marshal(again)); string(raw) != shape.value {
				t.Errorf("%s, want %s", raw, shape.value)
			}
		})
	}
	alike := core.Resource{ID: id, Properties: json.RawMessage(`{"a":{"$sealed":"AQ=="},"b":{"$sealed":"%"},"n":1.50}`)}
	next, dead, err := s.reseal(alike)
	if err != nil || dead != 2 || next.Keyset != 0 || !bytes.Equal(next.Properties, alike.Properties) {
		t.Errorf("what looks sealed: %d, %+v, %v", dead, next, err)
	}
}
