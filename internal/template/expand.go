package template

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/radial-project/radial/internal/core"
)

// expand adds the resource of a node, once or as often as its loop says.
func (p *Plan) expand(e *evaluator, n *node) error {
	loopNode := n.get("copy")
	if loopNode == nil {
		return p.add(e, n, "", nil)
	}
	if err := loopNode.want("the copy of a resource", kindObject); err != nil {
		return err
	}
	name := loopNode.get("name")
	if name == nil || name.kind != kindString || loopNode.get("count") == nil {
		return loopNode.errorf("a loop has a name (a string) and a count")
	}
	first := len(p.all)
	count, err := e.count(loopNode.get("count"))
	if p.options.Partial && errors.Is(err, errRuntime) {
		l := loop{name: name.text, resource: true, unknown: true}
		if err := p.add(e.with(l), n, "[?]", nil); err != nil {
			return err
		}
		p.all[first].Uncertain = true
	} else if err != nil {
		return e.settled(err)
	}
	for i := range count {
		l := loop{name: name.text, index: i, resource: true}
		if err := p.add(e.with(l), n, "["+strconv.Itoa(i)+"]", nil); err != nil {
			return err
		}
	}
	var members []*Resource
	for _, r := range p.all[first:] {
		if r.n == n {
			members = append(members, r)
		}
	}
	p.loopNames[strings.ToLower(name.text)] = true
	p.register(name.text, members...)
	if p.t.symbolic {
		p.loopNames[strings.ToLower(n.key)] = true
		if !strings.EqualFold(name.text, n.key) {
			p.register(n.key, members...)
		}
	}
	return p.serialize(e, loopNode, members)
}

// serialize makes each batch of a serial loop depend on the one before.
func (p *Plan) serialize(e *evaluator, loopNode *node, members []*Resource) error {
	mode, err := e.text(loopNode.get("mode"), "the mode of a loop")
	if err != nil {
		return err
	}
	switch {
	case mode == "" || strings.EqualFold(mode, "parallel"):
		return nil
	case !strings.EqualFold(mode, "serial"):
		return loopNode.get("mode").errorf("the mode of a loop is parallel or serial")
	}
	batch := 1
	if b := loopNode.get("batchSize"); b != nil {
		v, err := e.start(b, "the batch size of a loop")
		if err != nil {
			return err
		}
		i, ok := v.(int64)
		if !ok || i < 1 {
			return b.errorf("the batch size of a loop must be an integer of 1 or more")
		}
		batch = int(min(i, int64(p.t.limits.CopyCount)))
	}
	for i, r := range members {
		if start := i - i%batch; start > 0 {
			r.DependsOn = append(r.DependsOn, members[start-batch:start]...)
		}
	}
	return nil
}

// add adds one resource, and those inside it.
func (p *Plan) add(e *evaluator, n *node, suffix string, outer *Resource) error {
	if len(p.all) >= p.t.limits.Resources {
		return n.errorf("the template has more than %d resources, its loops expanded", p.t.limits.Resources)
	}
	r := &Resource{n: n, Line: n.line, loops: e.loops, order: len(p.all)}
	p.all = append(p.all, r)
	if outer != nil {
		r.Uncertain = outer.Uncertain && outer.Name == ""
	}
	if c := n.get("condition"); c != nil {
		v, err := e.startOr(c, "a condition")
		if err != nil {
			return err
		}
		switch b := v.(type) {
		case bool:
			r.Skipped = !b
		case missing:
			r.Uncertain = true
		default:
			return c.errorf("a condition must be a bool, it is of type %s", typeName(v))
		}
	}
	if x := n.get("existing"); x != nil {
		v, err := e.start(x, "existing")
		if err != nil {
			return err
		}
		r.Existing = v == true
	}
	if m := n.get("method"); m != nil {
		r.Patch = strings.EqualFold(m.text, "PATCH")
	}
	if err := p.name(e, r, outer); err != nil && !r.Skipped {
		return err // of a skipped resource only what can be known counts
	}
	if p.t.symbolic {
		r.Symbol = n.key + suffix
		p.register(r.Symbol, r)
		if outer != nil {
			p.register(outer.Symbol+"::"+r.Symbol, r)
		}
		if r.ResourceID != "" {
			p.register(r.ResourceID, r)
		}
	} else {
		r.Symbol = r.Type + "/" + r.Name
		if r.Name != "" {
			p.register(r.Name, r)
			p.register(r.Symbol, r)
			if r.ResourceID != "" {
				p.register(r.ResourceID, r)
			}
		}
	}
	for _, l := range n.loopNames {
		p.loopNames[strings.ToLower(l)] = true
		p.register(l, r)
	}
	for _, c := range children(n) {
		if err := p.add(e, c, suffix, r); err != nil {
			return err
		}
	}
	return nil
}

// name reads what a resource is: its type, its name, its id.
func (p *Plan) name(e *evaluator, r *Resource, outer *Resource) error {
	n := r.n
	var err error
	if r.Type, err = e.text(n.get("type"), "the type"); err != nil {
		return err
	}
	if r.APIVersion, err = e.text(n.get("apiVersion"), "apiVersion"); err != nil {
		return err
	}
	if t, v, ok := strings.Cut(r.Type, "@"); ok {
		r.Type, r.APIVersion = t, v
	}
	if r.Type == "" && (n.get("type") != nil || n.get("id") == nil) {
		return n.errorf("the type is empty")
	}
	r.Deployment = r.nestedType()
	alias := n.get("import")
	if alias == nil {
		alias = n.get("extension")
	}
	if alias != nil && !p.t.importIndex[strings.ToLower(alias.text)].native() {
		r.Extension = p.extensions[strings.ToLower(alias.text)]
		return p.typeOfID(e, r)
	}
	return p.identify(e, r, outer)
}

// typeOfID takes the type from the id where the template writes only that.
func (p *Plan) typeOfID(e *evaluator, r *Resource) error {
	if r.n.get("type") != nil {
		return nil
	}
	n := r.n.get("id")
	text, err := e.text(n, "the id")
	if err != nil {
		return err
	}
	id, err := ParseExtensionID(text)
	if err != nil {
		return n.errorf("%v", err)
	}
	if !strings.EqualFold(id.Provider, r.Extension.Provider) {
		return n.errorf("the id is of the provider %s, the import %q of %s", id.Provider, r.Extension.Alias, r.Extension.Provider)
	}
	r.Type = id.Get(KeyType)
	if t, v, ok := strings.Cut(r.Type, "@"); ok {
		r.Type, r.APIVersion = t, v
	}
	return nil
}

// identify reads the name of a resource of the control plane, or of ARM.
func (p *Plan) identify(e *evaluator, r *Resource, outer *Resource) error {
	n := r.n.get("name")
	if n == nil && r.Deployment { // LocalNested has it in properties
		if n = r.n.get("properties").get("name"); n == nil {
			r.Name = r.n.key
		}
	}
	if n != nil {
		v, err := e.startOr(n, "the name")
		if err != nil {
			return err
		}
		switch v := v.(type) {
		case string:
			r.Name = v
		case missing:
			r.Uncertain = true
		default:
			return n.errorf("the name must be a string, it is of type %s", typeName(v))
		}
	} else {
		n = r.n
	}
	if outer != nil && outer.Extension == nil {
		// Short type and name; a full type is accepted as it stands.
		if !strings.HasPrefix(strings.ToLower(r.Type), strings.ToLower(outer.Type)+"/") {
			r.Type = outer.Type + "/" + r.Type
		}
		if r.Name != "" && strings.Count(r.Name, "/") < strings.Count(r.Type, "/")-1 {
			r.Name = outer.Name + "/" + r.Name
		}
		if r.APIVersion == "" {
			r.APIVersion = outer.APIVersion
		}
		r.Deployment = false
	}
	at, err := p.resourceAt(e, r)
	if err != nil {
		return err
	}
	r.At = string(at)
	if r.Uncertain && r.Name == "" {
		return nil
	}
	types, names := strings.Split(r.Type, "/"), strings.Split(r.Name, "/")
	if len(types) < 2 || len(names) != len(types)-1 {
		return n.errorf("the type %s needs a name of %d segments, this one has %d", r.Type, len(types)-1, len(names))
	}
	if r.Deployment {
		if c := utf8.RuneCountInString(r.Name); c > p.t.limits.DeploymentName {
			return n.errorf("the name of a deployment has %d characters; the limit is %d", c, p.t.limits.DeploymentName)
		}
	}
	if slices.Contains(names, "") {
		return n.errorf("the name has an empty segment")
	}
	if p.at == "" && p.options.At == "" {
		return nil // no scope: names are all that is known
	}
	r.ResourceID = r.At + "/providers/" + types[0]
	for i, name := range names {
		r.ResourceID += "/" + types[i+1] + "/" + name
	}
	if strings.HasPrefix(strings.ToLower(r.ResourceID), "/planes/") {
		if r.ID, err = core.ParseID(r.ResourceID); err != nil {
			return n.errorf("the name does not make a resource id")
		}
	}
	if r.Skipped || r.Existing {
		return nil
	}
	key := strings.ToLower(r.ResourceID)
	if p.ids[key] != nil {
		return n.errorf("the resource %s stands twice in the template", r.ResourceID)
	}
	p.ids[key] = r
	return nil
}

func (p *Plan) register(name string, rs ...*Resource) {
	key := strings.ToLower(name)
	p.index[key] = append(p.index[key], rs...)
}

// find returns the resources of a symbolic name, a name, a Type/name, an id or
// a loop.
func (p *Plan) find(name string) []*Resource {
	seen := map[*Resource]bool{}
	var out []*Resource
	for _, r := range p.index[strings.ToLower(name)] {
		if !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	return out
}

func (p *Plan) loopMembers(name string) []*Resource {
	var out []*Resource
	for _, r := range p.find(name) {
		if len(r.loops) > 0 {
			out = append(out, r)
		}
	}
	return out
}

func (p *Plan) names() []string {
	var names []string
	for _, r := range p.all {
		names = append(names, r.Symbol)
	}
	return names
}
