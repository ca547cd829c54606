package template

import "strings"

// An address is the id of a scope as text: a group of a plane
// (/planes/radius/local/resourceGroups/g), of a subscription
// (/subscriptions/s/resourceGroups/g), a subscription, a management group
// (/providers/Microsoft.Management/managementGroups/m), or "" for the tenant.
type address string

const managementGroups = "/providers/Microsoft.Management/managementGroups/"

// subscription is the id of the subscription in the address, "" if there is
// none.
func (a address) subscription() string { return a.segment("subscriptions") }

// group is the name of the resource group in the address.
func (a address) group() string { return a.segment("resourceGroups") }

func (a address) managementGroup() string {
	rest, ok := cutFold(string(a), managementGroups)
	if !ok {
		return ""
	}
	return rest
}

func (a address) segment(kind string) string {
	parts := strings.Split(string(a), "/")
	for i := 0; i+1 < len(parts); i++ {
		if strings.EqualFold(parts[i], "providers") {
			break
		}
		if strings.EqualFold(parts[i], kind) {
			return parts[i+1]
		}
	}
	return ""
}

// level says what the address is of.
func (a address) level() Level {
	switch {
	case a.group() != "":
		return LevelGroup
	case a.subscription() != "":
		return LevelSubscription
	case a.managementGroup() != "":
		return LevelManagementGroup
	}
	return LevelTenant
}

// withGroup is the group of that name beside the one of the address; in a
// subscription, of it.
func (a address) withGroup(name string) address {
	if s := a.subscription(); s != "" {
		return address("/subscriptions/" + s + "/resourceGroups/" + name)
	}
	parts := strings.Split(string(a), "/")
	for i := 0; i+1 < len(parts); i++ {
		if strings.EqualFold(parts[i], "resourceGroups") {
			parts[i+1] = name
			return address(strings.Join(parts[:i+2], "/"))
		}
	}
	return a + address("/resourceGroups/"+name)
}

// resourceAt reads the members of a resource that move it to another scope:
// subscriptionId, resourceGroup, managementGroup and scope.
func (p *Plan) resourceAt(e *evaluator, r *Resource) (address, error) {
	at := p.at
	text := func(name string) (string, error) { return e.text(r.n.get(name), name) }
	sub, err := text("subscriptionId")
	if err != nil {
		return at, err
	}
	group, err := text("resourceGroup")
	if err != nil {
		return at, err
	}
	mg, err := text("managementGroup")
	if err != nil {
		return at, err
	}
	if (sub != "" || group != "" || mg != "") && !r.Existing && !r.nestedType() {
		return at, r.n.errorf("only deployments and existing resources have subscriptionId, resourceGroup or managementGroup")
	}
	if sub != "" {
		at = address("/subscriptions/" + sub)
	}
	if group != "" {
		at = at.withGroup(group)
	}
	if mg != "" {
		at = address(managementGroups + mg)
	}
	scope, err := text("scope")
	if err != nil || scope == "" {
		return at, err
	}
	if scope == "/" {
		return "", nil
	}
	if strings.HasPrefix(scope, "/") {
		return address(strings.TrimRight(scope, "/")), nil
	}
	// Namespace/type/name[/type/name…], in the same scope.
	parts := strings.Split(scope, "/")
	if cutName, ok := cutFold(scope, "Microsoft.Management/managementGroups/"); ok {
		return address(managementGroups + cutName), nil
	}
	if len(parts) < 3 || len(parts)%2 == 0 {
		return at, r.n.get("scope").errorf("the scope is neither an id (/…) nor of the form Namespace/type/name")
	}
	return at + address("/providers/"+scope), nil
}

func (r *Resource) nestedType() bool { return strings.EqualFold(r.Type, deploymentType) }
