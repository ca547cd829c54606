package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// control is a radial-server of its own process, as its users start it.
type control struct{ url string }

// startProgram builds the real program and starts it in developer mode, with
// further flags.
func startProgram(t *testing.T, flags ...string) control {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "radial-server")
	build := exec.Command("go", "build", "-o", program, "github.com/radial-project/radial/cmd/radial-server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build radial-server: %v\n%s", err, out)
	}
	ready := filepath.Join(dir, "ready")
	cmd := exec.Command(program, append([]string{"--developer-mode", "--listen", "127.0.0.1:0", "--ready-file", ready,
		"--store", filepath.Join(dir, "radial.db"), "--key-file", filepath.Join(dir, "key")}, flags...)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	deadline := time.After(30 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-ended:
			t.Fatalf("radial-server ended:\n%s", log.String())
		case <-deadline:
			t.Fatal("radial-server was not ready within 30 s")
		case <-tick.C:
			if raw, err := os.ReadFile(ready); err == nil {
				tick.Stop()
				return control{url: strings.TrimSpace(string(raw))}
			}
		}
	}
}

// rad is the peer's command line with a workspace of its own.
type rad struct {
	t             *testing.T
	program, home string
}

// newRad points rad at a control plane: workspace dev by the override that
// workspaces have for that; workspace cluster as on a cluster, by the aggregated
// API of a kubeconfig, whose cluster is the control plane itself.
func newRad(t *testing.T, url string) rad {
	t.Helper()
	program := os.Getenv("RADIUS_CLI")
	if program == "" {
		t.Skip("RADIUS_CLI is not set: it names a built rad program, which this test drives")
	}
	r := rad{t: t, program: program, home: t.TempDir()}
	write := func(name, text string) {
		name = filepath.Join(r.home, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".kube/config", fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: dev\n"+
		"contexts: [{name: dev, context: {cluster: dev, user: dev}}]\n"+
		"clusters: [{name: dev, cluster: {server: %q}}]\nusers: [{name: dev, user: {}}]\n", url))
	const workspace = "    %s:\n      connection: {kind: kubernetes, context: dev%s}\n" +
		"      scope: /planes/radius/local/resourceGroups/default\n" +
		"      environment: /planes/radius/local/resourceGroups/default/providers/Applications.Core/environments/default\n"
	write("config.yaml", "workspaces:\n  default: dev\n  items:\n"+
		fmt.Sprintf(workspace, "dev", fmt.Sprintf(", overrides: {ucp: %q}", url))+
		fmt.Sprintf(workspace, "cluster", ""))
	return r
}

// run runs a command and returns what it wrote and how it ended.
func (r rad) run(args ...string) (string, int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	cmd := r.command(ctx, args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("rad %s: %v", strings.Join(args, " "), err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (r rad) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.program, append([]string{"--config", filepath.Join(r.home, "config.yaml")}, args...)...)
	cmd.Env = []string{"HOME=" + r.home, "PATH=" + os.Getenv("PATH"), "TERM=xterm"}
	cmd.Dir = r.home
	return cmd
}

// file writes a file beside the workspace and returns its path.
func (r rad) file(name, text string) string {
	path := filepath.Join(r.home, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

const radTypes = `namespace: Compat.Resources
types:
  topics:
    capabilities: [ManualResourceProvisioning]
    apiVersions:
      2023-10-01-preview:
        schema:
          type: object
          properties:
            retention: {type: integer, default: 7}
            key: {type: string, x-radius-sensitive: true}
  readers:
    apiVersions:
      2023-10-01-preview:
        schema:
          type: object
          properties:
            host: {type: string}
`

// TestRadiusCLI_D3_D10 runs the peer's own command line, unmodified, against
// the real program: each command with -o json, and what it says.
func TestRadiusCLI_D3_D10(t *testing.T) {
	if os.Getenv("RADIUS_CLI") == "" {
		t.Skip("RADIUS_CLI is not set: it names a built rad program, which this test drives")
	}
	r := newRad(t, startProgram(t).url)
	const group = "/planes/radius/local/resourceGroups/default/providers/"
	const environment, application = group + "Applications.Core/environments/default", group + "Applications.Core/applications/shop"
	types := r.file("types.yaml", radTypes)
	app := r.file("app.json", `{"properties":{"environment":"`+environment+`"}}`)
	topic := r.file("topic.json", `{"properties":{"environment":"`+environment+`","application":"`+application+`","key":"s3cret"}}`)
	reader := r.file("reader.json", `{"properties":{"environment":"`+environment+`","application":"`+application+`","resourceProvisioning":"manual",
		"host":"h","connections":{"events":{"source":"`+group+`Compat.Resources/topics/events"}}}}`)
	template := r.file("recipe.json", `{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0",
		"parameters":{"size":{"type":"string","defaultValue":"S"},"context":{"type":"object"}},"resources":[]}`)
	r.play("D-3 D-10", []radStep{
		{"group create default -o json", "created", 0},
		{"group create other -o json", "created", 0},
		{"group list -o json", `[{"name":"default","type":"System.Resources/resourceGroups"},{"name":"other"}]`, 0},
		{"group show default -o json", `{"name":"default","location":"global","tags":{}}`, 0},
		{"group switch other -o json", "Switched", 0},
		{"group switch default -o json", "Switched", 0},
		{"group delete other -y -o json", "deleted", 0},
		{"group show other -o json", "not found", 1},

		{"group list -w cluster -o json", `[{"name":"default"}]`, 0},
		{"env create default -w cluster -o json", "created", 0},
		{"env create spare -o json", "created", 0},
		{"env list -o json", `[{"name":"default","properties":{"compute":{"kind":"kubernetes"}}},{"name":"spare"}]`, 0},
		{"env show default -o json", `{"id":"` + environment + `","properties":{"provisioningState":"Succeeded"}}`, 0},
		{"env update default --aws-region r --aws-account-id 123456789012 -o json", "updated", 0},
		{"env show default -o json", `{"properties":{"providers":{"aws":{"scope":"/planes/aws/aws/accounts/123456789012/regions/r"}}}}`, 0},
		{"env delete spare -y -o json", "deleted", 0},
		{"env show spare -o json", "not found", 1},

		{"resource-type create -f " + types + " -o json", "Compat.Resources/topics created", 0},
		{"resource-type create topics -f " + types + " -o json", "created", 0},
		{"resource-type show Compat.Resources/topics -o json", `{"Name":"Compat.Resources/topics","APIVersions":{"2023-10-01-preview":{"Schema":{"properties":{"key":{"x-radius-sensitive":true}}}}}}`, 0},
		{"resource-type list -o json", `[{"Name":"Compat.Resources/readers"},{"Name":"Compat.Resources/topics"}]`, 0},
		{"resource-provider list -o json", `[{"name":"Applications.Core"},{"name":"Compat.Resources"}]`, 0},
		{"resource-provider show Compat.Resources -o json", `{"name":"Compat.Resources","locations":{"global":{}},"resourceTypes":{"topics":{"capabilities":["ManualResourceProvisioning"]}}}`, 0},

		{"resource create Applications.Core/applications shop -f " + app + " -o json", `{"id":"` + application + `"}`, 0},
		{"resource create Compat.Resources/topics events -f " + topic + " -o json", `{"name":"events","properties":{"retention":7,"key":null,"provisioningState":"Succeeded"}}`, 0},
		{"resource create Compat.Resources/readers web -f " + reader + " -o json", `{"properties":{"host":"h"}}`, 0},
		{"resource create Compat.Resources/topics bad -f " + r.file("bad.json", `{"properties":{"environment":"`+environment+`","retention":"x"}}`) + " -o json", "Schema validation failed", 1},
		{"resource show Compat.Resources/readers web -o json", `{"name":"web"}`, 0},
		{"resource show Compat.Resources/readers none -o json", "was not found", 1},
		{"resource list Compat.Resources/readers -o json", `[{"name":"web"}]`, 0},
		{"resource list Compat.Resources/readers -a shop -o json", `[{"name":"web"}]`, 0},
		{"resource list -o json", `[{"name":"events"},{"name":"web"},{"name":"shop"}]`, 0},
		{"resource list -e default -o json", `[{"name":"events"},{"name":"web"}]`, 0},

		{"recipe register small --resource-type Compat.Resources/readers --template-kind bicep --template-path file://" + template + " -p size=L -o json", "Successfully", 0},
		{"recipe register module --resource-type Compat.Resources/readers --template-kind terraform --template-path a/b/c --template-version 1.0.0 -o json", "Successfully", 0},
		{"recipe list -o json", `[{"name":"small","resourceType":"Compat.Resources/readers","templateKind":"bicep"},{"name":"module","templateVersion":"1.0.0"}]`, 0},
		{"recipe show small --resource-type Compat.Resources/readers -o json", "size", 0},
		{"recipe unregister module --resource-type Compat.Resources/readers -o json", "Successfully", 0},
		{"recipe list -o json", `[{"name":"small"}]`, 0},

		{"application list -o json", `[{"name":"shop","type":"Applications.Core/applications"}]`, 0},
		{"application show shop -o json", `{"id":"` + application + `"}`, 0},
		{"application status shop -o json", `{"Name":"shop","ResourceCount":2}`, 0},
		{"app graph shop -o json", `{"resources":[{"name":"events","connections":[{"direction":"Inbound","id":"` + group + `Compat.Resources/readers/web"}]},
			{"name":"web","connections":[{"direction":"Outbound","id":"` + group + `Compat.Resources/topics/events"}]}]}`, 0},

		{"resource-type delete Compat.Resources/readers -y -o json", "Compat.Resources/readers/web", 1}, // used by it
		{"group create full -o json", "created", 0},
		{"env create inner -g full -o json", "created", 0},
		{"group delete full -y -o json", "deleted", 0},
		{"env show inner -g full -o json", "not found", 1},

		{"resource delete Compat.Resources/readers web -y -o json", "deleted", 0},
		{"resource delete Compat.Resources/readers web -y -o json", "not found", 0},
		{"application delete shop -y -o json", "deleted", 0},
		{"application show shop -o json", "was not found", 1},
		{"resource list -o json", `[]`, 0},
		{"resource-type delete Compat.Resources/readers -y -o json", "deleted", 0},
		{"resource-type show Compat.Resources/readers -o json", "does not exist", 1},
		{"resource-provider delete Compat.Resources -y -o json", "deleted", 0},
		{"resource-provider show Compat.Resources -o json", "was not found", 1},
		{"resource-provider create -f " + types + " -o json", "created", 0},
	})
}

// radStep is one command and what comes of it: JSON that its answer must hold
// (other members may stand beside), or text.
type radStep struct {
	command string
	want    string
	exit    int
}

// play runs commands one after the other, as proofs of rules.
func (r rad) play(rules string, steps []radStep) {
	r.t.Helper()
	t := r.t
	for _, c := range steps {
		out, exit := r.run(strings.Fields(c.command)...)
		if exit != c.exit {
			t.Errorf("%s: rad %s: exit %d, want %d:\n%s", rules, c.command, exit, c.exit, out)
			continue
		}
		if strings.Contains(out, "s3cret") {
			t.Errorf("D-25: rad %s shows a secret:\n%s", c.command, out)
		}
		if !strings.HasPrefix(c.want, "{") && !strings.HasPrefix(c.want, "[") {
			if !strings.Contains(out, c.want) {
				t.Errorf("%s: rad %s: want %q in:\n%s", rules, c.command, c.want, out)
			}
			continue
		}
		var got any
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Errorf("%s: rad %s answers no JSON (%v):\n%s", rules, c.command, err, out)
			continue
		}
		if c.want == "[]" {
			if list, ok := got.([]any); !ok || len(list) > 0 {
				t.Errorf("%s: rad %s: want an empty list:\n%s", rules, c.command, out)
			}
			continue
		}
		if why := within(mustJSON(t, c.want), got); why != "" {
			t.Errorf("%s: rad %s: %s in:\n%s", rules, c.command, why, out)
		}
	}
}

// within says what of want is not in got; "" when all is. Of lists, every
// wanted entry must be somewhere, and none may stand twice.
func within(want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for _, name := range sorted(want) {
			v, ok := object[name]
			if !ok {
				return "no " + name
			}
			if why := within(want[name], v); why != "" {
				return name + ": " + why
			}
		}
		return ""
	case []any:
		list, ok := got.([]any)
		if !ok {
			return "no list"
		}
		for _, w := range want {
			n := 0
			for _, g := range list {
				if within(w, g) == "" {
					n++
				}
			}
			if n != 1 {
				return fmt.Sprintf("%s stands %d times", short(w), n)
			}
		}
		return ""
	}
	if want != got {
		return fmt.Sprintf("%v, want %v", got, want)
	}
	return ""
}
