package compat

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// screen is all that a program wrote to its terminal.
type screen struct {
	mu    sync.Mutex
	grown sync.Cond
	text  strings.Builder
	ended bool
}

// onTerminal starts a program on a terminal of its own, 40 rows of 160 columns:
// some write progress to nothing else.
func onTerminal(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal is to be had here: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 160})
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &screen{}
	s.grown.L = &s.mu
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer) // fails when the program has ended
			s.mu.Lock()
			s.text.Write(buffer[:n])
			s.ended = err != nil
			s.grown.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// shows waits until a text was written, false when the program ended before.
func (s *screen) shows(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(plain(s.text.String()), text) {
		if s.ended {
			return false
		}
		s.grown.Wait()
	}
	return true
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return plain(s.text.String())
}

// control sequences: the one that moves over blanks, and any other.
var (
	forward  = regexp.MustCompile(`\x1b\[(\d+)C`)
	sequence = regexp.MustCompile(`\x1b(\[[0-9;?<>=$]*[A-Za-z]|\][^\a]*\a)`)
)

// plain is what was written without control sequences: blanks that the cursor was
// moved over are blanks.
func plain(text string) string {
	text = forward.ReplaceAllStringFunc(text, func(move string) string {
		n, _ := strconv.Atoi(forward.FindStringSubmatch(move)[1]) // of digits
		return strings.Repeat(" ", min(n, 200))
	})
	return sequence.ReplaceAllString(text, "")
}
