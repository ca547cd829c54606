package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/audit"
	"github.com/radial-project/radial/internal/core"
)

// MaxProxiedWait bounds a held poll that comes through the aggregation layer,
// where it holds one of the API server's request seats.
const MaxProxiedWait = 5 * time.Second

// Store is what decisions ask of the store.
type Store interface {
	Get(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error)
	Operation(ctx context.Context, id string) (core.Operation, error)
}

// Options of a Handler. All but those said otherwise are required.
type Options struct {
	Authenticator *Authenticator
	Assignments   *Assignments
	// Root is asked when roles do not allow; see [ClusterReview].
	Root  Review
	Store Store
	// Audit takes every decision; it must not block.
	Audit func(audit.Record)
	// Canonical names a type by its present name; manifest.Registry has it.
	Canonical func(resourceType string) (string, bool)
	// Open are paths served to everybody, such as the files of the dashboard:
	// exact, or with a trailing "/" all below. May be nil.
	Open []string
	// StreamLimit ends a stream, so that its client proves itself again; 0 is
	// 30 minutes.
	StreamLimit time.Duration
	Log         *slog.Logger
	Now         func() time.Time
}

type handler struct {
	o    Options
	next http.Handler
	csrf *http.CrossOriginProtection
}

// Handler lets through to next what the caller may do.
func Handler(next http.Handler, o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.StreamLimit == 0 {
		o.StreamLimit = 30 * time.Minute
	}
	if o.Canonical == nil {
		o.Canonical = func(string) (string, bool) { return "", false }
	}
	return &handler{o: o, next: next, csrf: http.NewCrossOriginProtection()}
}

// Headers.
const (
	// HeaderRequestID is set here, before the server does, so that the audit log
	// and the server's log speak of the same request.
	HeaderRequestID = "x-ms-request-id"
	// headerSystemData is how a front door says who is behind a request. Here we
	// are the front door: what a client says is dropped.
	headerSystemData = "x-ms-arm-resource-system-data"
)

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.open(r.URL.Path) {
		h.next.ServeHTTP(w, r)
		return
	}
	id := uuid.NewString()
	w.Header().Set(HeaderRequestID, id)
	if c := r.Header.Get("x-ms-client-request-id"); c != "" && len(c) <= 128 {
		w.Header().Set("x-ms-client-request-id", c)
	}
	admitted, err := h.admit(w, r, id)
	if err == nil {
		h.next.ServeHTTP(w, admitted)
		return
	}
	if core.IsCode(err, core.CodeUnauthorized) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="radial"`)
	}
	var e *core.Error
	if !errors.As(err, &e) {
		h.o.Log.Error("a decision could not be made", "request", id, "error", err.Error())
		err = core.Errorf(core.CodeUnavailable, "whether the request is allowed cannot be decided now: try again; the server's log has the reason under request %s", id)
	}
	if req, unread := arm.Parse(r); unread == nil && MembersPath(req.Segments) {
		arm.WriteFlatError(w, err)
		return
	}
	arm.WriteError(w, err)
}

func (h *handler) open(path string) bool {
	for _, o := range openPaths {
		if path == o {
			return true
		}
	}
	for _, o := range h.o.Open {
		if path == o || strings.HasSuffix(o, "/") && strings.HasPrefix(path, o) && !strings.Contains(path, "..") {
			return true
		}
	}
	return false
}

// admit returns the request as it goes on, or why it does not.
func (h *handler) admit(w http.ResponseWriter, r *http.Request, id string) (*http.Request, error) {
	record := audit.Record{At: h.o.Now().UTC(), Request: id, Method: r.Method, Source: source(r), Verb: "authenticate"}
	refused := func(err error) error {
		record.Reason = core.AsError(err).Message
		h.o.Audit(record)
		return err
	}
	who, err := h.o.Authenticator.Authenticate(r)
	if err != nil {
		return nil, refused(err)
	}
	record.Principal, record.Authentication = who.Principal().String(), string(who.Method)
	if err := h.csrf.Check(r); err != nil {
		return nil, refused(core.Errorf(core.CodeForbidden, "the request comes from a page of another site, which may not act for the caller"))
	}
	if discoveryPath(r.URL.Path) {
		record.Verb, record.Allowed, record.Reason, record.ID = string(Discover), true, "discovery is for every caller", r.URL.Path
		h.o.Audit(record)
		return h.onward(r, who, record), nil
	}
	req, err := arm.Parse(r)
	if err != nil {
		return nil, refused(err)
	}
	if MembersPath(req.Segments) {
		if who.Method == MethodFrontProxy && req.Base != "" {
			if err := proxied(req, want{}); err != nil {
				return nil, refused(err)
			}
		}
		return h.onward(req.Request, who, record), nil
	}
	want := wanted(req, h.o.Canonical)
	record.Verb, record.ID = string(want.Verb), shown(want.ID)
	if want.Verb == Administer && want.ID.IsZero() {
		record.ID = "/" + strings.Join(req.Segments, "/")
	}
	if who.Method == MethodFrontProxy && req.Base != "" {
		if err := proxied(req, want); err != nil {
			return nil, refused(err)
		}
	}
	d, err := h.decide(r.Context(), who, &want)
	if err != nil {
		return nil, refused(err)
	}
	if !want.ID.IsZero() { // the resource of an operation is known only now
		record.ID = want.ID.String()
	}
	if !d.Allowed {
		return nil, refused(core.Errorf(core.CodeForbidden, "%s", d.Reason).WithTarget(want.ID.String()))
	}
	if err := h.bound(w, req, who, want, d); err != nil {
		return nil, refused(err)
	}
	record.Allowed, record.Reason = true, d.Reason
	h.o.Audit(record)
	r = h.onward(req.Request, who, record)
	if want.stream {
		ctx, cancel := context.WithTimeout(r.Context(), h.o.StreamLimit)
		context.AfterFunc(r.Context(), cancel) // with the request at the latest
		r = r.WithContext(ctx)
	}
	return r, nil
}

// source is the address of whoever sent the request, without the port: a proxy's
// where one stands between, since what it says of others is not proven here.
func source(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// proxied holds a request through the aggregation layer to its limits.
func proxied(r *arm.Request, w want) error {
	if w.stream {
		return core.Errorf(core.CodeBadRequest, "streams are not served through the Kubernetes API server, which cuts them at 60 seconds: connect to the Service of radial-server itself")
	}
	if r.Wait() > MaxProxiedWait {
		r.Header.Set("Prefer", "wait="+strconv.Itoa(int(MaxProxiedWait/time.Second)))
	}
	return nil
}

// decide asks the roles and then who is root. It puts the resource of an
// operation in place of the operation.
func (h *handler) decide(ctx context.Context, who Identity, w *want) (Decision, error) {
	grants, unread := h.o.Assignments.Grants(ctx)
	var d Decision
	if unread == nil {
		d = grants.Decide(who, w.Access)
		if w.operation != "" && !(d.Allowed && d.Clusters == nil) && grants.Decide(who, Access{Verb: Discover}).Allowed {
			op, err := h.o.Store.Operation(ctx, w.operation)
			switch {
			case core.IsCode(err, core.CodeNotFound):
			case err != nil:
				return d, err
			default:
				w.ID = op.ResourceID
				d = grants.Decide(who, w.Access)
			}
		}
		if d.Allowed {
			return d, nil
		}
	}
	root, unknown := h.o.Root(ctx, who)
	switch {
	case root:
		return Decision{Allowed: true, Role: Root, Reason: "root by the review of the cluster"}, nil
	case unread != nil:
		return d, unread
	case unknown != nil:
		return d, unknown
	}
	return d, nil
}

// bound checks what the path does not tell: whose owners a body may name, and
// what other resources.
func (h *handler) bound(w http.ResponseWriter, r *arm.Request, who Identity, want want, d Decision) error {
	ctx := r.Context()
	var put wire.Put
	if want.body {
		body, err := arm.ReadBody(w, r, arm.MediaJSON, arm.MediaMergePatch)
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		// A body that cannot be read is refused behind, by the same decoder.
		if r.Method == http.MethodPut {
			if arm.Decode(body, &put) != nil {
				put = wire.Put{}
			}
		} else {
			patch := map[string]any{}
			_ = arm.Decode(body, &patch)
			put.Properties, _ = patch["properties"].(map[string]any)
		}
		if err := h.checkLinks(ctx, who, put.Properties); err != nil {
			return err
		}
		if put.ImplicitParents {
			if err := h.checkParents(ctx, who, put.Properties); err != nil {
				return err
			}
		}
		if put.Owner != nil && d.Clusters == nil && d.Role != Owner && d.Role != Root {
			return core.Errorf(core.CodeForbidden, "the body has an owner, and %s may not speak for a cluster's objects: that takes the role Controller for cluster %s",
				who.Principal(), put.Owner.Cluster).WithTarget("owner")
		}
	}
	if d.Clusters == nil {
		return nil
	}
	return h.checkController(ctx, r, want, put, d)
}

func (h *handler) checkLinks(ctx context.Context, who Identity, properties map[string]any) error {
	for _, l := range links(properties) {
		id := l.ID
		if name, ok := h.o.Canonical(id.Type()); ok {
			id = id.WithType(name)
		}
		d, err := h.decide(ctx, who, &want{Access: Access{l.Verb, id}})
		if err != nil {
			return err
		}
		if !d.Allowed {
			return core.Errorf(core.CodeForbidden, "%s names %s: %s", l.at, l.ID, d.Reason).WithTarget(l.at)
		}
	}
	return nil
}

// checkParents asks, for an application that the body brings into being, what
// making it takes: naming one takes less.
func (h *handler) checkParents(ctx context.Context, who Identity, properties map[string]any) error {
	text, _ := properties["application"].(string)
	id, err := core.ParseID(text)
	if err != nil || !id.IsResource() {
		return nil // refused behind
	}
	if name, ok := h.o.Canonical(id.Type()); ok {
		id = id.WithType(name)
	}
	d, err := h.decide(ctx, who, &want{Access: Access{Write, id}})
	if err != nil || d.Allowed {
		return err
	}
	_, _, err = h.o.Store.Get(ctx, id)
	if core.IsCode(err, core.CodeNotFound) {
		return core.Errorf(core.CodeForbidden, "properties.application names %s, which implicitParents would make: %s", id, d.Reason).WithTarget("properties.application")
	}
	return err
}

// checkController holds a Controller to the objects of its clusters.
func (h *handler) checkController(ctx context.Context, r *arm.Request, want want, put wire.Put, d Decision) error {
	mine := func(cluster string) bool {
		for _, c := range d.Clusters {
			if c == cluster {
				return true
			}
		}
		return false
	}
	clusters := strings.Join(d.Clusters, ", ")
	only := "the role Controller writes only what stands for an object of cluster " + clusters
	if !want.ID.IsResource() {
		return core.Errorf(core.CodeForbidden, "%s, and %s is no such resource", only, want.ID).WithTarget(want.ID.String())
	}
	if r.Method == http.MethodPut {
		if put.Owner == nil {
			return core.Errorf(core.CodeForbidden, "%s, and the body names no owner", only).WithTarget("owner")
		}
		if !mine(put.Owner.Cluster) {
			return core.Errorf(core.CodeForbidden, "%s, and the body's owner is of cluster %s", only, put.Owner.Cluster).WithTarget("owner")
		}
	}
	if r.Method == http.MethodDelete && r.Header.Get(wire.HeaderOwnerUID) == "" {
		return core.Errorf(core.CodeForbidden, "%s: name the owner's uid in the header %s", only, wire.HeaderOwnerUID)
	}
	stored, _, err := h.o.Store.Get(ctx, want.ID)
	switch {
	case core.IsCode(err, core.CodeNotFound):
		return nil
	case err != nil:
		return err
	case r.Method == http.MethodPut && put.Replaces == "":
		return nil // another owner is a NameConflict, which the store answers
	case !stored.Owner.IsZero() && mine(stored.Owner.Cluster):
		return nil
	case r.Method == http.MethodDelete && stored.Owner.UID != r.Header.Get(wire.HeaderOwnerUID):
		return nil // the same
	}
	return core.Errorf(core.CodeForbidden, "%s, and %s stands for another's", only, want.ID).WithTarget(want.ID.String())
}

// onward prepares a request for the server: who it is from, and nothing by
// which that was proved.
func (h *handler) onward(r *http.Request, who Identity, record audit.Record) *http.Request {
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, &Caller{Identity: who, h: h, record: record}))
	r.Header.Del("Authorization")
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Remote-") {
			r.Header.Del(name)
		}
	}
	by := who.CreatedByType()
	said, err := json.Marshal(core.SystemData{CreatedBy: who.Name, CreatedByType: by, LastModifiedBy: who.Name, LastModifiedByType: by})
	if err == nil {
		r.Header.Set(headerSystemData, string(said))
	}
	return r
}

// Caller is who a request is from, as the server behind sees them.
type Caller struct {
	Identity
	h *handler
	// record is what a decision made behind begins with.
	record audit.Record
}

// May asks the roles, and the cluster who is root, without auditing: for a
// decision that the server makes by more than roles. See [Caller.Decided].
func (c *Caller) May(ctx context.Context, a Access) (Decision, error) {
	return c.h.decide(ctx, c.Identity, &want{Access: a})
}

// Decided audits a decision that the server has made about the request.
func (c *Caller) Decided(verb Verb, id string, allowed bool, reason string) {
	r := c.record
	r.Verb, r.ID, r.Allowed, r.Reason = string(verb), id, allowed, reason
	c.h.o.Audit(r)
}

type callerKey struct{}

// From returns who the request is from; nil where nobody was asked, as in
// developer mode.
func From(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// Viewer returns what the request's caller may read, as things stand now: lists
// and streams show nothing else. Where nobody was asked, everything is visible. A
// decision that cannot be made is no. Streams ask for a new one with every batch.
func Viewer(ctx context.Context) func(core.ID) bool {
	c := From(ctx)
	if c == nil {
		return func(core.ID) bool { return true }
	}
	// Who may read the plane, or is root, reads all of it: that is asked once.
	planes := map[string]bool{}
	return func(id core.ID) bool {
		plane := core.ID{Plane: id.Plane}
		all, asked := planes[plane.Key()]
		if !asked {
			d, err := c.h.decide(ctx, c.Identity, &want{Access: Access{Read, plane}})
			all = err == nil && d.Allowed
			planes[plane.Key()] = all
		}
		if all {
			return true
		}
		grants, err := c.h.o.Assignments.Grants(ctx)
		return err == nil && grants.Decide(c.Identity, Access{Read, id}).Allowed
	}
}
