package deployment

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/store"
)

// Stacks are deployments that remember: package stack decides what becomes of what
// they made. Their rows are those of deployments, with the stack's record as
// status; the engine's journal is the row's inventory.

// stackFacts are the properties of a stack's row.
type stackFacts struct {
	facts
	Description string             `json:"description,omitempty"`
	Unmanage    stack.Action       `json:"actionOnUnmanage,omitempty"`
	Deny        stack.DenySettings `json:"denySettings"`
	// Deployment is the id of the deployment that the last update runs as.
	Deployment string `json:"deployment,omitempty"`
	// Removal is how the stack is to be deleted, nil while nobody asked.
	Removal *removal `json:"removal,omitempty"`
}

// removal is a deletion that was asked for.
type removal struct {
	Unmanage stack.Action   `json:"actionOnUnmanage"`
	Caller   *auth.Identity `json:"caller,omitempty"`
	// Withheld says that credentials came with the request, which are in no store;
	// Held is the key that this process has them by.
	Withheld bool   `json:"withheld,omitempty"`
	Held     string `json:"held,omitempty"`
}

// IsStack reports whether an id is one of a stack.
func IsStack(id core.ID) bool { return strings.EqualFold(id.Type(), stack.Type) }

func readStack(r core.Resource) (stackFacts, stack.Record, error) {
	var f stackFacts
	if err := json.Unmarshal(r.Properties, &f); err != nil {
		return f, stack.Record{}, core.Errorf(core.CodeInternal, "the stored stack %s cannot be read", r.ID)
	}
	record := stack.Record{ID: r.ID}
	if len(r.Status) > 0 {
		if err := json.Unmarshal(r.Status, &record); err != nil {
			return f, record, core.Errorf(core.CodeInternal, "the record of stack %s cannot be read", r.ID)
		}
	}
	return f, record, nil
}

// stackBody is what PUT, validate and whatIf are sent beside a deployment's body.
type stackBody struct {
	Properties *struct {
		Unmanage    *unmanageBody       `json:"actionOnUnmanage"`
		Deny        *stack.DenySettings `json:"denySettings"`
		Description string              `json:"description"`
		Scope       string              `json:"deploymentScope"`
		Bypass      bool                `json:"bypassStackOutOfSyncError"`
	} `json:"properties"`
	credentialsBody
}

// unmanageBody is actionOnUnmanage. Only resources are unmanaged: groups and what
// is above them are nobody's to delete by a template.
type unmanageBody struct {
	Resources        string `json:"resources"`
	ResourceGroups   string `json:"resourceGroups"`
	ManagementGroups string `json:"managementGroups"`
	Without          string `json:"resourcesWithoutDeleteSupport"`
}

// credentialsBody is our addition: what reaches the clusters of UserOwned scopes
// that the template itself does not name any more, by fingerprint, "*" for any.
// It stays in this process's memory.
type credentialsBody struct {
	Credentials map[string]map[string]any `json:"credentials"`
}

func (b credentialsBody) read() (map[string]extension.Secrets, error) {
	out := map[string]extension.Secrets{}
	for name, entries := range b.Credentials {
		secrets := extension.Secrets{}
		for entry, v := range entries {
			if m, ok := v.(map[string]any); ok {
				if _, ok := m["reference"]; ok {
					return nil, badContent("credentials."+name+"."+entry, "refers to a secret of a key vault, and this server has no access to one: read it where the request is sent from, and send its value")
				}
				v = m["value"]
			}
			text, ok := v.(string)
			if !ok || text == "" {
				return nil, badContent("credentials."+name+"."+entry, `must be {"value": "…"}`)
			}
			secrets[entry] = text
		}
		if name == "*" {
			name = ""
		}
		out[name] = secrets
	}
	return out, nil
}

func readAction(at, text string, fallback stack.Action) (stack.Action, error) {
	switch {
	case text == "":
		return fallback, nil
	case strings.EqualFold(text, string(stack.Delete)):
		return stack.Delete, nil
	case strings.EqualFold(text, string(stack.Detach)):
		return stack.Detach, nil
	}
	return "", badContent(at, "is %q: it must be %s or %s", text, stack.Delete, stack.Detach)
}

func (b unmanageBody) check() error {
	for at, text := range map[string]string{"resourceGroups": b.ResourceGroups, "managementGroups": b.ManagementGroups, "resourcesWithoutDeleteSupport": b.Without} {
		switch strings.ToLower(text) {
		case "", "detach":
		case "fail":
			if at == "resourcesWithoutDeleteSupport" {
				continue // every kind that is made here can be deleted
			}
			fallthrough
		default:
			return badContent("properties.actionOnUnmanage."+at, "is %q, and only resources are unmanaged: leave it out, or say detach", text)
		}
	}
	return nil
}

// stackVersion is the version that rows are kept under: clients may ask by any.
const stackVersion = "2025-07-01"

var stackName = regexp.MustCompile(`^[-\w.()]{1,90}$`)

func checkStack(id core.ID) error {
	if !id.IsResource() || len(id.Types) != 1 || len(id.Scopes) != 1 {
		return core.Errorf(core.CodeBadRequest, "%s is no deployment stack: stacks stand in a resource group, as /planes/radius/local/resourceGroups/<group>/providers/%s/<name>", id, stack.Type).WithTarget(id.String())
	}
	if !stackName.MatchString(id.Name()) {
		return core.Errorf(core.CodeInvalidContent, "the stack's name %q must have 1 to 90 letters, digits, dots, hyphens, underscores and parentheses", id.Name()).WithTarget("name")
	}
	return nil
}

// askedStack is a request about a stack that has been read.
type askedStack struct {
	*asked
	facts stackFacts
}

// maxDescription bounds a stack's description, in characters.
const maxDescription = 4096

func (s *Service) readStackRequest(ctx context.Context, id core.ID, raw []byte) (*askedStack, error) {
	var b stackBody
	if err := arm.Decode(raw, &b); err != nil {
		return nil, err
	}
	a, err := s.read(ctx, id, raw)
	if err != nil {
		return nil, err
	}
	p := b.Properties
	out := &askedStack{asked: a}
	f := &out.facts
	f.Unmanage, f.Description = stack.Delete, p.Description
	if len(f.Description) > maxDescription {
		return nil, badContent("properties.description", "has %d characters: at most %d are kept", len(f.Description), maxDescription)
	}
	if p.Unmanage != nil {
		if err := p.Unmanage.check(); err != nil {
			return nil, err
		}
		if f.Unmanage, err = readAction("properties.actionOnUnmanage.resources", p.Unmanage.Resources, stack.Delete); err != nil {
			return nil, err
		}
	}
	if p.Scope != "" {
		if scope, err := core.ParseID(p.Scope); err != nil || !scope.Equal(id.Scope()) {
			return nil, badContent("properties.deploymentScope", "is %q: a stack deploys to the group that it stands in, %s", p.Scope, id.Scope())
		}
	}
	f.Deny = stack.DenySettings{Mode: stack.DenyNone}
	if p.Deny != nil {
		f.Deny = *p.Deny
	}
	if err := f.Deny.Check(); err != nil {
		return nil, err
	}
	if a.in.Credentials, err = b.credentialsBody.read(); err != nil {
		return nil, err
	}
	if len(a.in.Credentials) > 0 {
		a.facts.Withheld = true
	}
	f.facts = a.facts
	return out, nil
}

// StackRoutes adds the routes of stacks. Call it before more general ones are
// added: the first that fits wins.
func (s *Service) StackRoutes(add func(pattern string, methods map[string]arm.Handler)) {
	type methods = map[string]arm.Handler
	const plane = "planes/{planeType}/{plane}"
	const all = "/providers/Microsoft.Resources/deploymentStacks"
	const one = plane + "/resourcegroups/{group}" + all + "/{name}"
	v := func(h arm.Handler) arm.Handler {
		return func(w http.ResponseWriter, r *arm.Request) error {
			if !apiVersion.MatchString(r.APIVersion) {
				return core.Errorf(core.CodeInvalidAPIVersion, "API version '%s' for type '%s' is not supported. The supported api-versions are those of Azure Resource Manager, such as '2025-07-01'.", r.APIVersion, stack.Type).WithTarget(stack.Type)
			}
			return h(w, r)
		}
	}
	add(plane+all, methods{"GET": v(s.listStacks)})
	add(plane+"/resourcegroups/{group}"+all, methods{"GET": v(s.listStacks)})
	add(one, methods{"GET": v(s.getStack), "PUT": v(s.putStack), "DELETE": v(s.deleteStack)})
	add(one+"/{action}", methods{"POST": v(s.stackAction)})
}

func stackOf(r *arm.Request, segments int) (core.ID, error) {
	path := *r
	path.Segments = r.Segments[:len(r.Segments)-segments]
	id, err := path.ID()
	if err != nil {
		return id, err
	}
	return id.WithType(stack.Type), checkStack(id.WithType(stack.Type))
}

func (s *Service) loadStack(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error) {
	r, live, err := s.o.Store.Get(ctx, id)
	if core.IsCode(err, core.CodeNotFound) {
		return r, nil, core.Errorf(core.CodeNotFound, "deployment stack %s does not exist", id).WithTarget(id.String())
	}
	return r, live, err
}

// activeStack is the refusal of a second update at a time (S-55).
func activeStack(id core.ID, live *core.Operation) error {
	return core.Errorf(core.CodeConflict, "deployment stack %s is being changed (operation %s): wait for its end, or cancel it", id, live.ID).WithTarget(id.String())
}

func (s *Service) putStack(w http.ResponseWriter, r *arm.Request) error {
	id, err := stackOf(r, 0)
	if err != nil {
		return err
	}
	raw, err := arm.ReadLarge(w, r, maxBody, arm.MediaJSON)
	if err != nil {
		return err
	}
	// What is accepted is finished, also for a client that goes away.
	ctx := context.WithoutCancel(r.Context())
	a, err := s.readStackRequest(ctx, id, raw)
	if err != nil {
		return err
	}
	if err := s.holdable(id, a.facts.Withheld); err != nil {
		return err
	}
	who, by, pre := caller(r.Context()), r.SystemData(), r.Preconditions()
	for range 8 {
		stored, live, err := s.o.Store.Get(ctx, id)
		existed := err == nil
		switch {
		case err != nil && !core.IsCode(err, core.CodeNotFound):
			return err
		case live != nil:
			return activeStack(id, live)
		}
		if err := pre.Check(id, stored.ETag); err != nil {
			return err
		}
		wr, f, err := s.writeStack(a, stored, r.APIVersion, who, by)
		if err != nil {
			return err
		}
		if f.Withheld {
			s.hold(wr.Operation.ID, a.in) // before a worker can lease it
		}
		accepted, err := s.o.Store.Accept(ctx, wr)
		if core.IsCode(err, store.Changed) && s.o.Sealer.Renew(ctx, &wr.Resource) {
			accepted, err = s.o.Store.Accept(ctx, wr)
		}
		if err != nil {
			s.forget(wr.Operation.ID)
		}
		switch {
		case core.IsCode(err, store.Changed), core.IsCode(err, core.CodeConflict):
			continue
		case err != nil:
			return err
		}
		arm.SetAsync(w, r, accepted.ID, wr.Operation.ID)
		status := http.StatusCreated
		if existed {
			status = http.StatusOK
		}
		return s.answerStack(w, status, accepted)
	}
	return core.Errorf(core.CodeConflict, "deployment stack %s is being changed by others faster than this request could be accepted: repeat it", id).WithTarget(id.String())
}

// writeStack is the row and the operation of an accepted update. The record stays
// what it is until the operation ends.
func (s *Service) writeStack(a *askedStack, stored core.Resource, version string, who *auth.Identity, by core.SystemData) (store.Write, stackFacts, error) {
	wr, err := s.write(a.asked, stored, version, who, by)
	if err != nil {
		return wr, stackFacts{}, err
	}
	f := a.facts
	if err := json.Unmarshal(wr.Resource.Properties, &f.facts); err != nil {
		return wr, f, err
	}
	f.Deployment = deploymentOf(wr.Resource.ID, f.Started).String()
	if wr.Resource.Properties, err = json.Marshal(f); err != nil {
		return wr, f, err
	}
	wr.Resource.Status, wr.Resource.APIVersion = stored.Status, stackVersion
	return wr, f, nil
}

// deploymentOf is the id of the deployment that an update runs as: named after
// the stack and the moment.
func deploymentOf(id core.ID, at time.Time) core.ID {
	name := id.Name()
	if len(name) > 64-18 {
		name = name[:64-18]
	}
	return id.Scope().Resource(Type, fmt.Sprintf("%s-%s%03d", name, at.UTC().Format("060102150405"), at.UTC().Nanosecond()/1e6))
}

// deleteStack begins the deletion of a stack and of what it manages, or only of
// the stack: unmanageAction.Resources says so, else what the stack says itself.
func (s *Service) deleteStack(w http.ResponseWriter, r *arm.Request) error {
	id, err := stackOf(r, 0)
	if err != nil {
		return err
	}
	for _, at := range []string{"ResourceGroups", "ManagementGroups"} {
		if v := r.Query("unmanageAction." + at); v != "" && !strings.EqualFold(v, string(stack.Detach)) {
			return core.Errorf(core.CodeBadRequest, "unmanageAction.%s is %q, and only resources are unmanaged: leave it out, or say detach", at, v).WithTarget("unmanageAction." + at)
		}
	}
	var given credentialsBody
	if r.ContentLength != 0 {
		raw, err := arm.ReadLarge(w, r, maxBody, arm.MediaJSON)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(raw)) > 0 {
			if err := arm.Decode(raw, &given); err != nil {
				return err
			}
		}
	}
	credentials, err := given.read()
	if err == nil {
		err = s.holdable(id, len(credentials) > 0)
	}
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context())
	stored, live, err := s.o.Store.Get(ctx, id)
	switch {
	case core.IsCode(err, core.CodeNotFound):
		w.WriteHeader(http.StatusNoContent)
		return nil
	case err != nil:
		return err
	case live != nil:
		return activeStack(id, live)
	}
	if err := r.Preconditions().Check(id, stored.ETag); err != nil {
		return err
	}
	f, _, err := readStack(stored)
	if err != nil {
		return err
	}
	fallback := f.Unmanage
	if fallback == "" {
		fallback = stack.Delete
	}
	gone := removal{Caller: caller(r.Context()), Withheld: len(credentials) > 0}
	if gone.Unmanage, err = readAction("unmanageAction.Resources", r.Query("unmanageAction.Resources"), fallback); err != nil {
		return err
	}
	operation := s.o.NewID()
	if gone.Withheld {
		gone.Held = operation
		s.hold(operation, inputs{Credentials: credentials})
	}
	// Two steps: a deletion that is accepted has its row as it is. What comes
	// between them finds another entity tag.
	f.Removal = &gone
	next := stored
	if next.Properties, err = json.Marshal(f); err != nil {
		return err
	}
	now := s.o.Now()
	written, err := s.o.Store.Accept(ctx, store.Write{Resource: next, Expect: stored.ETag, Now: now})
	if err == nil {
		_, err = s.o.Store.AcceptDelete(ctx, store.Delete{ID: id, State: core.StateDeleting, Expect: written.ETag, Now: now, Operation: &core.Operation{
			ID: operation, ResourceID: stored.ID, Verb: core.VerbDelete, APIVersion: r.APIVersion, State: core.StateAccepted,
			Group: id.Scope().Key(), Created: now, Deadline: now.Add(s.o.Deadline),
		}})
	}
	if err != nil {
		s.forget(operation)
		if core.IsCode(err, store.Changed) {
			return core.Errorf(core.CodeConflict, "deployment stack %s was changed at this moment: repeat the deletion if it is still wanted", id).WithTarget(id.String())
		}
		return err
	}
	arm.SetAsync(w, r, stored.ID, operation)
	w.WriteHeader(http.StatusAccepted)
	return nil
}
