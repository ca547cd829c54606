//go:build !unix

package local

import (
	"os"
	"os/exec"
)

// isolate does nothing where there are no process groups.
func isolate(*exec.Cmd) {}

func terminateGroup(pid int) { killGroup(pid) }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
