// Package architecture holds the imports of the tree to what
// docs/architecture.md says of its rooms.
package architecture

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/radial-project/radial/"

// imports returns, for every package below internal/, the rooms of this module
// that its files (tests left out) import.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	root := filepath.Join("..", "..", "internal")
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(p))
		if err != nil {
			return err
		}
		room := filepath.ToSlash(rel)
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			if in, ok := strings.CutPrefix(name, module+"internal/"); ok && !slices.Contains(found[room], in) {
				found[room] = append(found[room], in)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 20 {
		t.Fatalf("only %d rooms found below %s", len(found), root)
	}
	return found
}

// within reports whether a room is one of the names or lies below one.
func within(room string, names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return room == n || strings.HasPrefix(room, n+"/") })
}

// Persistence, queue and secrets stand below the business: they import the
// vocabulary and each other, and nothing that decides.
func TestSharedServicesKnowNoBusiness_D4(t *testing.T) {
	shared := []string{"store", "feed", "seal", "operation"}
	// Sealing again in the background walks values by their schema, a pure room.
	below := append([]string{"core", "telemetry", "schema"}, shared...)
	seen := map[string]bool{}
	for room, imported := range imports(t) {
		if !within(room, shared...) {
			continue
		}
		seen[strings.Split(room, "/")[0]] = true
		for _, i := range imported {
			if !within(i, below...) {
				t.Errorf("internal/%s imports internal/%s: what stores, queues or seals must not know the business", room, i)
			}
		}
	}
	for _, s := range shared {
		if !seen[s] {
			t.Errorf("no imports of internal/%s were found: has it moved?", s)
		}
	}
}

// The business reaches a store by its contract; only what puts a process
// together, and tools for tests, choose an implementation.
func TestStoresAreChosenInOnePlace_D4(t *testing.T) {
	for room, imported := range imports(t) {
		for _, i := range imported {
			if within(i, "store/sqlite", "store/postgres") && !within(room, "store", "cli", "servertest", "pgtest") {
				t.Errorf("internal/%s imports internal/%s: use the contract of internal/store", room, i)
			}
		}
	}
}

// Pure rooms do no I/O of their own: they import no room that does.
func TestPureRooms(t *testing.T) {
	pure := []string{"core", "template", "schema", "connection", "graph", "conceal"}
	for room, imported := range imports(t) {
		if !within(room, pure...) {
			continue
		}
		for _, i := range imported {
			if !within(i, append(pure, "store")...) || within(i, "store/sqlite", "store/postgres") {
				t.Errorf("internal/%s imports internal/%s", room, i)
			}
		}
	}
	for _, name := range []string{"os", "net", "net/http", "database/sql"} {
		for _, room := range pure {
			files, err := filepath.Glob(filepath.Join("..", "..", "internal", room, "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range files {
				if strings.HasSuffix(p, "_test.go") {
					continue
				}
				f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range f.Imports {
					if got, _ := strconv.Unquote(i.Path.Value); got == name {
						t.Errorf("%s imports %s", path.Join("internal", room, filepath.Base(p)), name)
					}
				}
			}
		}
	}
}

// A stack reaches clusters by the deployments engine alone: neither it nor
// anything that it imports knows a client of Kubernetes. Forms of its records are
// rooms of their own, behind its contract.
func TestStacksReachNoCluster_S34(t *testing.T) {
	all := imports(t)
	var reach func(room string, seen map[string]bool)
	reach = func(room string, seen map[string]bool) {
		if seen[room] {
			return
		}
		seen[room] = true
		for _, i := range all[room] {
			reach(i, seen)
		}
	}
	seen := map[string]bool{}
	reach("stack", seen)
	if !seen["deploy"] || !seen["template"] {
		t.Fatalf("internal/stack reaches only %v: has it moved?", seen)
	}
	for room := range seen {
		if within(room, "extension/kubernetes", "scope", "server", "store", "stack/local", "stack/clusterrecords") {
			t.Errorf("S-34: internal/stack reaches internal/%s", room)
		}
		files, err := filepath.Glob(filepath.Join("..", "..", "internal", filepath.FromSlash(room), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range files {
			if strings.HasSuffix(p, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				if name, _ := strconv.Unquote(i.Path.Value); strings.HasPrefix(name, "k8s.io/") || strings.HasPrefix(name, "sigs.k8s.io/controller-runtime") {
					t.Errorf("S-34: internal/%s, which stacks reach, imports %s", room, name)
				}
			}
		}
	}
}
