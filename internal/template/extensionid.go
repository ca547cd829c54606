package template

import (
	"slices"
	"sort"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// ExtensionID is the id of a resource of an import (S-12):
//
//	/planes/Kubernetes/import.namespace/default/type/apps%2FDeployment/properties.metadata.name/web
//
// Keys are dotted paths into what the extension is asked for; values are
// percent-encoded. It is a pure function of the import's configuration and the
// resource's body, so it is known before the call. The version of the type is
// no part of it: moving an object from apps/v1beta1 to apps/v1 keeps it.
type ExtensionID struct {
	Provider string
	Parts    []IDPart
}

// IDPart is one key of an id with its value.
type IDPart struct{ Key, Value string }

// The keys of an id.
const (
	KeyNamespace = "import.namespace"
	KeyType      = "type"
	KeyName      = "properties.metadata.name"
)

// ParseExtensionID parses what String wrote.
func ParseExtensionID(text string) (ExtensionID, error) {
	fault := func(why string) (ExtensionID, error) {
		return ExtensionID{}, core.Errorf(core.CodeInvalidTemplate, "%q is not the id of an extension's resource: %s (/planes/<Provider>/<key>/<value>/…)", text, why)
	}
	rest, ok := cutFold(text, "/planes/")
	if !ok {
		return fault("it must start with /planes/")
	}
	segments := strings.Split(rest, "/")
	if len(segments) < 3 || len(segments)%2 == 0 {
		return fault("after the provider come pairs of key and value")
	}
	for i, s := range segments {
		plain, ok := unescapeURI(s)
		if !ok || plain == "" {
			return fault("it has a segment that is empty or not percent-encoded")
		}
		segments[i] = plain
	}
	id := ExtensionID{Provider: segments[0]}
	seen := map[string]bool{}
	for i := 1; i < len(segments); i += 2 {
		key := strings.ToLower(segments[i])
		if seen[key] {
			return fault("the key " + segments[i] + " stands twice")
		}
		seen[key] = true
		id.Parts = append(id.Parts, IDPart{segments[i], segments[i+1]})
	}
	if id.Get(KeyType) == "" {
		return fault("it has no type")
	}
	return id, nil
}

func cutFold(text, prefix string) (string, bool) {
	if len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
		return "", false
	}
	return text[len(prefix):], true
}

// String writes the id in the case that it was made with.
func (id ExtensionID) String() string {
	var b strings.Builder
	b.WriteString("/planes/" + escapeURI(id.Provider))
	for _, p := range id.Parts {
		b.WriteString("/" + escapeURI(p.Key) + "/" + escapeURI(p.Value))
	}
	return b.String()
}

// Get returns the value of a key, "" if it has none.
func (id ExtensionID) Get(key string) string {
	for _, p := range id.Parts {
		if strings.EqualFold(p.Key, key) {
			return p.Value
		}
	}
	return ""
}

// Key is the form to compare and to index by: provider, keys and type compare
// without case, names with case; the order of keys means nothing.
func (id ExtensionID) Key() string {
	c := ExtensionID{Provider: strings.ToLower(id.Provider)}
	for _, p := range id.Parts {
		p.Key = strings.ToLower(p.Key)
		if p.Key == KeyType {
			p.Value = strings.ToLower(p.Value)
		}
		c.Parts = append(c.Parts, p)
	}
	sort.Slice(c.Parts, func(i, j int) bool { return c.Parts[i].Key < c.Parts[j].Key })
	return c.String()
}

// ExtensionKey is the [ExtensionID.Key] of an id as text; ok is false when it is not
// one. A stack compares thousands of ids many times, so those that are written as
// String writes them (nearly all) are not taken apart and put together again.
func ExtensionKey(text string) (key string, ok bool) {
	if key, ok = writtenKey(text); ok {
		return key, true
	}
	id, err := ParseExtensionID(text)
	if err != nil {
		return "", false
	}
	return id.Key(), true
}

// writtenKey is the key of an id in the form that String writes, with keys of ASCII;
// ok is false for any other text, ids among them.
func writtenKey(text string) (key string, ok bool) {
	rest, ok := cutFold(text, "/planes/")
	if !ok {
		return "", false
	}
	provider, rest, ok := strings.Cut(rest, "/")
	if !ok || !isWritten(provider, false) {
		return "", false
	}
	type pair struct{ key, value string }
	var few [8]pair
	pairs := few[:0]
	typed := false
	for rest != "" {
		var p pair
		if p.key, rest, ok = strings.Cut(rest, "/"); !ok || !isWritten(p.key, false) || strings.IndexByte(p.key, '%') >= 0 {
			return "", false
		}
		var more bool
		if p.value, rest, more = strings.Cut(rest, "/"); more && rest == "" {
			return "", false // it ends with a slash
		}
		p.key = strings.ToLower(p.key)
		if !isWritten(p.value, p.key != KeyType) {
			return "", false
		}
		if p.key == KeyType {
			p.value, typed = lowerWritten(p.value), true
		}
		at := len(pairs)
		for at > 0 && pairs[at-1].key >= p.key {
			at--
		}
		if at < len(pairs) && pairs[at].key == p.key {
			return "", false
		}
		pairs = slices.Insert(pairs, at, p)
	}
	if !typed {
		return "", false
	}
	var b strings.Builder
	b.Grow(len(text))
	b.WriteString("/planes/")
	b.WriteString(lowerWritten(provider))
	for _, p := range pairs {
		b.WriteByte('/')
		b.WriteString(p.key)
		b.WriteByte('/')
		b.WriteString(p.value)
	}
	return b.String(), true
}

// isWritten reports whether a segment is not empty and is as escapeURI writes it;
// with any it may stand for what is not ASCII.
func isWritten(s string, any bool) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if isUnreserved(c) {
			continue
		}
		if c != '%' || i+2 >= len(s) {
			return false
		}
		high, low := strings.IndexByte(upperHex, s[i+1]), strings.IndexByte(upperHex, s[i+2])
		if high < 0 || low < 0 || isUnreserved(byte(high<<4|low)) || high > 7 && !any {
			return false
		}
		i += 2
	}
	return s != ""
}

// lowerWritten is a segment of ASCII in lower case: its escapes, which stand for no
// letters, stay.
func lowerWritten(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return strings.ToLower(s)
	}
	b := []byte(s)
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '%':
			i += 2
		case c >= 'A' && c <= 'Z':
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Equal reports whether two ids name the same resource of one target.
func (id ExtensionID) Equal(other ExtensionID) bool { return id.Key() == other.Key() }

// clusterScoped are the kinds of Kubernetes' own groups that live in no
// namespace. A custom kind of this sort gets the namespace of its import in its
// id, which is harmless: it is the same every time, and the target drops it.
var clusterScoped = map[string]bool{}

func init() {
	for _, kind := range strings.Fields(`core/Namespace core/Node core/PersistentVolume core/ComponentStatus
		rbac.authorization.k8s.io/ClusterRole rbac.authorization.k8s.io/ClusterRoleBinding
		apiextensions.k8s.io/CustomResourceDefinition apiregistration.k8s.io/APIService
		storage.k8s.io/StorageClass storage.k8s.io/CSIDriver storage.k8s.io/CSINode storage.k8s.io/VolumeAttachment storage.k8s.io/VolumeAttributesClass
		scheduling.k8s.io/PriorityClass node.k8s.io/RuntimeClass networking.k8s.io/IngressClass networking.k8s.io/IPAddress networking.k8s.io/ServiceCIDR
		admissionregistration.k8s.io/ValidatingWebhookConfiguration admissionregistration.k8s.io/MutatingWebhookConfiguration
		admissionregistration.k8s.io/ValidatingAdmissionPolicy admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding
		admissionregistration.k8s.io/MutatingAdmissionPolicy admissionregistration.k8s.io/MutatingAdmissionPolicyBinding
		flowcontrol.apiserver.k8s.io/FlowSchema flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration
		certificates.k8s.io/CertificateSigningRequest certificates.k8s.io/ClusterTrustBundle
		authentication.k8s.io/TokenReview authentication.k8s.io/SelfSubjectReview authorization.k8s.io/SubjectAccessReview
		authorization.k8s.io/SelfSubjectAccessReview authorization.k8s.io/SelfSubjectRulesReview
		resource.k8s.io/DeviceClass resource.k8s.io/ResourceSlice internal.apiserver.k8s.io/StorageVersion storagemigration.k8s.io/StorageVersionMigration`) {
		clusterScoped[strings.ToLower(kind)] = true
	}
}

// builtinGroup reports whether a type is of a group of Kubernetes itself, of
// which the table above knows every kind.
func builtinGroup(typ string) bool {
	group, _, ok := strings.Cut(strings.ToLower(typ), "/")
	if !ok {
		return true // legacy kinds are written core/Kind or Kind
	}
	switch group {
	case "core", "apps", "batch", "autoscaling", "policy", "extensions":
		return true
	}
	return strings.HasSuffix(group, ".k8s.io") && !strings.Contains(group, "x-k8s") && clusterScopedGroup(group)
}

func clusterScopedGroup(group string) bool {
	for kind := range clusterScoped {
		if strings.HasPrefix(kind, group+"/") {
			return true
		}
	}
	switch group {
	case "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io":
		return true
	}
	return false
}

// kubernetesType writes a type as the language does: core/Service.
func kubernetesType(typ string) string {
	if !strings.Contains(typ, "/") {
		return "core/" + typ
	}
	return typ
}

// MakeExtensionID makes the id of a resource from its import's configuration
// and its body; namespace is the one to use when neither names one. It is an
// error when an object of Kubernetes has no name, or no namespace and needs
// one.
func MakeExtensionID(provider, typ string, config, body map[string]any, namespace string) (ExtensionID, error) {
	if !strings.EqualFold(provider, "Kubernetes") {
		return otherID(provider, typ, config, body), nil
	}
	typ = kubernetesType(typ)
	meta, _ := lookup(body, "metadata").(map[string]any)
	name, _ := lookup(meta, "name").(string)
	if name == "" {
		return ExtensionID{}, core.Errorf(core.CodeInvalidTemplate, "an object of Kubernetes has a name: metadata.name in its properties")
	}
	id := ExtensionID{Provider: provider}
	if !clusterScoped[strings.ToLower(typ)] {
		ns, _ := lookup(meta, "namespace").(string)
		if ns == "" {
			ns, _ = lookup(config, "namespace").(string)
		}
		if ns == "" {
			ns = namespace
		}
		if ns == "" && builtinGroup(typ) {
			return ExtensionID{}, core.Errorf(core.CodeInvalidTemplate, "%s %q has no namespace: name it in metadata.namespace of its properties, or in the import's config.namespace", typ, name)
		}
		if ns != "" {
			id.Parts = append(id.Parts, IDPart{KeyNamespace, ns})
		}
	}
	id.Parts = append(id.Parts, IDPart{KeyType, typ}, IDPart{KeyName, name})
	return id, nil
}

// otherID is the id of a resource of another provider: its type and what of
// the usual names its body has.
func otherID(provider, typ string, config, body map[string]any) ExtensionID {
	id := ExtensionID{Provider: provider}
	if ns, ok := lookup(config, "namespace").(string); ok && ns != "" {
		id.Parts = append(id.Parts, IDPart{KeyNamespace, ns})
	}
	id.Parts = append(id.Parts, IDPart{KeyType, typ})
	meta, _ := lookup(body, "metadata").(map[string]any)
	for _, c := range []struct {
		key string
		v   any
	}{
		{"properties.metadata.namespace", lookup(meta, "namespace")}, {KeyName, lookup(meta, "name")}, {"properties.namespace", lookup(body, "namespace")},
		{"properties.name", lookup(body, "name")}, {"properties.uniqueName", lookup(body, "uniqueName")}, {"properties.id", lookup(body, "id")},
	} {
		if text, ok := c.v.(string); ok && text != "" {
			id.Parts = append(id.Parts, IDPart{c.key, text})
		}
	}
	return id
}

// lookup finds a member without case.
func lookup(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	for k, v := range m {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return nil
}

// ExtensionID returns the id of a resource of an import. With rt nil it is made
// of what is known before the deployment; known is false when that is not
// enough. An id that the template writes must be the one that follows from the
// body.
func (p *Plan) ExtensionID(r *Resource, rt Runtime) (id ExtensionID, known bool, err error) {
	return p.ExtensionIDIn(r, rt, p.options.Namespace)
}

// ExtensionIDIn is ExtensionID with the namespace to use where neither body nor
// import names one: that of the scope's target.
func (p *Plan) ExtensionIDIn(r *Resource, rt Runtime, namespace string) (id ExtensionID, known bool, err error) {
	if rt == nil {
		id, known, _, _, err = p.KnownExtension(r, namespace)
		return id, known, err
	}
	if r.Extension == nil {
		return id, false, r.Errorf("%s is of no import", r.Symbol)
	}
	config, err := p.Configuration(r.Extension, rt)
	if err != nil {
		return id, false, err
	}
	props, err := p.Properties(r, rt)
	if err != nil {
		return id, false, err
	}
	id, err = p.identity(r, config, props, namespace)
	return id, err == nil, p.secrets.Error(err)
}

// KnownExtension is what is known of a resource of an import before the
// deployment: its id, if known says so, and its properties as [Plan.Known] has
// them. It evaluates them once.
func (p *Plan) KnownExtension(r *Resource, namespace string) (id ExtensionID, known bool, props map[string]any, unknown []string, err error) {
	if r.Extension == nil {
		return id, false, nil, nil, r.Errorf("%s is of no import", r.Symbol)
	}
	if props, unknown, err = p.Known(r); err != nil {
		return id, false, nil, nil, err
	}
	for _, u := range unknown {
		switch u {
		case "", "/metadata", "/metadata/name", "/metadata/namespace", "/name", "/namespace", "/id":
			return id, false, props, unknown, nil
		}
	}
	if r.Extension.isUnknown("/namespace") && lookup(asMap(lookup(props, "metadata")), "namespace") == nil {
		return id, false, props, unknown, nil
	}
	id, err = p.identity(r, r.Extension.Config, props, namespace)
	return id, err == nil, props, unknown, p.secrets.Error(err)
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func (p *Plan) identity(r *Resource, config, props map[string]any, namespace string) (ExtensionID, error) {
	var written ExtensionID
	if n := r.n.get("id"); n != nil {
		p.mu.Lock()
		text, err := (&evaluator{p: p, loops: r.loops}).text(n, "the id")
		p.mu.Unlock()
		if err != nil {
			return written, err
		}
		if written, err = ParseExtensionID(text); err != nil {
			return written, n.errorf("%v", err)
		}
		// The id may be the only place that says where the resource lives.
		if ns := written.Get(KeyNamespace); ns != "" && namespace == "" {
			namespace = ns
		}
	}
	id, err := MakeExtensionID(r.Extension.Provider, r.Type, config, props, namespace)
	if err != nil {
		return id, r.Errorf("%s: %v", r.Symbol, err)
	}
	if !strings.EqualFold(id.Provider, "Kubernetes") && id.Parts[len(id.Parts)-1].Key == KeyType {
		// Nothing in the body tells it from another of its type.
		id.Parts = append(id.Parts, IDPart{"symbol", r.Symbol})
	}
	if written.Provider != "" && !written.Equal(id) {
		return id, r.n.get("id").errorf("the id does not fit the resource: by its import and properties it is %s", id)
	}
	for _, d := range p.Deleted {
		if d.Extension != nil && d.ID.Equal(id) && sameScope(d.Extension, r.Extension, config) {
			return id, r.Errorf("%s is in deletedResources too: a resource is deployed or deleted, not both", id)
		}
	}
	return id, nil
}

// sameScope reports whether two imports lead to the same target, as far as the
// configuration says.
func sameScope(a, b *Extension, bConfig map[string]any) bool {
	if a == b {
		return true
	}
	sa, errA := a.Scope(a.Config)
	sb, errB := b.Scope(bConfig)
	switch {
	case errA != nil || errB != nil:
		return false
	case sa == nil || sb == nil:
		return sa == nil && sb == nil
	}
	return sa.Type == sb.Type && strings.EqualFold(sa.ID, sb.ID) && sa.KubeConfig == sb.KubeConfig && sa.Fingerprint == sb.Fingerprint &&
		strings.EqualFold(sa.CredentialType, sb.CredentialType)
}
