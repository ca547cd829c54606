package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The server deploys resources of an extension that its configuration names,
// keeps no secret of it, and leaves no process behind, however it ends.
func TestExtension_S47(t *testing.T) {
	t.Parallel()
	const passphrase = "passphrase-canary-4717"
	dir := t.TempDir()
	files, site := filepath.Join(dir, "files"), filepath.Join(dir, "base", "site")
	if out, err := exec.Command("go", "build", "-o", files, "../../examples/extension").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "passphrase"), []byte(passphrase), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(files, "mark", site, "--passphrase-file", filepath.Join(dir, "passphrase")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf("extensions:\n- {name: Files, version: 1.0.0, path: %q, env: {FILES_BASE: %q}}\n", files, filepath.Dir(site))), 0o600); err != nil {
		t.Fatal(err)
	}
	template := `{"contentVersion": "1.0.0.0", "languageVersion": "2.0",
	  "parameters": {"passphrase": {"type": "securestring"}, "text": {"type": "string"}},
	  "imports": {"files": {"provider": "Files", "version": "1.0.0", "config": {"directory": "site", "passphrase": "[parameters('passphrase')]"}}},
	  "resources": {"page": {"import": "files", "type": "File", "properties": {"path": "index.html", "content": "[parameters('text')]"}}},
	  "outputs": {"size": {"type": "int", "value": "[reference('page').size]"}}}`
	deploy := func(p *process, text, passphrase string) string {
		t.Helper()
		body, err := json.Marshal(map[string]any{"properties": map[string]any{"mode": "Incremental", "template": json.RawMessage(template),
			"parameters": map[string]any{"passphrase": map[string]any{"value": passphrase}, "text": map[string]any{"value": text}}}})
		if err != nil {
			t.Fatal(err)
		}
		put, err := p.send("PUT", group+"/providers/Microsoft.Resources/deployments/site?api-version=2022-09-01", string(body))
		if err != nil || put.status/100 != 2 {
			t.Fatalf("%v, %d: %s", err, put.status, put.raw)
		}
		return p.must(200, "GET", put.header.Get("Azure-AsyncOperation"), "", "Prefer", "wait=30").raw
	}
	pid := regexp.MustCompile(`extension started.*pid=(\d+)`)
	for i, end := range []func(p *process){
		func(p *process) { p.kill() },
		func(p *process) { _ = p.cmd.Process.Signal(syscall.SIGTERM); <-p.exited },
	} {
		p := launch(t, dir, "--config", config)
		p.must(200, "PUT", group+ucp, `{}`)
		text := fmt.Sprintf("version %d", i)
		if got := deploy(p, text, passphrase); !strings.Contains(got, `"Succeeded"`) {
			t.Fatalf("the deployment ended as %s", got)
		}
		if raw, err := os.ReadFile(filepath.Join(site, "index.html")); err != nil || string(raw) != text {
			t.Errorf("%q, %v", raw, err)
		}
		if got := deploy(p, text, "wrong-canary-4718"); !strings.Contains(got, `"Failed"`) || !strings.Contains(got, "config.passphrase") {
			t.Errorf("with a wrong passphrase it ended as %s", got)
		}
		shown := p.must(200, "GET", group+"/providers/Microsoft.Resources/deployments/site?api-version=2022-09-01", "").raw
		end(p)
		m := pid.FindStringSubmatch(p.log.String())
		if m == nil {
			t.Fatalf("the log does not say that the extension was started:\n%s", p.log.String())
		}
		child, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); syscall.Kill(child, 0) == nil && !ended(child); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the extension's process %d outlived the server", child)
			}
		}
		said := p.log.String() + shown
		kept, err := filepath.Glob(filepath.Join(dir, "radial.db*"))
		if err != nil || len(kept) == 0 {
			t.Fatal(err, kept)
		}
		for _, file := range kept {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			said += string(raw)
		}
		if strings.Contains(said, "canary-471") {
			t.Error("a passphrase is in the store, the log or an answer")
		}
	}
}

// ended reports whether a process has ended and nobody asked how.
func ended(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(raw), ") Z ")
}
