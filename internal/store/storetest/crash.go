package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// CrashStep is one call of the store in a play that touches every kind of
// write. The steps need each other's effects, in order.
type CrashStep struct {
	Name string
	Do   func(context.Context, store.Store) error
}

// CrashSteps returns the play: an adopted resource with implicit parents whose
// operation plans outputs, deploys a child, parks, is woken and ends; then both
// are deleted; then an operation is canceled and a keyset rotates. It is the same at every call, so that the state after step n of
// an undisturbed run is what a run that died must be in: that of the last step
// that returned, or that of the one under way (D-18). Time stands still.
func CrashSteps() []CrashStep {
	a, b := ext("prod-shop", "a"), ext("prod-shop", "b")
	op := func(name string, id core.ID, verb core.Verb, parent string) *core.Operation {
		return &core.Operation{ID: name, ResourceID: id, Verb: verb, State: core.StateAccepted, Group: id.Group(), Parent: parent, Created: epoch}
	}
	accept := func(id core.ID, o *core.Operation) func(context.Context, store.Store) error {
		return func(ctx context.Context, s store.Store) error {
			w := store.Write{Resource: plain(id, core.StateAccepted), Operation: o, Now: epoch,
				Edges: []core.Edge{{From: id, To: b, Kind: core.EdgeConnection, Name: "b"}}}
			implicit("prod-shop", "shop")(&w)
			_, err := s.Accept(ctx, w)
			return err
		}
	}
	remove := func(id core.ID, name string) func(context.Context, store.Store) error {
		return func(ctx context.Context, s store.Store) error {
			_, err := s.AcceptDelete(ctx, store.Delete{ID: id, Operation: op(name, id, core.VerbDelete, ""), State: core.StateDeleting, Expect: "*", Now: epoch})
			return err
		}
	}
	lease := func(ctx context.Context, s store.Store) error {
		ls, err := s.Lease(ctx, store.Lease{Worker: "w", Max: 1, Now: epoch, Until: epoch.Add(leaseFor)})
		if err == nil && len(ls) != 1 {
			err = fmt.Errorf("leased %d operations, want 1", len(ls))
		}
		return err
	}
	held := func(name string, do func(context.Context, store.Store, core.Operation) error) func(context.Context, store.Store) error {
		return func(ctx context.Context, s store.Store) error {
			o, err := s.Operation(ctx, name)
			if err != nil {
				return err
			}
			return do(ctx, s, o)
		}
	}
	end := func(name string, removed bool) func(context.Context, store.Store) error {
		return held(name, func(ctx context.Context, s store.Store, o core.Operation) error {
			e := store.Ending{Operation: o.ID, Fence: o.Fence, State: core.StateSucceeded, Removed: removed, Now: epoch.Add(time.Second)}
			if !removed {
				e.Resource = &core.Resource{Properties: json.RawMessage(`{"made":true}`), Status: json.RawMessage(`{"ok":1}`)}
			}
			return s.End(ctx, e)
		})
	}
	return []CrashStep{
		{"plane", func(ctx context.Context, s store.Store) error {
			_, err := s.Accept(ctx, store.Write{Resource: plain(planeID, core.StateSucceeded), Now: epoch})
			return err
		}},
		{"manifest", func(ctx context.Context, s store.Store) error {
			return s.PutManifest(ctx, "Contoso", json.RawMessage(`{"big":"`+strings.Repeat("x", 20_000)+`"}`), nil)
		}},
		{"keyset", func(ctx context.Context, s store.Store) error {
			_, err := s.Keyset(ctx, []byte("keyset"))
			return err
		}},
		{"accept", accept(a, op("put-a", a, core.VerbPut, ""))},
		{"lease", lease},
		{"progress", held("put-a", func(ctx context.Context, s store.Store, o core.Operation) error {
			return s.Progress(ctx, o.ID, o.Fence, core.StateUpdating)
		})},
		{"plan outputs", held("put-a", func(ctx context.Context, s store.Store, o core.Operation) error {
			return s.SaveOutputs(ctx, o.ID, o.Fence, []core.Output{{ID: secret("one"), State: core.OutputPlanned, Managed: true}, {ID: secret("two"), State: core.OutputPlanned}}, nil)
		})},
		{"log", held("put-a", func(ctx context.Context, s store.Store, o core.Operation) error {
			return s.Append(ctx, o.ID, o.Fence, []store.Message{{Time: epoch, Text: "one"}, {Time: epoch, Text: "two"}})
		})},
		{"accept a child", accept(b, op("put-b", b, core.VerbPut, "put-a"))},
		{"park", held("put-a", func(ctx context.Context, s store.Store, o core.Operation) error {
			return s.Park(ctx, o.ID, o.Fence)
		})},
		{"lease the child", lease},
		{"renew", held("put-b", func(ctx context.Context, s store.Store, o core.Operation) error {
			return s.Renew(ctx, o.ID, o.Fence, epoch.Add(2*leaseFor))
		})},
		{"end the child", end("put-b", false)},
		{"lease the woken", lease},
		{"make one output, drop the other", held("put-a", func(ctx context.Context, s store.Store, o core.Operation) error {
			return s.SaveOutputs(ctx, o.ID, o.Fence, []core.Output{{ID: secret("one"), State: core.OutputMade, Managed: true}}, []core.ID{secret("two")})
		})},
		{"end", end("put-a", false)},
		{"delete b", remove(b, "delete-b")},
		{"lease the deletion of b", lease},
		{"end the deletion of b", end("delete-b", true)},
		{"delete a, the last member", remove(a, "delete-a")},
		{"lease the deletion of a", lease},
		{"end the deletion of a", end("delete-a", true)},
		{"write what is sealed", func(ctx context.Context, s store.Store) error {
			w := store.Write{Resource: plain(core.GroupID("sealed"), core.StateSucceeded), Expect: "*", Now: epoch}
			sealedWith(1)(&w)
			_, err := s.Accept(ctx, w)
			return err
		}},
		{"accept what is canceled", func(ctx context.Context, s store.Store) error {
			id := ext("sealed", "c")
			_, err := s.Accept(ctx, store.Write{Resource: plain(id, core.StateAccepted), Operation: op("put-c", id, core.VerbPut, ""), Now: epoch})
			return err
		}},
		{"cancel it", func(ctx context.Context, s store.Store) error {
			_, err := s.Cancel(ctx, store.Cancel{Operation: "put-c", Error: byAlice, Now: epoch})
			return err
		}},
		{"heartbeat", func(ctx context.Context, s store.Store) error {
			return s.Heartbeat(ctx, store.Replica{Name: "r", Started: epoch, Seen: epoch, Keyset: 2})
		}},
		{"add a keyset", func(ctx context.Context, s store.Store) error {
			_, err := s.AddKeyset(ctx, []byte("two"), epoch)
			return err
		}},
		{"promote it", func(ctx context.Context, s store.Store) error { return s.PromoteKeyset(ctx, 2, epoch, epoch) }},
		{"seal again", func(ctx context.Context, s store.Store) error {
			return s.Reseal(ctx, store.Resealing{ID: core.GroupID("sealed"), Expect: "*", Properties: json.RawMessage(`{"password":{"$sealed":"BB=="}}`), Keyset: 2})
		}},
		{"disable the old", func(ctx context.Context, s store.Store) error { return s.DisableKeyset(ctx, 1, epoch) }},
		{"audit", func(ctx context.Context, s store.Store) error {
			return s.AppendAudit(ctx, []store.AuditRecord{{Time: epoch, Principal: "a"}, {Time: epoch, Principal: "b"}})
		}},
		{"sweep", func(ctx context.Context, s store.Store) error {
			_, err := s.Sweep(ctx, store.Sweep{Operations: epoch.Add(time.Hour), Limit: 100})
			return err
		}},
		{"delete the manifest", func(ctx context.Context, s store.Store) error {
			return s.DeleteManifest(ctx, "Contoso", json.RawMessage(`{"big":"`+strings.Repeat("x", 20_000)+`"}`))
		}},
	}
}

// Dump writes all that a store holds, in one order and without what differs
// from run to run: entity tags, and what belongs to running processes: who holds
// a lease until when (a restart may release leases), and heartbeats.
func Dump(ctx context.Context, s store.Store) (string, error) {
	var b strings.Builder
	operations := map[string]bool{}
	for _, q := range []store.Query{{Type: store.TypePlane}, {Type: store.TypeGroup}, {}} {
		page, err := s.List(ctx, q)
		if err != nil {
			return "", err
		}
		for _, r := range page.Resources {
			_, live, err := s.Get(ctx, r.ID)
			if err != nil {
				return "", err
			}
			if live != nil {
				operations[live.ID] = true
			}
			r.ETag = ""
			outputs, err := s.Outputs(ctx, r.ID)
			if err != nil {
				return "", err
			}
			if err := dumpLine(&b, "resource", r, live != nil, outputs); err != nil {
				return "", err
			}
		}
		if q.Type != store.TypePlane {
			continue
		}
		for _, p := range page.Resources {
			g, err := s.Graph(ctx, p.ID)
			if err != nil {
				return "", err
			}
			if err := dumpLine(&b, "graph", g.Edges, g.Nodes); err != nil {
				return "", err
			}
		}
	}
	all, err := s.Operations(ctx, store.OperationQuery{Limit: 1000})
	if err != nil {
		return "", err
	}
	for _, o := range all.Operations {
		operations[o.ID] = true
	}
	names := make([]string, 0, len(operations))
	for id := range operations {
		names = append(names, id)
	}
	sort.Strings(names)
	for _, id := range names {
		o, err := s.Operation(ctx, id)
		if core.IsCode(err, core.CodeNotFound) {
			continue
		} else if err != nil {
			return "", err
		}
		messages, err := s.Messages(ctx, id, 0, 0)
		if err != nil {
			return "", err
		}
		o.Worker, o.LeaseUntil = "", time.Time{}
		if err := dumpLine(&b, "operation", o, messages); err != nil {
			return "", err
		}
	}
	versions, err := s.Versions(ctx)
	if err != nil {
		return "", err
	}
	for i := range versions { // the first keyset is made at the store's own time
		if versions[i].Version == 1 {
			versions[i].Created, versions[i].Changed = time.Time{}, time.Time{}
		}
	}
	audit, err := s.AuditRecords(ctx, store.AuditQuery{Limit: 1000})
	if err != nil {
		return "", err
	}
	if err := dumpLine(&b, "keysets", versions, audit.Records); err != nil {
		return "", err
	}
	manifests, err := s.Manifests(ctx)
	if err != nil {
		return "", err
	}
	err = dumpLine(&b, "manifests", manifests)
	return b.String(), err
}

func dumpLine(b *strings.Builder, values ...any) error {
	j, err := json.Marshal(values)
	b.Write(j)
	b.WriteByte('\n')
	return err
}

// Drain plays a worker that starts after a crash, at the given time, until
// nothing is live, and returns an error when something stays behind: an
// operation that no worker is given, a resource that waits for no operation, or
// an implicit parent without a member.
func Drain(ctx context.Context, s store.Store, now time.Time) error {
	for range 100 {
		ls, err := s.Lease(ctx, store.Lease{Worker: "after", Max: 8, Now: now, Until: now.Add(leaseFor)})
		if err != nil {
			return err
		}
		if len(ls) == 0 {
			break
		}
		for _, l := range ls {
			e := store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: core.StateSucceeded, Removed: l.Operation.Verb == core.VerbDelete, Now: now}
			if err := s.End(ctx, e); err != nil {
				return err
			}
		}
	}
	n, _, err := s.Pending(ctx)
	if err != nil {
		return err
	}
	if n != 0 {
		return fmt.Errorf("%d operations never end", n)
	}
	members, err := s.List(ctx, store.Query{})
	if err != nil {
		return err
	}
	for _, r := range members.Resources {
		if !r.State.Terminal() {
			return fmt.Errorf("%s is %s and no operation ends that", r.ID, r.State)
		}
		if r.Implicit && !hasMember(members.Resources, r.ID) {
			return fmt.Errorf("implicit %s has no member left", r.ID)
		}
	}
	groups, err := s.List(ctx, store.Query{Type: store.TypeGroup})
	if err != nil {
		return err
	}
	for _, g := range groups.Resources {
		if g.Implicit && !hasMember(members.Resources, g.ID) {
			return fmt.Errorf("implicit %s has no member left", g.ID)
		}
	}
	return nil
}

func hasMember(rs []core.Resource, parent core.ID) bool {
	for _, r := range rs {
		if r.Application.Equal(parent) || r.ID.Scope().Equal(parent) {
			return true
		}
	}
	return false
}

// HeavySteps continue where [CrashSteps] end with the calls that take the most
// statements: a first member that moves to another implicit application, an
// adopted member whose deletion ends a parent's wait, a deletion of what must be
// unused.
func HeavySteps() []CrashStep {
	a, b := ext("moving", "a"), ext("moving", "b")
	write := func(id core.ID, change ...func(*store.Write)) func(context.Context, store.Store) error {
		return func(ctx context.Context, s store.Store) error {
			w := store.Write{Resource: plain(id, core.StateSucceeded), Expect: "*", Now: epoch,
				Edges: []core.Edge{{From: id, To: b, Kind: core.EdgeConnection, Name: "b"}}}
			for _, c := range change {
				c(&w)
			}
			_, err := s.Accept(ctx, w)
			return err
		}
	}
	op := func(name string, id core.ID, verb core.Verb, parent string) func(*store.Write) {
		return func(w *store.Write) {
			w.Operation = &core.Operation{ID: name, ResourceID: id, Verb: verb, State: core.StateAccepted, Group: id.Group(), Parent: parent, Created: epoch}
		}
	}
	lease := func(ctx context.Context, s store.Store) (store.Leased, error) {
		ls, err := s.Lease(ctx, store.Lease{Worker: "w", Max: 1, Now: epoch, Until: epoch.Add(leaseFor)})
		if err == nil && len(ls) != 1 {
			err = fmt.Errorf("leased %d operations, want 1", len(ls))
		}
		if err != nil {
			return store.Leased{}, err
		}
		return ls[0], nil
	}
	var held store.Leased
	take := func(ctx context.Context, s store.Store) (err error) {
		held, err = lease(ctx, s)
		return err
	}
	return []CrashStep{
		{"first member", write(a, implicit("moving", "one"))},
		{"member that moves", write(a, implicit("moving", "two"), op("heavy-move", a, core.VerbPut, ""))},
		{"lease the move", take},
		{"accept a child whose parent waits", write(b, implicit("moving", "three"), op("heavy-b", b, core.VerbDelete, "heavy-move"))},
		{"park", func(ctx context.Context, s store.Store) error {
			return s.Park(ctx, held.Operation.ID, held.Operation.Fence)
		}},
		{"lease the child", take},
		{"end a deletion that empties its application and wakes its parent", func(ctx context.Context, s store.Store) error {
			return s.End(ctx, store.Ending{Operation: held.Operation.ID, Fence: held.Operation.Fence, State: core.StateSucceeded, Removed: true, Now: epoch})
		}},
		{"cancel what was woken", func(ctx context.Context, s store.Store) error {
			_, err := s.Cancel(ctx, store.Cancel{Operation: "heavy-move", Error: byAlice, Now: epoch})
			return err
		}},
		{"delete the last member, which must be unused", func(ctx context.Context, s store.Store) error {
			_, err := s.AcceptDelete(ctx, store.Delete{ID: a, Expect: "*", Unused: true, Now: epoch})
			return err
		}},
	}
}
