// Command bench measures Radial from outside, on the real binaries, and prints
// each figure beside what it is compared with, both taken in the same run. It
// asserts nothing: a figure is read, not passed.
//
//	bench [-only arm,adopt,idle] [-n 400] [-json]
//
// The binaries are looked for in $RADIAL_BIN, else in bin/.
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
	"strings"
	"time"
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
	// Goal is the figure the project holds itself to, in words.
	Goal string `json:"goal,omitempty"`
}

type bench struct {
	ctx     context.Context
	bin     string
	dir     string
	n       int
	figures []figure
}

func main() {
	only := flag.String("only", "arm,adopt,idle", "comma-separated parts to run")
	n := flag.Int("n", 400, "writes a measurement")
	asJSON := flag.Bool("json", false, "print JSON lines")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Split(*only, ","), *n, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, parts []string, n int, asJSON bool) (err error) {
	bin := os.Getenv("RADIAL_BIN")
	if bin == "" {
		bin = "bin"
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(bin, "radial")); err != nil {
		return fmt.Errorf("%w: run 'make build' first", err)
	}
	dir, err := os.MkdirTemp("", "radial-bench-")
	if err != nil {
		return err
	}
	b := &bench{ctx: ctx, bin: bin, dir: dir, n: n}
	fmt.Fprintln(os.Stderr, "starting the embedded defaults…")
	if _, err := b.radial("dev", "start", "--dir", dir, "--detach"); err != nil {
		return err
	}
	defer func() {
		b.ctx = context.WithoutCancel(ctx)
		if _, e := b.radial("dev", "stop", "--dir", dir); e != nil {
			err = errors.Join(err, e)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	all := map[string]func() error{"arm": b.arm, "adopt": b.adopt, "idle": b.idle}
	for _, p := range parts {
		f, ok := all[p]
		if !ok {
			return fmt.Errorf("unknown part %q (arm, adopt, idle)", p)
		}
		before := len(b.figures)
		fmt.Fprintf(os.Stderr, "measuring %s…\n", p)
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		print(b.figures[before:], asJSON)
	}
	return nil
}

func print(fs []figure, asJSON bool) {
	for _, f := range fs {
		if asJSON {
			_ = json.NewEncoder(os.Stdout).Encode(f)
			continue
		}
		line := fmt.Sprintf("%-58s %10.2f %s", f.Name, f.Value, f.Unit)
		if f.Beside != 0 {
			line += fmt.Sprintf("   %.2f× of %.2f %s (%s)", f.Value/f.Beside, f.Beside, f.Unit, f.What)
		}
		if f.Goal != "" {
			line += "   goal: " + f.Goal
		}
		fmt.Println(line)
	}
}

func (b *bench) add(f figure) { b.figures = append(b.figures, f) }

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
