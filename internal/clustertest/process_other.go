//go:build !linux

package clustertest

import (
	"errors"
	"syscall"
)

// dieWithParent is empty where the system has no signal on a parent's death:
// a killed test run leaves its cluster behind there.
func dieWithParent() *syscall.SysProcAttr { return nil }

// lock is not had there: each cluster starts from nothing.
func lock(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
