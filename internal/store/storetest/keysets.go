package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

var sealedValue = json.RawMessage(`{"password":{"$sealed":"AA=="}}`)

// sealedWith makes a write hold values sealed with a version.
func sealedWith(version int64) func(*store.Write) {
	return func(w *store.Write) { w.Resource.Properties, w.Resource.Keyset = sealedValue, version }
}

func (f *fixture) keyset(name string) int64 {
	f.Helper()
	k, err := f.AddKeyset(f.ctx, []byte(name), f.now)
	f.wantCode(err, "", "add keyset")
	return k.Version
}

func (f *fixture) promote(version int64) error {
	return f.PromoteKeyset(f.ctx, version, f.now.Add(-time.Minute), f.now)
}

func (f *fixture) states() map[int64]store.KeysetState {
	f.Helper()
	ks, err := f.Versions(f.ctx)
	f.wantCode(err, "", "versions")
	out := map[int64]store.KeysetState{}
	for _, k := range ks {
		out[k.Version] = k.State
	}
	return out
}

var keysetCases = map[string]func(*fixture){
	"D-24 a version is added, acknowledged, promoted, and the one before disabled": func(f *fixture) {
		f.start([]string{"g"})
		one, err := f.Keyset(f.ctx, []byte("one"))
		f.wantCode(err, "", "keyset")
		f.same([]byte("one"), one, "the first")
		beat := func(name string, version int64) {
			f.Helper()
			f.wantCode(f.Heartbeat(f.ctx, store.Replica{Name: name, Started: f.now, Seen: f.now, Keyset: version}), "", "heartbeat")
		}
		beat("dead", 1)
		f.now = f.now.Add(time.Hour)
		beat("a", 1)
		beat("b", 1)
		two := f.keyset("two")
		_, err = f.AddKeyset(f.ctx, []byte("three"), f.now)
		f.wantSays(f.wantCode(err, core.CodeConflict, "a third on top"), fmt.Sprint(two))
		beat("b", two)
		f.wantSays(f.wantCode(f.promote(two), core.CodeConflict, "promote before all have it"), " a:")
		still, err := f.Keyset(f.ctx, nil)
		f.wantCode(err, "", "keyset")
		f.same(one, still, "primary before the promotion")
		f.wantCode(f.DisableKeyset(f.ctx, 1, f.now), core.CodeConflict, "disable the primary")
		beat("a", two)
		f.wantCode(f.promote(two), "", "promote")
		f.wantCode(f.promote(two), "", "promote again")
		f.wantCode(f.promote(1), core.CodeConflict, "promote a retired one")
		f.wantCode(f.promote(9), core.CodeNotFound, "promote an unknown one")
		f.same(map[int64]store.KeysetState{1: store.KeysetRetired, two: store.KeysetPrimary}, f.states(), "states")
		now, err := f.Keyset(f.ctx, []byte("other"))
		f.wantCode(err, "", "keyset")
		f.same([]byte("two"), now, "primary")
		f.wantCode(f.DisableKeyset(f.ctx, 1, f.now), "", "disable")
		f.wantCode(f.DisableKeyset(f.ctx, 1, f.now), "", "disable again")
		three := f.keyset("three")
		f.wantCode(f.DisableKeyset(f.ctx, three, f.now), "", "give up what was added")
		f.wantCode(f.Rewrap(f.ctx, two, []byte("two, wrapped anew")), "", "rewrap")
		f.wantCode(f.Rewrap(f.ctx, 9, nil), core.CodeNotFound, "rewrap an unknown one")
		ks, err := f.Versions(f.ctx)
		f.wantCode(err, "", "versions")
		if len(ks) != 3 || string(ks[1].Wrapped) != "two, wrapped anew" || ks[0].State != store.KeysetDisabled || ks[2].State != store.KeysetDisabled || !ks[1].Changed.Equal(f.now) {
			f.Errorf("versions are %+v", ks)
		}
	},
	"D-24 replicas come, are seen, and go": func(f *fixture) {
		f.start(nil)
		a := store.Replica{Name: "a", Started: f.now, Seen: f.now, Keyset: 1}
		f.wantCode(f.Heartbeat(f.ctx, a), "", "heartbeat")
		f.now = f.now.Add(time.Minute)
		b := store.Replica{Name: "b", Started: f.now, Seen: f.now}
		f.wantCode(f.Heartbeat(f.ctx, b), "", "heartbeat")
		f.same([]store.Replica{b}, must(f.Replicas(f.ctx, f.now)), "those seen just now")
		a.Seen, a.Keyset = f.now, 2
		f.wantCode(f.Heartbeat(f.ctx, store.Replica{Name: "a", Started: f.now, Seen: f.now, Keyset: 2}), "", "heartbeat")
		f.same([]store.Replica{a, b}, must(f.Replicas(f.ctx, time.Time{})), "all")
		f.wantCode(f.RemoveReplica(f.ctx, "a"), "", "remove")
		f.wantCode(f.RemoveReplica(f.ctx, "a"), "", "remove again")
		f.same([]store.Replica{b}, must(f.Replicas(f.ctx, time.Time{})), "what is left")
	},
	"D-24 rows are sealed again without a trace, and only as they were read": func(f *fixture) {
		var r recorder
		f.start([]string{"g"}, Listener(r.listen))
		_, err := f.Keyset(f.ctx, []byte("one"))
		f.wantCode(err, "", "keyset")
		f.write(ext("g", "plain"))
		f.write(ext("g", "says"), sealedWith(1))
		f.write(ext("g", "silent"), sealedWith(0)) // its writer does not know of versions
		f.write(ext("g", "secrets"), func(w *store.Write) {
			w.Resource.Secrets = map[string]jsonRaw{"s": jsonRaw(`{"$sealed":"AQ=="}`)}
		})
		f.accept(ext("g", "ended"), func(w *store.Write) { w.Resource.Properties = []byte(`{}`) })
		l := f.leaseOne()
		next := l.Resource
		next.Properties, next.Keyset = sealedValue, 1
		f.wantCode(f.End(f.ctx, store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: core.StateSucceeded, Resource: &next, Now: f.now}), "", "end")
		two := f.keyset("two")
		f.same([]string{}, f.list(store.Query{SealedBefore: 1}), "sealed before the first version")
		f.wantCode(f.promote(two), "", "promote")
		f.write(ext("g", "new"), sealedWith(two))
		want := []string{"ended", "says", "secrets", "silent"}
		for _, limit := range []int{0, 1, 3} {
			f.same(want, f.list(store.Query{SealedBefore: two, Limit: limit}), "rows to seal again")
		}
		f.same([]string{"says"}, f.list(store.Query{SealedBefore: two, Scope: ext("g", "x").Scope(), Type: typeExt, Limit: 9, After: ext("g", "ended").Key()})[:1], "from the middle")
		f.wantSays(f.wantCode(f.DisableKeyset(f.ctx, 1, f.now), core.CodeConflict, "disable what is in use"), "4")

		before, _ := f.get(ext("g", "says"))
		f.sync(&r)
		heard := len(r.of(store.ChangeState))
		again := store.Resealing{ID: ext("G", "says"), Expect: before.ETag, Properties: json.RawMessage(`{"password":{"$sealed":"BB=="}}`), Keyset: two}
		stale := again
		stale.Expect = "stale"
		f.wantCode(f.Reseal(f.ctx, stale), store.Changed, "seal a row that changed")
		f.wantCode(f.Reseal(f.ctx, again), "", "seal again")
		f.wantCode(f.Reseal(f.ctx, again), store.Changed, "seal what is sealed")
		after, _ := f.get(ext("g", "says"))
		before.Properties, before.Keyset = again.Properties, two
		f.same(before, after, "the row, its entity tag included")
		f.sync(&r)
		if n := len(r.of(store.ChangeState)); n != heard+1 { // sync's own
			f.Errorf("%d changes were told of, want none", n-heard-1)
		}
		f.wantCode(f.Reseal(f.ctx, store.Resealing{ID: ext("g", "none"), Expect: "*", Keyset: two}), core.CodeNotFound, "seal what is not there")
		for _, name := range want {
			row, _ := f.get(ext("g", name))
			if row.Keyset == two {
				continue
			}
			k := two
			if name == "silent" {
				k = 0 // it held nothing sealed after all
			}
			f.wantCode(f.Reseal(f.ctx, store.Resealing{ID: row.ID, Expect: row.ETag, Properties: row.Properties, Secrets: row.Secrets, Keyset: k}), "", "seal "+name)
		}
		f.same([]string{}, f.list(store.Query{SealedBefore: two}), "rows left to seal again")
		f.wantCode(f.DisableKeyset(f.ctx, 1, f.now), "", "disable")
		_, err = f.Accept(f.ctx, store.Write{Resource: before, Expect: "*", Now: f.now})
		f.wantCode(err, "", "write what is sealed with the primary")
		late := store.Write{Resource: plain(ext("g", "late"), core.StateSucceeded), Expect: "", Now: f.now}
		sealedWith(1)(&late)
		_, err = f.Accept(f.ctx, late)
		f.wantSays(f.wantCode(err, store.Changed, "a write sealed before the version was disabled"), "seal it again")
		f.mustNotExist(ext("g", "late"))
		f.wantCode(f.Reseal(f.ctx, store.Resealing{ID: ext("g", "says"), Expect: "*", Properties: sealedValue, Keyset: 1}), store.Changed, "seal with what is disabled")
		f.accept(ext("g", "ended"))
		l = f.leaseOne()
		next.Keyset = 1
		e := store.Ending{Operation: l.Operation.ID, Fence: l.Operation.Fence, State: core.StateSucceeded, Resource: &next, Now: f.now}
		f.wantCode(f.End(f.ctx, e), store.Changed, "an end sealed before the version was disabled")
		next.Keyset = two
		f.wantCode(f.End(f.ctx, e), "", "the end, sealed again")
	},
	"D-24 while a version is disabled no write comes to name it": func(f *fixture) {
		f.start([]string{"g"})
		_, err := f.Keyset(f.ctx, []byte("one"))
		f.wantCode(err, "", "keyset")
		two := f.keyset("two")
		f.wantCode(f.promote(two), "", "promote")
		errs := atOnce(9, func(i int) error {
			if i == 4 {
				return f.DisableKeyset(f.ctx, 1, f.now)
			}
			w := store.Write{Resource: plain(ext("g", fmt.Sprintf("r%d", i)), core.StateSucceeded), Now: f.now}
			sealedWith(1)(&w)
			_, err := f.Accept(f.ctx, w)
			return err
		})
		disabled := f.states()[1] == store.KeysetDisabled
		named := len(f.list(store.Query{SealedBefore: two}))
		for i, err := range errs {
			if err != nil && !core.IsCode(err, store.Changed) && !(i == 4 && core.IsCode(err, core.CodeConflict)) {
				f.Errorf("call %d: %v", i, err)
			}
		}
		if (errs[4] == nil) != disabled || disabled && named > 0 {
			f.Errorf("disabling answered %v, the version is disabled: %t, and %d rows name it", errs[4], disabled, named)
		}
	},
	"D-24 replicas are told of keysets and manifests": func(f *fixture) {
		var r recorder
		f.start([]string{"g"}, Listener(r.listen))
		_, err := f.Keyset(f.ctx, []byte("one"))
		f.wantCode(err, "", "keyset")
		two := f.keyset("two")
		f.wantCode(f.promote(two), "", "promote")
		f.wantCode(f.DisableKeyset(f.ctx, 1, f.now), "", "disable")
		f.wantCode(f.PutManifest(f.ctx, "A", json.RawMessage(`{}`), nil), "", "manifest")
		f.wantCode(f.DeleteManifest(f.ctx, "A", json.RawMessage(`{}`)), "", "manifest")
		f.sync(&r)
		f.same(4, len(r.of(store.ChangeKeysets)), "changes of keysets")
		for _, c := range r.of(store.ChangeManifests) {
			f.same(store.ProviderID("A").Key(), c.ID.Key(), "the provider of a change of a manifest")
		}
		f.same(2, len(r.of(store.ChangeManifests)), "changes of manifests")
	},
}
