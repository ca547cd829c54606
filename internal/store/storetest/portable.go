package storetest

import (
	"errors"
	"io"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// export reads all records of a store, and checks what it announces.
func (f *fixture) export(s store.Store) []store.Record {
	f.Helper()
	var out []store.Record
	announced, got := map[store.Kind]int{}, map[store.Kind]int{}
	f.wantCode(s.Export(f.ctx, func(n map[store.Kind]int) error {
		for k, v := range n {
			if v > 0 {
				announced[k] = v
			}
		}
		return nil
	}, func(r store.Record) error {
		out = append(out, r)
		got[r.Kind()]++
		return nil
	}), "", "export")
	f.same(announced, got, "records by kind")
	return out
}

// from hands records out one by one.
func from(rs []store.Record) func() (store.Record, error) {
	return func() (store.Record, error) {
		if len(rs) == 0 {
			return store.Record{}, io.EOF
		}
		r := rs[0]
		rs = rs[1:]
		return r, nil
	}
}

// played opens a store that holds something of every kind: the play until a
// version of the keyset waits, with live, parked and leased operations in it.
func (f *fixture) played() store.Store {
	f.Helper()
	s := f.open(f.T)
	for _, step := range CrashSteps() {
		if step.Name == "end the child" {
			break
		}
		f.wantCode(step.Do(f.ctx, s), "", step.Name)
	}
	f.wantCode(s.AppendAudit(f.ctx, []store.AuditRecord{{Time: epoch, Principal: "a", Allowed: true}, {Time: epoch, Principal: "b"}}), "", "audit")
	w := store.Write{Resource: plain(ext("prod-shop", "sealed"), core.StateSucceeded), Now: epoch}
	sealedWith(1)(&w)
	_, err := s.Accept(f.ctx, w)
	f.wantCode(err, "", "write what is sealed")
	return s
}

var portableCases = map[string]func(*fixture){
	"what is exported fills an empty store, which then goes on": func(f *fixture) {
		s := f.played()
		want := f.export(s)
		copied := f.open(f.T)
		f.wantCode(copied.Import(f.ctx, from(want)), "", "import")
		got := f.export(copied)
		for _, rs := range [][]store.Record{want, got} {
			for i := range rs {
				if o := rs[i].Operation; o != nil { // leases belong to workers of then
					free := *o
					free.Worker, free.LeaseUntil = "", epoch
					rs[i].Operation = &free
				}
			}
		}
		f.same(want, got, "records")
		before, err := Dump(f.ctx, s)
		f.wantCode(err, "", "dump")
		after, err := Dump(f.ctx, copied)
		f.wantCode(err, "", "dump")
		f.same(before, after, "what the stores hold")
		faults, err := copied.Integrity(f.ctx)
		f.wantCode(err, "", "integrity")
		f.same([]string{}, faults, "faults")
		// A fence of then is not given again, and work goes on.
		f.Store, f.now = copied, epoch
		kid := f.leaseOne()
		if kid.Operation.ID != "put-b" || kid.Operation.Fence < 2 {
			f.Errorf("leased %+v, want put-b under a newer fence", kid.Operation)
		}
		f.end(kid, core.StateSucceeded)
		f.wantCode(Drain(f.ctx, copied, epoch), "", "drain")
		a, err := copied.AddKeyset(f.ctx, []byte("two"), epoch)
		f.wantCode(err, "", "add a keyset")
		f.same(int64(2), a.Version, "version after the restored one")
		f.wantCode(copied.AppendAudit(f.ctx, []store.AuditRecord{{Time: epoch, Principal: "c"}}), "", "audit")
	},
	"a store that holds anything is not filled": func(f *fixture) {
		records := f.export(f.played())
		f.start(nil)
		before, err := Dump(f.ctx, f.Store)
		f.wantCode(err, "", "dump")
		f.wantSays(f.wantCode(f.Import(f.ctx, from(records)), core.CodeConflict, "import"), "not empty", "resource")
		after, err := Dump(f.ctx, f.Store)
		f.wantCode(err, "", "dump")
		f.same(before, after, "what the store holds")
	},
	"an import that breaks off leaves the store empty": func(f *fixture) {
		records := f.export(f.played())
		s := f.open(f.T)
		next := from(records)
		n := 0
		broken := core.Errorf(core.CodeInvalidContent, "the file ends early")
		err := s.Import(f.ctx, func() (store.Record, error) {
			if n++; n == len(records) {
				return store.Record{}, broken
			}
			return next()
		})
		if !errors.Is(err, broken) {
			f.Errorf("import: %v", err)
		}
		f.same([]store.Record{}, f.export(s), "records")
		f.wantCode(s.Import(f.ctx, from(records)), "", "import again")
		f.wantCode(s.Import(f.ctx, from([]store.Record{{}})), core.CodeConflict, "import a third time")
		f.wantCode(f.open(f.T).Import(f.ctx, from([]store.Record{{}})), core.CodeInvalidContent, "import of what nobody knows")
	},
	"an export sees one moment": func(f *fixture) {
		s := f.played()
		n := 0
		f.wantCode(s.Export(f.ctx, func(map[store.Kind]int) error {
			w := store.Write{Resource: plain(ext("prod-shop", "late"), core.StateSucceeded), Expect: "*", Now: epoch}
			_, err := s.Accept(f.ctx, w)
			return err
		}, func(r store.Record) error {
			if r.Resource != nil && r.Resource.Resource.ID.Name() == "late" {
				n++
			}
			return nil
		}), "", "export")
		f.same(0, n, "rows written after it began")
		stop := errors.New("enough")
		if err := s.Export(f.ctx, func(map[store.Kind]int) error { return nil }, func(store.Record) error { return stop }); !errors.Is(err, stop) {
			f.Errorf("export: %v, want the caller's error", err)
		}
	},
}
