package sqlite

import (
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store/rows"
)

// TestMigrate_outputs brings a file of the release before 00003 forwards: what
// a resource has made stays, in the order planned, and goes with the resource.
func TestMigrate_outputs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "radial.db")
	db, err := sql.Open("sqlite", dsn(path, "journal_mode(WAL)", "foreign_keys(1)"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, dir, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	id := core.GroupID("g").Resource("Test.Types/ones", "One")
	values, err := rows.ResourceValues(core.Resource{ID: id, State: core.StateSucceeded}, id.Type())
	if err != nil {
		t.Fatal(err)
	}
	exec := func(q string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), q, args...); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	exec(fmt.Sprintf("PRAGMA application_id = %d", applicationID))
	exec(insertResource, values...)
	var want []core.Output
	for i, name := range []string{"Zebra", "ant", "Mole"} {
		o := core.Output{ID: core.KubernetesID("local", "default", "core", "ConfigMap", name), LocalID: name, State: core.OutputMade,
			Managed: i > 0, Handle: []byte(`{"n":1}`)}
		if i > 0 {
			o.DependsOn = []core.ID{want[0].ID}
		}
		depends, err := rows.ToJSON(o.DependsOn, len(o.DependsOn) == 0)
		if err != nil {
			t.Fatal(err)
		}
		exec(`INSERT INTO outputs (resource_key, key, ordinal, id, local_id, state, managed, depends_on, handle) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id.Key(), o.ID.Key(), i+1, o.ID.String(), o.LocalID, string(o.State), o.Managed, depends, rows.Text(o.Handle))
		want = append(want, o)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Outputs(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b core.ID) bool { return a.String() == b.String() })); diff != "" {
		t.Errorf("outputs (-before +after):\n%s", diff)
	}
	g, err := s.Graph(t.Context(), core.GroupID("g"))
	if err != nil || len(g.Nodes) != 1 || !slices.Equal(g.Nodes[0].Outputs, []string{want[0].ID.String(), want[1].ID.String(), want[2].ID.String()}) {
		t.Errorf("the graph is %+v (%v)", g, err)
	}
	var left int
	if err := s.writer.do(t.Context(), func(x *tx) error {
		if _, err := x.exec(`DELETE FROM resources WHERE key = ?`, id.Key()); err != nil {
			return err
		}
		_, err := x.row(`SELECT count(*) FROM outputs`, nil, &left)
		return err
	}); err != nil || left > 0 {
		t.Errorf("%d outputs stay without their resource (%v)", left, err)
	}
	if faults, err := s.Integrity(t.Context()); err != nil || len(faults) > 0 {
		t.Errorf("the file holds %v (%v)", faults, err)
	}
}
