// Package pgtest runs a real PostgreSQL for tests: initdb into a folder of its
// own, reached by a Unix socket in it and by a port of the loopback address. A
// server of a test's own syncs as it does in earnest, and so does the shared one
// for a benchmark; for tests the shared one leaves what it wrote to the kernel,
// which keeps it when a process is killed: it is the machine that never fails.
//
// The programs are those on the PATH, or Debian's (`make tools` installs the
// package). A test skips and says so where there are none, and fails when
// RADIAL_REQUIRE_TOOLS=1. As root the server runs as user postgres, or nobody:
// PostgreSQL refuses to run as root.
package pgtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Main runs the tests of a package and stops the server that they shared:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	Stop()
	os.Exit(code)
}

// Stop ends the shared server, if one was started: for a TestMain that has more
// to do than [Main].
func Stop() {
	if shared.server != nil {
		shared.server.close()
	}
}

// shared is the one server of a test process.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// databases counts the databases of this process.
var databases atomic.Int64

// Database makes an empty database on the server that the package's tests
// share, and returns how to connect to it. The package's TestMain must be
// [Main].
func Database(tb testing.TB) (dsn string) {
	tb.Helper()
	shared.once.Do(func() { shared.server, shared.err = start(benchmarks()) })
	if shared.err != nil {
		missing(tb, shared.err)
	}
	return shared.server.Database(tb)
}

// Copy makes a database with the content of another one of the shared server, to
// which nobody may be connected meanwhile.
func Copy(tb testing.TB, dsn string) string {
	tb.Helper()
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	name := fmt.Sprintf("test_%d", databases.Add(1))
	shared.server.Exec(tb, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+c.Database)
	return shared.server.DSN(name)
}

// Alone returns once nobody is connected to a database: what a killed process
// had under way is rolled back by then, or committed.
func Alone(tb testing.TB, dsn string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	for others := 1; others > 0; {
		// The server says by no event that one of its processes has ended.
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND pg_sleep(0.002) IS NOT NULL`).Scan(&others); err != nil {
			tb.Fatal(err)
		}
	}
}

// Start runs a server of the test's own, for tests that stop it.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := start(true)
	if err != nil {
		missing(tb, err)
	}
	tb.Cleanup(s.close)
	return s
}

// errMissing says that there is no PostgreSQL on this machine.
var errMissing = errors.New("PostgreSQL is not installed: run make tools, or install Debian's package postgresql")

func missing(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, errMissing) && os.Getenv("RADIAL_REQUIRE_TOOLS") != "1" {
		tb.Skip(err)
	}
	tb.Fatal(err)
}

// Server is one PostgreSQL.
type Server struct {
	bin, dir string
	port     int
	fsync    string              // on or off
	as       *syscall.Credential // nil: ourselves

	mu   sync.Mutex
	pid  int
	gone chan struct{}
	log  *tail
}

// benchmarks reports whether the run is one that measures.
func benchmarks() bool {
	f := flag.Lookup("test.bench")
	return f != nil && f.Value.String() != ""
}

// find returns the folder of the newest PostgreSQL's programs.
func find() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			return filepath.Dir(p), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	newest, at := "", 0
	for _, p := range found {
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(p)))); err == nil && v > at {
			newest, at = filepath.Dir(p), v
		}
	}
	if newest == "" {
		return "", errMissing
	}
	return newest, nil
}

// account is who the server runs as.
func account() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("run PostgreSQL: there is neither a user postgres nor nobody, and it refuses to run as root")
}

func start(sync bool) (_ *Server, err error) {
	s := &Server{fsync: "off"}
	if sync {
		s.fsync = "on"
	}
	if s.bin, err = find(); err != nil {
		return nil, err
	}
	if s.as, err = account(); err != nil {
		return nil, err
	}
	// Not below a test's own folder: a socket's path is at most 107 bytes long.
	if s.dir, err = os.MkdirTemp("", "pg"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(s.dir)
		}
	}()
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, err
		}
	}
	cmd := s.command("initdb", "--pgdata", s.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, err
	}
	return s, s.run()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + s.dir}
	// It ends with us, however we end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	return cmd
}

// run starts the server and returns when it answers.
func (s *Server) run() error {
	cmd := s.command("postgres", "-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir, "-c", "listen_addresses=127.0.0.1",
		"-c", "fsync="+s.fsync, "-c", "max_connections=400", "-c", "shared_buffers=64MB", "-c", "logging_collector=off")
	ready, gone := make(chan error, 1), make(chan struct{})
	log := &tail{}
	go func() {
		// The signal at our death goes out when the thread that started the
		// server ends, so that it must not end before we do.
		runtime.LockOSThread()
		defer close(gone)
		stderr, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			ready <- err
			return
		}
		s.mu.Lock()
		s.pid, s.gone, s.log = cmd.Process.Pid, gone, log
		s.mu.Unlock()
		for lines := bufio.NewScanner(io.TeeReader(stderr, log)); lines.Scan(); {
			if strings.Contains(lines.Text(), "ready to accept connections") {
				select {
				case ready <- nil:
				default:
				}
			}
		}
		select {
		case ready <- fmt.Errorf("postgres ended: %v\n%s", cmd.Wait(), log):
		default:
			_ = cmd.Wait()
		}
	}()
	select {
	case err := <-ready:
		return err
	case <-time.After(time.Minute):
		return fmt.Errorf("postgres does not answer:\n%s", log)
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() > 1<<16 {
		t.b.Reset()
	}
	return t.b.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// DSN says how to reach a database over the socket.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=%s sslmode=disable", s.dir, s.port, database)
}

// Port is the server's port on the loopback address.
func (s *Server) Port() int { return s.port }

// Database makes an empty database and returns how to connect to it.
func (s *Server) Database(tb testing.TB) (dsn string) {
	tb.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	s.Exec(tb, "postgres", "CREATE DATABASE "+name)
	return s.DSN(name)
}

// Exec runs a statement in a database.
func (s *Server) Exec(tb testing.TB, database, statement string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN(database))
	if err != nil {
		tb.Fatalf("connect to the test's PostgreSQL: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

// Stop ends the server in order, with all its connections, and returns when it
// is gone. [Server.Restart] starts it again with the same data.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.signal(syscall.SIGINT)
}

// Crash ends the server as a failure of the machine would: what was not synced
// may be lost, and the next start recovers.
func (s *Server) Crash(tb testing.TB) {
	tb.Helper()
	s.signal(syscall.SIGQUIT)
}

// Restart starts a stopped server.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.run(); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	pid, gone := s.pid, s.gone
	s.mu.Unlock()
	select {
	case <-gone:
		return
	default:
	}
	_ = syscall.Kill(pid, sig) // the process is ours and not waited for yet
	<-gone
}

func (s *Server) close() {
	s.signal(syscall.SIGQUIT)
	_ = os.RemoveAll(s.dir)
}
