package clustertest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A new cluster spends half its start on what is the same in all of them: the
// roles, groups and priorities that Kubernetes brings, written one by one. So the
// first start that a program is used for leaves a template, a state directory
// that was stopped in order as soon as it could be used, and every package's
// cluster goes on from a copy of it. Ports and certificates are made at each
// start; authorities and the keys of tokens are those of the template, which is
// why [Second] starts without one.

// fromTemplate fills dir with a copy of the program's template, making it
// first where it is missing. Without a folder for caches, or without locks of
// files, it leaves dir empty: the cluster then starts from nothing.
func fromTemplate(program, dir string) error {
	caches, err := os.UserCacheDir()
	if err != nil {
		return nil
	}
	name, err := templateName(program)
	if err != nil {
		return err
	}
	// A folder for each program, so that the template of an older build goes
	// when the one of a newer comes.
	home := filepath.Join(caches, "radial-clustertest", name.program)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil
	}
	template := filepath.Join(home, name.build)
	unlock, err := lock(filepath.Join(home, "lock"))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		return fmt.Errorf("lock the cluster's template: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(template); errors.Is(err, fs.ErrNotExist) {
		if err := makeTemplate(program, home, template); err != nil {
			return fmt.Errorf("make the cluster's template: %w", err)
		}
	} else if err != nil {
		return err
	}
	if err := copyTree(dir, template); err != nil {
		return fmt.Errorf("copy the cluster's template: %w", err)
	}
	return nil
}

// templateName tells programs, and builds of one program, apart.
func templateName(program string) (name struct{ program, build string }, err error) {
	program, err = filepath.Abs(program)
	if err != nil {
		return name, err
	}
	info, err := os.Stat(program)
	if err != nil {
		return name, err
	}
	name.program = fmt.Sprintf("%.8x", sha256.Sum256([]byte(program)))
	name.build = fmt.Sprintf("%x-%x", info.Size(), info.ModTime().UnixNano())
	return name, nil
}

// makeTemplate replaces what stands in home. The caller holds the lock.
func makeTemplate(program, home, template string) error {
	old, err := os.ReadDir(home)
	if err != nil {
		return err
	}
	for _, e := range old {
		if e.IsDir() {
			if err := os.RemoveAll(filepath.Join(home, e.Name())); err != nil {
				return err
			}
		}
	}
	c, err := launch(program, filepath.Join(home, "new"))
	if err != nil {
		return err
	}
	if err := c.end(inOrder); err != nil {
		return err
	}
	for _, left := range []string{"lock", "port", "logs"} { // of that run alone
		if err := os.RemoveAll(filepath.Join(c.Dir, left)); err != nil {
			return err
		}
	}
	return os.Rename(c.Dir, template)
}

// copyTree copies a directory of plain files into another one. Holes stay: a
// log that etcd sets 64 MB aside for has a few hundred KiB in it.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, rel); {
		case e.IsDir():
			return os.MkdirAll(target, 0o700)
		case e.Type().IsRegular():
			return copyFile(target, path)
		}
		return nil // sockets
	})
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	block, empty := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, block)
		if n > 0 && !bytes.Equal(block[:n], empty[:n]) {
			if _, err := out.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return out.Truncate(info.Size())
		case err != nil:
			return err
		}
	}
}
