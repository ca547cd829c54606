package main

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	sdk "github.com/radial-project/radial/extensionsdk"
)

// markFile makes a directory the extension's and tells it from every other, one
// of the same name included. It is what configId is made of.
const markFile = ".files-mark"

// marked is the content of a mark.
type marked struct {
	ID string `json:"id"`
	// Passphrase is the SHA-256 of ID and the passphrase, "" for none.
	Passphrase string `json:"passphrase,omitempty"`
}

func makeMark(directory, passphrase string) (string, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", err
	}
	m := marked{ID: rand.Text()}
	if passphrase = strings.TrimSpace(passphrase); passphrase != "" {
		m.Passphrase = sum(m.ID, passphrase)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	// O_EXCL: a directory keeps its mark for life.
	f, err := os.OpenFile(filepath.Join(directory, markFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	_, err = f.Write(raw)
	return m.ID, errors.Join(err, f.Close())
}

func sum(id, passphrase string) string {
	h := sha256.Sum256([]byte(id + "\x00" + passphrase))
	return hex.EncodeToString(h[:])
}

// place is the directory that a configuration leads to.
type place struct {
	root *os.Root
	id   string
	echo map[string]any
}

func (p *place) close() { _ = p.root.Close() }

// open finds the directory of a configuration, {directory, passphrase?}, and
// refuses one that is not the configID's.
func (f *files) open(config map[string]any, configID string) (*place, error) {
	for k := range config {
		if k != "directory" && k != "passphrase" {
			return nil, sdk.Errorf(sdk.CodeInvalid, "the configuration has an entry %q: it has directory and passphrase", k).At("/config/" + k)
		}
	}
	directory, _ := config["directory"].(string)
	if directory == "" || !filepath.IsLocal(directory) {
		return nil, sdk.Errorf(sdk.CodeInvalid, "directory must be the path of a directory below the extension's own").At("/config/directory")
	}
	base, err := os.OpenRoot(f.base)
	if err != nil {
		return nil, sdk.Errorf("Unavailable", "the extension's own directory cannot be opened")
	}
	defer base.Close()
	root, err := base.OpenRoot(directory)
	if err != nil {
		return nil, sdk.Errorf("DirectoryNotFound", "there is no directory %q: make it with `extension mark`", directory).At("/config/directory")
	}
	p := &place{root: root, echo: map[string]any{"directory": directory}}
	if err := p.identify(config, configID, directory); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *place) identify(config map[string]any, configID, directory string) error {
	raw, err := p.root.ReadFile(markFile)
	if errors.Is(err, fs.ErrNotExist) {
		return sdk.Errorf("DirectoryNotMarked", "%q is not a directory of this extension: make it one with `extension mark`", directory).At("/config/directory")
	}
	var m marked
	if err != nil || json.Unmarshal(raw, &m) != nil || m.ID == "" {
		return sdk.Errorf("DirectoryNotMarked", "the mark of %q cannot be read", directory).At("/config/directory")
	}
	if configID != "" && configID != m.ID {
		return sdk.Errorf(sdk.CodeConfigMismatch, "%q is the directory %s, and %s is meant", directory, m.ID, configID)
	}
	passphrase, _ := config["passphrase"].(string)
	if m.Passphrase != "" && subtle.ConstantTimeCompare([]byte(sum(m.ID, passphrase)), []byte(m.Passphrase)) != 1 {
		return &sdk.Error{Code: "Forbidden", Message: "the passphrase of the directory is missing or wrong", Target: "/config/passphrase", HTTPStatus: 403}
	}
	p.id = m.ID
	return nil
}
