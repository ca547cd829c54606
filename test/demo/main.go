// Command demo shows Radial: it starts developer mode and plays the adoption of a Helm chart (examples/demo) step
// by step, with the real Helm, saying what it does and what it saw. It fails when a promise is not kept.
//
//	make demo            play it and clean up
//	make demo KEEP=1     leave it running and say what to try
//	make demo NODE=real  run real pods (root; docs/development-cluster.md), of programs built here
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/radial-project/radial/test/e2e/walkthrough"
)

const namespace = "demo"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\nThe demo failed: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	bin := os.Getenv("RADIAL_BIN")
	if bin == "" {
		bin = filepath.Join(root, "bin")
	}
	charts := filepath.Join(root, "examples", "demo")
	if _, err := os.Stat(charts); err != nil {
		return fmt.Errorf("run it from the root of the repository: %w", err)
	}
	keep := os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0"
	node := os.Getenv("NODE")
	if node == "" {
		node = "fake"
	}
	dir, err := stateDir(root, keep)
	if err != nil {
		return err
	}
	began := time.Now()
	say := teller{}
	say.title("Radial on this machine, with a Kubernetes API server of its own")
	if node == "fake" {
		say.line("Pods run on a simulated node: scheduled and Ready, no process inside. Everything else is real.")
	}
	if err := radial(ctx, bin, dir, "dev", "start", "--detach", "--node", node); err != nil {
		return err
	}
	defer func() {
		if keep && err == nil {
			return
		}
		// The end is cleaned up even when the demo was interrupted.
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		if stopErr := radial(after, bin, dir, "dev", "stop"); stopErr != nil && err == nil {
			err = stopErr
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "\nState and logs are left in %s.\n", dir)
			return
		}
		if err = os.RemoveAll(dir); err == nil {
			fmt.Println("And removed: this was a demo.")
		}
	}()
	w := &walkthrough.Walk{Bin: bin, Dir: dir, Charts: charts, Namespace: namespace, Tell: say, Keep: keep}
	if node == "real" {
		say.line("\nThe real node pulls nothing: its images are static programs, built here. One stands in for Redis.")
		if err := loadImages(ctx, bin, dir); err != nil {
			return err
		}
		w.Image, w.RealPods = siteImage, true
	}
	err = w.Run(ctx, func(number int, s walkthrough.Step) {
		say.title(fmt.Sprintf("%d. %s", number, s.Title))
		say.line(s.Why)
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nEverything was as promised (%.0f s).\n", time.Since(began).Seconds())
	if keep {
		tryNext(bin, dir)
	}
	return nil
}

// stateDir is .radial/demo, emptied, when the demo stays; else a folder that goes with it.
func stateDir(root string, keep bool) (string, error) {
	if !keep {
		return os.MkdirTemp("", "radial-demo-")
	}
	dir := filepath.Join(root, ".radial", "demo")
	if _, err := os.Stat(filepath.Join(dir, "status.json")); err == nil {
		return "", fmt.Errorf("a demo was left running in %[1]s: end it with bin/radial dev stop --dir %[1]s and remove the folder", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, nil
}

// radial runs the command line with what it prints shown as it comes.
func radial(ctx context.Context, bin, dir string, args ...string) error {
	fmt.Printf("\n  $ radial %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "radial"), append(args, "--dir", dir)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("radial %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// teller shows a run on standard output.
type teller struct{}

func (teller) title(s string) { fmt.Printf("\n%s\n%s\n", s, strings.Repeat("-", len([]rune(s)))) }

func (teller) line(s string) { fmt.Println(s) }

// Do implements walkthrough.Teller.
func (teller) Do(command string) { fmt.Printf("\n  $ %s\n", command) }

// Output implements walkthrough.Teller.
func (teller) Output(text string) {
	fmt.Println("    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    "))
}

// Saw implements walkthrough.Teller.
func (teller) Saw(fact string) { fmt.Printf("  ✓ %s\n", fact) }

func tryNext(bin, dir string) {
	fmt.Printf(`
It is left running. To look around:

  export PATH=%[1]s:$PATH RADIAL_DIR=%[2]s KUBECONFIG=%[2]s/kubeconfig
  radial app graph demo
  radial resource list
  devcluster kubectl -n demo get deployments,recipes,secrets
  devcluster kubectl -n demo describe recipe db
  devcluster kubectl -n demo get deployment demo -o jsonpath='{.spec.template.spec.containers[0].env}'
  helm -n demo uninstall demo       # what Radial made goes with it

To end it:  radial dev stop
`, bin, dir)
}
