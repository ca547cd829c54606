//go:build !linux

package compat

import (
	"os/exec"
	"testing"
)

type screen struct{}

func onTerminal(t *testing.T, _ *exec.Cmd) *screen {
	t.Skip("terminals are made on Linux only")
	return nil
}

func (*screen) shows(string) bool { return false }
func (*screen) String() string    { return "" }
