//go:build unix

package local

import "syscall"

// The group is gone when the process and all that it started are; there is then
// nothing to signal, which is no fault.

func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }
func killGroup(pid int)      { _ = syscall.Kill(-pid, syscall.SIGKILL) }
