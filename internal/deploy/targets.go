package deploy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"strings"
	"sync"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// kubeConfigEntry is the entry of a configuration, and of secrets, that holds
// credentials of a cluster.
const kubeConfigEntry = "kubeConfig"

// place is where the resources of an import go.
type place struct {
	mu      sync.Mutex // guards scope and config once it is resolved
	scope   extension.Scope
	secrets extension.Secrets
	// config is the import's configuration beside the scope, without secrets.
	config map[string]any
	// namespace is the one for objects that name none, beside the import's: the
	// request's, or the target's own.
	namespace string
	// target and configID are nil and "" until it is resolved.
	target   extension.Target
	configID string
}

// answered is the place's scope as results have it.
func (p *place) answered() *Scope {
	s, _ := p.kept()
	return answeredScope(s)
}

func answeredScope(s extension.Scope) *Scope {
	if s.Type == "" {
		cluster := s.Cluster
		if cluster == "" && strings.EqualFold(s.Extension, providerKubernetes) {
			cluster = core.LocalCluster
		}
		return &Scope{Type: "Cluster", ID: cluster}
	}
	return &Scope{Type: s.Type, ID: s.ID, Fingerprint: s.Fingerprint}
}

// readPlace reads where an import's resources go from its configuration.
func readPlace(q *Request, x *template.Extension, config map[string]any) (*place, error) {
	scope, err := x.Scope(config)
	if err != nil {
		return nil, err
	}
	kube := strings.EqualFold(x.Provider, providerKubernetes)
	p := &place{config: map[string]any{}, secrets: extension.Secrets{}}
	if kube && scope == nil {
		p.scope, p.namespace = q.Base, q.Base.Namespace
	}
	p.scope.Extension, p.scope.Version = x.Provider, x.Version
	if scope != nil {
		p.scope.Type, p.scope.ID, p.scope.Cluster, p.scope.Fingerprint = scope.Type, scope.ID, "", scope.Fingerprint
		if scope.Type == template.ScopeUserOwned {
			if err := mayCarry(q, x, scope); err != nil {
				return nil, err
			}
			if scope.KubeConfig != "" {
				p.secrets[kubeConfigEntry] = scope.KubeConfig
			} else if p.secrets, err = supplied(q.Secrets, scope.Fingerprint); err != nil {
				return nil, err
			}
		}
		if scope.CredentialType = canonical(scope.CredentialType, "User"); scope.CredentialType == "User" {
			p.scope.CredentialType = scope.CredentialType
		}
	}
	rest := map[string]any{}
	for name, v := range config {
		text, isText := v.(string)
		if v == nil || isText && text == "" {
			continue
		}
		switch lower := strings.ToLower(name); {
		case lower == "scope", lower == "clustertype", lower == "managedclusterid", lower == "kubeconfig" && scope != nil:
			continue
		case isSecure(x, name):
			p.secrets[name] = v
			continue
		case lower == "namespace" && kube:
			if !isText {
				return nil, x.Errorf("the namespace of the import %q must be a string", x.Alias)
			}
			p.scope.Namespace = text
		case lower == "credentialtype":
		case lower == "context" && q.Kind != "":
			return nil, x.Errorf("the import %q carries a %s: where a recipe's resources go is the environment's to say; leave it empty", x.Alias, name)
		default:
			rest[name] = v
		}
		p.config[name] = v
	}
	if !kube {
		for name, v := range q.secretsFor(x.Provider) {
			if _, said := config[name]; !said {
				p.secrets[name] = v
			}
		}
	}
	if len(rest) > 0 {
		b, err := json.Marshal(rest)
		if err != nil {
			return nil, x.Errorf("the configuration of the import %q: %v", x.Alias, err)
		}
		p.scope.Config = string(b)
	}
	return p, nil
}

// supplied finds the credentials of a UserOwned scope that is known by its
// fingerprint alone: they come with each request, since nothing keeps them.
func supplied(secrets map[string]extension.Secrets, fingerprint string) (extension.Secrets, error) {
	for _, name := range []string{fingerprint, ""} {
		if given, ok := secrets[name]; ok {
			return given, nil
		}
	}
	return nil, core.Errorf(extension.CodeCredentialsNeeded, "the kubeConfig of the cluster with the fingerprint %s is kept nowhere, and was not supplied with this request: supply it and repeat; nothing was done there", fingerprint)
}

// secretsOf are the credentials that came with the request for a scope.
func (q *Request) secretsOf(s extension.Scope) extension.Secrets {
	if found, ok := q.Secrets[s.Fingerprint]; ok {
		return found
	}
	return q.Secrets[""]
}

// secretsFor are the secret entries of another extension's configuration that
// came with the request. What is for any cluster is not for them.
func (q *Request) secretsFor(name string) extension.Secrets {
	for k, v := range q.Secrets {
		if k != "" && strings.EqualFold(k, name) {
			return v
		}
	}
	return nil
}

// hide takes out of what is stored the entries of the configuration that the
// target keeps secret though the template does not.
func (p *place) hide(pointers []string) {
	if len(pointers) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := map[string]any{}
	if p.scope.Config == "" || json.Unmarshal([]byte(p.scope.Config), &rest) != nil {
		return
	}
	config := maps.Clone(p.config)
	for _, pointer := range pointers {
		without(rest, pointer)
		without(config, pointer)
	}
	p.config, p.scope.Config = config, ""
	if len(rest) > 0 {
		p.scope.Config = string(mustJSON(rest))
	}
}

// kept is the scope as it is stored, and the configuration as it is answered.
func (p *place) kept() (extension.Scope, map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.scope, p.config
}

// without takes out what a JSON pointer leads to; objects on the way are copied.
func without(m map[string]any, pointer string) {
	name, rest, deeper := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	if !deeper {
		delete(m, name)
		return
	}
	if inner, ok := m[name].(map[string]any); ok {
		inner = maps.Clone(inner)
		m[name] = inner
		without(inner, "/"+rest)
	}
}

// mayCarry refuses credentials where they may not be: in the text of a template,
// which is kept and answered (S-39), and in a recipe, whose environment says
// where its resources go.
func mayCarry(q *Request, x *template.Extension, s *template.Scope) error {
	if q.Kind != "" {
		return x.Errorf("the import %q carries a kubeConfig: where a recipe's resources go is the environment's to say; leave it empty", x.Alias)
	}
	if !s.Secure && s.KubeConfig != "" && len(x.Unknown) == 0 {
		return x.Errorf("the import %q has a kubeConfig as plain text: declare a parameter of type securestring and pass it through that, so that it is never kept", x.Alias)
	}
	return nil
}

func canonical(text string, names ...string) string {
	for _, n := range names {
		if strings.EqualFold(n, text) {
			return n
		}
	}
	return text
}

func isSecure(x *template.Extension, name string) bool {
	for _, s := range x.Secure {
		if strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}

// targets resolves each scope once in a run: one request for credentials.
type targets struct {
	resolver extension.Resolver
	mu       sync.Mutex
	known    map[targetKey]*resolved
	// used are the credentials of UserOwned scopes, by fingerprint.
	used map[string]extension.Secrets
}

type targetKey struct {
	scope   extension.Scope
	secrets [sha256.Size]byte
}

type resolved struct {
	once     sync.Mutex
	target   extension.Target
	configID string
	asked    bool
}

func newTargets(r extension.Resolver) *targets {
	return &targets{resolver: r, known: map[targetKey]*resolved{}, used: map[string]extension.Secrets{}}
}

// resolve fills in a place's target and the mark of what it leads to. A failure
// is not remembered: what a scope names may be made a moment later.
func (t *targets) resolve(ctx context.Context, p *place) error {
	for _, v := range p.secrets {
		conceal.Add(ctx, v)
	}
	key := targetKey{scope: p.scope}
	if len(p.secrets) > 0 {
		b, err := json.Marshal(p.secrets) // sorted by name
		if err != nil {
			return err
		}
		key.secrets = sha256.Sum256(b)
	}
	t.mu.Lock()
	r := t.known[key]
	if r == nil {
		r = &resolved{}
		t.known[key] = r
	}
	t.mu.Unlock()
	r.once.Lock()
	defer r.once.Unlock()
	var err error
	if r.target == nil {
		if r.target, err = t.resolver.Resolve(ctx, p.scope, p.secrets); err != nil {
			return err
		}
	}
	if !r.asked {
		if r.configID, err = r.target.ConfigID(ctx); err != nil {
			return err
		}
		r.asked = true
	}
	if want := p.scope.Fingerprint; want != "" && want != r.configID {
		// S-38: credentials for another cluster. They may be taken back by a
		// request that has the right ones.
		return core.Errorf(extension.CodeWrongTarget, "the kubeConfig that was supplied leads to another cluster (fingerprint %s) than the scope names (%s): supply that cluster's; nothing was done in either", r.configID, want)
	}
	p.target, p.configID = r.target, r.configID
	if d, ok := p.target.(extension.DefaultNamespace); ok && p.namespace == "" {
		p.namespace = d.DefaultNamespace()
	}
	if p.scope.Type == template.ScopeUserOwned {
		t.mu.Lock()
		t.used[r.configID] = p.secrets
		t.mu.Unlock()
		p.scope.Fingerprint = r.configID
	}
	return nil
}
