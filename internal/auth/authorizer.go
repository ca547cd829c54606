package auth

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/radial-project/radial/internal/audit"
	"github.com/radial-project/radial/internal/core"
)

// Authorizer decides for work that goes on after its request has been answered,
// such as a deployment: as whoever asked for it, and by the roles as they stand
// when the work comes to it. A role that was taken away meanwhile does not count.
type Authorizer struct{ h *handler }

// NewAuthorizer returns an authorizer. Of the options, Authenticator, Open and
// StreamLimit are not used.
func NewAuthorizer(o Options) *Authorizer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Canonical == nil {
		o.Canonical = func(string) (string, bool) { return "", false }
	}
	return &Authorizer{h: &handler{o: o}}
}

// Act is one thing that is done for somebody.
type Act struct {
	// Verb is asked at ID; to write or delete what decides over others takes
	// Govern.
	Verb Verb
	ID   core.ID
	// Properties are those that a write names other resources in.
	Properties map[string]any
	// Operation is on whose behalf, for the audit log.
	Operation string
}

// Allow returns nil when who may do it. The decision is audited.
func (a *Authorizer) Allow(ctx context.Context, who Identity, act Act) error {
	h := a.h
	if name, ok := h.o.Canonical(act.ID.Type()); ok {
		act.ID = act.ID.WithType(name)
	}
	if (act.Verb == Write || act.Verb == Delete) && isGoverned(act.ID.Type()) {
		act.Verb = Govern
	}
	record := audit.Record{
		At: h.o.Now().UTC(), Request: act.Operation, Method: method(act.Verb), Source: "operation", Verb: string(act.Verb), ID: shown(act.ID),
		Principal: who.Principal().String(), Authentication: string(who.Method),
	}
	d, err := h.decide(ctx, who, &want{Access: Access{Verb: act.Verb, ID: act.ID}})
	switch {
	case err != nil:
	case !d.Allowed:
		err = core.Errorf(core.CodeForbidden, "%s", d.Reason).WithTarget(act.ID.String())
	case d.Clusters != nil:
		err = core.Errorf(core.CodeForbidden, "the role Controller writes only what stands for an object of its cluster, and %s does not", act.ID).WithTarget(act.ID.String())
	default:
		err = h.checkLinks(ctx, who, act.Properties)
	}
	if err != nil {
		record.Reason = core.AsError(err).Message
	} else {
		record.Allowed, record.Reason = true, d.Reason
	}
	h.o.Audit(record)
	return err
}

func method(v Verb) string {
	switch v {
	case Discover, Read:
		return http.MethodGet
	case Delete:
		return http.MethodDelete
	case Secrets:
		return http.MethodPost
	}
	return http.MethodPut
}

// keptIdentity is an identity as an operation keeps it.
type keptIdentity struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Method Method              `json:"method,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// MarshalJSON writes an identity for an operation that goes on as its caller. It
// holds nothing by which the caller proved who they are.
func (i Identity) MarshalJSON() ([]byte, error) {
	return json.Marshal(keptIdentity{i.Name, i.UID, i.Groups, i.Method, i.extra})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (i *Identity) UnmarshalJSON(b []byte) error {
	var k keptIdentity
	if err := json.Unmarshal(b, &k); err != nil {
		return err
	}
	*i = Identity{Name: k.Name, UID: k.UID, Groups: k.Groups, Method: k.Method, extra: k.Extra}
	return nil
}
