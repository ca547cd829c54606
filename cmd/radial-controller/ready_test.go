package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/radial-project/radial/internal/servertest"
)

// Ready is who works, not who has only read the cluster.
func TestReadiness(t *testing.T) {
	yes := make(chan struct{})
	close(yes)
	no := make(chan struct{})
	up := func() (bool, error) { return true, nil }
	down := func() (bool, error) { return false, errors.New("no route") }
	for name, tc := range map[string]struct {
		r    readiness
		says string
	}{
		"All":           {readiness{yes, yes, false, yes, yes, yes, up}, ""},
		"NotSynced":     {readiness{no, yes, false, yes, yes, yes, up}, "not read yet"},
		"NoRecipes":     {readiness{yes, yes, false, no, yes, yes, up}, "workers for Recipes"},
		"NoDeployments": {readiness{yes, yes, false, yes, no, yes, up}, "workers for Deployments"},
		"NotFollowed":   {readiness{yes, yes, false, yes, yes, no, down}, "no route"},
		"BrokeOff":      {readiness{yes, yes, false, yes, yes, yes, down}, "no route"},
		"Starting":      {readiness{yes, no, false, no, no, no, down}, "workers for Recipes"},
		"Standby":       {readiness{yes, no, true, no, no, no, down}, ""},
		"NewLeader":     {readiness{yes, yes, true, no, no, yes, up}, "workers for Recipes"},
		"LateStandby":   {readiness{no, no, true, no, no, no, down}, "not read yet"},
	} {
		err := tc.r.check()
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}

// The file of --ready-file comes when /readyz is ok, not before, and one from before does not count.
func TestProgram_ReadyFile(t *testing.T) {
	t.Parallel()
	plane := servertest.Start(t)
	plane.Stop()
	ready := filepath.Join(t.TempDir(), "ready")
	if err := os.WriteFile(ready, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(filepath.Dir(ready)); err != nil {
		t.Fatal(err)
	}
	p := start(t, plane.URL, "--ready-file", ready)
	for limit := time.Now().Add(30 * time.Second); ; {
		out := p.out.String()
		if strings.Contains(out, "cannot be followed") && strings.Count(out, `"msg":"Starting workers"`) >= 3 {
			break // it works, and cannot follow
		}
		if time.Now().After(limit) {
			t.Fatalf("it does not work without the control plane:\n%s", out)
		}
		time.Sleep(20 * time.Millisecond) // a log is no signal
	}
	p.get("http://"+p.health+"/readyz", 500)
	if _, err := os.Stat(ready); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the file is there before /readyz is ok: %v", err)
	}
	plane.Start()
	for limit := time.After(30 * time.Second); ; {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		select {
		case <-w.Events:
		case <-limit:
			t.Fatalf("the file was not written:\n%s", p.out.String())
		}
	}
	resp, err := http.Get("http://" + p.health + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the file is there and /readyz answers %s", resp.Status)
	}
}
