package clustertest

import "syscall"

// dieWithParent ends the cluster when the test process is killed, so that no
// control plane outlives its tests.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
