package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// deploy applies a Deployment with annotations.
func (i installation) deploy(t *testing.T, namespace, name string, annotations ...string) {
	t.Helper()
	i.kubectl(t, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[2]s, namespace: %[1]s, annotations: {%[3]s}}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec: {containers: [{name: main, image: example.com/none:1}]}
`, namespace, name, strings.Join(annotations, ", ")), "apply", "-f", "-")
}

// misspelt: the real controller says which annotation was probably meant, in the status and by one event, whether
// the Deployment is adopted by another annotation or by none.
func (i installation) misspelt(t *testing.T) {
	const meant = "did you mean radapp.io/connection-redis?"
	i.deploy(t, "misspelt", "adopted", "radapp.io/enabled: 'true'", "radapp.io/conection-redis: db")
	i.must(t, "wait", "deployment/adopted", "-n", "misspelt", "--kubeconfig", i.dir+"/kubeconfig", "--timeout", limit.String())
	status := i.kubectl(t, "", "-n", "misspelt", "get", "deployment", "adopted", "-o", `jsonpath={.metadata.annotations.radapp\.io/status}`)
	if !strings.Contains(status, `"type":"UnknownAnnotation"`) || !strings.Contains(status, meant) {
		t.Errorf("the status does not say what was meant: %s", status)
	}

	i.deploy(t, "misspelt", "stranger", "radapp.io/conection-redis: db")
	waitFor(t, func() string {
		a := i.run(t, "wait", "deployment/stranger", "-n", "misspelt", "--kubeconfig", i.dir+"/kubeconfig", "--timeout", "2s")
		if a.code == 1 && strings.Contains(a.err, meant) {
			return ""
		}
		return fmt.Sprintf("radial wait does not say what was meant (%d): %s", a.code, a.err)
	})
	for _, name := range []string{"adopted", "stranger"} {
		waitFor(t, func() string {
			events := i.kubectl(t, "", "-n", "misspelt", "get", "events", "--field-selector", "involvedObject.name="+name+",reason=UnknownAnnotation", "-o", "jsonpath={range .items[*]}{.message}{\"\\n\"}{end}")
			if strings.Count(events, meant) == 1 {
				return ""
			}
			return fmt.Sprintf("events about %s: %q", name, events)
		})
	}
}

// waits: radial wait ends when the controller's work and the rollout are done, and says how far they are when its
// time is over.
func (i installation) waits(t *testing.T) {
	wait := func(args ...string) []string {
		return append([]string{"wait", "-n", "waits", "--kubeconfig", i.dir + "/kubeconfig"}, args...)
	}
	if a := i.run(t, wait("deployment/web")...); a.code != 4 || !strings.Contains(a.err, "Deployment waits/web does not exist") {
		t.Errorf("a missing Deployment: %d %s", a.code, a.err)
	}
	i.deploy(t, "waits", "web", "radapp.io/connection-cache: db")
	i.refuses(t, wait("deployment/web", "--timeout", "3s"), "not done within 3s", "Deployment waits/web: RecipeNotFound", "db")
	i.deploy(t, "waits", "plain")
	i.refuses(t, wait("deployment/plain"), "is not adopted", "radapp.io/enabled")

	i.apply(t, "waits", "db")
	out := i.must(t, wait("deployment/web", "recipe/db", "--timeout", limit.String())...)
	if want := "Deployment waits/web is ready.\nRecipe waits/db is ready.\n"; out != want {
		t.Errorf("radial wait says %q, want %q", out, want)
	}
	// What it says is so: the hold is over and every pod is new.
	if held := i.kubectl(t, "", "-n", "waits", "get", "deployment", "web", "-o", `jsonpath={.spec.paused}{.status.availableReplicas}/{.status.replicas}`); held != "1/1" {
		t.Errorf("after the wait the Deployment is %q", held)
	}
	i.kubectl(t, "", "-n", "waits", "rollout", "pause", "deployment/web")
	i.refuses(t, wait("deployment/web", "--timeout", limit.String()), "PausedByUser", "kubectl rollout resume")
}

// waitFor asks until it is told nothing more is missing. It is for what only kubectl and radial themselves can be
// asked, which tell no changes.
func waitFor(t *testing.T, missing func() string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		m := missing()
		if m == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(m)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
