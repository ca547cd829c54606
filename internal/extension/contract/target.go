// Package contract drives extensions that are programs of their own (S-47): it
// is the [extension.Target] over whatever carries the calls to them. The
// carriers are [remote] (HTTP) and [local] (gRPC to a process); the rules of the
// contract, which are the same for both, stand here once: identity, waiting for
// what takes long, refusals, and keeping secrets out of texts.
//
// [remote]: github.com/radial-project/radial/internal/extension/remote
// [local]: github.com/radial-project/radial/internal/extension/local
package contract

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// Carrier takes the calls to an extension. Errors are [*sdk.Error] where the
// extension said no, and core.Error where it could not be asked. Every call
// may be made again.
type Carrier interface {
	sdk.Extension
	sdk.Follower
}

// Options say what a target is of.
type Options struct {
	// Extension is the name that templates import, Place where it is reached: a
	// URL or a path, for texts.
	Extension string
	Place     string
	// Config is the configuration without its secrets, which are Secrets.
	Config  map[string]any
	Secrets extension.Secrets
	// Own are secrets of the carrier, which texts must not quote either; nil for
	// none.
	Own *conceal.Values
	// Partial says that the carrier can say which values are not known yet.
	Partial bool
	// Echo says that answers echo the configuration, so that what is missing
	// there is a secret.
	Echo bool
	// Guard is handed what must not appear in logs while a call runs, and
	// returns what ends that; nil does nothing.
	Guard func(...*conceal.Values) (done func())
	// Sleep waits; nil is the clock's.
	Sleep func(context.Context, time.Duration) error
}

// Target is an extension with a configuration.
type Target struct {
	carrier Carrier
	o       Options
	config  map[string]any // whole, nil for none
	values  conceal.Values

	mu       sync.Mutex
	configID string
}

var _ extension.Target = (*Target)(nil)

// NewTarget makes the target of an extension's configuration.
func NewTarget(c Carrier, o Options) *Target {
	if o.Sleep == nil {
		o.Sleep = core.Pause
	}
	t := &Target{carrier: c, o: o}
	if len(o.Config)+len(o.Secrets) > 0 {
		t.config = merge(o.Config, o.Secrets)
	}
	t.values.Add(map[string]any(o.Secrets))
	return t
}

// merge puts secrets into a configuration, at any depth.
func merge(config, secrets map[string]any) map[string]any {
	out := maps.Clone(config)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range secrets {
		a, okA := out[k].(map[string]any)
		b, okB := v.(map[string]any)
		if okA && okB {
			v = merge(a, b)
		}
		out[k] = v
	}
	return out
}

// ConfigID implements extension.Target. The contract tells the mark of a place
// only in answers about resources, so it is "" before the first.
func (t *Target) ConfigID(context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.configID, nil
}

// guard keeps secrets out of logs while a call runs.
func (t *Target) guard(ctx context.Context) func() {
	if t.o.Guard == nil {
		return func() {}
	}
	return t.o.Guard(&t.values, conceal.From(ctx))
}

// Preview implements extension.Target.
func (t *Target) Preview(ctx context.Context, r extension.Resource) (extension.State, error) {
	if r.Existing {
		return t.found(r)
	}
	defer t.guard(ctx)()
	s := t.specification(r)
	// "/" asks for the name alone: all that there is to look at is there.
	unevaluated := slices.DeleteFunc(slices.Clone(r.Unevaluated), func(p string) bool { return p == "/" })
	if len(unevaluated) > 0 {
		if !t.o.Partial {
			return extension.State{}, core.Errorf(extension.CodePreviewNotSupported,
				"%s has no preview of a %s of which something is not known yet: %s", t, r.Type, strings.Join(unevaluated, ", "))
		}
		s.Properties = deepCopy(s.Properties).(map[string]any)
		s.Metadata = &sdk.SpecificationMetadata{}
		for _, pointer := range unevaluated {
			place(s.Properties, pointer)
			s.Metadata.Unevaluated = append(s.Metadata.Unevaluated, "/properties"+pointer)
		}
	}
	answer, err := t.carrier.Preview(ctx, s)
	if err != nil {
		return extension.State{}, t.fault(ctx, err, call{does: "preview", typ: r.Type})
	}
	state, err := t.state(ctx, answer, r.Type, r.APIVersion)
	if err != nil {
		return extension.State{}, err
	}
	state.Ref.Owner, state.Ref.UID = r.Owner, "" // it is not made
	if m := answer.Metadata; m != nil {
		if open := slices.Concat(m.Unknown, m.Unevaluated); slices.ContainsFunc(open, namesIdentity) {
			state.Ref.ID, state.Ref.Identifiers = core.ID{}, nil
		}
		state.About = &extension.About{
			ReadOnly: inProperties(m.ReadOnly), Immutable: inProperties(m.Immutable), Unknown: inProperties(m.Unknown),
			Calculated: inProperties(m.Calculated), Unevaluated: inProperties(m.Unevaluated),
		}
	}
	withoutPlaceholders(state.Properties)
	return state, nil
}

// found names a resource that is only read: what is said of it are its
// identifiers.
func (t *Target) found(r extension.Resource) (extension.State, error) {
	raw, err := json.Marshal(r.Properties)
	if err != nil {
		return extension.State{}, core.Errorf(core.CodeInvalidTemplate, "the properties of a %s cannot be written as JSON: %w", r.Type, err)
	}
	t.mu.Lock()
	place := t.configID
	t.mu.Unlock()
	raw = extension.Canonical(raw)
	return extension.State{Properties: r.Properties, Ref: extension.Ref{
		ID: extension.ResourceID(t.o.Extension, place, r.Type, raw), Type: r.Type, APIVersion: r.APIVersion, Identifiers: raw, ConfigID: place,
	}}, nil
}

// namesIdentity reports whether a pointer says that an identifier is not known.
func namesIdentity(pointer string) bool {
	return pointer == "/identifiers" || strings.HasPrefix(pointer, "/identifiers/")
}

func inProperties(pointers []string) (out []string) {
	for _, p := range pointers {
		if rest, ok := strings.CutPrefix(p, "/properties"); ok {
			out = append(out, rest)
		}
	}
	return out
}

// Apply implements extension.Target.
func (t *Target) Apply(ctx context.Context, r extension.Resource) (extension.State, error) {
	defer t.guard(ctx)()
	s := t.specification(r)
	about := call{does: "create or update", typ: r.Type}
	answer, err := t.carrier.CreateOrUpdate(ctx, s)
	if err != nil {
		return extension.State{}, t.fault(ctx, err, about)
	}
	made := answer.Resource
	if answer.Operation != nil {
		if made, err = t.followed(ctx, s, *answer.Operation, about); err != nil {
			return extension.State{}, err
		}
	}
	if made == nil {
		return extension.State{}, t.broken("answered createOrUpdate of a %s with neither a resource nor an operation", r.Type)
	}
	state, err := t.state(ctx, *made, r.Type, r.APIVersion)
	if err != nil {
		return extension.State{}, err
	}
	state.Ref.Owner = r.Owner
	about.identifiers = state.Ref.Identifiers
	last, err := t.settled(ctx, *made, state.Ref, about)
	if err != nil {
		// Made, though not ready: the caller records what it is.
		return extension.State{Ref: state.Ref, Secret: state.Secret}, err
	}
	ended, err := t.state(ctx, last, r.Type, r.APIVersion)
	if err != nil {
		return extension.State{Ref: state.Ref, Secret: state.Secret}, err
	}
	ended.Ref.Owner = r.Owner
	return ended, nil
}

// Get implements extension.Target.
func (t *Target) Get(ctx context.Context, ref extension.Ref) (extension.State, error) {
	defer t.guard(ctx)()
	r, err := t.reference(ref)
	if err != nil {
		return extension.State{}, err
	}
	answer, err := t.carrier.Get(ctx, r)
	if err != nil {
		return extension.State{}, t.fault(ctx, err, call{does: "get", typ: ref.Type, identifiers: ref.Identifiers})
	}
	state, err := t.state(ctx, answer, ref.Type, ref.APIVersion)
	state.Ref.Owner = ref.Owner
	return state, err
}

// state is an extension's answer as we keep it.
func (t *Target) state(ctx context.Context, r sdk.Resource, typ, apiVersion string) (extension.State, error) {
	if r.Identifiers == nil {
		return extension.State{}, t.broken("answered a %s without identifiers", typ)
	}
	raw, err := json.Marshal(r.Identifiers)
	if err != nil {
		return extension.State{}, t.broken("answered identifiers of a %s that are no JSON", typ)
	}
	raw = extension.Canonical(raw)
	if r.ConfigID != "" {
		t.mu.Lock()
		t.configID = r.ConfigID
		t.mu.Unlock()
	}
	s := extension.State{Properties: r.Properties, Ref: extension.Ref{
		ID:   extension.ResourceID(t.o.Extension, r.ConfigID, typ, raw),
		Type: typ, APIVersion: apiVersion, Identifiers: raw, ConfigID: r.ConfigID,
		UID: extension.Mark(t.o.Extension, r.ConfigID, typ, raw),
	}}
	if s.Properties == nil {
		s.Properties = map[string]any{}
	}
	if t.o.Echo {
		notEchoed(t.o.Config, r.Config, "", func(pointer string, v any) {
			s.Secret = append(s.Secret, pointer)
			t.values.Add(v)
			conceal.Add(ctx, v)
		})
		slices.Sort(s.Secret)
	}
	return s, nil
}

// notEchoed walks what of a configuration an answer left out.
func notEchoed(config, echo map[string]any, at string, found func(pointer string, v any)) {
	for k, v := range config {
		pointer := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k)
		e, ok := echo[k]
		if !ok {
			found(pointer, v)
			continue
		}
		inner, okV := v.(map[string]any)
		innerEcho, okE := e.(map[string]any)
		if okV && okE {
			notEchoed(inner, innerEcho, pointer, found)
		}
	}
}

func (t *Target) specification(r extension.Resource) sdk.Specification {
	s := sdk.Specification{Type: r.Type, APIVersion: r.APIVersion, Properties: r.Properties, Config: t.config}
	if s.Properties == nil {
		s.Properties = map[string]any{}
	}
	return s
}

func (t *Target) reference(ref extension.Ref) (sdk.Reference, error) {
	r := sdk.Reference{Type: ref.Type, APIVersion: ref.APIVersion, Config: t.config}
	if unnamed(ref) {
		return r, core.Errorf(core.CodeTarget, "nothing is recorded by which %s could find this %s: it told no identifiers before it was made; "+
			"deploy it again, or look after it by hand", t, ref.Type).WithTarget(ref.ID.String())
	}
	if err := sdk.Unmarshal(ref.Identifiers, &r.Identifiers); err != nil {
		return r, core.Errorf(core.CodeInternal, "the recorded identifiers of a %s are no JSON object: %w", ref.Type, err)
	}
	return r, nil
}

// unnamed reports whether a reference does not say what it refers to.
func unnamed(ref extension.Ref) bool {
	return len(ref.Identifiers) == 0 || string(ref.Identifiers) == "{}"
}

func (t *Target) String() string { return "the extension " + t.o.Extension }
