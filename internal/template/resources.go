package template

import (
	"strings"
	"unicode/utf8"
)

// deploymentType is the type of nested deployments.
const deploymentType = "Microsoft.Resources/deployments"

// resourceMembers are the members of a resource that the engine reads itself;
// the others are its body.
var resourceMembers = map[string]bool{
	"condition": true, "type": true, "apiversion": true, "name": true, "dependson": true, "copy": true, "resources": true,
	"comments": true, "existing": true, "import": true, "extension": true, "@options": true, "asserts": true, "scope": true,
	"subscriptionid": true, "resourcegroup": true, "managementgroup": true, "id": true, "metadata": true, "method": true,
	"apiprofile": true,
}

// bodyMembers are the other members that a resource may have.
var bodyMembers = []string{
	"location", "tags", "sku", "kind", "plan", "identity", "properties", "zones", "managedBy", "managedByExtended", "extendedLocation",
	"eTag", "etag", "placement", "systemData",
}

func (t *Template) readResources(root *node) error {
	list := root.get("resources")
	if t.symbolic {
		if err := list.want(`resources of language version 2.0`, kindObject); err != nil {
			return err
		}
		t.resources = list.members
	} else {
		if list.kind == kindObject {
			return list.errorf(`resources as an object need "languageVersion": "2.0"`)
		}
		if err := list.want("resources", kindArray); err != nil {
			return err
		}
		t.resources = list.items
	}
	if len(t.resources) > t.limits.Resources {
		return list.errorf("%d resources; the limit is %d", len(t.resources), t.limits.Resources)
	}
	for _, r := range t.resources {
		if err := t.checkResource(r); err != nil {
			return err
		}
	}
	return nil
}

func (t *Template) checkResource(r *node) error {
	if err := r.want("a resource", kindObject); err != nil {
		return err
	}
	r.resource = true
	if t.symbolic && r.key == "" {
		return r.errorf("the symbolic name of a resource is empty")
	}
	if r.size > t.limits.ResourceBytes {
		return r.errorf("the resource's definition has %d bytes; the limit is %d", r.size, t.limits.ResourceBytes)
	}
	imp, ext := r.get("import"), r.get("extension")
	if imp != nil && ext != nil {
		return r.errorf("a resource has import or extension, not both")
	}
	if imp == nil {
		imp = ext
	}
	typ := r.get("type")
	if typ == nil && (imp == nil || r.get("id") == nil) || typ != nil && typ.kind != kindString {
		return r.errorf("a resource has a type (a string)")
	}
	if err := t.checkMembers(r); err != nil {
		return err
	}
	native := true
	if imp != nil {
		if err := t.checkAlias(imp); err != nil {
			return err
		}
		native = t.importIndex[strings.ToLower(imp.text)].native()
	}
	if isDeployment(typ) {
		if err := t.checkDeployment(r); err != nil {
			return err
		}
	} else if native && r.get("name") == nil {
		return r.errorf("a resource without import has a name")
	} else if !native {
		for _, name := range []string{"name", "location"} {
			if m := r.get(name); m != nil {
				return m.errorf("a resource of an import has no %s: its body is in properties", name)
			}
		}
	}
	return t.checkChildren(r)
}

func (t *Template) checkMembers(r *node) error {
	for _, m := range r.members {
		lower := strings.ToLower(m.key)
		if resourceMembers[lower] {
			continue
		}
		known := false
		for _, name := range bodyMembers {
			known = known || strings.EqualFold(name, m.key)
		}
		if known {
			continue
		}
		// Providers may know members that we do not; a near miss of one that the
		// engine reads is a slip of the pen.
		for name := range resourceMembers {
			if editDistance(lower, name, 3) < 2 && len(lower) > 3 {
				return m.errorf("a resource has no member %q; did you mean %q?", m.key, name)
			}
		}
	}
	if x := r.get("existing"); x != nil && !t.symbolic {
		return x.errorf(`existing needs "languageVersion": "2.0" or later`)
	}
	if m := r.get("method"); m != nil {
		if !strings.EqualFold(m.text, "PATCH") && !strings.EqualFold(m.text, "PUT") {
			return m.errorf("the method of a resource is PUT or PATCH")
		}
	}
	return nil
}

// checkChildren reads the resources inside a resource.
func (t *Template) checkChildren(r *node) error {
	list := r.get("resources")
	if list == nil {
		return nil
	}
	want := kindArray
	if t.symbolic {
		want = kindObject
	}
	if err := list.want("resources inside a resource", want); err != nil {
		return err
	}
	for _, c := range append(list.items[:len(list.items):len(list.items)], list.members...) {
		if c.kind == kindObject {
			c.outer = r
		}
		if err := t.checkResource(c); err != nil {
			return err
		}
		if loop := c.get("copy"); loop != nil {
			return loop.errorf("a resource inside a resource has no copy: put it beside it, with its full type and name")
		}
	}
	return nil
}

// children are the resources inside a resource.
func children(r *node) []*node {
	list := r.get("resources")
	if list == nil {
		return nil
	}
	if list.kind == kindArray {
		return list.items
	}
	return list.members
}

func isDeployment(typ *node) bool {
	if typ == nil {
		return false
	}
	name, _, _ := strings.Cut(typ.text, "@")
	return strings.EqualFold(name, deploymentType)
}

// checkDeployment checks a nested deployment and loads the template of one
// that has a scope of its own.
func (t *Template) checkDeployment(r *node) error {
	if x := r.get("existing"); isTrue(x) {
		return nil // only its outputs are read
	}
	props := r.get("properties")
	if props == nil {
		return r.errorf("a deployment has properties")
	}
	if err := props.want("the properties of a deployment", kindObject); err != nil {
		return err
	}
	if name := r.get("name"); name == nil && r.get("import") == nil && r.get("extension") == nil {
		return r.errorf("a deployment has a name")
	} else if name != nil && name.kind == kindString {
		if _, is := isExpression(name.text); !is && utf8.RuneCountInString(name.text) > t.limits.DeploymentName {
			return name.errorf("the name of a deployment has %d characters; the limit is %d", utf8.RuneCountInString(name.text), t.limits.DeploymentName)
		}
	}
	body, link := props.get("template"), props.get("templateLink")
	switch {
	case body == nil && link == nil:
		return props.errorf("a deployment has a template or a templateLink")
	case body != nil && link != nil:
		return props.errorf("a deployment has a template or a templateLink, not both")
	}
	if link != nil {
		return link.want("templateLink", kindObject)
	}
	if m := props.get("mode"); m != nil && m.kind == kindString && !strings.EqualFold(m.text, "Incremental") && t.depth >= 0 {
		if _, is := isExpression(m.text); !is && strings.EqualFold(m.text, "Complete") {
			return m.errorf("the mode Complete is allowed at the root only: a nested deployment is Incremental")
		} else if !is {
			return m.errorf("the mode of a deployment is Incremental")
		}
	}
	if _, is := isExpression(body.text); body.kind == kindString && is {
		return nil // made by an expression: evaluated with the parent's values
	}
	if err := body.want("the template of a deployment", kindObject); err != nil {
		return err
	}
	inner, err := t.isInner(r)
	if err != nil {
		return err
	}
	if !inner {
		markOwn(body)
		return nil
	}
	body.own = true
	nested, err := load(body, t.limits, t.depth+1)
	if err != nil {
		return err
	}
	t.nested[r] = nested
	return nil
}

// isInner reports whether a nested deployment evaluates its template itself.
// A LocalNested one carries it escaped, so the parent unescapes it first.
func (t *Template) isInner(r *node) (bool, error) {
	for _, name := range []string{"import", "extension"} {
		if a := r.get(name); a != nil && t.importIndex[strings.ToLower(a.text)] != nil && strings.EqualFold(t.importIndex[strings.ToLower(a.text)].provider, "LocalNested") {
			return false, nil
		}
	}
	scope := r.get("properties").get("expressionEvaluationOptions").get("scope")
	if scope == nil {
		return false, nil
	}
	switch strings.ToLower(scope.text) {
	case "inner":
		return true, nil
	case "outer", "notspecified":
		return false, nil
	}
	return false, scope.errorf("the scope of a deployment's expressions is inner or outer")
}

// readDeleted reads deletedResources: what to delete, by import and id; without
// an import it is a resource of the control plane.
func (t *Template) readDeleted(root *node) error {
	list := root.get("deletedResources")
	if list == nil {
		return nil
	}
	if err := list.want("deletedResources", kindArray); err != nil {
		return err
	}
	for _, d := range list.items {
		if err := d.want("an entry of deletedResources", kindObject); err != nil {
			return err
		}
		for _, m := range d.members {
			switch strings.ToLower(m.key) {
			case "import", "extension", "id", "identity", "type", "apiversion", "identifiers", "dependson", "unmanage":
			default:
				return m.errorf("an entry of deletedResources has no member %q: it has import, id, identity, identifiers, type, apiVersion, dependsOn and unmanage", m.key)
			}
		}
		if alias := d.alias(); alias != nil {
			if err := t.checkAlias(alias); err != nil {
				return err
			}
		}
		if needs := d.get("dependsOn"); needs != nil {
			if err := needs.want("dependsOn", kindArray); err != nil {
				return err
			}
		}
		if id := d.get("id"); id == nil {
			return d.errorf("an entry of deletedResources has an id")
		} else if err := id.want("id", kindString); err != nil {
			return err
		}
	}
	t.deleted = list.items
	return nil
}

// alias is the import that a resource or an entry of deletedResources names, nil
// if it names none.
func (n *node) alias() *node {
	if a := n.get("import"); a != nil {
		return a
	}
	return n.get("extension")
}
