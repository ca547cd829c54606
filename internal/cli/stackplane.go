package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/stack"
)

// planeStacks are the stacks of the control plane.
type planeStacks struct{ s *session }

func credentialsOf(credentials map[string]extension.Secrets) map[string]any {
	out := map[string]any{}
	for fingerprint, secrets := range credentials {
		entries := map[string]any{}
		for name, v := range secrets {
			entries[name] = map[string]any{"value": v}
		}
		out[cmp.Or(fingerprint, "*")] = entries
	}
	return out
}

func (p planeStacks) id(name string) core.ID { return p.s.stackID(name) }

func (p planeStacks) body(in stackInput) (json.RawMessage, error) {
	raw, err := deploymentBody(in.text, in.given)
	if err != nil {
		return nil, err
	}
	var body struct {
		Properties  map[string]json.RawMessage `json:"properties"`
		Credentials map[string]any             `json:"credentials,omitempty"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, err
	}
	for name, v := range map[string]any{
		"actionOnUnmanage": map[string]any{"resources": in.unmanage}, "denySettings": in.deny, "description": in.description,
	} {
		if body.Properties[name], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	delete(body.Properties, "mode")
	body.Credentials = credentialsOf(in.credentials)
	return json.Marshal(body)
}

// follow shows the steps of an operation until its end, and returns its error.
func (s *session) follow(ctx context.Context, api *client.Client, operation, what, name string) error {
	s.waitingFor = pending{operation, what}
	live := newLive(s, name)
	defer live.stop()
	var last int64
	for {
		op, err := api.Operation(ctx, operation)
		if core.IsCode(err, core.CodeNotFound) {
			return nil // it took its own record along
		}
		if err != nil && !core.IsCode(err, core.CodeUnavailable) {
			return err
		}
		ended := err == nil && op.EndTime != nil
		said, err := api.Messages(ctx, operation, last, !ended)
		switch {
		case core.IsCode(err, core.CodeUnavailable) && ctx.Err() == nil && !ended:
			if _, err := api.AwaitOperation(ctx, operation); err != nil { // waits the outage out
				return err
			}
			continue
		case core.IsCode(err, core.CodeNotFound):
			return nil
		case err != nil:
			return err
		}
		for _, m := range said {
			last = m.Seq
			live.said(m)
		}
		if ended {
			s.waitingFor = pending{}
			return endedAs(op)
		}
	}
}

func (p planeStacks) apply(ctx context.Context, name string, in stackInput) (stack.Wire, error) {
	body, err := p.body(in)
	if err != nil {
		return stack.Wire{}, err
	}
	api, err := p.s.client()
	if err != nil {
		return stack.Wire{}, err
	}
	a, err := api.Put(ctx, p.id(name), client.APIVersionStacks, body)
	if core.IsCode(err, core.CodeNotFound) {
		return stack.Wire{}, fmt.Errorf("%w (radial group create %s)", err, p.id(name).Group())
	}
	if err != nil {
		return stack.Wire{}, err
	}
	ended := p.s.follow(ctx, api, client.OperationName(a.Token), "applying stack "+name, name)
	if ctx.Err() != nil {
		return stack.Wire{}, ended
	}
	w, err := p.show(ctx, name)
	if err != nil {
		return w, errors.Join(ended, err)
	}
	return w, ended
}

func (p planeStacks) show(ctx context.Context, name string) (w stack.Wire, err error) {
	api, err := p.s.client()
	if err != nil {
		return w, err
	}
	raw, err := api.Raw(ctx, http.MethodGet, p.id(name).String(), url.Values{"api-version": {client.APIVersionStacks}}, nil)
	if err != nil {
		return w, p.explain(ctx, name, err)
	}
	return w, json.Unmarshal(raw, &w)
}

// explain says of a stack that does not exist which are close to it.
func (p planeStacks) explain(ctx context.Context, name string, err error) error {
	if !core.IsCode(err, core.CodeNotFound) {
		return err
	}
	all, failed := p.list(ctx)
	if failed != nil {
		return err
	}
	var names []string
	for _, w := range all {
		if strings.EqualFold(groupIn(w.ID), p.id(name).Group()) {
			names = append(names, w.Name)
		}
	}
	return notFound("stack", name, names, "radial stack list")
}

func (p planeStacks) list(ctx context.Context) ([]stack.Wire, error) {
	api, err := p.s.client()
	if err != nil {
		return nil, err
	}
	all, err := client.Collect[stack.Wire](ctx, api, p.s.scope().Resource(stack.Type, "").String(), client.APIVersionStacks)
	sortStacks(all)
	return all, err
}

func (p planeStacks) remove(ctx context.Context, name string, in stackInput) (bool, error) {
	api, err := p.s.client()
	if err != nil {
		return false, err
	}
	var body json.RawMessage
	if len(in.credentials) > 0 {
		if body, err = json.Marshal(map[string]any{"credentials": credentialsOf(in.credentials)}); err != nil {
			return false, err
		}
	}
	a, err := api.RemoveStack(ctx, p.id(name), string(in.unmanage), body)
	if err != nil || a.Missing {
		return false, err
	}
	return true, p.s.follow(ctx, api, client.OperationName(a.Token), "deleting stack "+name, name)
}

func (p planeStacks) whatIf(ctx context.Context, name string, in stackInput) ([]stack.WireChange, error) {
	body, err := p.body(in)
	if err != nil {
		return nil, err
	}
	api, err := p.s.client()
	if err != nil {
		return nil, err
	}
	var out struct {
		Properties struct {
			Changes struct {
				ResourceChanges []stack.WireChange `json:"resourceChanges"`
			} `json:"changes"`
		} `json:"properties"`
	}
	err = api.Action(ctx, p.id(name), "whatIf", client.APIVersionStacks, body, &out)
	return out.Properties.Changes.ResourceChanges, err
}

func (p planeStacks) export(ctx context.Context, name string) (json.RawMessage, error) {
	api, err := p.s.client()
	if err != nil {
		return nil, err
	}
	var out struct {
		Template json.RawMessage `json:"template"`
	}
	if err = api.Action(ctx, p.id(name), "exportTemplate", client.APIVersionStacks, nil, &out); err != nil {
		return nil, p.explain(ctx, name, err)
	}
	return out.Template, nil
}

// deltaText shows the changes of properties.
func deltaText(b *strings.Builder, changes []deploy.PropertyChange, indent string) {
	var as func(list []deploy.PropertyChange) []client.PropertyChange
	as = func(list []deploy.PropertyChange) []client.PropertyChange {
		out := make([]client.PropertyChange, len(list))
		for i, c := range list {
			out[i] = client.PropertyChange{Path: c.Path, Kind: c.Kind, Before: c.Before, After: c.After, Children: as(c.Children)}
		}
		return out
	}
	propertiesText(b, as(changes), indent)
}
