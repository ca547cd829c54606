//go:build unix && !linux

package local

import (
	"os/exec"
	"syscall"
)

// isolate gives the program a process group of its own.
func isolate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
