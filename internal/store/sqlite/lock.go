package sqlite

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/radial-project/radial/internal/core"
)

// lock is the advisory lock that lets one process use a file: a file beside it,
// flocked, with the pid of its holder as text. The kernel frees it with the
// process, however that ends; the file itself stays, because removing it would
// let two processes lock two files of one name.
type lock struct{ f *os.File }

// acquire takes the lock for the store at path. When another process holds it
// the error names that process and what to do.
func acquire(path string) (*lock, error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, core.Errorf(core.CodeUnavailable, "lock store %s: %w; give the server a directory that exists and that it may write", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, core.Errorf(core.CodeUnavailable, "lock store %s: %w; put it on a file system that knows flock", path, err)
		}
		return nil, core.Errorf(core.CodeUnavailable,
			"store %s is in use by %s: one process uses a file at a time; stop that process, or choose another file", path, holder(name))
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(core.Errorf(core.CodeUnavailable, "lock store %s: %w", path, err), f.Close())
	}
	return &lock{f}, nil
}

// holder names the process that wrote the lock file.
func holder(name string) string {
	b, err := os.ReadFile(name)
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return "process " + pid
	}
	return "another process" // between its lock and its first write
}

// release frees the lock. Unlocking frees it for every copy of the descriptor:
// a process that is being started holds one between its fork and its exec, and
// closing alone would leave the store locked until then.
func (l *lock) release() error {
	return errors.Join(syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN), l.f.Close())
}
