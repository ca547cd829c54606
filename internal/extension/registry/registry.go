// Package registry knows the extensions of a server, or of a command that works
// without one, and resolves imports of them to targets.
package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/contract"
	"github.com/radial-project/radial/internal/extension/local"
	"github.com/radial-project/radial/internal/extension/remote"
)

// Kubernetes is the extension that is built in. Its imports, and those that
// name none, are the base resolver's.
const Kubernetes = "Kubernetes"

// Registration says where one extension is: at a URL or in an executable.
type Registration struct {
	// Name is what templates import, compared without case.
	Name string `json:"name"`
	// Version is that of the extension, such as 1.2.0; "" takes any that an
	// import names.
	Version string `json:"version,omitempty"`
	// URL is the address of an extension that serves HTTP, CAFile authorities
	// beside the system's in PEM, TokenFile its bearer token.
	URL       string `json:"url,omitempty"`
	CAFile    string `json:"caFile,omitempty"`
	TokenFile string `json:"tokenFile,omitempty"`
	// Path is the executable of an extension that serves gRPC, Args come before
	// --socket, and Env are its variables.
	Path string            `json:"path,omitempty"`
	Args []string          `json:"args,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
}

// Parse reads NAME[@VERSION]=URL or NAME[@VERSION]=PATH.
func Parse(text string) (Registration, error) {
	name, where, ok := strings.Cut(text, "=")
	if !ok || where == "" {
		return Registration{}, fmt.Errorf("%q is not NAME=URL or NAME=PATH", text)
	}
	r := Registration{}
	r.Name, r.Version, _ = strings.Cut(name, "@")
	if strings.Contains(where, "://") {
		r.URL = where
	} else {
		r.Path = where
	}
	return r, nil
}

var (
	names    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)
	versions = regexp.MustCompile(`^[0-9]+(\.[0-9]+){0,2}([-+][0-9A-Za-z.-]+)?$`)
)

// Check refuses a registration that cannot work, by its name.
func (r Registration) Check() error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("extension %q: %w", r.Name, fmt.Errorf(format, args...))
	}
	switch {
	case !names.MatchString(r.Name):
		return fault("its name must begin with a letter and have letters, digits, dots, dashes and underscores only, at most 64")
	case strings.EqualFold(r.Name, Kubernetes):
		return fault("it is built in and cannot be registered")
	case r.Version != "" && !versions.MatchString(r.Version):
		return fault("its version %q is none such as 1.2.0", r.Version)
	case (r.URL == "") == (r.Path == ""):
		return fault("it needs either a url or a path")
	case r.Path != "" && (r.CAFile != "" || r.TokenFile != ""):
		return fault("caFile and tokenFile are for extensions with a url: a process is asked over a socket of its own")
	case r.URL != "" && (len(r.Args) > 0 || len(r.Env) > 0):
		return fault("args and env are for extensions with a path")
	case r.URL != "":
		if err := remote.CheckURL(r.URL); err != nil {
			return fault("%w", err)
		}
	}
	return nil
}

// Options are settings of [New].
type Options struct {
	// Base resolves what is not an extension of the registry: Kubernetes.
	Base extension.Resolver
	// Alone says that one user has the processes to themselves, see
	// [local.Options].
	Alone bool
	// Log takes what processes write.
	Log *slog.Logger
	// Sleep waits between looks and attempts; nil is the clock's.
	Sleep func(context.Context, time.Duration) error
	// Timeout of one HTTP request and CallTimeout of one call to a process; 0 are
	// the usual ones.
	Timeout, CallTimeout time.Duration
}

// Registry is an [extension.Resolver] of registered extensions and its base. It
// is safe for concurrent use. Close ends the processes.
type Registry struct {
	o       Options
	entries []*entry // sorted by name and version
}

type entry struct {
	Registration
	client  *remote.Client
	process *local.Process
}

var _ extension.Resolver = (*Registry)(nil)

// New makes a registry. Files that registrations name must be there;
// extensions need not be: they are reached when a template needs them.
func New(registrations []Registration, o Options) (*Registry, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	x := &Registry{o: o}
	for _, r := range registrations {
		if err := r.Check(); err != nil {
			return nil, err
		}
		for _, other := range x.entries {
			if strings.EqualFold(other.Name, r.Name) && (other.Version == r.Version || other.Version == "" || r.Version == "") {
				return nil, fmt.Errorf("extension %q is registered twice: give each a version of its own", r.Name)
			}
		}
		e := &entry{Registration: r}
		var err error
		if r.URL != "" {
			e.client, err = remote.New(remote.Options{Name: r.Name, URL: r.URL, CAFile: r.CAFile, TokenFile: r.TokenFile, Timeout: o.Timeout, Sleep: o.Sleep})
		} else {
			var env []string
			for k, v := range r.Env {
				env = append(env, k+"="+v)
			}
			slices.Sort(env)
			e.process, err = local.New(local.Options{Name: r.Name, Path: r.Path, Args: r.Args, Env: env, Log: o.Log, Alone: o.Alone, CallTimeout: o.CallTimeout, Sleep: o.Sleep})
		}
		if err != nil {
			return nil, fmt.Errorf("extension %q: %w", r.Name, err)
		}
		x.entries = append(x.entries, e)
	}
	slices.SortFunc(x.entries, func(a, b *entry) int {
		if c := strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)); c != 0 {
			return c
		}
		return compareVersions(a.Version, b.Version)
	})
	return x, nil
}

// Over is the registry over another base; both share the processes.
func (x *Registry) Over(base extension.Resolver) *Registry {
	o := x.o
	o.Base = base
	return &Registry{o: o, entries: x.entries}
}

// Close ends the processes of extensions, and waits for that.
func (x *Registry) Close() {
	for _, e := range x.entries {
		if e.process != nil {
			e.process.Close()
		} else {
			e.client.Close()
		}
	}
}

// Known are the names of all extensions, with versions where they have some.
func (x *Registry) Known() []string {
	known := []string{Kubernetes}
	for _, e := range x.entries {
		name := e.Name
		if e.Version != "" {
			name += "@" + e.Version
		}
		known = append(known, name)
	}
	return known
}

// Process is the process of an extension that is one, nil for others.
func (x *Registry) Process(name string) *local.Process {
	for _, e := range x.entries {
		if e.process != nil && strings.EqualFold(e.Name, name) {
			return e.process
		}
	}
	return nil
}

// Resolve implements extension.Resolver.
func (x *Registry) Resolve(ctx context.Context, s extension.Scope, secrets extension.Secrets) (extension.Target, error) {
	if s.Extension == "" || strings.EqualFold(s.Extension, Kubernetes) {
		if x.o.Base == nil {
			return nil, core.Errorf(core.CodeTarget, "no cluster is known here: the extension %s cannot be used", Kubernetes).WithTarget(Kubernetes)
		}
		return x.o.Base.Resolve(ctx, s, secrets)
	}
	e, version, err := x.find(s.Extension, s.Version)
	if err != nil {
		return nil, err
	}
	if s.Type != "" {
		return nil, core.Errorf(core.CodeInvalidTemplate, "the extension %s lives in no scope of type %s: scopes of import configurations are for %s, say where its resources are by its own configuration",
			e.Name, s.Type, Kubernetes).WithTarget(e.Name)
	}
	config, err := configuration(s, e.Name)
	if err != nil {
		return nil, err
	}
	key, err := keyOf(s, secrets)
	if err != nil {
		return nil, err
	}
	return extension.Once(ctx, key, func() (extension.Target, error) { return x.target(e, version, config, secrets), nil })
}

func (x *Registry) target(e *entry, version string, config map[string]any, secrets extension.Secrets) extension.Target {
	o := contract.Options{Extension: e.Name, Config: config, Secrets: secrets, Sleep: x.o.Sleep}
	if e.process != nil {
		o.Place, o.Guard = e.process.Place(), e.process.Guard
		return contract.NewTarget(e.process.Carrier(), o)
	}
	o.Place, o.Own, o.Partial, o.Echo = e.client.Place(), e.client.Secrets(), true, true
	return contract.NewTarget(e.client.Version(version), o)
}

// configuration is what the extension is configured with, without secrets. The
// namespace of a scope is an entry of it like any other.
func configuration(s extension.Scope, name string) (map[string]any, error) {
	config := map[string]any{}
	if s.Config != "" {
		d := json.NewDecoder(strings.NewReader(s.Config))
		if err := d.Decode(&config); err != nil {
			return nil, core.Errorf(core.CodeInternal, "the recorded configuration of the extension %s is no JSON object", name)
		}
	}
	if _, ok := config["namespace"]; !ok && s.Namespace != "" {
		config["namespace"] = s.Namespace
	}
	return config, nil
}

// once is the key under which a run shares a target.
type once struct {
	scope   extension.Scope
	secrets string
}

func keyOf(s extension.Scope, secrets extension.Secrets) (once, error) {
	raw, err := json.Marshal(secrets)
	if err != nil {
		return once{}, core.Errorf(core.CodeInvalidTemplate, "the configuration of the extension %s cannot be written as JSON", s.Extension)
	}
	return once{s, extension.Mark("", "", "", raw)}, nil
}

// find picks the registration for a name and the version that an import asks
// for: that very version, else the newest of the same major version that is not
// older.
func (x *Registry) find(name, version string) (*entry, string, error) {
	var best *entry
	named := false
	for _, e := range x.entries {
		if !strings.EqualFold(e.Name, name) {
			continue
		}
		named = true
		if e.Version == "" || version == "" || compatible(e.Version, version) {
			best = e // the last is the newest
		}
		if e.Version == version {
			best = e
			break
		}
	}
	known := strings.Join(x.Known(), ", ")
	switch {
	case !named:
		return nil, "", core.Errorf(core.CodeTarget, "there is no extension %q here: known are %s; register it by --extension %s=URL or PATH", name, known, name).WithTarget(name)
	case best == nil:
		return nil, "", core.Errorf(core.CodeTarget, "there is no version of the extension %s that an import of %s can use: known are %s", name, version, known).WithTarget(name)
	case best.Version != "":
		return best, best.Version, nil
	case version == "" && best.client != nil:
		return nil, "", core.Errorf(core.CodeTarget, "which version of the extension %s is meant? Name one in the import, or in its registration", name).WithTarget(name)
	}
	return best, version, nil
}

// compatible reports whether a registered version serves an import of another:
// the same major version, and not older.
func compatible(registered, wanted string) bool {
	return parts(registered)[0] == parts(wanted)[0] && compareVersions(registered, wanted) >= 0
}

func compareVersions(a, b string) int {
	x, y := parts(a), parts(b)
	for i := range x {
		if x[i] != y[i] {
			return x[i] - y[i]
		}
	}
	// A version before its release is older than that.
	preA, preB := strings.Contains(a, "-"), strings.Contains(b, "-")
	switch {
	case preA && !preB:
		return -1
	case preB && !preA:
		return 1
	}
	return strings.Compare(a, b)
}

// parts are the three numbers of a version; what is missing is 0.
func parts(version string) (out [3]int) {
	if i := strings.IndexAny(version, "-+"); i >= 0 {
		version = version[:i]
	}
	for i, p := range strings.SplitN(version, ".", 3) {
		out[i], _ = strconv.Atoi(p)
	}
	return out
}
