package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errNoPostgres says that the server's program is not on this machine.
var errNoPostgres = errors.New("no PostgreSQL here: its programs (initdb, postgres) are not in PATH")

// postgres is a PostgreSQL of the bench's own, with the default durability:
// fsync and synchronous_commit on.
type postgres struct {
	cmd  *exec.Cmd
	port int
	log  string // what it says, on every statement where it is asked to
	// delay is what is added to each fsync, and how says by what means.
	delay time.Duration
	how   string
}

// owner is the unprivileged user that runs it where we are root, which it
// refuses to be run by.
func owner() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}

// startPostgres starts a server whose every fsync takes longer by delay.
func (b *bench) startPostgres(delay time.Duration) (_ *postgres, err error) {
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, errNoPostgres
		}
	}
	as, err := owner()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "pg-")
	if err != nil {
		return nil, err
	}
	if as != nil { // the directories above must let that user through
		if err := errors.Join(os.Chmod(b.dir, 0o711), os.Chown(dir, int(as.Uid), int(as.Gid))); err != nil {
			return nil, err
		}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGQUIT}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "radial", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	p := &postgres{delay: delay}
	if p.port, err = freePort(); err != nil {
		return nil, err
	}
	settings := []string{"-D", data, "-k", dir, "-p", strconv.Itoa(p.port), "-h", "127.0.0.1", "-c", "max_connections=200",
		"-c", "log_line_prefix=[%p] "}
	var preload string
	if delay > 0 {
		if preload, err = slowFsync(dir, delay); err != nil {
			// Every flush of the log waits before its fsync, as leader of those
			// that came meanwhile: kinder than a slow disk, under which they
			// would have to wait for the next.
			p.how = "commit_delay (no C compiler here)"
			settings = append(settings, "-c", fmt.Sprintf("commit_delay=%d", delay.Microseconds()), "-c", "commit_siblings=0")
		} else {
			p.how = "each fsync and fdatasync of the server sleeps first (LD_PRELOAD)"
		}
	}
	p.cmd = command("postgres", settings...)
	if preload != "" {
		p.cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload)
	}
	log, err := os.Create(filepath.Join(b.dir, filepath.Base(dir)+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr, p.log = log, log, log.Name()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for limit := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if exec.CommandContext(b.ctx, "pg_isready", "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(p.port)).Run() == nil {
			return p, nil
		}
		if time.Now().After(limit) {
			p.stop()
			return nil, fmt.Errorf("PostgreSQL was not ready within a minute: see %s", log.Name())
		}
	}
}

// slowFsync compiles a library that makes fsync and fdatasync sleep first.
func slowFsync(dir string, delay time.Duration) (string, error) {
	source := fmt.Sprintf(`#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static void wait_first(void) { struct timespec t = {0, %d}; nanosleep(&t, 0); }
int fsync(int fd) { static int (*next)(int); if (!next) next = dlsym(RTLD_NEXT, "fsync"); wait_first(); return next(fd); }
int fdatasync(int fd) { static int (*next)(int); if (!next) next = dlsym(RTLD_NEXT, "fdatasync"); wait_first(); return next(fd); }
`, delay.Nanoseconds())
	file, library := filepath.Join(dir, "slow.c"), filepath.Join(dir, "slow.so")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		return "", err
	}
	out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", library, file, "-ldl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc: %w\n%s", err, out)
	}
	return library, os.Chmod(library, 0o755)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// database makes a database and returns its URL.
func (p *postgres) database(name string) (string, error) {
	out, err := exec.Command("createdb", "-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", "radial", name).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("createdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return fmt.Sprintf("postgres://radial@127.0.0.1:%d/%s?sslmode=disable", p.port, name), nil
}

func (p *postgres) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	_, _ = p.cmd.Process.Wait()
}

// database makes a database on the shared PostgreSQL, which it starts.
func (b *bench) database(name string) (string, error) {
	if b.pg == nil {
		var err error
		if b.pg, err = b.startPostgres(0); err != nil {
			return "", err
		}
	}
	return b.pg.database(name)
}

func (b *bench) stopPostgres() error {
	if b.pg != nil {
		b.pg.stop()
	}
	return nil
}
