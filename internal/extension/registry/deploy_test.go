package registry

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
)

// filesTemplate makes two files, one of what the other is, reads a third, and
// packs them all.
const filesTemplate = `{
  "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
  "contentVersion": "1.0.0.0", "languageVersion": "2.0",
  "parameters": {"passphrase": {"type": "securestring"}, "directory": {"type": "string"}},
  "imports": {"files": {"provider": "Files", "version": "1.0.0",
    "config": {"directory": "[parameters('directory')]", "passphrase": "[parameters('passphrase')]"}}},
  "resources": {
    "seed": {"import": "files", "type": "File", "existing": true, "properties": {"path": "seed.txt"}},
    "first": {"import": "files", "type": "File", "properties": {"path": "out/first.txt", "content": "[concat('seed is ', reference('seed').content)]"}},
    "second": {"import": "files", "type": "File", "properties": {"path": "out/second.txt", "content": "[concat('first is ', string(reference('first').size))]"}},
    "all": {"import": "files", "type": "Archive", "dependsOn": ["second"], "properties": {"path": "all.tgz", "folder": "out"}}
  },
  "outputs": {"sum": {"type": "string", "value": "[reference('first').sha256]"}, "size": {"type": "int", "value": "[reference('all').size]"}}
}`

// journal keeps what an engine records.
type journal struct {
	mu   sync.Mutex
	rows map[string]core.Output
	all  strings.Builder
}

func (j *journal) record(_ context.Context, put []core.Output, drop []core.ID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.rows == nil {
		j.rows = map[string]core.Output{}
	}
	for _, o := range put {
		j.rows[o.ID.Key()] = o
		raw, err := json.Marshal(o)
		if err != nil {
			return err
		}
		j.all.Write(raw)
	}
	for _, id := range drop {
		delete(j.rows, id.Key())
	}
	return nil
}

func (j *journal) outputs() (list []core.Output) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range j.rows {
		list = append(list, o)
	}
	return list
}

// A template's files are made, read, packed and deleted through the engine, over
// either carrier; the passphrase is in nothing that is kept or answered.
func TestDeploy_S47(t *testing.T) {
	const passphrase = "passphrase-canary-4714"
	for name, carrier := range map[string]carrierOf{"HTTP": overHTTP, "gRPC": overGRPC} {
		t.Run("S-47 "+name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			base := t.TempDir()
			dir := filepath.Join(base, "site")
			markDirectory(t, dir, passphrase)
			if err := os.WriteFile(filepath.Join(dir, "seed.txt"), []byte("green"), 0o600); err != nil {
				t.Fatal(err)
			}
			log := &output{}
			var p pauses
			x := newRegistry(t, Options{Log: logger(log), Sleep: p.sleep}, carrier(t, base))
			engine := deploy.New(deploy.EngineOptions{Resolver: x})
			j := &journal{}
			request := deploy.Request{
				Name: "site", Template: []byte(filesTemplate), Run: "run-1", Record: j.record,
				Parameters: map[string]any{"passphrase": passphrase, "directory": "site"},
			}

			checked, err := engine.Validate(ctx, request)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
				t.Error("to validate made something")
			}
			done, err := engine.Deploy(ctx, request)
			if err != nil {
				t.Fatal(err)
			}
			if raw, err := os.ReadFile(filepath.Join(dir, "out", "second.txt")); err != nil || string(raw) != "first is 13" {
				t.Errorf("%q, %v", raw, err)
			}
			if len(done.Resources) != 3 || len(done.Outputs) != 2 {
				t.Fatalf("%+v", done)
			}
			var want, got []string
			for _, a := range checked.Resources {
				want = append(want, a.ID)
			}
			for _, a := range done.Resources {
				got = append(got, a.ID)
				if a.Identity == nil || a.Identity.ConfigID == "" || a.Identity.UID == "" || !strings.HasPrefix(a.Output, "/planes/extensions/Files/places/") {
					t.Errorf("%s has no identity: %s", a.ID, text(t, a))
				}
			}
			if strings.Join(want, " ") != strings.Join(got, " ") {
				t.Errorf("validate named %v, the deployment %v", want, got)
			}

			// The same again changes nothing.
			before, err := os.Stat(filepath.Join(dir, "out", "first.txt"))
			if err != nil {
				t.Fatal(err)
			}
			request.Run, request.Previous = "run-2", j.outputs()
			if _, err := engine.Deploy(ctx, request); err != nil {
				t.Fatal(err)
			}
			if after, err := os.Stat(filepath.Join(dir, "out", "first.txt")); err != nil || !after.ModTime().Equal(before.ModTime()) {
				t.Errorf("an unchanged file was written again: %v", err)
			}

			// A wrong passphrase is the extension's to refuse; nothing is made.
			wrong := request
			wrong.Parameters = map[string]any{"passphrase": "wrong-canary-4715", "directory": "site"}
			_, err = engine.Deploy(ctx, wrong)
			if err == nil || !strings.Contains(err.Error(), "config.passphrase") {
				t.Errorf("%v", err)
			}

			kept := j.all.String() + text(t, done) + text(t, checked) + text(t, core.AsError(err)) + log.String()
			for _, canary := range []string{passphrase, "canary-4715"} {
				if strings.Contains(kept, canary) {
					t.Errorf("%q is in what is kept, answered or logged", canary)
				}
			}

			// Deleted by what is recorded, with the passphrase supplied anew.
			if _, err := engine.Delete(ctx, deploy.DeleteRequest{Outputs: j.outputs(), Record: j.record}); err == nil {
				t.Error("deleted without the passphrase")
			}
			_, err = engine.Delete(ctx, deploy.DeleteRequest{Outputs: j.outputs(), Record: j.record,
				Secrets: map[string]extension.Secrets{"files": {"passphrase": passphrase}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"out/first.txt", "out/second.txt", "all.tgz"} {
				if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
					t.Errorf("%s still stands", name)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "seed.txt")); err != nil {
				t.Error("what was only read was deleted")
			}
			if left := j.outputs(); len(left) != 0 {
				t.Errorf("left in the journal: %v", left)
			}
		})
	}
}

func TestUnknownExtension(t *testing.T) {
	x := newRegistry(t, Options{}, Registration{Name: "Other", URL: "https://other.example.com"})
	_, err := deploy.New(deploy.EngineOptions{Resolver: x}).Deploy(t.Context(), deploy.Request{Name: "site", Template: []byte(filesTemplate),
		Parameters: map[string]any{"passphrase": "x", "directory": "site"}})
	if err == nil || !strings.Contains(err.Error(), `import "files"`) || !strings.Contains(err.Error(), "known are Kubernetes, Other") {
		t.Errorf("%v", err)
	}
}

// What-if reads what is there and tells what would become of it.
func TestWhatIf_S46(t *testing.T) {
	const one = `{"contentVersion": "1.0.0.0", "languageVersion": "2.0", "parameters": {"text": {"type": "string"}},
	  "imports": {"files": {"provider": "Files", "version": "1.0.0", "config": {"directory": "site"}}},
	  "resources": {"file": {"import": "files", "type": "File", "properties": {"path": "a.txt", "content": "[parameters('text')]"}},
	    "other": {"import": "files", "type": "File", "properties": {"path": "b.txt", "content": "[reference('file').sha256]"}}}}`
	for name, carrier := range map[string]carrierOf{"HTTP": overHTTP, "gRPC": overGRPC} {
		t.Run("S-46 "+name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			markDirectory(t, filepath.Join(base, "site"), "")
			engine := deploy.New(deploy.EngineOptions{Resolver: newRegistry(t, Options{}, carrier(t, base))})
			request := func(text string) deploy.Request {
				return deploy.Request{Name: "site", Template: []byte(one), Parameters: map[string]any{"text": text}}
			}
			kinds := func(text string) string {
				t.Helper()
				changes, err := engine.WhatIf(t.Context(), request(text))
				if err != nil {
					t.Fatal(err)
				}
				var found []string
				for _, c := range changes {
					found = append(found, c.Symbol+" "+c.Kind)
				}
				slices.Sort(found)
				return strings.Join(found, ", ")
			}
			// Over gRPC nothing can be said of what depends on another.
			other := map[string]string{"HTTP": "Create", "gRPC": "Unsupported"}[name]
			if got, want := kinds("x"), "file Create, other "+other; got != want {
				t.Errorf("before: %s, want %s", got, want)
			}
			if _, err := os.Stat(filepath.Join(base, "site", "a.txt")); err == nil {
				t.Fatal("a what-if made something")
			}
			if _, err := engine.Deploy(t.Context(), request("x")); err != nil {
				t.Fatal(err)
			}
			if got := kinds("x"); !strings.HasPrefix(got, "file NoChange") {
				t.Errorf("the same again: %s", got)
			}
			if got := kinds("y"); !strings.HasPrefix(got, "file Modify") {
				t.Errorf("another text: %s", got)
			}
		})
	}
}
