package local

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/extensionsdk/rpc"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/contract"
)

// tries is how many lives of the process a call is given. Every call of the
// contract may be made twice; one that kills its process each time is the
// process's own fault.
const tries = 3

// Carrier takes calls to the process.
func (p *Process) Carrier() contract.Carrier { return carrier{p} }

type carrier struct{ p *Process }

type answerOf func(context.Context, rpc.BicepExtensionClient, ...grpc.CallOption) (*rpc.LocalExtensibilityOperationResponse, error)

func (c carrier) Preview(ctx context.Context, s sdk.Specification) (sdk.Resource, error) {
	return c.specified(ctx, "Preview", s, rpc.BicepExtensionClient.Preview)
}

func (c carrier) CreateOrUpdate(ctx context.Context, s sdk.Specification) (sdk.Answer, error) {
	r, err := c.specified(ctx, "CreateOrUpdate", s, rpc.BicepExtensionClient.CreateOrUpdate)
	return sdk.Answer{Resource: &r}, err
}

func (c carrier) Get(ctx context.Context, r sdk.Reference) (sdk.Resource, error) {
	return c.referred(ctx, "Get", r, rpc.BicepExtensionClient.Get)
}

func (c carrier) Delete(ctx context.Context, r sdk.Reference) (sdk.Answer, error) {
	out, err := c.referred(ctx, "Delete", r, rpc.BicepExtensionClient.Delete)
	return sdk.Answer{Resource: &out}, err
}

// Follow is never called: no answer over gRPC is an operation.
func (c carrier) Follow(context.Context, map[string]any) (sdk.Operation, error) {
	return sdk.Operation{}, core.Errorf(core.CodeInternal, "the local-deploy service has no operations to follow")
}

type specifiedCall func(rpc.BicepExtensionClient, context.Context, *rpc.ResourceSpecification, ...grpc.CallOption) (*rpc.LocalExtensibilityOperationResponse, error)

func (c carrier) specified(ctx context.Context, name string, s sdk.Specification, call specifiedCall) (sdk.Resource, error) {
	request := &rpc.ResourceSpecification{Type: s.Type}
	var err error
	if request.Properties, err = text(s.Properties); err != nil {
		return sdk.Resource{}, err
	}
	if request.Config, err = optional(s.Config); err != nil {
		return sdk.Resource{}, err
	}
	if s.APIVersion != "" {
		request.ApiVersion = &s.APIVersion
	}
	return c.ask(ctx, name, s.ConfigID, func(ctx context.Context, client rpc.BicepExtensionClient, o ...grpc.CallOption) (*rpc.LocalExtensibilityOperationResponse, error) {
		return call(client, ctx, request, o...)
	})
}

type referredCall func(rpc.BicepExtensionClient, context.Context, *rpc.ResourceReference, ...grpc.CallOption) (*rpc.LocalExtensibilityOperationResponse, error)

func (c carrier) referred(ctx context.Context, name string, r sdk.Reference, call referredCall) (sdk.Resource, error) {
	request := &rpc.ResourceReference{Type: r.Type}
	var err error
	if request.Identifiers, err = text(r.Identifiers); err != nil {
		return sdk.Resource{}, err
	}
	if request.Config, err = optional(r.Config); err != nil {
		return sdk.Resource{}, err
	}
	if r.APIVersion != "" {
		request.ApiVersion = &r.APIVersion
	}
	return c.ask(ctx, name, r.ConfigID, func(ctx context.Context, client rpc.BicepExtensionClient, o ...grpc.CallOption) (*rpc.LocalExtensibilityOperationResponse, error) {
		return call(client, ctx, request, o...)
	})
}

// ask makes a call, and makes it again on a new process when the one that had it
// ended.
func (c carrier) ask(ctx context.Context, name, configID string, call answerOf) (sdk.Resource, error) {
	for try := 1; ; try++ {
		r, err := c.p.get(ctx)
		if err != nil {
			return sdk.Resource{}, err
		}
		out, err := c.once(ctx, r, name, configID, call)
		if err == nil || ctx.Err() != nil || status.Code(err) != codes.Unavailable {
			return out, c.fault(ctx, r, name, err)
		}
		// The connection broke: the end of the process is what broke it, or what
		// comes of it.
		if err := c.p.lost(ctx, r); err != nil {
			return out, err
		}
		if try == tries {
			return out, c.fault(ctx, r, name, err)
		}
	}
}

func (c carrier) once(ctx context.Context, r *running, name, configID string, call answerOf) (sdk.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, c.p.o.CallTimeout)
	defer cancel()
	if configID != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, sdk.ConfigIDHeader, configID)
	}
	var header metadata.MD
	answer, err := call(ctx, r.client, grpc.Header(&header))
	if err != nil {
		return sdk.Resource{}, err
	}
	out, err := c.convert(name, answer)
	if id := header.Get(sdk.ConfigIDHeader); err == nil && len(id) > 0 {
		out.ConfigID = id[0]
	}
	return out, err
}

// lost waits for the end of a process whose connection broke, and ends one that
// lives on without answering.
func (p *Process) lost(ctx context.Context, r *running) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.end(r)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fault is a call's error as others see it; what the extension said stays.
func (c carrier) fault(ctx context.Context, r *running, name string, err error) error {
	s, ok := status.FromError(err)
	switch {
	case err == nil || !ok:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	switch s.Code() {
	case codes.NotFound:
		return &sdk.Error{Code: sdk.CodeNotFound, Message: s.Message()}
	case codes.Unavailable:
		words := "; the server's log has what it said"
		if c.p.o.Alone {
			words = c.p.log.tail()
		}
		return c.p.fault("ended while it was asked to %s (%v), %d times%s", name, r.why, tries, words)
	case codes.DeadlineExceeded:
		return c.p.fault("did not answer %s within %s", name, c.p.o.CallTimeout)
	case codes.ResourceExhausted:
		return c.p.fault("cannot be asked to %s: a request may have 4 MB and an answer 20 MB: %s", name, s.Message())
	case codes.Unimplemented:
		return c.p.fault("does not serve %s: is it an extension for local deploy?", name)
	}
	return c.p.fault("failed to %s: %s (%s)", name, s.Message(), s.Code())
}

// convert reads an answer: a resource or an error, and never both.
func (c carrier) convert(name string, a *rpc.LocalExtensibilityOperationResponse) (sdk.Resource, error) {
	switch {
	case (a.GetResource() == nil) == (a.GetErrorData() == nil):
		both := "neither a resource nor an error"
		if a.GetResource() != nil {
			both = "a resource and an error at once"
		}
		return sdk.Resource{}, c.p.fault("answered %s with %s: the contract wants one of them", name, both)
	case a.GetErrorData() != nil:
		return sdk.Resource{}, refusal(a.GetErrorData().GetError())
	}
	r := a.GetResource()
	out := sdk.Resource{Type: r.GetType(), APIVersion: r.GetApiVersion(), Status: r.GetStatus()}
	for member, text := range map[string]string{"identifiers": r.GetIdentifiers(), "properties": r.GetProperties()} {
		m := map[string]any{}
		if text != "" {
			if err := sdk.Unmarshal([]byte(text), &m); err != nil {
				return sdk.Resource{}, c.p.fault("answered %s with %s that are no JSON object", name, member)
			}
		}
		if member == "identifiers" {
			out.Identifiers = m
		} else {
			out.Properties = m
		}
	}
	return out, nil
}

func refusal(e *rpc.Error) *sdk.Error {
	out := &sdk.Error{Code: e.GetCode(), Message: e.GetMessage(), Target: e.GetTarget()}
	for _, d := range e.GetDetails() {
		out.Details = append(out.Details, sdk.ErrorDetail{Code: d.GetCode(), Message: d.GetMessage(), Target: d.GetTarget()})
	}
	if inner := e.GetInnerError(); inner != "" {
		m := map[string]any{}
		if sdk.Unmarshal([]byte(inner), &m) == nil {
			out.Inner = m
		}
	}
	return out
}

// TypeFiles are the descriptions of the extension's types, by path, with the
// path of the index.
func (p *Process) TypeFiles(ctx context.Context) (index string, files map[string]string, err error) {
	r, err := p.get(ctx)
	if err != nil {
		return "", nil, err
	}
	call, cancel := context.WithTimeout(ctx, p.o.StartTimeout)
	defer cancel()
	answer, err := r.client.GetTypeFiles(call, &rpc.Empty{})
	if err != nil {
		return "", nil, carrier{p}.fault(ctx, r, "GetTypeFiles", err)
	}
	return answer.GetIndexFile(), answer.GetTypeFiles(), nil
}

func text(v map[string]any) (string, error) {
	if v == nil {
		v = map[string]any{}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("a value cannot be written as JSON: %w", err)
	}
	return string(raw), nil
}

func optional(v map[string]any) (*string, error) {
	if v == nil {
		return nil, nil
	}
	s, err := text(v)
	return &s, err
}
