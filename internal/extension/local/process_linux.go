package local

import (
	"os/exec"
	"syscall"
)

// isolate gives the program a process group of its own, and has the kernel kill
// it when we die without a chance to.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
