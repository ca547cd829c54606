package seal

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// KEK is the key that wraps the data keyset. It never leaves the process and
// is never stored beside what it wraps.
type KEK struct {
	aead tink.AEAD
	// source says in messages where the key came from.
	source string
}

const (
	keyPrefix = "radial-key-1:"
	keySize   = 32
)

// NewKEK makes a KEK of 32 bytes of key. source says where they came from.
func NewKEK(key []byte, source string) (KEK, error) {
	if len(key) != keySize {
		return KEK{}, fmt.Errorf("the key in %s has %d bytes instead of %d", source, len(key), keySize)
	}
	a, err := subtle.NewAESGCM(key)
	if err != nil {
		return KEK{}, fmt.Errorf("use the key in %s: %w", source, err)
	}
	return KEK{a, source}, nil
}

// LoadOrCreateKey reads the key file at path, or makes one with mode 0600 when
// there is none. The file appears whole or not at all, and is on disk before
// the key is used; of several processes that start together all get the same
// key. Without this file the secrets in the store are lost: keep a copy.
func LoadOrCreateKey(path string) (KEK, error) { return loadOrCreate(path, rand.Reader) }

func loadOrCreate(path string, random io.Reader) (KEK, error) {
	kek, err := LoadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return kek, err
	}
	key := make([]byte, keySize)
	if _, err := io.ReadFull(random, key); err != nil {
		return KEK{}, fmt.Errorf("make a key for %s: %w", path, err)
	}
	if err := create(path, keyPrefix+base64.StdEncoding.EncodeToString(key)+"\n"); err != nil && !errors.Is(err, fs.ErrExist) {
		return KEK{}, fmt.Errorf("write the key file %s: %w", path, err)
	}
	return LoadKey(path) // ours, or that of whoever was faster
}

// LoadKey reads the key file at path. It refuses one that every user of the
// machine may read; a group may, as mounted Secrets need it.
func LoadKey(path string) (KEK, error) {
	f, err := os.Open(path)
	if err != nil {
		return KEK{}, fmt.Errorf("open the key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return KEK{}, fmt.Errorf("open the key file: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return KEK{}, fmt.Errorf("the key file %s is open to every user of this machine (mode %04o): run chmod 600 %s", path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return KEK{}, fmt.Errorf("read the key file %s: %w", path, err)
	}
	encoded, ok := strings.CutPrefix(strings.TrimSpace(string(text)), keyPrefix)
	if !ok {
		return KEK{}, fmt.Errorf("%s is not a key file: it must hold one line that starts with %s; put back the file that belongs to this store", path, keyPrefix)
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return KEK{}, fmt.Errorf("the key file %s is damaged: put back the file that belongs to this store", path)
	}
	return NewKEK(key, path)
}

// create makes a file that did not exist, whole and on disk. The name appears
// by a link, which fails where one exists, after the content is synced.
func create(path, content string) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(content)
	err = errors.Join(err, tmp.Sync())
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
