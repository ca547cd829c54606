package stack

import (
	"encoding/json"
	"strings"

	"github.com/radial-project/radial/internal/template"
)

// subresources are what of the managed objects of a cluster others could change or
// delete by a way of its own, which carries no label that a policy could select by.
type subresources struct {
	// scaled are the uids of what may have a scale: a Scale has the uid of the
	// object that it is of.
	scaled []string
	// pods are those that could be evicted, as <namespace>/<name>.
	pods []string
}

// add notes what settings deny of an object's subresources.
func (s *subresources) add(m Managed, d DenySettings) {
	group, kind, _ := strings.Cut(m.Type, "/")
	if d.Mode == DenyWriteAndDelete && mayScale(group, kind) && m.Identity != nil && m.Identity.UID != "" && !d.allows(group, kind, "write") {
		s.scaled = append(s.scaled, m.Identity.UID)
	}
	if d.denies() && isCore(group) && strings.EqualFold(kind, "Pod") && !d.allows(group, kind, "delete") {
		if id, err := template.ParseExtensionID(m.ID); err == nil {
			s.pods = append(s.pods, id.Get(template.KeyNamespace)+"/"+id.Get(template.KeyName))
		}
	}
}

func isCore(group string) bool { return group == "" || strings.EqualFold(group, "core") }

// mayScale reports whether a kind may have a scale. Of Kubernetes' own only some
// have one; of others nothing is known.
func mayScale(group, kind string) bool {
	switch {
	case isCore(group):
		return strings.EqualFold(kind, "ReplicationController")
	case !strings.Contains(group, "."): // apps; batch and policy have none
		return strings.EqualFold(group, "apps")
	}
	return !strings.HasSuffix(strings.ToLower(group), ".k8s.io")
}

// allows reports whether everybody may do something to objects of a kind.
func (d DenySettings) allows(group, kind, operation string) bool {
	for _, a := range d.Actions {
		e, err := parseAction(a)
		if err != nil {
			continue // refused before
		}
		if (e.operation == "*" || e.operation == operation) && (e.kind == "*" || strings.EqualFold(e.kind, kind)) &&
			(e.group == "*" || strings.EqualFold(e.group, group) || isCore(e.group) && isCore(group)) {
			return true
		}
	}
	return false
}

func (s subresources) hasSubresources() bool { return len(s.scaled)+len(s.pods) > 0 }

func (s subresources) subresourceRules() []rule {
	var rules []rule
	if len(s.scaled) > 0 {
		rules = append(rules, rule{[]string{"*"}, []string{"*"}, []string{"UPDATE"}, []string{"*/scale"}, "*"})
	}
	if len(s.pods) > 0 {
		rules = append(rules, rule{[]string{""}, []string{"*"}, []string{"CREATE"}, []string{"pods/eviction"}, "*"})
	}
	return rules
}

// subresourceOf is the condition that a request is about one of a managed object.
func (s subresources) subresourceOf() string {
	list := func(entries []string) string {
		b, _ := json.Marshal(append([]string{}, entries...)) // of text
		return string(b)
	}
	return `request.subResource == "eviction" ? request.namespace + "/" + request.name in ` + list(s.pods) +
		` : has(oldObject.metadata.uid) && oldObject.metadata.uid in ` + list(s.scaled)
}
