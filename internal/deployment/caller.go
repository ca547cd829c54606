package deployment

import (
	"context"
	"strings"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/template"
)

// As is on whose behalf, and for which operation, something is read and made.
type As struct {
	// Caller is nil where nobody was asked who they are.
	Caller *auth.Identity
	// Operation is the one that writes become children of, "" for a look only.
	Operation string
	// Group is where the deployment or stack stands.
	Group core.ID
	// Stack is the stack that works, zero for a deployment.
	Stack core.ID
	// Scope is the group of control-plane resources that are made by the import
	// Radius; zero is Group.
	Scope      core.ID
	SystemData core.SystemData
}

// Resources are the control plane's own as the caller may read and write them.
func (s *Service) Resources(as As) extension.ResourceAPI {
	verbs := map[dynamic.Access]auth.Verb{
		dynamic.AccessRead: auth.Read, dynamic.AccessSecrets: auth.Secrets, dynamic.AccessWrite: auth.Write, dynamic.AccessDelete: auth.Delete,
	}
	c := &claimed{s: s, stack: as.Stack}
	c.ResourceAPI = s.o.Provider.API(dynamic.APIOptions{
		Operation: as.Operation, SystemData: as.SystemData, Ended: s.o.Feed.Operation, Special: s.special,
		Allow: func(ctx context.Context, a dynamic.Access, id core.ID, properties map[string]any) error {
			if (IsDeployment(id) || IsStack(id)) && (a == dynamic.AccessWrite || a == dynamic.AccessDelete) {
				return core.Errorf(core.CodeBadRequest, "%s is a deployment or a stack: it is written and deleted by its own routes, and nested deployments run with the one that holds them", id).WithTarget(id.String())
			}
			err := s.allow(ctx, as, auth.Act{Verb: verbs[a], ID: id, Properties: properties, Operation: as.Operation})
			if err == nil && a == dynamic.AccessWrite {
				err = c.free(ctx, id)
			}
			return err
		},
	})
	return c
}

// Resolver finds targets as the caller may use them: what is made with credentials
// of the server, or with those that it finds, takes the right to govern where the
// caller works, as registering a recipe does, or what the scope names. Whoever
// brings their own credentials (UserOwned) needs none of ours.
func (s *Service) Resolver(as As) extension.Resolver { return guarded{s, as} }

type guarded struct {
	s  *Service
	as As
}

// Resolve implements [extension.Resolver].
func (g guarded) Resolve(ctx context.Context, scope extension.Scope, secrets extension.Secrets) (extension.Target, error) {
	if extension.IsControlPlane(scope) {
		at := g.as.Scope
		if at.IsZero() {
			at = g.as.Group
		}
		return extension.ControlPlane{API: g.s.Resources(g.as), Group: at}, nil
	}
	if g.s.o.Resolver == nil {
		return nil, core.Errorf(core.CodeTarget, "this server has no extensions: resources of %s cannot be made", scope.Extension)
	}
	at := g.as.Group
	switch {
	case strings.EqualFold(scope.Type, template.ScopeUserOwned):
		return g.s.o.Resolver.Resolve(ctx, scope, secrets)
	case strings.EqualFold(scope.Type, template.ScopeRadial):
		id, err := core.ParseID(scope.ID)
		if err != nil {
			return nil, err
		}
		at = id
	}
	if err := g.s.allow(ctx, g.as, auth.Act{Verb: auth.Govern, ID: at, Operation: g.as.Operation}); err != nil {
		return nil, core.Errorf(core.CodeOf(err), "resources of %s would be made with the server's own credentials: %w", scope.Extension, err).WithTarget(at.String())
	}
	return g.s.o.Resolver.Resolve(ctx, scope, secrets)
}

func (s *Service) allow(ctx context.Context, as As, act auth.Act) error {
	if s.o.Authorize == nil {
		return nil
	}
	if as.Caller == nil {
		return core.Errorf(core.CodeForbidden, "the operation was begun in developer mode, by nobody: repeat the request").WithTarget(act.ID.String())
	}
	return s.o.Authorize(ctx, *as.Caller, act)
}

// special answers for deployments that a template reads.
func (s *Service) special(ctx context.Context, id core.ID, _, action string, _ map[string]any) (any, bool, error) {
	if !IsDeployment(id) {
		return nil, false, nil
	}
	r, _, err := s.load(ctx, id)
	if err != nil {
		return nil, true, err
	}
	switch {
	case action == "":
		out, err := s.show(ctx, r)
		if err != nil {
			return nil, true, err
		}
		object, err := asObject(out)
		return object, true, err
	case strings.EqualFold(action, actionSecureOutputs):
		out, err := s.secureOutputs(r)
		return out, true, err
	}
	return nil, true, core.Errorf(core.CodeNotFound, "%s has no action %q: it knows %s", id, action, actionSecureOutputs).WithTarget(id.String())
}

func caller(ctx context.Context) *auth.Identity {
	if c := auth.From(ctx); c != nil {
		return &c.Identity
	}
	return nil
}

// by is the system data of writes for whoever changed a deployment last.
func by(d core.SystemData) core.SystemData {
	return core.SystemData{CreatedBy: d.LastModifiedBy, CreatedByType: d.LastModifiedByType, LastModifiedBy: d.LastModifiedBy, LastModifiedByType: d.LastModifiedByType}
}
