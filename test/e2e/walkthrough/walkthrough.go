// Package walkthrough plays the adoption of a Helm chart step by step, on a Radial in developer mode: the demo
// tells it, the end-to-end test demands it. A step does what a user would do (Helm, kubectl, radial), waits for
// what must come of it, reads the facts back, and fails when one of them is not as Radial promises.
package walkthrough

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/client"
)

// The names in the walkthrough.
const (
	Release    = "demo"         // of Helm, and the Deployment's name in the chart
	Recipe     = "db"           // the Recipe's name in the chart
	HandMade   = "redis-secret" // the Secret that exists before Radial
	Connection = "CONNECTION_REDIS_URL"
)

// settleLimit bounds every wait, on a machine under load.
const settleLimit = 2 * time.Minute

// Walk is one run of the walkthrough.
type Walk struct {
	// Bin is the folder with radial, devcluster and helm.
	Bin string
	// Dir is the state directory of the Radial that runs.
	Dir string
	// Charts is the folder examples/demo.
	Charts string
	// Namespace to play in; it must not exist.
	Namespace string
	// Image of the web site, "" for the chart's own.
	Image string
	// RealPods says that processes run in the pods: what they say of their variables is read, too.
	RealPods bool
	// Tell hears what is done and seen.
	Tell Teller
	// Keep leaves the release of the last step installed.
	Keep bool

	seen    *observer
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	radial  *client.Client
	facts   facts
}

// Teller hears a run.
type Teller interface {
	// Do is a command, or another deed, as a user would write it.
	Do(command string)
	// Output is what a command printed.
	Output(text string)
	// Saw is a fact that was read back.
	Saw(fact string)
}

// facts are what earlier steps read, for later ones to compare with.
type facts struct {
	template    string   // the Deployment's pod template, as JSON
	replicaSets []string // uids
	oldName     string   // of that ReplicaSet
	handMadeURL string
}

// Step is one step of the walkthrough.
type Step struct {
	Title string
	// Why says in a sentence what the step is about.
	Why string
	Do  func(ctx context.Context, w *Walk) error
}

// Steps returns the walkthrough in order.
func Steps() []Step {
	return []Step{
		{"A Helm chart, and nothing of Radial in it", "The team's chart as it is today: a web site whose Redis was made by hand, its URL in a Secret.", before},
		{"radapp.io/enabled: 'true'", "One annotation puts the site into the catalogue. Nothing of the workload changes.", enabled},
		{"A Recipe takes the place of what was made by hand", "The environment's recipe for the type provisions Redis and answers into the Secret that the chart already reads.", recipe},
		{"The connection takes the place of the Secret", "The chart names what it connects to; the variables arrive by themselves, in one rollout.", connect},
		{"The graph, and the end", "What belongs together is one graph; helm uninstall takes away all that the chart and Radial made.", uninstall},
		{"The finished chart, from nothing", "Recipe and Deployment at once: the rollout is held until the data is there, and happens once.", fromNothing},
	}
}

// Connect opens the ways to the Radial that runs on Dir and watches until ctx ends.
func (w *Walk) Connect(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig())
	if err != nil {
		return err
	}
	cfg.QPS = -1
	if w.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	if w.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return err
	}
	url, err := os.ReadFile(filepath.Join(w.Dir, "server.url"))
	if err != nil {
		return err
	}
	w.radial = client.New(strings.TrimSpace(string(url)), client.Options{UserAgent: "radial-demo"})
	w.seen = w.observe(ctx)
	return nil
}

func (w *Walk) kubeconfig() string { return filepath.Join(w.Dir, "kubeconfig") }

// Run plays all steps; next is told before each.
func (w *Walk) Run(ctx context.Context, next func(number int, s Step)) error {
	if err := w.Connect(ctx); err != nil {
		return err
	}
	for i, s := range Steps() {
		next(i+1, s)
		if err := w.Play(ctx, s); err != nil {
			return fmt.Errorf("step %d (%s): %w", i+1, s.Title, err)
		}
	}
	return nil
}

// Play plays one step. Every step relies on those before it.
func (w *Walk) Play(ctx context.Context, s Step) error { return s.Do(ctx, w) }

// PlayFromNothing plays the last step alone, in a namespace that may exist and holds nothing of the chart.
func (w *Walk) PlayFromNothing(ctx context.Context) error { return fromNothing(ctx, w) }

// helm runs Helm and shows the command.
func (w *Walk) helm(ctx context.Context, args ...string) error {
	args = append(args, "--namespace", w.Namespace)
	if w.Image != "" && args[0] != "uninstall" {
		args = append(args, "--set", "container.image="+w.Image)
	}
	_, err := w.command(ctx, "helm", args...)
	return err
}

// chart is the folder of a version of the chart.
func (w *Walk) chart(version string) string { return filepath.Join(w.Charts, version) }

// kubectl runs the kubectl of the cluster.
func (w *Walk) kubectl(ctx context.Context, args ...string) (string, error) {
	return w.command(ctx, "devcluster", append([]string{"kubectl"}, append(args, "--namespace", w.Namespace)...)...)
}

// command runs one of the programs as a user would, and returns what it printed.
func (w *Walk) command(ctx context.Context, name string, args ...string) (string, error) {
	shown := append([]string{name}, args...)
	if name == "devcluster" {
		shown = args
	}
	w.Tell.Do(w.short(strings.Join(shown, " ")))
	cmd := exec.CommandContext(ctx, filepath.Join(w.Bin, name), args...)
	cmd.Env = append(os.Environ(), "RADIAL_DIR="+w.Dir, "RADIAL_SERVER=", "KUBECONFIG="+w.kubeconfig(),
		"HELM_CACHE_HOME="+filepath.Join(w.Dir, "helm"), "HELM_CONFIG_HOME="+filepath.Join(w.Dir, "helm"), "HELM_DATA_HOME="+filepath.Join(w.Dir, "helm"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(shown, " "), err, strings.TrimSpace(errs.String()+out.String()))
	}
	return out.String(), nil
}

// short takes out of a shown command what only this run needs.
func (w *Walk) short(command string) string {
	if root := filepath.Dir(filepath.Dir(w.Charts)); root != "" {
		command = strings.ReplaceAll(command, root+string(filepath.Separator), "")
	}
	return command
}

// violated is a fact that is not as promised.
func violated(format string, args ...any) error {
	return fmt.Errorf("not as promised: "+format, args...)
}

// saw tells a fact.
func (w *Walk) saw(format string, args ...any) { w.Tell.Saw(fmt.Sprintf(format, args...)) }
