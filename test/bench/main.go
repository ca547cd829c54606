// Command bench measures Radial from outside, on the real binaries, and prints
// each figure beside what it is compared with, both taken in the same run. It
// asserts nothing: a figure is read, and says whether its goal is met.
//
//	bench [-only sqlite,postgres,…] [-n 400] [-json] [-keep]
//
// Parts: sqlite, postgres, slowdisk, river and statements (writes on the wire), scale and
// graph (100,000 stored resources), recovery (a killed server), adopt, idle (with
// what was adopted, before other workloads are left to settle), template, deploy, stack and cloud. The binaries are looked for in $RADIAL_BIN,
// else in bin/.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/radial-project/radial/test/fault/plane"
)

// figure is one printed line.
type figure struct {
	Name string `json:"name"`
	// Value in Unit; Beside is what it is compared with, in the same unit, zero
	// where there is nothing to compare with.
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Beside float64 `json:"beside,omitempty"`
	What   string  `json:"what,omitempty"`
	// Goal is the figure the project holds itself to, in words; Met says
	// whether it is.
	Goal string `json:"goal,omitempty"`
	Met  bool   `json:"met,omitempty"`
}

// bench is one run. parts add figures to it.
type bench struct {
	ctx     context.Context
	bin     string
	dir     string
	n       int
	figures []figure
	cluster bool // the embedded defaults run in dir
	pg      *postgres
}

// part is something that can be measured alone.
type part struct {
	name    string
	measure func(*bench) error
}

func parts() []part {
	return []part{
		{"sqlite", (*bench).sqlite}, {"postgres", (*bench).postgres}, {"slowdisk", (*bench).slowDisk}, {"river", (*bench).river}, {"statements", (*bench).statements},
		{"scale", (*bench).scale}, {"graph", (*bench).graph}, {"recovery", (*bench).recovery},
		{"adopt", (*bench).adopt}, {"idle", (*bench).idle}, {"template", (*bench).evaluate}, {"deploy", (*bench).deploy}, {"stack", (*bench).stack}, {"cloud", (*bench).cloud},
	}
}

func main() {
	plane.Main()
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	only := flag.String("only", strings.Join(names, ","), "comma-separated parts to run")
	n := flag.Int("n", 400, "writes a measurement")
	asJSON := flag.Bool("json", false, "print JSON lines")
	keep := flag.Bool("keep", false, "leave the directory of the run, with the logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Split(*only, ","), *n, *asJSON, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string, n int, asJSON, keep bool) (err error) {
	bin := os.Getenv("RADIAL_BIN")
	if bin == "" {
		bin = "bin"
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(bin, "radial-server")); err != nil {
		return fmt.Errorf("%w: run 'make build' first", err)
	}
	for _, name := range only {
		if !slices.ContainsFunc(parts(), func(p part) bool { return p.name == name }) {
			return fmt.Errorf("unknown part %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "radial-bench-")
	if err != nil {
		return err
	}
	b := &bench{ctx: ctx, bin: bin, dir: dir, n: n}
	defer func() {
		b.ctx = context.WithoutCancel(ctx)
		err = errors.Join(err, b.stopCluster(), b.stopPostgres())
		if err == nil && !keep {
			err = os.RemoveAll(dir)
		} else {
			fmt.Fprintln(os.Stderr, "logs are in", dir)
		}
	}()
	begun := time.Now()
	for _, p := range parts() {
		if !slices.Contains(only, p.name) {
			continue
		}
		before := len(b.figures)
		fmt.Fprintf(os.Stderr, "measuring %s…\n", p.name)
		if err := p.measure(b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		print(b.figures[before:], asJSON)
	}
	met, missed := 0, []string(nil)
	for _, f := range b.figures {
		switch {
		case f.Goal == "":
		case f.Met:
			met++
		default:
			missed = append(missed, f.Name)
		}
	}
	fmt.Fprintf(os.Stderr, "%d goals met, %d missed, in %s\n", met, len(missed), time.Since(begun).Round(time.Second))
	for _, name := range missed {
		fmt.Fprintln(os.Stderr, "  missed:", name)
	}
	return nil
}

func print(fs []figure, asJSON bool) {
	for _, f := range fs {
		if asJSON {
			_ = json.NewEncoder(os.Stdout).Encode(f)
			continue
		}
		line := fmt.Sprintf("%-66s %10.2f %-3s", f.Name, f.Value, f.Unit)
		if f.Beside != 0 {
			line += fmt.Sprintf("  %.2f× of %.2f %s (%s)", f.Value/f.Beside, f.Beside, f.Unit, f.What)
		}
		if f.Goal != "" {
			line += "  goal " + f.Goal + ": "
			if f.Met {
				line += "met"
			} else {
				line += "MISSED"
			}
		}
		fmt.Println(line)
	}
}

func (b *bench) add(f figure) { b.figures = append(b.figures, f) }

// atMost, atLeast and ratioAtMost give a figure its goal.
func (f figure) atMost(limit float64) figure {
	f.Goal, f.Met = strings.TrimSpace(fmt.Sprintf("≤ %.4g %s", limit, f.Unit)), f.Value <= limit
	return f
}

func (f figure) atLeast(limit float64) figure {
	f.Goal, f.Met = strings.TrimSpace(fmt.Sprintf("≥ %.4g %s", limit, f.Unit)), f.Value >= limit
	return f
}

func (f figure) ratioAtMost(limit float64) figure {
	f.Goal, f.Met = fmt.Sprintf("≤ %.4g×", limit), f.Value <= limit*f.Beside
	return f
}

// startCluster starts the embedded defaults once.
func (b *bench) startCluster() error {
	if b.cluster {
		return nil
	}
	fmt.Fprintln(os.Stderr, "starting the embedded defaults…")
	if _, err := b.radial("dev", "start", "--dir", b.dir, "--detach"); err != nil {
		return err
	}
	b.cluster = true
	manifest, err := b.file("bench-type.yaml", benchKind)
	if err != nil {
		return err
	}
	_, err = b.radial("resource-type", "create", "-f", manifest)
	return err
}

func (b *bench) stopCluster() error {
	if !b.cluster {
		return nil
	}
	_, err := b.radial("dev", "stop", "--dir", b.dir)
	return err
}

// radial runs the command line against the bench's own directory.
func (b *bench) radial(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(b.ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "radial"), args...)
	cmd.Env = append(os.Environ(), "RADIAL_DIR="+b.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("radial %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (b *bench) file(name, content string) (string, error) {
	p := filepath.Join(b.dir, name)
	return p, os.WriteFile(p, []byte(content), 0o600)
}

// quantile of values, which it sorts.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(float64(len(values))*q))]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
