package local_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A stack of another extension's resources, from a laptop: what the template no
// longer names goes, what it names stays; the record has no secret, which is
// supplied anew to delete.
func TestLocal_extension_S29_S35_S47_S57(t *testing.T) {
	l := newLaptop(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "files")
	if out, err := exec.Command("go", "build", "-o", program, "../../../examples/extension").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	const passphrase = "passphrase-canary-4716"
	base := filepath.Join(dir, "base")
	site := filepath.Join(base, "site")
	if out, err := exec.Command(program, "mark", site, "--passphrase-file", l.file("passphrase", passphrase)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script := filepath.Join(dir, "run-files")
	if err := os.WriteFile(script, []byte(fmt.Sprintf("#!/bin/sh\nFILES_BASE=%q exec %q \"$@\"\n", base, program)), 0o700); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(dir, "stacks.json")
	l.record = []string{"--record", "file:" + record, "--extension", "Files@1.0.0=" + script}
	l.env["PASSPHRASE"] = passphrase
	template := func(names ...string) string {
		var resources []string
		for _, n := range names {
			resources = append(resources, fmt.Sprintf(`%q: {"import": "files", "type": "File", "properties": {"path": "%s.txt", "content": "of the stack"}}`, n, n))
		}
		return l.file("t.json", `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0", "languageVersion": "2.0",
		  "parameters": {"passphrase": {"type": "securestring"}},
		  "imports": {"files": {"provider": "Files", "version": "1.0.0", "config": {"directory": "site", "passphrase": "[parameters('passphrase')]"}}},
		  "resources": {`+strings.Join(resources, ",")+`}}`)
	}
	files := func() string {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(site, "*.txt"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range list {
			names = append(names, strings.TrimSuffix(filepath.Base(f), ".txt"))
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	parameter := "passphrase=@" + l.file("p", passphrase)
	supplied := []string{"--credentials-env", "Files.passphrase=PASSPHRASE"}

	l.must("apply", "site", "-f", template("a", "b"), "-p", parameter)
	if got := files(); got != "a b" {
		t.Fatalf("made %s", got)
	}
	before, err := os.Stat(filepath.Join(site, "b.txt"))
	if err != nil {
		t.Fatal(err)
	}
	l.must(append([]string{"apply", "site", "-f", template("b", "c"), "-p", parameter}, supplied...)...)
	if got := files(); got != "b c" {
		t.Errorf("S-29: after the second version there are %s, want b c", got)
	}
	if after, err := os.Stat(filepath.Join(site, "b.txt")); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("S-29: b was made anew: %v", err)
	}

	// S-35: another symbol for the same file is the same resource.
	renamed, err := os.ReadFile(template("b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	l.must(append([]string{"apply", "site", "-f", l.file("r.json", strings.Replace(string(renamed), `"b": {"import"`, `"other": {"import"`, 1)), "-p", parameter}, supplied...)...)
	if got := files(); got != "b c" {
		t.Errorf("S-35: after the symbol was renamed there are %s, want b c", got)
	}

	// Without the passphrase nothing is deleted; with it, all.
	out, code := l.radial("delete", "site", "--yes")
	if code == 0 || files() != "b c" {
		t.Errorf("deleted without the passphrase: exit code %d, left %s: %s", code, files(), out)
	}
	l.must(append([]string{"delete", "site", "--yes"}, supplied...)...)
	if got := files(); got != "" {
		t.Errorf("left: %s", got)
	}
	raw, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if said := string(raw) + l.said.String(); strings.Contains(said, "canary") {
		t.Errorf("the passphrase is in the record or in what was said:\n%s", said)
	}
}
