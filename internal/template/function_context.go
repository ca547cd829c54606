package template

import (
	"strings"
	"time"
)

// contextFunctions read the plan: parameters, variables, loops, and where the
// deployment stands.
func contextFunctions() []function {
	return []function{
		{name: "parameters", min: 1, max: 1, lazy: func(e *evaluator, c *call) (any, error) {
			name, err := e.nameArgument(c)
			if err != nil {
				return nil, err
			}
			if e.in == inFunction {
				v, ok := e.args.Get(name)
				if !ok {
					return nil, failf("the function has no parameter %q%s", name, didYouMean(name, e.args.Keys()))
				}
				return v, nil
			}
			return e.parameter(name)
		}},
		{name: "variables", min: 1, max: 1, lazy: func(e *evaluator, c *call) (any, error) {
			name, err := e.nameArgument(c)
			if err != nil {
				return nil, err
			}
			if e.in == inDefault {
				return nil, failf("the default of a parameter may not use variables")
			}
			return e.variable(name)
		}},
		{name: "copyIndex", max: 2, lazy: copyIndex},
		{name: "newGuid", lazy: func(e *evaluator, _ *call) (any, error) {
			if e.in != inDefault {
				return nil, failf("it may be used only in the default of a parameter")
			}
			if e.p.options.NewGUID == nil {
				return nil, failf("no source of new GUIDs is given")
			}
			return e.p.options.NewGUID(), nil
		}},
		{name: "utcNow", max: 1, lazy: utcNow},
		{name: "deployment", lazy: func(e *evaluator, _ *call) (any, error) { return e.deployment() }},
		{name: "extensions", min: 1, max: 1, lazy: extensionConfig},
		{name: "extensionConfigs", min: 1, max: 1, lazy: func(e *evaluator, c *call) (any, error) {
			v, err := extensionConfig(e, c)
			if err != nil {
				return nil, err
			}
			config, _ := v.(*Object).Get("config")
			return config, nil
		}},
		{name: "externalInputs", min: 1, max: 1, lazy: func(e *evaluator, c *call) (any, error) {
			name, err := e.nameArgument(c)
			if err != nil {
				return nil, err
			}
			v, ok := e.p.options.ExternalInputs[name]
			if !ok {
				return nil, failf("no external input %q is given", name)
			}
			return Import(v)
		}},
		surrounding("resourceGroup"), surrounding("subscription"), surrounding("tenant"), surrounding("managementGroup"),
		surrounding("environment"), surrounding("deployer"), surrounding("target"),
		{name: "resourceId", min: 2, max: -1, eval: resourceID},
		{name: "subscriptionResourceId", min: 2, max: -1, eval: func(e *evaluator, args []any) (any, error) {
			sub := e.p.at.subscription()
			first, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			if !strings.Contains(first, "/") {
				sub, args = first, args[1:]
			}
			if sub == "" {
				return nil, failf("the deployment is in no subscription: pass its id as first argument")
			}
			return typeAndNames("/subscriptions/"+sub, args)
		}},
		{name: "managementGroupResourceId", min: 2, max: -1, eval: func(e *evaluator, args []any) (any, error) {
			mg := e.p.at.managementGroup()
			first, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			if !strings.Contains(first, "/") {
				mg, args = first, args[1:]
			}
			if mg == "" {
				return nil, failf("the deployment is in no management group: pass its name as first argument")
			}
			return typeAndNames(managementGroups+mg, args)
		}},
		{name: "tenantResourceId", min: 2, max: -1, eval: func(_ *evaluator, args []any) (any, error) { return typeAndNames("", args) }},
		{name: "extensionResourceId", min: 3, max: -1, eval: func(_ *evaluator, args []any) (any, error) {
			base, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			return typeAndNames(strings.TrimRight(base, "/"), args[1:])
		}},
	}
}

func (e *evaluator) nameArgument(c *call) (string, error) {
	v, err := e.expr(c.args[0])
	if err != nil {
		return "", err
	}
	return argString([]any{v}, 0)
}

// deployment is the deployment itself: its name and what of its request a
// template may see; secure parameters are left out.
func (e *evaluator) deployment() (any, error) {
	p := e.p
	o, props, meta := NewObject(), NewObject(), NewObject()
	o.Set("name", p.options.Deployment)
	if p.at.level() != LevelGroup {
		o.Set("location", p.location())
	}
	meta.Set("contentVersion", p.t.version)
	if m := p.t.root.get("metadata"); m != nil {
		meta.Set("metadata", m.raw())
	}
	props.Set("template", meta)
	if p.options.URI != "" {
		link := NewObject()
		link.Set("uri", p.options.URI)
		link.Set("contentVersion", p.t.version)
		props.Set("templateLink", link)
	}
	params := NewObject()
	for _, q := range p.t.parameters {
		if cell := p.params[q]; cell != nil && cell.state == cellDone && !p.isSecure(q) {
			v := NewObject()
			v.Set("value", cell.value)
			params.Set(q.name, v)
		}
	}
	props.Set("parameters", params)
	props.Set("mode", "Incremental")
	props.Set("provisioningState", "Running")
	o.Set("properties", props)
	return o, nil
}

func (p *Plan) location() string {
	if p.options.Location == "" {
		return "global"
	}
	return p.options.Location
}

// surrounding is a function without arguments that says where the deployment
// stands: what the options say, over what follows from the scope.
func surrounding(name string) function {
	return function{name: name, lazy: func(e *evaluator, _ *call) (any, error) {
		o := e.p.surroundings(name)
		for given, values := range e.p.options.Surroundings {
			if !strings.EqualFold(given, name) {
				continue
			}
			v, err := Import(values)
			if err != nil {
				return nil, err
			}
			if o == nil {
				return v, nil
			}
			return merge(o, v.(*Object)), nil
		}
		if o == nil {
			return nil, failf("the deployment has no %s", map[string]string{"resourceGroup": "resource group", "managementGroup": "management group"}[name]+
				map[bool]string{true: name, false: ""}[name != "resourceGroup" && name != "managementGroup"])
		}
		return o, nil
	}}
}

func (p *Plan) surroundings(name string) *Object {
	o := NewObject()
	set := func(pairs ...any) *Object {
		for i := 0; i < len(pairs); i += 2 {
			o.Set(pairs[i].(string), pairs[i+1])
		}
		return o
	}
	object := func(pairs ...any) *Object {
		o := NewObject()
		for i := 0; i < len(pairs); i += 2 {
			o.Set(pairs[i].(string), pairs[i+1])
		}
		return o
	}
	switch name {
	case "resourceGroup":
		group := p.at.group()
		if group == "" {
			return nil
		}
		typ := "Microsoft.Resources/resourceGroups"
		if p.at.subscription() == "" {
			typ = "System.Resources/resourceGroups"
		}
		return set("id", string(p.at), "name", group, "type", typ, "location", p.location(), "tags", NewObject(),
			"properties", object("provisioningState", "Succeeded"))
	case "subscription":
		sub := p.at.subscription()
		if sub == "" {
			return nil
		}
		return set("id", "/subscriptions/"+sub, "subscriptionId", sub, "tenantId", "", "displayName", sub)
	case "managementGroup":
		mg := p.at.managementGroup()
		if mg == "" {
			return nil
		}
		return set("id", managementGroups+mg, "name", mg, "type", "Microsoft.Management/managementGroups",
			"properties", object("displayName", mg))
	case "tenant":
		return set("tenantId", "", "displayName", "", "countryCode", "")
	case "environment":
		return set("name", "AzureCloud",
			"gallery", "https://gallery.azure.com/", "graph", "https://graph.windows.net/", "portal", "https://portal.azure.com",
			"graphAudience", "https://graph.windows.net/", "activeDirectoryDataLake", "https://datalake.azure.net/", "batch", "https://batch.core.windows.net/",
			"media", "https://rest.media.azure.net", "sqlManagement", "https://management.core.windows.net:8443/", "vmImageAliasDoc", "https://raw.githubusercontent.com/Azure/azure-rest-api-specs/master/arm-compute/quickstart-templates/aliases.json",
			"resourceManager", "https://management.azure.com/",
			"authentication", object("loginEndpoint", "https://login.microsoftonline.com/",
				"audiences", []any{"https://management.core.windows.net/", "https://management.azure.com/"}, "tenant", "common", "identityProvider", "AAD"),
			"suffixes", object("acrLoginServer", ".azurecr.io", "azureDatalakeAnalyticsCatalogAndJob", "azuredatalakeanalytics.net",
				"azureDatalakeStoreFileSystem", "azuredatalakestore.net", "azureFrontDoorEndpointSuffix", "azurefd.net", "keyvaultDns", ".vault.azure.net",
				"sqlServerHostname", ".database.windows.net", "storage", "core.windows.net"))
	}
	return nil
}

// extensionConfig answers {alias, name, version, config: {entry: {value}}}.
func extensionConfig(e *evaluator, c *call) (any, error) {
	alias, err := e.nameArgument(c)
	if err != nil {
		return nil, err
	}
	x := e.p.extensions[strings.ToLower(alias)]
	if x == nil {
		var names []string
		for _, d := range e.p.t.imports {
			names = append(names, d.alias)
		}
		return nil, failf("no extension has the alias %q (%s)", alias, listOr(names, "the template has none"))
	}
	values := x.Config
	if len(x.Unknown) > 0 {
		if e.rt == nil {
			return nil, &runtimeError{"extensions"}
		}
		whole := *x
		if values, err = e.p.configure(&evaluator{p: e.p, rt: e.rt, depth: e.depth}, &whole); err != nil {
			return nil, err
		}
	}
	config := NewObject()
	for _, k := range sortedNames(values) {
		v, err := Import(values[k])
		if err != nil {
			return nil, err
		}
		entry := NewObject()
		entry.Set("value", v)
		config.Set(k, entry)
	}
	o := NewObject()
	o.Set("alias", x.Alias)
	o.Set("name", x.Provider)
	o.Set("version", x.Version)
	o.Set("config", config)
	return o, nil
}

// copyIndex([loop], [offset]): without a name the innermost loop of the
// resource, else the innermost.
func copyIndex(e *evaluator, c *call) (any, error) {
	args, err := e.arguments(c)
	if err != nil {
		return nil, err
	}
	name, offset := "", int64(0)
	if len(args) > 0 {
		if s, ok := args[0].(string); ok {
			name, args = s, args[1:]
		}
	}
	if len(args) > 1 {
		return nil, failf("it takes the name of a loop and an offset")
	}
	if len(args) == 1 {
		if offset, err = argInt(args, 0); err != nil {
			return nil, err
		}
	}
	var found *loop
	for i := range e.loops {
		l := &e.loops[i]
		if name != "" && strings.EqualFold(l.name, name) || name == "" && (found == nil || l.resource || !found.resource) {
			found = l
		}
	}
	switch {
	case found != nil && found.unknown:
		return nil, &runtimeError{"copyIndex"}
	case found != nil:
		return int64(found.index) + offset, nil
	case name != "":
		return nil, failf("no loop around it has the name %q", name)
	}
	return nil, failf("it stands in no loop")
}

// utcNow writes the time of the deployment in ISO 8601, basic form, or in the
// form of its argument.
func utcNow(e *evaluator, c *call) (any, error) {
	if e.in != inDefault {
		return nil, failf("it may be used only in the default of a parameter")
	}
	now := e.p.options.Now
	if now.IsZero() {
		return nil, failf("no time is given")
	}
	form := "yyyyMMddTHHmmssZ"
	if len(c.args) == 1 {
		var err error
		if form, err = e.nameArgument(c); err != nil {
			return nil, err
		}
	}
	return formatTime(now.In(time.UTC), form)
}

// resourceID builds the id of a resource in the deployment's scope, or in the
// group (and subscription) that come before the type.
func resourceID(e *evaluator, args []any) (any, error) {
	at := e.p.at
	var before []string
	for len(args) > 0 {
		s, err := argString(args, 0)
		if err != nil {
			return nil, err
		}
		if strings.Contains(s, "/") {
			break
		}
		before = append(before, s)
		args = args[1:]
	}
	if len(args) == 0 {
		return nil, failf("the type (of the form Namespace/type) is missing")
	}
	switch len(before) {
	case 0:
		if at == "" && e.p.options.At == "" {
			return nil, failf("the deployment has no scope")
		}
	case 1:
		at = at.withGroup(before[0])
	case 2:
		at = address("/subscriptions/" + before[0] + "/resourceGroups/" + before[1])
	default:
		return nil, failf("before the type come a subscription and a resource group, here are %d texts", len(before))
	}
	return typeAndNames(string(at), args)
}

func typeAndNames(base string, args []any) (any, error) {
	typ, err := argString(args, 0)
	if err != nil {
		return nil, err
	}
	types := strings.Split(strings.TrimSuffix(typ, "/"), "/")
	if len(types) < 2 {
		return nil, failf("the type has the form Namespace/type")
	}
	// Names may come joined: 'a/b' for two segments.
	var names []string
	for i := range args[1:] {
		name, err := argString(args, i+1)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if len(types)-1 != len(names) {
		names = strings.Split(strings.Join(names, "/"), "/")
	}
	if len(types)-1 != len(names) {
		return nil, failf("the type has %d segments, here are %d names", len(types)-1, len(names))
	}
	id := base + "/providers/" + types[0]
	for i, t := range types[1:] {
		id += "/" + t + "/" + names[i]
	}
	return id, nil
}
