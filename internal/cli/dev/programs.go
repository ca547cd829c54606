package dev

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kinds of node.
const (
	NodeFake = "fake"
	NodeReal = "real"
)

// programs are the paths of what developer mode runs.
type programs struct{ devcluster, server, controller string }

// findPrograms looks for Radial's programs in one folder, which is the one that radial itself lies in.
func findPrograms(bin, node string) (programs, error) {
	if node != NodeFake && node != NodeReal {
		return programs{}, fmt.Errorf("--node %q is neither %q nor %q", node, NodeFake, NodeReal)
	}
	p := programs{
		devcluster: filepath.Join(bin, "devcluster"),
		server:     filepath.Join(bin, "radial-server"),
		controller: filepath.Join(bin, "radial-controller"),
	}
	var missing []string
	for _, path := range []string{p.devcluster, p.server, p.controller} {
		if _, err := exec.LookPath(path); err != nil {
			missing = append(missing, filepath.Base(path))
		}
	}
	if len(missing) > 0 {
		return p, fmt.Errorf("%s not beside radial in %s: build everything with make build, which puts all programs into one folder", verb(missing), bin)
	}
	return p, nil
}

func verb(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1] + " are"
}

// Bin is the folder that this executable lies in, links resolved.
func Bin() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", err
	}
	return filepath.Dir(exe), nil
}
