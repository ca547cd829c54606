// Package dev runs Radial's developer mode: a Kubernetes API server, the control plane and the controller on
// one machine, on loopback, with all of their state in one directory.
//
// The supervisor is the process that holds the directory's lock. Its children inherit the lock and die with
// it, so a directory is free exactly when nothing of the installation runs any more.
package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Dir is the path of a state directory. The shape:
//
//	kubeconfig              for kubectl and Helm (cluster administrator)
//	server.url              the control plane's base URL while it runs
//	lock                    held by flock by the supervisor and its children; contains the supervisor's pid
//	status.json             what runs, written when everything is ready (see Status)
//	port                    the control plane's port, kept so that the URL stays good
//	radial.db  key          the control plane's store and the key that seals it
//	recipes/                templates of the local recipes; rewritten at every start
//	offered.json            recipes that were registered once; what was unregistered since stays so
//	identities/             kubeconfig and token of the server's and the controller's ServiceAccount
//	cluster/                the development cluster's own state
//	logs/                   one file per process, and NAME.log.old from the run before
type Dir string

// Open makes the directory if it is missing and returns it as an absolute path.
func Open(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	d := Dir(abs)
	for _, p := range []string{abs, d.Identity(""), d.Logs(), d.Recipes()} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			return "", unwritable(abs, err)
		}
	}
	probe, err := os.CreateTemp(abs, ".probe-*")
	if err != nil {
		return "", unwritable(abs, err)
	}
	return d, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func unwritable(dir string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return fmt.Errorf("cannot keep state in %s: %w: choose a directory that you may write with --dir DIR (or RADIAL_DIR)", dir, err)
}

func (d Dir) join(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

// Kubeconfig is the path of the kubeconfig that is meant for people and their tools.
func (d Dir) Kubeconfig() string { return d.join("kubeconfig") }

// URLFile is the path of the file that holds the control plane's base URL.
func (d Dir) URLFile() string { return d.join("server.url") }

// Recipes is the folder of the local recipes' templates.
func (d Dir) Recipes() string { return d.join("recipes") }

// Logs is the folder of the processes' logs.
func (d Dir) Logs() string { return d.join("logs") }

// Identity is the path of a file that belongs to one of Radial's ServiceAccounts.
func (d Dir) Identity(file string) string { return d.join("identities", file) }

// URL returns the base URL of the control plane that runs, or ran, on the directory; "" when none ever did.
func (d Dir) URL() (string, error) {
	b, err := os.ReadFile(d.URLFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// Status is what runs on a directory: the content of status.json.
type Status struct {
	// PID is the supervisor's.
	PID        int       `json:"pid"`
	Version    string    `json:"version"`
	Node       string    `json:"node"`
	ServerURL  string    `json:"serverURL"`
	Kubeconfig string    `json:"kubeconfig"`
	Ready      time.Time `json:"ready"`
}

// Status reads status.json. It is there only between ready and stop, and after a supervisor was killed; the
// lock decides what is true (see Running).
func (d Dir) Status() (Status, error) {
	var s Status
	b, err := os.ReadFile(d.join("status.json"))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

func (d Dir) writeStatus(s Status) error { return writeJSON(d.join("status.json"), s) }

func (d Dir) removeStatus() error {
	return errors.Join(remove(d.join("status.json")), remove(d.URLFile()))
}

// offered is the set of local recipes, by their file's name, that were registered once.
func (d Dir) offered() (map[string]bool, error) {
	set := map[string]bool{}
	b, err := os.ReadFile(d.join("offered.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return set, nil
	}
	if err != nil {
		return nil, err
	}
	return set, json.Unmarshal(b, &set)
}

func (d Dir) writeOffered(set map[string]bool) error { return writeJSON(d.join("offered.json"), set) }

func (d Dir) keptPort() (int, error) {
	b, err := os.ReadFile(d.join("port"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("%s does not hold a port: remove the file to let a new one be chosen", d.join("port"))
	}
	return port, nil
}

func (d Dir) writePort(port int) error {
	return writeFile(d.join("port"), []byte(strconv.Itoa(port)+"\n"), 0o600)
}

// writeFile replaces a file in one step: a reader sees the old content or the new, never half of it.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, remove(f.Name()))
	}
	return nil
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(b, '\n'), 0o600)
}

// remove removes a file that may be gone already.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
