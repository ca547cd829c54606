// Package local runs stacks without a control plane (S-57): the deployments
// engine in this process, against the cluster of a kubeconfig and those that
// templates name by scope, and the records in that cluster or in a file.
package local

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/extension/registry"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/scope/azure"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/template"
)

// Options of Stacks. Config and Records are required.
type Options struct {
	// Config reaches the cluster where resources go whose import has no scope, and
	// Namespace is where in it.
	Config    *rest.Config
	Namespace string
	Records   stack.Records
	// Link loads linked templates; nil refuses them.
	Link func(ctx context.Context, l template.Link) ([]byte, error)
	// Resolver replaces the scopes that are known here.
	Resolver extension.Resolver
	// Extensions are those besides Kubernetes that templates may import; nil for
	// none.
	Extensions *registry.Registry
}

// Stacks are those of one place of records.
type Stacks struct {
	records stack.Records
	manager *stack.Manager
	base    extension.Scope
}

// New makes them.
func New(o Options) *Stacks {
	if o.Resolver == nil {
		r := scope.NewResolver(map[string]scope.Connect{core.LocalCluster: func(context.Context) (*kubernetes.Cluster, error) {
			return kubernetes.New(core.LocalCluster, o.Config, kubernetes.Options{})
		}})
		r.Type(template.ScopeUserOwned, scope.UserOwned{})
		// As whoever is signed in on this machine, when a template asks for it.
		r.Type(template.ScopeAzure, azure.New(azure.Options{}))
		o.Resolver = r
	}
	if o.Extensions != nil {
		o.Resolver = o.Extensions.Over(o.Resolver)
	}
	return &Stacks{
		records: o.Records,
		manager: stack.New(stack.Options{Engine: deploy.New(deploy.EngineOptions{Resolver: o.Resolver, Link: o.Link})}),
		base:    extension.Scope{Extension: scope.Kubernetes, Cluster: core.LocalCluster, Namespace: o.Namespace},
	}
}

// ID is the id of a stack that no control plane keeps: what it makes is marked
// with it.
func ID(group, name string) core.ID {
	id := core.ID{Plane: core.Segment{Type: "radius", Name: "cli"}, Scopes: []core.Segment{{Type: "resourceGroups", Name: group}}}
	return id.Resource(stack.Type, name)
}

// Input is an update of a stack.
type Input struct {
	Template         []byte
	Parameters       map[string]any
	ExtensionConfigs map[string]map[string]any
	Unmanage         stack.Action
	Deny             stack.DenySettings
	Description      string
	// Credentials are for the clusters of scopes that the template does not name,
	// by fingerprint, "" for any.
	Credentials map[string]extension.Secrets
	Progress    func(deploy.Event)
	Phase       func(stack.State, string)
}

func (l *Stacks) request(id core.ID, in Input) (deploy.Request, error) {
	seed := make([]byte, 32)
	if _, err := rand.Read(seed); err != nil {
		return deploy.Request{}, err
	}
	return deploy.Request{
		Name: id.Name(), Template: in.Template, Parameters: in.Parameters, ExtensionConfigs: in.ExtensionConfigs, Scope: id.Scope(), Location: "global",
		Base: l.base, Run: uuid.NewString(), Started: time.Now().UTC(), Seed: seed, Secrets: in.Credentials, Progress: in.Progress,
	}, nil
}

// run does something under a stack's lock, until the lock is lost. What it says
// of failures holds none of the secrets that were in use.
func (l *Stacks) run(ctx context.Context, id core.ID, do func(ctx context.Context, s stack.Session) (stack.Outcome, error)) (o stack.Outcome, err error) {
	ctx, secrets := conceal.With(extension.WithSession(ctx))
	s, err := l.records.Open(ctx, id)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	under, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.Context(), func() { cancel(context.Cause(s.Context())) })()
	o, err = do(under, guarded{s, secrets})
	if err != nil {
		return o, secrets.Error(err)
	}
	o.Record = concealed(secrets, o.Record)
	if o.Failure != nil {
		o.Failure = core.AsError(secrets.Error(o.Failure))
	}
	return o, nil
}

// guarded keeps secrets out of records: reasons come from targets, which may
// quote what they were given.
type guarded struct {
	stack.Session
	secrets *conceal.Values
}

func (g guarded) Save(ctx context.Context, r stack.Record) error {
	return g.Session.Save(ctx, concealed(g.secrets, r))
}

func concealed(secrets *conceal.Values, r stack.Record) stack.Record {
	clean := func(e *core.Error) *core.Error {
		if e == nil {
			return nil
		}
		return core.AsError(secrets.Error(e))
	}
	r.Error = clean(r.Error)
	r.Resources = append([]stack.Managed(nil), r.Resources...)
	for i := range r.Resources {
		r.Resources[i].Error = clean(r.Resources[i].Error)
	}
	for _, list := range []*[]deploy.Affected{&r.Deleted, &r.Detached, &r.Failed} {
		*list = append([]deploy.Affected(nil), *list...)
		for i := range *list {
			(*list)[i].Error = clean((*list)[i].Error)
		}
	}
	return r
}

// Apply makes a stack what the template says. A failed update is an error beside
// the record that it left.
func (l *Stacks) Apply(ctx context.Context, id core.ID, in Input) (stack.Record, error) {
	q, err := l.request(id, in)
	if err != nil {
		return stack.Record{}, err
	}
	o, err := l.run(ctx, id, func(ctx context.Context, s stack.Session) (stack.Outcome, error) {
		return l.manager.Update(ctx, s, stack.Update{Request: q, Unmanage: in.Unmanage, Deny: in.Deny, Description: in.Description, Phase: in.Phase})
	})
	return o.Record, outcome(o, err)
}

func outcome(o stack.Outcome, err error) error {
	if err == nil && o.Failure != nil {
		return o.Failure
	}
	return err
}

// Remove deletes a stack. With action "" it does what the stack says itself.
func (l *Stacks) Remove(ctx context.Context, id core.ID, in Input) (stack.Record, error) {
	q, err := l.request(id, in)
	if err != nil {
		return stack.Record{}, err
	}
	o, err := l.run(ctx, id, func(ctx context.Context, s stack.Session) (stack.Outcome, error) {
		if len(s.Journal()) == 0 && s.Record().State == "" {
			return stack.Outcome{}, stack.NotFoundError(id, "nothing is recorded of it")
		}
		action := in.Unmanage
		if action == "" {
			action = s.Record().Unmanage
		}
		if action == "" {
			action = stack.Delete
		}
		return l.manager.Remove(ctx, s, stack.Removal{Request: q, Unmanage: action, Phase: in.Phase})
	})
	return o.Record, outcome(o, err)
}

// WhatIf says what an update would do.
func (l *Stacks) WhatIf(ctx context.Context, id core.ID, in Input) (changes []stack.Change, err error) {
	ctx, secrets := conceal.With(extension.WithSession(ctx))
	q, err := l.request(id, in)
	if err != nil {
		return nil, err
	}
	record, err := l.records.Read(ctx, id)
	if core.IsCode(err, core.CodeNotFound) {
		record, err = stack.Record{ID: id}, nil
	}
	if err != nil {
		return nil, err
	}
	changes, err = l.manager.WhatIf(ctx, record, nil, stack.Update{Request: q, Unmanage: in.Unmanage, Deny: in.Deny})
	return changes, secrets.Error(err)
}

// Show returns a record.
func (l *Stacks) Show(ctx context.Context, id core.ID) (stack.Record, error) {
	return l.records.Read(ctx, id)
}

// List returns all records.
func (l *Stacks) List(ctx context.Context) ([]stack.Record, error) { return l.records.List(ctx) }
