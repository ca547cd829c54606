package contract

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// script is an extension that answers what a test says, in this process.
type script struct {
	preview, get  func() (sdk.Resource, error)
	apply, remove func() (sdk.Answer, error)
	follow        func() (sdk.Operation, error)
	asked         []any
}

func (s *script) Preview(_ context.Context, r sdk.Specification) (sdk.Resource, error) {
	s.asked = append(s.asked, r)
	return s.preview()
}

func (s *script) CreateOrUpdate(_ context.Context, r sdk.Specification) (sdk.Answer, error) {
	s.asked = append(s.asked, r)
	return s.apply()
}

func (s *script) Get(_ context.Context, r sdk.Reference) (sdk.Resource, error) {
	s.asked = append(s.asked, r)
	return s.get()
}

func (s *script) Delete(_ context.Context, r sdk.Reference) (sdk.Answer, error) {
	s.asked = append(s.asked, r)
	return s.remove()
}

func (s *script) Follow(context.Context, map[string]any) (sdk.Operation, error) { return s.follow() }

func (s *script) target(config map[string]any, secrets extension.Secrets) *Target {
	return NewTarget(s, Options{Extension: "Mail", Place: "here", Config: config, Secrets: secrets, Partial: true, Echo: true,
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }})
}

func resource(status string) (sdk.Resource, error) {
	return sdk.Resource{Type: "Box", Identifiers: map[string]any{"id": int64(7)}, Status: status}, nil
}

func answer(r sdk.Resource, err error) (sdk.Answer, error) { return sdk.Answer{Resource: &r}, err }

var box = extension.Resource{Type: "Box", Properties: map[string]any{"a": "b"}}

// Answers that the contract does not allow are named, and nothing goes on from
// them.
func TestBrokenAnswers_S47(t *testing.T) {
	for name, c := range map[string]struct {
		apply  sdk.Answer
		follow sdk.Operation
		want   string
	}{
		"no identifiers":       {apply: sdk.Answer{Resource: &sdk.Resource{Type: "Box"}}, want: "without identifiers"},
		"neither":              {want: "neither a resource nor an operation"},
		"no handle":            {apply: sdk.Answer{Operation: &sdk.Operation{Status: "Running"}}, want: "without a handle"},
		"failed, no reason":    {apply: sdk.Answer{Operation: &sdk.Operation{Status: sdk.Canceled}}, want: "gave no reason (Canceled)"},
		"failed later, reason": {apply: sdk.Answer{Operation: &sdk.Operation{Status: "Running", Handle: map[string]any{"n": 1}}}, follow: sdk.Operation{Status: sdk.Failed, Error: sdk.Errorf("Full", "it is full.").At("/properties/list/0/size")}, want: "it is full (Full at properties.list[0].size)"},
	} {
		s := &script{apply: func() (sdk.Answer, error) { return c.apply, nil }, follow: func() (sdk.Operation, error) { return c.follow, nil }}
		_, err := s.target(nil, nil).Apply(t.Context(), box)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "the extension Mail") || core.CodeOf(err) == core.CodeInternal {
			t.Errorf("%s: %s %v, want %q", name, core.CodeOf(err), err, c.want)
		}
	}
}

// The codes of an extension mean nothing to the control plane but those that
// have a meaning: one that says OperationFenced fences nothing.
func TestCodes(t *testing.T) {
	for code, want := range map[string]core.Code{
		"OperationFenced": extension.CodeRefused, "ScopeNotFound": extension.CodeRefused, "OperationCanceled": extension.CodeRefused, "": extension.CodeRefused,
		"ConfigIdMismatch": extension.CodeWrongTarget, "ClusterMismatch": extension.CodeWrongTarget,
		"PreviewNotSupported": extension.CodeRefused, // of a createOrUpdate it says nothing
		"NotFound":            extension.CodeRefused, // neither does that
	} {
		s := &script{apply: func() (sdk.Answer, error) { return sdk.Answer{}, sdk.Errorf(code, "no") }}
		if _, err := s.target(nil, nil).Apply(t.Context(), box); core.CodeOf(err) != want {
			t.Errorf("%q became %s, want %s (%v)", code, core.CodeOf(err), want, err)
		}
	}
	s := &script{get: func() (sdk.Resource, error) { return sdk.Resource{}, sdk.Errorf("objectnotfound", "no") }}
	if _, err := s.target(nil, nil).Get(t.Context(), extension.Ref{Type: "Box", Identifiers: json.RawMessage(`{"id":7}`)}); !core.IsCode(err, core.CodeNotFound) || !strings.Contains(err.Error(), `Box {"id":7}`) {
		t.Errorf("%v", err)
	}
}

// Looks that fail are borne up to a number in a row, and end with the context.
func TestLooks(t *testing.T) {
	looks := 0
	s := &script{apply: func() (sdk.Answer, error) { return answer(resource("Creating")) }}
	s.get = func() (sdk.Resource, error) {
		if looks++; looks%lostLooks == 0 && looks < 20 { // never enough in a row
			return resource("Creating")
		}
		if looks >= 20 {
			return resource("Succeeded")
		}
		return sdk.Resource{}, errors.New("cannot be reached")
	}
	if _, err := s.target(nil, nil).Apply(t.Context(), box); err != nil || looks != 20 {
		t.Errorf("after %d looks: %v", looks, err)
	}
	looks = 0
	s.get = func() (sdk.Resource, error) { looks++; return sdk.Resource{}, errors.New("cannot be reached") }
	made, err := s.target(nil, nil).Apply(t.Context(), box)
	if err == nil || looks != lostLooks || made.Ref.UID == "" {
		t.Errorf("after %d looks: %+v, %v", looks, made, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.get = func() (sdk.Resource, error) { cancel(); return resource("Creating") }
	if _, err := s.target(nil, nil).Apply(ctx, box); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// A configuration goes whole and its secrets are known: those that were said to
// be, and what an answer does not echo, at any depth.
func TestConfiguration(t *testing.T) {
	s := &script{apply: func() (sdk.Answer, error) {
		r, _ := resource("")
		r.Config = map[string]any{"url": "u", "sign in": map[string]any{"user": "me"}}
		return sdk.Answer{Resource: &r}, nil
	}}
	target := s.target(
		map[string]any{"url": "u", "sign in": map[string]any{"user": "me", "pin/code": "pin-4711"}, "key": "key-4712"},
		extension.Secrets{"sign in": map[string]any{"password": "pass-4713"}})
	made, err := target.Apply(t.Context(), box)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/key", "/sign in/pin~1code"}, made.Secret); diff != "" {
		t.Error(diff)
	}
	sent := s.asked[0].(sdk.Specification).Config
	if diff := cmp.Diff(map[string]any{"url": "u", "key": "key-4712", "sign in": map[string]any{"user": "me", "pin/code": "pin-4711", "password": "pass-4713"}}, sent); diff != "" {
		t.Error(diff)
	}
	s.apply = func() (sdk.Answer, error) { return sdk.Answer{}, sdk.Errorf("No", "%v", sent) }
	if _, err := target.Apply(t.Context(), box); err == nil || strings.Contains(err.Error(), "471") || !strings.Contains(err.Error(), "me") {
		t.Errorf("%v", err)
	}
}

// What is not known yet is a placeholder for the extension, and nothing for the
// caller.
func TestUnevaluated(t *testing.T) {
	s := &script{}
	s.preview = func() (sdk.Resource, error) {
		asked := s.asked[0].(sdk.Specification)
		r, _ := resource("")
		r.Properties = asked.Properties
		r.Metadata = &sdk.ResourceMetadata{Unevaluated: asked.Metadata.Unevaluated, Unknown: []string{"/identifiers/id", "/properties/size"}}
		return r, nil
	}
	properties := map[string]any{"a": "b", "list": []any{map[string]any{"x": int64(1)}, nil}}
	state, err := s.target(nil, nil).Preview(t.Context(), extension.Resource{Type: "Box", Properties: properties,
		Unevaluated: []string{"/c/d~1e", "/list/0/y", "/list/1", "/list/9", "/a/no", "/"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"a": "b", "c": map[string]any{}, "list": []any{map[string]any{"x": int64(1)}, nil}}, state.Properties); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"a": "b", "list": []any{map[string]any{"x": int64(1)}, nil}}, properties); diff != "" {
		t.Errorf("what was asked for was changed: %s", diff)
	}
	if !state.Ref.ID.IsZero() || state.Ref.Identifiers != nil {
		t.Errorf("an identifier that is not known names nothing: %+v", state.Ref)
	}
	if diff := cmp.Diff([]string{"/size"}, state.About.Unknown); diff != "" {
		t.Error(diff)
	}
}
