package paired

import (
	"context"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Names that hold where an object says nothing (K-4).
const (
	DefaultEnvironment = "default"
	DefaultGroup       = "default"
)

// Kinds of environments, with the version they are asked for in.
var environmentTypes = []struct{ namespace, apiVersion string }{
	{"Applications.Core", "2023-10-01-preview"},
	{"Radius.Core", "2025-08-01-preview"},
}

// Reference is what an object says about where it belongs.
type Reference struct {
	// Cluster is the controller's own; "" is local.
	Cluster   string
	Namespace string
	// Environment and Application are names or full resource ids, "" where the
	// object says nothing.
	Environment string
	Application string
}

// Parents are where an object's resource belongs.
type Parents struct {
	// Environment is zero when it was not asked for or cannot be told.
	Environment core.ID
	// ETag of the environment: a failure may depend on what is in it.
	ETag        string
	Application core.ID
	// Group is the scope of the object's resource.
	Group core.ID
}

// Scope tells the deterministic part, the group of an object's resources,
// without asking anyone: what deletion needs when all else is lost.
func (r Reference) Scope() (core.ID, error) {
	if strings.HasPrefix(r.Application, "/") {
		app, err := r.applicationID()
		return app.Scope(), err
	}
	env := r.environment()
	if strings.HasPrefix(env, "/") {
		id, err := r.environmentID()
		if err != nil {
			return core.ID{}, err
		}
		env = id.Name()
	}
	app := r.Application
	if app == "" {
		app = r.Namespace
	}
	return core.GroupID(core.ImplicitGroup(r.Cluster, env, app)), nil
}

func (r Reference) environment() string {
	if r.Environment == "" {
		return DefaultEnvironment
	}
	return r.Environment
}

func (r Reference) environmentID() (core.ID, error) {
	id, err := core.ParseID(r.Environment)
	if err == nil && id.IsResource() {
		for _, t := range environmentTypes {
			if strings.EqualFold(id.Type(), t.namespace+"/environments") {
				return id, nil
			}
		}
	}
	return core.ID{}, core.Errorf(core.CodeBadRequest,
		"environment %q is not the id of an environment; give its name, or an id such as %s", r.Environment,
		core.GroupID(DefaultGroup).Resource("Applications.Core/environments", DefaultEnvironment))
}

func (r Reference) applicationID() (core.ID, error) {
	id, err := core.ParseID(r.Application)
	if err == nil && id.IsResource() && id.Group() != "" && strings.HasSuffix(strings.ToLower(id.Type()), "/applications") {
		return id, nil
	}
	return core.ID{}, core.Errorf(core.CodeBadRequest,
		"application %q is not the id of an application; give its name, or an id such as %s", r.Application,
		core.GroupID("mygroup").Resource("Applications.Core/applications", "myapp"))
}

// FindParents resolves a reference (K-3, K-4). The environment is the one of
// that name in group default, of either kind; one that is missing is NotFound,
// and a name that both kinds have is Conflict: both say what to do.
func FindParents(ctx context.Context, api API, r Reference) (Parents, error) {
	group, err := r.Scope()
	if err != nil {
		return Parents{}, err
	}
	p := Parents{Group: group}
	if strings.HasPrefix(r.environment(), "/") {
		id, err := r.environmentID()
		if err != nil {
			return Parents{}, err
		}
		for _, t := range environmentTypes {
			if !strings.EqualFold(id.Provider, t.namespace) {
				continue
			}
			env, etag, err := api.Get(ctx, id, t.apiVersion)
			if core.IsCode(err, core.CodeNotFound) {
				return Parents{}, missing(r, []core.ID{id})
			}
			if err != nil {
				return Parents{}, err
			}
			p.Environment, p.ETag = canonical(env.ID, id), etag
		}
	} else {
		candidates := r.Candidates()
		var found []core.ID
		for i, id := range candidates {
			env, etag, err := api.Get(ctx, id, environmentTypes[i].apiVersion)
			if core.IsCode(err, core.CodeNotFound) {
				continue
			}
			if err != nil {
				return Parents{}, err
			}
			found = append(found, canonical(env.ID, id))
			p.ETag = etag
		}
		switch len(found) {
		case 0:
			return Parents{}, missing(r, candidates)
		case 1:
			p.Environment = found[0]
		default:
			return Parents{}, core.Errorf(core.CodeConflict,
				"environment %q is ambiguous: there are %s and %s; give the full id of the one that is meant", r.Environment, found[0], found[1])
		}
	}
	switch {
	case strings.HasPrefix(r.Application, "/"):
		p.Application, err = r.applicationID()
	case r.Application != "":
		p.Application = group.Resource(p.Environment.Provider+"/applications", r.Application)
	default:
		p.Application = group.Resource(p.Environment.Provider+"/applications", r.Namespace)
	}
	return p, err
}

// Candidates are the ids that the environment's name may mean, so that a
// change of any of them can wake who waits for it.
func (r Reference) Candidates() []core.ID {
	if strings.HasPrefix(r.environment(), "/") {
		id, err := r.environmentID()
		if err != nil {
			return nil
		}
		return []core.ID{id}
	}
	var ids []core.ID
	for _, t := range environmentTypes {
		ids = append(ids, core.GroupID(DefaultGroup).Resource(t.namespace+"/environments", r.environment()))
	}
	return ids
}

// canonical is the id as the server spells it.
func canonical(answered string, asked core.ID) core.ID {
	if id, err := core.ParseID(answered); err == nil {
		return id
	}
	return asked
}

func missing(r Reference, asked []core.ID) error {
	names := make([]string, len(asked))
	for i, id := range asked {
		names[i] = id.String()
	}
	return core.Errorf(core.CodeNotFound,
		"environment %q does not exist (looked for %s); create it with `radial env create %s`, or name another one. This is tried again as soon as it exists",
		r.environment(), strings.Join(names, " and "), asked[0].Name()).WithTarget(asked[0].String())
}
