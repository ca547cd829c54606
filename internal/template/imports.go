package template

import (
	"encoding/json"
	"sort"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// importDecl is one entry of imports or extensions.
type importDecl struct {
	alias    string
	provider string
	version  string
	config   *node
	n        *node
	// declared says that config declares each entry ({"type", "defaultValue"}),
	// as extensions do; imports give plain values.
	declared bool
}

// native reports whether the import stands for the control plane's own
// resources: the aliases that a compiler gives to ARM's types.
func (d *importDecl) native() bool {
	return strings.EqualFold(d.provider, "AzureResourceManager") || strings.EqualFold(d.provider, "LocalNested")
}

func (t *Template) readImports(root *node) error {
	for _, section := range []string{"imports", "extensions"} {
		list := root.get(section)
		if list == nil {
			continue
		}
		if err := list.want(section, kindObject); err != nil {
			return err
		}
		if !t.symbolic {
			return list.errorf(`%s need "languageVersion": "2.0" or later`, section)
		}
		for _, m := range list.members {
			if err := m.want("an import", kindObject); err != nil {
				return err
			}
			provider := m.get("provider")
			for _, other := range []string{"name", "type"} {
				if provider == nil {
					provider = m.get(other)
				}
			}
			if provider == nil || provider.kind != kindString || provider.text == "" {
				return m.errorf("the import %q names no provider", m.key)
			}
			d := &importDecl{alias: m.key, provider: provider.text, config: m.get("config"), n: m}
			if v := m.get("version"); v != nil {
				if err := v.want("version", kindString); err != nil {
					return err
				}
				d.version = v.text
			}
			if d.config != nil && d.config.kind == kindObject {
				d.declared = section == "extensions"
				for _, c := range d.config.members {
					d.declared = d.declared && c.kind == kindObject
				}
			}
			key := strings.ToLower(m.key)
			if t.importIndex[key] != nil {
				return m.errorf("the alias %q stands twice", m.key)
			}
			t.importIndex[key] = d
			t.imports = append(t.imports, d)
		}
	}
	return nil
}

// checkAlias refuses an alias that no import has.
func (t *Template) checkAlias(n *node) error {
	if err := n.want("import", kindString); err != nil {
		return err
	}
	if t.importIndex[strings.ToLower(n.text)] != nil {
		return nil
	}
	var names []string
	for _, d := range t.imports {
		names = append(names, d.alias)
	}
	sort.Strings(names)
	return n.errorf("no import has the alias %q (%s)", n.text, listOr(names, "the template has none"))
}

// Extension is an import of the template with its configuration.
type Extension struct {
	// Alias in the template, Provider such as Kubernetes, Version as written.
	Alias    string
	Provider string
	Version  string
	// Config is the configuration as far as it is known before the deployment;
	// [Plan.Configuration] gives it whole.
	Config map[string]any
	// Unknown are the JSON pointers of what Config does not know yet.
	Unknown []string
	// Missing are declared entries that have no value.
	Missing []string
	// Secure are the entries of Config that come from secure parameters.
	Secure []string

	d    *importDecl
	deps []*Resource
}

// Errorf makes an error at the import's place in the template.
func (x *Extension) Errorf(format string, args ...any) *core.Error {
	return invalid(x.d.n.path(), x.d.n.line, x.d.n.col, format, args...)
}

// The types of a scope.
const (
	ScopeAzure     = "AzureResourceManager"
	ScopeUserOwned = "UserOwned"
	ScopeRadial    = "Radial"
)

// Scope is the evaluated scope of an import's configuration: where its
// resources live. Only its id may be stored.
type Scope struct {
	Type string
	// ID is the owner's: a cluster's or an environment's.
	ID string
	// KubeConfig of a UserOwned scope: a secret.
	KubeConfig string
	// Secure says that KubeConfig comes from a secure parameter, not from text
	// in the template.
	Secure bool
	// Fingerprint of a UserOwned scope is the mark of its cluster, where the
	// template has it in the place of the kubeConfig or beside it: as a stack
	// remembers the scope.
	Fingerprint string
	// CredentialType is Admin or User, "" when nothing is said.
	CredentialType string
}

// Scope reads the scope of a configuration, nil if it has none. config is
// what [Plan.Configuration] answered, or Config for what is known before; a
// scope whose id is not known yet has ID "".
//
// The later spelling {clusterType: "Managed", managedClusterId} is the same
// scope as {type: "AzureResourceManager", id}, and a kubeConfig (or kubeconfig)
// with text in it the same as {type: "UserOwned", kubeConfig}.
func (x *Extension) Scope(config map[string]any) (*Scope, error) {
	s := &Scope{}
	var err error
	read := func(m map[string]any, name, where string) string {
		for k, v := range m {
			if !strings.EqualFold(k, name) || v == nil {
				continue
			}
			text, ok := v.(string)
			if !ok && err == nil {
				err = x.configErrorf(name, "%s of the import %q must be a string, it is of type %s", where, x.Alias, typeName(v))
			}
			return text
		}
		return ""
	}
	s.CredentialType = read(config, "credentialType", "credentialType")
	switch {
	case s.CredentialType == "", strings.EqualFold(s.CredentialType, "Admin"), strings.EqualFold(s.CredentialType, "User"):
	default:
		return nil, x.configErrorf("credentialType", "credentialType of the import %q is Admin or User", x.Alias)
	}
	var given any
	for k, v := range config {
		if strings.EqualFold(k, "scope") {
			given = v
		}
	}
	if given != nil {
		m, ok := given.(map[string]any)
		if !ok {
			return nil, x.configErrorf("scope", "the scope of the import %q must be an object with type, it is of type %s", x.Alias, typeName(given))
		}
		fault := x.readScope(s, m, read)
		if err == nil {
			err = fault
		}
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	switch kind := read(config, "clusterType", "clusterType"); {
	case strings.EqualFold(kind, "Managed"):
		s.Type, s.ID = ScopeAzure, read(config, "managedClusterId", "managedClusterId")
		if err == nil && s.ID == "" && !x.isUnknown("/managedClusterId") {
			err = x.configErrorf("clusterType", "the import %q has clusterType Managed and no managedClusterId", x.Alias)
		}
		return s, err
	case kind != "" && !strings.EqualFold(kind, "Custom"):
		return nil, x.configErrorf("clusterType", "clusterType of the import %q is Managed or Custom", x.Alias)
	}
	if s.KubeConfig = read(config, "kubeConfig", "kubeConfig"); s.KubeConfig != "" {
		s.Type, s.Secure = ScopeUserOwned, x.isSecure("kubeconfig")
		return s, err
	}
	return nil, err
}

func (x *Extension) readScope(s *Scope, m map[string]any, read func(map[string]any, string, string) string) error {
	kind := read(m, "type", "type of the scope")
	members := map[string]string{ScopeAzure: "id", ScopeRadial: "id", ScopeUserOwned: "kubeConfig"}
	for name := range members {
		if strings.EqualFold(name, kind) {
			s.Type = name
		}
	}
	if s.Type == "" {
		if kind == "" && x.isUnknown("/scope/type") {
			return x.configErrorf("scope", "the type of the scope of the import %q must be known before the deployment starts", x.Alias)
		}
		return x.configErrorf("scope", "the scope of the import %q has the type %q: it is one of %s, %s and %s", x.Alias, kind, ScopeAzure, ScopeUserOwned, ScopeRadial)
	}
	want := members[s.Type]
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		if !strings.EqualFold(k, "type") && !strings.EqualFold(k, want) && (s.Type != ScopeUserOwned || !strings.EqualFold(k, "fingerprint")) {
			return x.configErrorf("scope", "the scope of the import %q has a property %q: a scope of type %s has type and %s", x.Alias, k, s.Type, want)
		}
	}
	value := read(m, want, want+" of the scope")
	if s.Type == ScopeUserOwned {
		s.Fingerprint = read(m, "fingerprint", "fingerprint of the scope")
	}
	if value == "" && s.Fingerprint == "" && !x.isUnknown("/scope/"+want) {
		return x.configErrorf("scope", "the scope of the import %q has no %s (a string)", x.Alias, want)
	}
	if s.Type == ScopeUserOwned {
		s.KubeConfig, s.Secure = value, x.isSecure("scope")
		return nil
	}
	s.ID = value
	if s.Type == ScopeAzure && value != "" && !strings.HasPrefix(value, "/") {
		return x.configErrorf("scope", "the id of the scope of the import %q is not a resource id: it must start with /", x.Alias)
	}
	return nil
}

func (x *Extension) isUnknown(pointer string) bool {
	for _, u := range x.Unknown {
		if strings.EqualFold(u, pointer) || u == "" || strings.HasPrefix(strings.ToLower(pointer), strings.ToLower(u)+"/") {
			return true
		}
	}
	return false
}

func (x *Extension) isSecure(name string) bool {
	for _, s := range x.Secure {
		if strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}

// configErrorf places an error at an entry of the configuration.
func (x *Extension) configErrorf(name, format string, args ...any) *core.Error {
	at := x.d.config.get(name)
	if at == nil {
		at = x.d.n
	}
	return invalid(at.path(), at.line, at.col, format, args...)
}

// readExtensions evaluates the configurations as far as they are known.
func (p *Plan) readExtensions() error {
	for given := range p.options.ExtensionConfigs {
		if p.t.importIndex[strings.ToLower(given)] == nil {
			var names []string
			for _, d := range p.t.imports {
				names = append(names, d.alias)
			}
			return core.Errorf(core.CodeInvalidTemplate, "extensionConfigs names %q, which is no extension of the template%s (it has: %s)",
				given, didYouMean(given, names), listOr(names, "none")).WithTarget("extensionConfigs." + given)
		}
	}
	for _, d := range p.t.imports {
		x := &Extension{Alias: d.alias, Provider: d.provider, Version: d.version, d: d}
		p.Extensions = append(p.Extensions, x)
		p.extensions[strings.ToLower(d.alias)] = x
		_ = p.readConfig(x) // one that names resources fails: they are read next
	}
	return nil
}

// readConfig evaluates a configuration as far as it is known.
func (p *Plan) readConfig(x *Extension) (err error) {
	x.Unknown = []string{}
	if x.Config, err = p.configure(&evaluator{p: p, unknown: &x.Unknown}, x); err != nil {
		return err
	}
	_, err = x.Scope(x.Config)
	return err
}

// Configuration evaluates an import's configuration when all that it refers to
// has been made.
func (p *Plan) Configuration(x *Extension, rt Runtime) (map[string]any, error) {
	if len(x.Unknown) == 0 {
		return Export(mustImport(x.Config)).(map[string]any), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := *x
	whole.Unknown = nil
	config, err := p.configure(&evaluator{p: p, rt: rt}, &whole)
	if err == nil {
		_, err = whole.Scope(config)
	}
	return config, p.fault(err)
}

// DependsOn are the resources that an import's configuration reads.
func (x *Extension) DependsOn() []*Resource { return x.deps }

func mustImport(v any) any {
	x, err := Import(v)
	if err != nil {
		panic(err) // made by Export
	}
	return x
}

// configure makes a configuration: the values that the deployment gives, else
// those of the template.
func (p *Plan) configure(e *evaluator, x *Extension) (map[string]any, error) {
	d := x.d
	config := map[string]any{}
	x.Missing, x.Secure = nil, nil
	set := func(name string, n *node) error {
		v, err := e.node(n, e.join("", name))
		if err != nil {
			return err
		}
		if p.tainted(n) {
			x.Secure = append(x.Secure, name)
			p.secrets.Add(Export(v))
		}
		if _, gone := v.(missing); !gone {
			config[name] = Export(v)
		}
		return nil
	}
	switch {
	case d.config == nil:
	case d.declared:
		for _, c := range d.config.members {
			value := c.get("value")
			if value == nil {
				value = c.get("defaultValue")
			}
			if value == nil {
				x.Missing = append(x.Missing, c.key)
				continue
			}
			if err := set(c.key, value); err != nil {
				return nil, err
			}
		}
	case d.config.kind == kindObject:
		for _, c := range d.config.members {
			if err := set(c.key, c); err != nil {
				return nil, err
			}
		}
	default:
		v, err := e.node(d.config, "")
		if err != nil {
			return nil, err
		}
		if _, gone := v.(missing); !gone {
			o, ok := v.(*Object)
			if !ok {
				return nil, d.config.errorf("the configuration of an import must be an object, it is of type %s", typeName(v))
			}
			config = Export(o).(map[string]any)
		}
		if p.tainted(d.config) {
			for name := range config {
				x.Secure = append(x.Secure, name)
			}
		}
	}
	return config, p.override(x, config)
}

// override puts the deployment's values in the place of the template's.
func (p *Plan) override(x *Extension, config map[string]any) error {
	var given map[string]any
	for alias, c := range p.options.ExtensionConfigs {
		if strings.EqualFold(alias, x.Alias) {
			given = c
		}
	}
	names := make([]string, 0, len(given))
	for k := range given {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, name := range names {
		key := name
		for k := range config {
			if strings.EqualFold(k, name) {
				key = k
			}
		}
		for i, m := range x.Missing {
			if strings.EqualFold(m, name) {
				key = m
				x.Missing = append(x.Missing[:i:i], x.Missing[i+1:]...)
				break
			}
		}
		v, secure, err := p.given(given[name], "extensionConfigs."+x.Alias+"."+name)
		if err != nil {
			return err
		}
		if secure {
			x.Secure = append(x.Secure, key)
			p.secrets.Add(v)
		}
		config[key] = v
	}
	return nil
}

// given reads {"value": v} or {"keyVaultReference": …}.
func (p *Plan) given(entry any, target string) (v any, secure bool, err error) {
	m, ok := entry.(map[string]any)
	if !ok {
		return nil, false, core.Errorf(core.CodeInvalidTemplate, "%s must be an object with value or keyVaultReference", target).WithTarget(target)
	}
	if v, ok := m["value"]; ok {
		return v, m["secure"] == true, nil
	}
	for _, name := range []string{"keyVaultReference", "reference"} {
		if ref, ok := m[name]; ok {
			v, err := p.secret(ref, target)
			return v, true, err
		}
	}
	return nil, false, core.Errorf(core.CodeInvalidTemplate, "%s has neither value nor keyVaultReference", target).WithTarget(target)
}

// SecretReference names a secret of a key vault.
type SecretReference struct {
	Vault   string
	Name    string
	Version string
}

func readSecretReference(v any, target string) (SecretReference, error) {
	var wire struct {
		KeyVault struct {
			ID string `json:"id"`
		} `json:"keyVault"`
		SecretName    string `json:"secretName"`
		SecretVersion string `json:"secretVersion"`
	}
	if o, ok := v.(*Object); ok {
		v = Export(o)
	}
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &wire)
	}
	if err != nil || wire.KeyVault.ID == "" || wire.SecretName == "" {
		return SecretReference{}, core.Errorf(core.CodeRecipeInvalid, "%s: a reference has keyVault.id and secretName", target).WithTarget(target)
	}
	return SecretReference{wire.KeyVault.ID, wire.SecretName, wire.SecretVersion}, nil
}

// secret resolves a reference to a key vault.
func (p *Plan) secret(v any, target string) (any, error) {
	ref, err := readSecretReference(v, target)
	if err != nil {
		return nil, err
	}
	if p.options.Secret == nil {
		return nil, core.Errorf(core.CodeRecipeInvalid, "%s refers to the secret %q of %s: no source of secrets is configured; pass the value itself", target, ref.Name, ref.Vault).WithTarget(target)
	}
	value, err := p.options.Secret(ref)
	if err == nil {
		p.secrets.Add(value)
	}
	return value, err
}
