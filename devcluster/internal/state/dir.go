// Package state holds what a development cluster keeps between two runs: one directory with its lock, its
// port, its certificates, its data and its logs.
package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir is a state directory that this process holds alone. The shape:
//
//	lock               held by flock for as long as a component runs; contains the supervisor's pid
//	port               the API server's port, kept so that kubeconfigs stay good
//	admin.kubeconfig   for people and tests (system:masters)
//	identities/        one kubeconfig per component
//	pki/               authorities, serving certificate, service account keys
//	etcd/              data
//	logs/              one file per component, and NAME.log.old from the run before
type Dir struct {
	path string
	lock *os.File
}

// Open makes the directory if it is missing and locks it. When another process holds it, the error is a
// *LockedError.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path}
	for _, p := range []string{path, d.PKI(""), d.Identity(""), d.Logs()} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	if d.lock, err = LockFile(d.lockPath()); err != nil {
		return nil, err
	}
	return d, nil
}

// Close gives the directory back. Components that still run and were handed the lock keep it until they end.
func (d *Dir) Close() error { return d.lock.Close() }

// LockFile is the lock to hand to a component: the directory counts as taken until every holder has ended,
// so that nobody starts a second etcd on data that a dying one still writes.
func (d *Dir) LockFile() *os.File { return d.lock }

// Path is the directory itself, absolute.
func (d *Dir) Path() string { return d.path }

// PKI is the path of a file with certificates or keys.
func (d *Dir) PKI(name string) string { return filepath.Join(d.path, "pki", name) }

// Identity is the path of a component's kubeconfig; the empty name gives their directory.
func (d *Dir) Identity(name string) string {
	if name == "" {
		return filepath.Join(d.path, "identities")
	}
	return filepath.Join(d.path, "identities", name+".kubeconfig")
}

// Logs is the directory of the components' log files.
func (d *Dir) Logs() string { return filepath.Join(d.path, "logs") }

// AdminKubeconfig is the path of the kubeconfig that is meant for use.
func (d *Dir) AdminKubeconfig() string { return filepath.Join(d.path, "admin.kubeconfig") }

func (d *Dir) lockPath() string { return filepath.Join(d.path, "lock") }
func (d *Dir) portPath() string { return filepath.Join(d.path, "port") }

// WriteFile replaces a file in one step: a reader sees the old content or the new, never half of it.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
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
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
