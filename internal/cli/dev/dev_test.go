package dev

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// A token is replaced before it ends, in place, so that a client that reads the file stays who it is.
func TestIdentity_RenewsItsToken(t *testing.T) {
	cluster := clustertest.Start(t)
	if _, err := setup.Install(t.Context(), cluster.Config, installation.Files); err != nil {
		t.Fatal(err)
	}
	dir, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	i := dir.identityOf(installation.ControllerAccount, cluster.Config, func(s string) { t.Error(s) })
	if err := i.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(i.tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(filepath.Dir(i.tokenFile)); err != nil {
		t.Fatal(err)
	}
	go i.keep(t.Context(), time.Now().Add(30*time.Millisecond))
	limit := time.After(time.Minute)
	for {
		now, err := os.ReadFile(i.tokenFile)
		if err != nil {
			t.Fatal(err)
		}
		if string(now) != string(first) {
			break
		}
		select {
		case <-w.Events:
		case <-limit:
			t.Fatal("the token was not replaced")
		}
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", i.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.BearerTokenFile != i.tokenFile || cfg.KeyData != nil || cfg.KeyFile != "" {
		t.Errorf("the kubeconfig does not go by the token's file alone: %q", cfg.BearerTokenFile)
	}
	for _, path := range []string{i.kubeconfig, i.tokenFile} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s can be read by others: %s", path, info.Mode())
		}
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{first: time.Second, max: 5 * time.Second}
	var got []time.Duration
	for attempt := range 5 {
		got = append(got, b.delay(attempt))
	}
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

// A program that cannot start ends the start, with the end of what it said.
func TestKeeper_GivesUpOnAStart(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	k := newKeeper(dir, lock, func(string) {})
	defer k.shutdown()
	c, err := k.start(program{name: "hopeless", path: "/bin/sh", args: []string{"-c", "echo no flag of mine; exit 3"}, grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = c.await(t.Context(), time.Minute)
	if err == nil {
		t.Fatal("it is ready")
	}
	for _, want := range []string{"hopeless does not start", "exit status 3", "no flag of mine"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

// Once everything is ready, a program that dies is started again, without end.
func TestKeeper_StartsAgain(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	told := make(chan string, 100)
	k := newKeeper(dir, lock, func(s string) { told <- s })
	k.settled.Store(true)
	if _, err := k.start(program{name: "mortal", path: "/bin/sh", args: []string{"-c", "exit 0"}, grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	for again := 0; again < patience+1; {
		select {
		case s := <-told:
			if strings.Contains(s, "mortal started again") {
				again++
			}
		case err := <-k.failed:
			t.Fatal(err)
		case <-time.After(time.Minute):
			t.Fatalf("it was started again only %d times", again)
		}
	}
	k.shutdown()
}

// Ready is what the program's own file says, and a file from before does not count.
func TestKeeper_ReadyFile(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ready, gate := filepath.Join(dir, "ready"), filepath.Join(dir, "gate")
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := newKeeper(dir, lock, func(string) {})
	defer k.shutdown()
	// The program waits at a named pipe until the test opens it, and then says that it serves.
	c, err := k.start(program{name: "slow", path: "/bin/sh", readyFile: ready, grace: time.Second,
		args: []string{"-c", "mkfifo " + gate + "; read x <" + gate + "; echo >" + ready + "; read x <" + gate}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.await(t.Context(), 100*time.Millisecond); err == nil {
		t.Fatal("a file from before made it ready")
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.await(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
}
