// Package contexts keeps which control planes a person uses, and how they prove
// who they are to each: a file like a kubeconfig, which holds no secret itself.
package contexts

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/internal/core"
)

// File is the file of contexts.
type File struct {
	CurrentContext string    `json:"currentContext,omitempty"`
	Contexts       []Context `json:"contexts"`
	// Environments are the ids of those in use, by the server's base URL:
	// there is one for a server that no context names, too.
	Environments map[string]string `json:"environments,omitempty"`

	path string
}

// Context is one control plane and how to reach it.
type Context struct {
	Name string `json:"name"`
	// Server is the base URL.
	Server string `json:"server"`
	// CAFile is a PEM bundle of authorities for the server's certificate, read
	// again at every use; empty are the system's.
	CAFile string `json:"caFile,omitempty"`
	// Exactly one of these, or none for developer mode.
	TokenFile  string      `json:"tokenFile,omitempty"`
	Account    *Account    `json:"account,omitempty"`
	Kubeconfig *Kubeconfig `json:"kubeconfig,omitempty"`
	OIDC       *OIDC       `json:"oidc,omitempty"`
}

// Kubeconfig is a user of a kubeconfig, who proves themself as to the cluster:
// by client certificate, or by what their exec plugin gives. A token goes to
// Radial as it is, so it must be good for Radial's audience.
type Kubeconfig struct {
	// Path is empty for KUBECONFIG and ~/.kube/config, Context for the current.
	Path    string `json:"path,omitempty"`
	Context string `json:"context,omitempty"`
}

// Account is a ServiceAccount of whose tokens the user of a kubeconfig may ask
// for (TokenRequest), each for a few minutes and bound to Radial's audience.
type Account struct {
	Kubeconfig `json:",inline"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Audience   string `json:"audience,omitempty"`
}

// OIDC is an issuer where the person signs in with a browser, on this machine
// or another (device authorization).
type OIDC struct {
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"clientId"`
	Scopes   []string `json:"scopes,omitempty"`
	CAFile   string   `json:"caFile,omitempty"`
}

// Path is where the file lies: RADIAL_CONTEXTS, or contexts.yaml in ~/.radial.
func Path(getenv func(string) string) (string, error) {
	if p := getenv("RADIAL_CONTEXTS"); p != "" {
		return p, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no file of contexts: set RADIAL_CONTEXTS: %w", err)
	}
	return filepath.Join(home, ".radial", "contexts.yaml"), nil
}

// Load reads the file; one that is not there is empty.
func Load(path string) (*File, error) {
	f := &File{path: path}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(raw, f); err != nil {
		return nil, fmt.Errorf("%s is no file of contexts: %w; correct it, or move it away and use radial login again", path, err)
	}
	f.path = path
	for _, c := range f.Contexts {
		if err := c.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return f, nil
}

// Save writes the file whole, readable by its owner only.
func (f *File) Save() error {
	raw, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	return write(f.path, raw)
}

func write(path string, raw []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(raw)
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// Find returns a context by name; "" is the current one. False when there is
// none.
func (f *File) Find(name string) (Context, bool) {
	if name == "" {
		name = f.CurrentContext
	}
	for _, c := range f.Contexts {
		if name != "" && c.Name == name {
			return c, true
		}
	}
	return Context{}, false
}

// ForServer returns a context of a server by its URL.
func (f *File) ForServer(server string) (Context, bool) {
	for _, c := range f.Contexts {
		if strings.TrimRight(c.Server, "/") == strings.TrimRight(server, "/") {
			return c, true
		}
	}
	return Context{}, false
}

// Put adds or replaces a context.
func (f *File) Put(c Context) error {
	if err := c.Check(); err != nil {
		return err
	}
	for i := range f.Contexts {
		if f.Contexts[i].Name == c.Name {
			f.Contexts[i] = c
			return nil
		}
	}
	f.Contexts = append(f.Contexts, c)
	return nil
}

// Remove takes a context away, with what was kept of its sign-in.
func (f *File) Remove(name string) error {
	n := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if n < 0 {
		return core.Errorf(core.CodeNotFound, "there is no context %q: there are %s", name, f.names())
	}
	f.Contexts = slices.Delete(f.Contexts, n, n+1)
	if f.CurrentContext == name {
		f.CurrentContext = ""
	}
	if err := os.Remove(f.signInPath(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return f.Save()
}

// Use makes a context the current one.
func (f *File) Use(name string) error {
	if _, ok := f.Find(name); !ok || name == "" {
		return core.Errorf(core.CodeNotFound, "there is no context %q: there are %s", name, f.names())
	}
	f.CurrentContext = name
	return f.Save()
}

func (f *File) names() string {
	var names []string
	for _, c := range f.Contexts {
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return "none; radial login makes one"
	}
	return strings.Join(names, ", ")
}

// Check refuses a context that cannot be used.
func (c Context) Check() error {
	if c.Name == "" || strings.ContainsAny(c.Name, "/\\ \t\n") || strings.HasPrefix(c.Name, ".") {
		return fmt.Errorf("%q cannot name a context", c.Name)
	}
	u, err := url.Parse(c.Server)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("context %s: server %q is no URL, such as https://radial.example.com", c.Name, c.Server)
	}
	sources := 0
	for _, there := range []bool{c.TokenFile != "", c.Account != nil, c.Kubeconfig != nil, c.OIDC != nil} {
		if there {
			sources++
		}
	}
	switch {
	case sources > 1:
		return fmt.Errorf("context %s has several sources of tokens: keep one", c.Name)
	case sources == 1 && u.Scheme != "https":
		return fmt.Errorf("context %s: a token is not sent over plain HTTP: the server's URL must be https", c.Name)
	case c.Account != nil && (c.Account.Namespace == "" || c.Account.Name == ""):
		return fmt.Errorf("context %s: the account needs namespace and name", c.Name)
	case c.OIDC != nil && (c.OIDC.Issuer == "" || c.OIDC.ClientID == ""):
		return fmt.Errorf("context %s: oidc needs issuer and clientId", c.Name)
	}
	return nil
}
