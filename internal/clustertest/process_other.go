//go:build !linux

package clustertest

import "syscall"

// dieWithParent is empty where the system has no signal on a parent's death:
// a killed test run leaves its cluster behind there.
func dieWithParent() *syscall.SysProcAttr { return nil }
