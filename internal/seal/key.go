package seal

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// KEK is the key that wraps the data keysets. It lies outside the store: what
// it is made of never gets into it. Package keysource has those that are not
// files. Implementations are safe for concurrent use.
type KEK interface {
	// Wrap encrypts plain, bound to binding.
	Wrap(ctx context.Context, plain, binding []byte) ([]byte, error)
	// Unwrap decrypts what Wrap made. current is false when it was wrapped with
	// a key that is on its way out: it is to be wrapped anew. The error matches
	// [ErrOtherKey] when none of the keys wrapped it; any other error says that
	// it cannot be told now.
	Unwrap(ctx context.Context, wrapped, binding []byte) (plain []byte, current bool, err error)
	// Refresh looks whether the key has changed since it was read.
	Refresh(ctx context.Context) error
	// Source says in messages where the key lies.
	Source() string
}

// ErrOtherKey says that something was wrapped with another key.
var ErrOtherKey = errors.New("it was wrapped with another key, or one of the two is damaged")

const (
	keyPrefix = "radial-key-1:"
	keySize   = 32
)

// text is a KEK whose keys are lines of text: the first wraps, all of them
// unwrap. Replacing a key is to write a new line above it, and to remove the
// old one when everything is wrapped with the new.
type text struct {
	source string
	read   func(context.Context) (string, error)
	keys   atomic.Pointer[[]tink.AEAD]
}

// NewTextKEK makes a KEK of what read returns: a line for each key, as NewKey
// makes it. read is asked again by Refresh; source names the place in messages.
func NewTextKEK(ctx context.Context, source string, read func(context.Context) (string, error)) (KEK, error) {
	t := &text{source: source, read: read}
	if err := t.Refresh(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// NewKEK makes a KEK of 32 bytes of key. source says where they came from.
func NewKEK(key []byte, source string) (KEK, error) {
	line := keyPrefix + base64.StdEncoding.EncodeToString(key)
	return NewTextKEK(context.Background(), source, func(context.Context) (string, error) { return line, nil })
}

// NewKey returns a new key as a line of a key file.
func NewKey(random io.Reader) (string, error) {
	key := make([]byte, keySize)
	if _, err := io.ReadFull(random, key); err != nil {
		return "", err
	}
	return keyPrefix + base64.StdEncoding.EncodeToString(key) + "\n", nil
}

func (t *text) Source() string { return t.source }

func (t *text) Refresh(ctx context.Context) error {
	content, err := t.read(ctx)
	if err != nil {
		return err
	}
	var keys []tink.AEAD
	for line := range strings.Lines(content) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		encoded, ok := strings.CutPrefix(line, keyPrefix)
		if !ok {
			return fmt.Errorf("%s is not a key file: each line must start with %s; put back what belongs to this store", t.source, keyPrefix)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return fmt.Errorf("the key in %s is damaged: put back what belongs to this store", t.source)
		}
		if len(key) != keySize {
			return fmt.Errorf("the key in %s has %d bytes instead of %d", t.source, len(key), keySize)
		}
		a, err := subtle.NewAESGCM(key)
		if err != nil {
			return fmt.Errorf("use the key in %s: %w", t.source, err)
		}
		keys = append(keys, a)
	}
	if len(keys) == 0 {
		return fmt.Errorf("%s is not a key file: it must hold a line that starts with %s; put back what belongs to this store", t.source, keyPrefix)
	}
	t.keys.Store(&keys)
	return nil
}

func (t *text) Wrap(_ context.Context, plain, binding []byte) ([]byte, error) {
	return (*t.keys.Load())[0].Encrypt(plain, binding)
}

func (t *text) Unwrap(_ context.Context, wrapped, binding []byte) ([]byte, bool, error) {
	for i, key := range *t.keys.Load() {
		if plain, err := key.Decrypt(wrapped, binding); err == nil {
			return plain, i == 0, nil
		}
	}
	return nil, false, ErrOtherKey
}

// former is a KEK with others that it takes the place of.
type former struct {
	KEK
	old []KEK
}

// WithFormer returns current with keys that wrapped the keysets before it, of
// any kind: what they wrapped is opened, and wrapped anew with current.
func WithFormer(current KEK, old ...KEK) KEK {
	if len(old) == 0 {
		return current
	}
	return former{current, old}
}

func (f former) Unwrap(ctx context.Context, wrapped, binding []byte) ([]byte, bool, error) {
	plain, current, err := f.KEK.Unwrap(ctx, wrapped, binding)
	if err == nil {
		return plain, current, nil
	}
	for _, k := range f.old {
		if plain, _, oldErr := k.Unwrap(ctx, wrapped, binding); oldErr == nil {
			return plain, false, nil
		}
	}
	return nil, false, err
}

func (f former) Refresh(ctx context.Context) error {
	err := f.KEK.Refresh(ctx)
	for _, k := range f.old {
		err = errors.Join(err, k.Refresh(ctx))
	}
	return err
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
	key, err := NewKey(random)
	if err != nil {
		return nil, fmt.Errorf("make a key for %s: %w", path, err)
	}
	if err := create(path, key); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("write the key file %s: %w", path, err)
	}
	return LoadKey(path) // ours, or that of whoever was faster
}

// LoadKey reads the key file at path. It refuses one that every user of the
// machine may read; a group may, as mounted Secrets need it.
func LoadKey(path string) (KEK, error) {
	return NewTextKEK(context.Background(), path, func(context.Context) (string, error) { return readKey(path) })
}

func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open the key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("open the key file: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("the key file %s is open to every user of this machine (mode %04o): run chmod 600 %s", path, info.Mode().Perm(), path)
	}
	content, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", fmt.Errorf("read the key file %s: %w", path, err)
	}
	return string(content), nil
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
