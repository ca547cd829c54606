package backup_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/pgtest"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/backup"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/sqlite"
	"github.com/radial-project/radial/internal/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var update = flag.Bool("update", false, "write the file of this format's version into testdata anew")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// kinds of stores, each opened empty.
var kinds = map[string]func(t *testing.T) store.Store{
	"SQLite": func(t *testing.T) store.Store {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "radial.db"), sqlite.Options{})
		return opened(t, s, err)
	},
	"PostgreSQL": func(t *testing.T) store.Store {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{})
		return opened(t, s, err)
	},
}

func opened[S store.Store](t *testing.T, s S, err error) store.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// filled plays the first steps of the play that touches every kind of write, and adds what it leaves out.
func filled(t *testing.T, s store.Store, steps int) {
	t.Helper()
	for _, step := range storetest.CrashSteps()[:steps] {
		if err := step.Do(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", step.Name, err)
		}
	}
	if _, err := s.Keyset(t.Context(), []byte("wrapped\x00\xff")); err != nil {
		t.Fatal(err)
	}
	if err := s.AppendAudit(t.Context(), []store.AuditRecord{{Time: now, Principal: "user:a", Action: "write <x> & y", Target: "/planes/radius/local", Allowed: true}}); err != nil {
		t.Fatal(err)
	}
}

func written(t *testing.T, s store.Store) ([]byte, backup.Summary) {
	t.Helper()
	var file bytes.Buffer
	sum, err := backup.Write(t.Context(), s, &file, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes(), sum
}

func dump(t *testing.T, s store.Store) string {
	t.Helper()
	text, err := storetest.Dump(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func soundness(t *testing.T, s store.Store) []string {
	t.Helper()
	r, err := backup.Check(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Faults
}

// TestRestore_D43: whatever state a store is in, what is restored from it, into a store of either kind, is the
// same, sound, and goes on working.
func TestRestore_D43(t *testing.T) {
	all := len(storetest.CrashSteps())
	for from := range kinds {
		for to := range kinds {
			t.Run(from+" to "+to, func(t *testing.T) {
				for _, steps := range []int{0, all / 2, all} {
					source, target := kinds[from](t), kinds[to](t)
					filled(t, source, steps)
					file, sum := written(t, source)
					told := 0
					got, err := backup.Restore(t.Context(), target, bytes.NewReader(file), func(done, total int) { told = done })
					if err != nil {
						t.Fatalf("after %d steps: %v", steps, err)
					}
					if told != sum.Total() || got.SHA256 != sum.SHA256 {
						t.Errorf("after %d steps: told of %d records of %d, checksum %s, want %s", steps, told, sum.Total(), got.SHA256, sum.SHA256)
					}
					if a, b := dump(t, source), dump(t, target); a != b {
						t.Errorf("after %d steps the restored store differs:\n%s\n%s", steps, a, b)
					}
					if f := soundness(t, target); len(f) > 0 {
						t.Errorf("after %d steps: %q", steps, f)
					}
					page, err := target.AuditRecords(t.Context(), store.AuditQuery{})
					if err != nil || len(page.Records) == 0 || page.Records[0].Action != "write <x> & y" {
						t.Errorf("the audit: %v, %v", page.Records, err)
					}
					// A second generation is the first one to the byte: nothing is lost on the way, entity tags included.
					_, again := written(t, target)
					third := kinds[from](t)
					file2, _ := written(t, target)
					if _, err := backup.Restore(t.Context(), third, bytes.NewReader(file2), nil); err != nil {
						t.Fatal(err)
					}
					if _, last := written(t, third); last.SHA256 != again.SHA256 {
						t.Errorf("after %d steps the third generation is not the second", steps)
					}
					if err := storetest.Drain(t.Context(), target, now.AddDate(10, 0, 0)); err != nil {
						t.Errorf("after %d steps the restored store does not go on: %v", steps, err)
					}
				}
			})
		}
	}
}

func inflated(file []byte) (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

// TestRestore_refuses: a store that holds anything, and files that are damaged in any way, change nothing.
func TestRestore_refuses(t *testing.T) {
	source := kinds["SQLite"](t)
	filled(t, source, len(storetest.CrashSteps())/2)
	file, _ := written(t, source)

	if _, err := backup.Restore(t.Context(), source, bytes.NewReader(file), nil); !core.IsCode(err, core.CodeConflict) {
		t.Errorf("into a store that holds something: %v", err)
	}
	target := kinds["SQLite"](t)
	empty := dump(t, target)
	refused := func(name string, file []byte, say string) {
		t.Helper()
		_, err := backup.Restore(t.Context(), target, bytes.NewReader(file), nil)
		if !core.IsCode(err, core.CodeInvalidContent) || !strings.Contains(fmt.Sprint(err), say) {
			t.Errorf("%s: %v, want %q", name, err, say)
		}
		if _, verified := backup.Verify(t.Context(), bytes.NewReader(file), nil); fmt.Sprint(verified) != fmt.Sprint(err) {
			t.Errorf("%s: Verify says %v, Restore %v", name, verified, err)
		}
		if dump(t, target) != empty {
			t.Fatalf("%s has changed the store", name)
		}
	}
	text := unzip(t, file)
	lines := strings.SplitAfter(text, "\n")
	refused("no gzip", []byte("hello"), "no backup of Radial")
	refused("something else", zip(`{"format":"other"}`+"\n"), "does not begin like one")
	refused("a newer format", zip(strings.Replace(text, `"version":1`, `"version":2`, 1)), "newer release")
	refused("without its end", zip(strings.Join(lines[:len(lines)-2], "")), "it ends after record")
	refused("a record missing", zip(lines[0]+strings.Join(lines[2:], "")), "checksum")
	refused("records swapped", zip(strings.Join([]string{lines[0], lines[1], lines[3], lines[2]}, "")+strings.Join(lines[4:], "")), "")
	refused("a value changed", zip(strings.Replace(text, "shop", "shap", 1)), "")
	refused("more after its end", zip(text+lines[1]), "something follows")
	for at := 20; at < len(file); at += len(file)/40 + 1 {
		refused(fmt.Sprintf("cut off at %d", at), file[:at], "")
		flipped := bytes.Clone(file)
		flipped[at] ^= 0x10
		if same, err := inflated(flipped); err == nil && same == text {
			continue // another way to say the same: it copies from an equal text
		}
		refused(fmt.Sprintf("a bit flipped at %d", at), flipped, "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := backup.Restore(ctx, target, bytes.NewReader(file), func(done, _ int) {
		if done == 3 {
			cancel()
		}
	}); err == nil || dump(t, target) != empty {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := backup.Restore(t.Context(), target, bytes.NewReader(file), nil); err != nil {
		t.Errorf("and then a good one: %v", err)
	}
}

// TestFormat: files of every format that was ever written can be restored.
func TestFormat(t *testing.T) {
	const name = "testdata/v1.backup"
	if *update {
		s := kinds["SQLite"](t)
		filled(t, s, len(storetest.CrashSteps())/2)
		file, _ := written(t, s)
		if err := os.WriteFile(name, file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/*.backup")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, name := range files {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s := kinds["SQLite"](t)
		if _, err := backup.Restore(t.Context(), s, bytes.NewReader(file), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if f := soundness(t, s); len(f) > 0 {
			t.Errorf("%s: %q", name, f)
		}
	}
}

// TestCheck: what does not fit together is said.
func TestCheck(t *testing.T) {
	group := core.GroupID("g")
	thing := group.Resource("My.Company/queues", "a")
	row := func(id core.ID, state core.State, keyset int64) store.Record {
		return store.Record{Resource: &store.ResourceRecord{Resource: core.Resource{ID: id, State: state, Keyset: keyset, Properties: []byte("{}")}}}
	}
	live := func(name string) store.Record {
		return store.Record{Operation: &core.Operation{ID: name, ResourceID: thing, State: core.StateUpdating}}
	}
	key := func(v int64, s store.KeysetState) store.Record {
		return store.Record{Keyset: &store.Keyset{Version: v, State: s}}
	}
	for name, c := range map[string]struct {
		records []store.Record
		want    []string
	}{
		"all well": {[]store.Record{key(1, store.KeysetRetired), key(2, store.KeysetPrimary), row(group, core.StateSucceeded, 0), row(thing, core.StateUpdating, 1), live("op")}, nil},
		"no scope": {[]store.Record{row(thing, core.StateSucceeded, 0)}, []string{"stands in a scope that is not there"}},
		"stuck":    {[]store.Record{row(group, "", 0), row(thing, core.StateUpdating, 0)}, []string{"no operation works on it"}},
		"two operations": {[]store.Record{row(group, "", 0), row(thing, core.StateUpdating, 0), live("one"), live("two")},
			[]string{"has two live operations, one and two"}},
		"an operation alone": {[]store.Record{row(group, "", 0), row(thing, core.StateSucceeded, 0), live("one")}, []string{"operation one is live"}},
		"keysets": {[]store.Record{key(1, store.KeysetDisabled), row(group, "", 1), row(thing, "", 7)},
			[]string{"version 1 of the data keyset, which is disabled", "version 7 of the data keyset, which is not there", "0 versions of the data keyset are primary"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := backup.Check(t.Context(), played(c.records), nil)
			if err != nil || len(r.Faults) != len(c.want) {
				t.Fatalf("%v, %q; want %q", err, r.Faults, c.want)
			}
			for i, w := range c.want {
				if !strings.Contains(r.Faults[i], w) {
					t.Errorf("fault %q, want %q", r.Faults[i], w)
				}
			}
		})
	}
}

// played is a store with records that no store would take.
type played []store.Record

func (p played) Export(_ context.Context, begin func(map[store.Kind]int) error, each func(store.Record) error) error {
	err := begin(map[store.Kind]int{})
	for _, r := range p {
		if err == nil {
			err = each(r)
		}
	}
	return err
}
func (played) Import(context.Context, func() (store.Record, error)) error { return nil }
func (played) Integrity(context.Context) ([]string, error)                { return nil, nil }

func unzip(t *testing.T, file []byte) string {
	t.Helper()
	text, err := inflated(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func zip(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text) // to memory
	_ = w.Close()
	return b.Bytes()
}
