package template

import (
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Deletion is one entry of deletedResources:
//
//	{"import": "k8s", "id": "/planes/Kubernetes/…", "apiVersion": "v1",
//	 "identity": {"configId": "…", "uid": "…"}, "dependsOn": ["k8s/planes/Kubernetes/…"]}
//	{"id": "/planes/radius/local/resourceGroups/g/providers/…", "apiVersion": "…"}
//
// dependsOn names other entries by alias and id (without alias: of the same
// import, else a resource of the control plane); an entry goes before those that
// it depends on.
type Deletion struct {
	// Extension is nil for a resource of the control plane.
	Extension *Extension
	ID        ExtensionID
	// Resource is the id of a resource of the control plane.
	Resource core.ID
	// Type and Name are those of the id; Namespace is "" for what lives in
	// none. APIVersion is "" when the template does not say it.
	Type, APIVersion, Name, Namespace string
	// Identity is what the caller knows of the very object to delete, such as
	// the cluster's and the object's uid; nil makes the deletion unverified.
	Identity map[string]any
	// Identifiers are those of an extension that cannot read them from the id,
	// nil where the entry has none.
	Identifiers map[string]any
	// DependsOn are entries that go after this one.
	DependsOn []*Deletion
	// Detach takes the mark of its owner off the object and leaves it alone.
	Detach bool
	n      *node
}

// Text is the id as it was written.
func (d *Deletion) Text() string {
	if d.Extension == nil {
		return d.Resource.String()
	}
	return d.ID.String()
}

// Errorf makes an error at the entry's place in the template.
func (d *Deletion) Errorf(format string, args ...any) *core.Error {
	return invalid(d.n.path(), d.n.line, d.n.col, format, args...)
}

func (p *Plan) readDeleted(e *evaluator) error {
	seen := map[string]*Deletion{}
	for _, n := range p.t.deleted {
		d, err := p.readDeletion(e, n)
		if err != nil {
			return err
		}
		if d.Extension == nil {
			for _, r := range p.Resources {
				if r.Extension == nil && !r.Existing && r.ID.Equal(d.Resource) {
					return n.errorf("%s is deployed too: a resource is deployed or deleted, not both", d.Resource)
				}
			}
			if seen[d.Resource.Key()] != nil {
				return n.errorf("%s stands twice in deletedResources", d.Resource)
			}
			seen[d.Resource.Key()] = d
		} else {
			if other := seen[d.ID.Key()]; other != nil && sameScope(other.Extension, d.Extension, d.Extension.Config) {
				return n.errorf("%s stands twice in deletedResources", d.ID)
			}
			seen[d.ID.Key()] = d
		}
		p.Deleted = append(p.Deleted, d)
	}
	return p.connectDeleted(e)
}

func (p *Plan) readDeletion(e *evaluator, n *node) (*Deletion, error) {
	d := &Deletion{n: n}
	text, err := e.text(n.get("id"), "the id")
	if err != nil {
		return nil, err
	}
	if d.APIVersion, err = e.text(n.get("apiVersion"), "apiVersion"); err != nil {
		return nil, err
	}
	if alias := n.alias(); alias != nil {
		d.Extension = p.extensions[strings.ToLower(alias.text)]
		if d.ID, err = ParseExtensionID(text); err != nil {
			return nil, n.get("id").errorf("%v", err)
		}
		if !strings.EqualFold(d.ID.Provider, d.Extension.Provider) {
			return nil, n.get("id").errorf("the id is of the provider %s, the import %q of %s", d.ID.Provider, d.Extension.Alias, d.Extension.Provider)
		}
		d.Type, d.Namespace, d.Name = d.ID.Get(KeyType), d.ID.Get(KeyNamespace), d.ID.Get(KeyName)
	} else {
		if d.Resource, err = core.ParseID(text); err != nil || !d.Resource.IsResource() {
			return nil, n.get("id").errorf("%q is not the id of a resource of the control plane: an entry for another one names its import", text)
		}
		d.Type, d.Name = d.Resource.Type(), d.Resource.Name()
	}
	if t, v, ok := strings.Cut(d.Type, "@"); ok {
		d.Type, d.APIVersion = t, v
	}
	if d.Identity, err = e.exported(n.get("identity"), "the identity"); err != nil {
		return nil, err
	}
	if d.Identifiers, err = e.exported(n.get("identifiers"), "identifiers"); err != nil {
		return nil, err
	}
	unmanage, err := e.text(n.get("unmanage"), "unmanage")
	switch {
	case err != nil:
		return nil, err
	case strings.EqualFold(unmanage, "detach"):
		d.Detach = true
	case unmanage != "" && !strings.EqualFold(unmanage, "delete"):
		return nil, n.get("unmanage").errorf("unmanage is delete or detach")
	}
	return d, nil
}

// exported evaluates an object, nil where there is none.
func (e *evaluator) exported(n *node, what string) (map[string]any, error) {
	if n == nil {
		return nil, nil
	}
	v, err := e.start(n, what)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*Object)
	if !ok {
		return nil, n.errorf("%s must be an object", what)
	}
	return Export(o).(map[string]any), nil
}

// connectDeleted resolves dependsOn of the entries.
func (p *Plan) connectDeleted(e *evaluator) error {
	index := map[string]*Deletion{}
	for _, d := range p.Deleted {
		index[d.key()] = d
	}
	for _, d := range p.Deleted {
		needs := d.n.get("dependsOn")
		if needs == nil {
			continue
		}
		for _, n := range needs.items {
			text, err := e.text(n, "an entry of dependsOn")
			if err != nil {
				return err
			}
			alias, id := "", text
			if i := strings.Index(strings.ToLower(text), "/planes/"); i > 0 {
				alias, id = text[:i], text[i:]
			} else if d.Extension != nil {
				alias = d.Extension.Alias
			}
			needs := index[keyOfDeletion(alias, id)]
			if needs == nil && len(id) == len(text) {
				needs = index[keyOfDeletion("", id)]
			}
			if needs == nil {
				return n.errorf("%q is no entry of deletedResources", text)
			}
			if needs != d {
				d.DependsOn = append(d.DependsOn, needs)
			}
		}
	}
	return nil
}

func (d *Deletion) key() string {
	if d.Extension == nil {
		return "|" + d.Resource.Key()
	}
	return strings.ToLower(d.Extension.Alias) + "|" + d.ID.Key()
}

func keyOfDeletion(alias, id string) string {
	if alias != "" {
		if x, err := ParseExtensionID(id); err == nil {
			return strings.ToLower(alias) + "|" + x.Key()
		}
		return ""
	}
	if r, err := core.ParseID(id); err == nil {
		return "|" + r.Key()
	}
	return ""
}
