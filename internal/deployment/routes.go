package deployment

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/store"
)

// actionSecureOutputs answers outputs with the values of secure ones.
const actionSecureOutputs = "listOutputsWithSecureValues"

// maxBody bounds a request, in bytes: a template and its parameters of 4 MiB each.
const maxBody = 9 << 20

// apiVersion is of the clients of Azure Resource Manager: any date is taken since
// the shapes answered here.
var apiVersion = regexp.MustCompile(`^(201[6-9]|20[2-9]\d)-\d\d-\d\d(-preview)?$`)

// storedVersion is the version that rows are kept under: clients may ask by any, and
// what deletes a row with its group asks by the row's.
const storedVersion = "2025-04-01"

// Routes adds the routes of deployments. Call it before more general ones are
// added: the first that fits wins.
func (s *Service) Routes(add func(pattern string, methods map[string]arm.Handler)) {
	type methods = map[string]arm.Handler
	const plane = "planes/{planeType}/{plane}"
	const all = "/providers/Microsoft.Resources/deployments"
	const one = plane + "/resourcegroups/{group}" + all + "/{name}"
	v := func(h arm.Handler) arm.Handler {
		return func(w http.ResponseWriter, r *arm.Request) error {
			if !apiVersion.MatchString(r.APIVersion) {
				return core.Errorf(core.CodeInvalidAPIVersion, "API version '%s' for type '%s' is not supported. The supported api-versions are those of Azure Resource Manager from '2016-02-01' on, such as '2025-04-01'.", r.APIVersion, Type).WithTarget(Type)
			}
			return h(w, r)
		}
	}
	add(plane+all, methods{"GET": v(s.list)})
	add(plane+"/resourcegroups/{group}"+all, methods{"GET": v(s.list)})
	add(plane+all+"/{rest...}", methods{"GET": v(s.misplaced), "PUT": v(s.misplaced), "DELETE": v(s.misplaced), "POST": v(s.misplaced), "PATCH": v(s.misplaced)})
	add(one, methods{"GET": v(s.get), "HEAD": v(s.head), "PUT": v(s.putRoute), "DELETE": v(s.delete)})
	add(one+"/operations", methods{"GET": v(s.listOperations)})
	add(one+"/operations/{operation}", methods{"GET": v(s.getOperation)})
	add(one+"/{action}", methods{"POST": v(s.action)})
}

// misplaced refuses deployments outside of a resource group.
func (s *Service) misplaced(_ http.ResponseWriter, r *arm.Request) error {
	id, err := r.ID()
	if err != nil {
		return err
	}
	return checkName(core.ID{Plane: id.Plane}.Resource(Type, id.Name()))
}

func idOf(r *arm.Request, segments int) (core.ID, error) {
	path := *r
	path.Segments = r.Segments[:len(r.Segments)-segments]
	id, err := path.ID()
	if err != nil {
		return id, err
	}
	return id.WithType(Type), checkName(id)
}

func (s *Service) get(w http.ResponseWriter, r *arm.Request) error {
	id, err := idOf(r, 0)
	if err != nil {
		return err
	}
	stored, _, err := s.load(r.Context(), id)
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusOK, stored)
}

func (s *Service) answer(w http.ResponseWriter, r *arm.Request, status int, stored core.Resource) error {
	out, err := s.show(r.Context(), stored)
	if err != nil {
		return err
	}
	if stored.ETag != "" {
		w.Header().Set("ETag", strconv.Quote(stored.ETag))
	}
	w.Header().Set("Cache-Control", "no-store")
	return arm.WriteJSON(w, status, out)
}

func (s *Service) head(w http.ResponseWriter, r *arm.Request) error {
	id, err := idOf(r, 0)
	if err != nil {
		return err
	}
	_, _, err = s.load(r.Context(), id)
	switch {
	case core.IsCode(err, core.CodeNotFound):
		w.WriteHeader(http.StatusNotFound)
		return nil
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

var stateFilter = regexp.MustCompile(`(?i)^\s*provisioningState\s+eq\s+'([A-Za-z]+)'\s*$`)

func (s *Service) list(w http.ResponseWriter, r *arm.Request) error {
	id, err := r.ID()
	if err != nil {
		return err
	}
	want := ""
	if filter := r.Query("$filter"); filter != "" {
		m := stateFilter.FindStringSubmatch(filter)
		if m == nil {
			return core.Errorf(core.CodeBadRequest, "$filter is %q: deployments are filtered by provisioningState eq '<state>' only", filter).WithTarget("$filter")
		}
		want = m[1]
	}
	return listShown(s, w, r, id.Scope(), Type, func(stored core.Resource) bool {
		return want == "" || strings.EqualFold(stateOf(stored.State), want)
	}, s.show)
}

// listShown answers a page of the resources of a type in a group: those that the
// caller may see and that are wanted, as show shows them.
func listShown[T any](s *Service, w http.ResponseWriter, r *arm.Request, group core.ID, resourceType string, wanted func(core.Resource) bool, show func(context.Context, core.Resource) (T, error)) error {
	page, err := r.Page()
	if err != nil {
		return err
	}
	if _, _, err := s.o.Store.Get(r.Context(), group); err != nil {
		return err
	}
	found, err := s.o.Store.List(r.Context(), store.Query{Scope: group, Type: resourceType, Limit: page.Limit, After: page.After})
	if err != nil {
		return err
	}
	list := struct {
		Value    []T    `json:"value"`
		NextLink string `json:"nextLink,omitempty"`
	}{Value: []T{}, NextLink: r.NextLink(found.Next)}
	visible := auth.Viewer(r.Context())
	for _, stored := range found.Resources {
		if !visible(stored.ID) || !wanted(stored) {
			continue
		}
		out, err := show(r.Context(), stored)
		if err != nil {
			return err
		}
		list.Value = append(list.Value, out)
	}
	return arm.WriteJSON(w, http.StatusOK, list)
}

func (s *Service) putRoute(w http.ResponseWriter, r *arm.Request) error {
	id, err := idOf(r, 0)
	if err != nil {
		return err
	}
	raw, err := arm.ReadLarge(w, r, maxBody, arm.MediaJSON)
	if err != nil {
		return err
	}
	// What is accepted is finished, also for a client that goes away.
	ctx := context.WithoutCancel(r.Context())
	a, err := s.read(ctx, id, raw)
	if err != nil {
		return err
	}
	stored, existed, err := s.accept(ctx, a, r.APIVersion, r.Preconditions(), caller(r.Context()), r.SystemData())
	if err != nil {
		return err
	}
	f, err := readFacts(stored)
	if err != nil {
		return err
	}
	arm.SetAsync(w, r, stored.ID, f.Operation)
	status := http.StatusCreated
	if existed {
		status = http.StatusOK
	}
	return s.answer(w, r, status, stored)
}

// active is the refusal of a second run of one name.
func active(id core.ID, operation string) error {
	return core.Errorf(core.CodeDeploymentActive, "deployment %s is running (operation: %s): wait for its end, cancel it, or choose another name", id, operation).WithTarget(id.String())
}

// holdable refuses a request with credentials that nobody could use: they stay in
// the process that took it, and this one runs nothing.
func (s *Service) holdable(id core.ID, withheld bool) error {
	if !withheld || !s.o.Workless {
		return nil
	}
	return core.Errorf(extension.CodeCredentialsNeeded, "%s comes with a kubeConfig, which is stored nowhere, and this server's workers are processes of their own, which it would never reach: use a scope whose credentials the server has (Radial with a member cluster, AzureResourceManager), a server that answers and works in one process, or radial stack apply --local", id).WithTarget(id.String())
}

// accept commits a deployment that was read.
func (s *Service) accept(ctx context.Context, a *asked, version string, pre arm.Preconditions, who *auth.Identity, by core.SystemData) (core.Resource, bool, error) {
	if err := s.holdable(a.id, a.facts.Withheld); err != nil {
		return core.Resource{}, false, err
	}
	for range 8 {
		stored, live, err := s.o.Store.Get(ctx, a.id)
		existed := err == nil
		if err != nil && !core.IsCode(err, core.CodeNotFound) {
			return stored, false, err
		}
		if err := pre.Check(a.id, stored.ETag); err != nil {
			return stored, existed, err
		}
		if live != nil {
			return stored, true, active(a.id, live.ID)
		}
		w, err := s.write(a, stored, version, who, by)
		if err != nil {
			return stored, existed, err
		}
		if a.facts.Withheld {
			s.hold(w.Operation.ID, a.in) // before a worker can lease it
		}
		r, err := s.o.Store.Accept(ctx, w)
		if core.IsCode(err, store.Changed) && s.o.Sealer.Renew(ctx, &w.Resource) {
			r, err = s.o.Store.Accept(ctx, w)
		}
		if err == nil {
			return r, existed, nil
		}
		s.forget(w.Operation.ID)
		switch {
		case core.IsCode(err, store.Changed):
			continue
		case core.IsCode(err, core.CodeConflict):
			continue // one that was accepted at this moment: the next look names it
		}
		return r, existed, err
	}
	return core.Resource{}, false, core.Errorf(core.CodeConflict, "deployment %s is being changed by others faster than this request could be accepted: repeat it", a.id).WithTarget(a.id.String())
}

// write is the row and the operation of an accepted deployment.
func (s *Service) write(a *asked, stored core.Resource, version string, who *auth.Identity, by core.SystemData) (store.Write, error) {
	now := s.o.Now()
	op := &core.Operation{
		ID: s.o.NewID(), ResourceID: a.id, Verb: core.VerbPut, APIVersion: version, State: core.StateAccepted,
		Group: a.id.Scope().Key(), Created: now, Deadline: now.Add(s.o.Deadline),
	}
	f := a.facts
	f.Correlation, f.Operation, f.Run, f.Started, f.Caller = s.o.NewID(), op.ID, op.ID, a.started, who
	r := core.Resource{ID: a.id, APIVersion: storedVersion, Location: a.location, Tags: a.tags, State: core.StateAccepted, SystemData: stored.SystemData}
	if r.Location == "" {
		r.Location = "global"
	}
	if r.SystemData.CreatedAt.IsZero() {
		r.SystemData = core.SystemData{CreatedBy: by.CreatedBy, CreatedByType: by.CreatedByType, CreatedAt: now.UTC()}
	}
	r.SystemData.LastModifiedBy, r.SystemData.LastModifiedByType, r.SystemData.LastModifiedAt = by.LastModifiedBy, by.LastModifiedByType, now.UTC()

	var before resume
	if found, err := s.open(stored, secretResume, &before); found && err == nil {
		again := a.in
		if markOf(before.Seed, f.TemplateHash, again) == before.Mark {
			f.Run, f.Started, a.in.Seed, a.in.Mark = before.Run, before.Started, before.Seed, before.Mark
		}
	}
	var err error
	if r.Properties, err = json.Marshal(f); err != nil {
		return store.Write{}, err
	}
	if err := s.putTemplate(&r, a.text); err != nil {
		return store.Write{}, err
	}
	if err := s.put(&r, store.InputsSecret, a.sealable()); err != nil {
		return store.Write{}, err
	}
	s.o.Sealer.Stamp(&r)
	w := store.Write{Resource: r, Operation: op, Expect: stored.ETag, Now: now}
	return w, nil
}

// delete forgets a deployment: what it made stays.
func (s *Service) delete(w http.ResponseWriter, r *arm.Request) error {
	id, err := idOf(r, 0)
	if err != nil {
		return err
	}
	stored, live, err := s.load(r.Context(), id)
	if core.IsCode(err, core.CodeNotFound) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.Preconditions().Check(id, stored.ETag); err != nil {
		return err
	}
	if live != nil {
		return active(id, live.ID)
	}
	if err := s.Forget(context.WithoutCancel(r.Context()), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Forget forgets a deployment that has ended: what it made stays. One that runs
// is refused, one that is gone is no error.
func (s *Service) Forget(ctx context.Context, id core.ID) error {
	_, err := s.o.Store.AcceptDelete(ctx, store.Delete{ID: id, Expect: "*", Now: s.o.Now()})
	switch {
	case core.IsCode(err, core.CodeConflict):
		return active(id, "a moment ago")
	case core.IsCode(err, core.CodeNotFound):
		return nil
	}
	return err
}

// operationsOf are the operations of the deployment that a request names, below
// which it goes on by so many segments.
func (s *Service) operationsOf(r *arm.Request, beyond int) (core.ID, []shownOperation, error) {
	id, err := idOf(r, beyond)
	if err != nil {
		return core.ID{}, nil, err
	}
	stored, _, err := s.load(r.Context(), id)
	if err != nil {
		return core.ID{}, nil, err
	}
	list, err := s.operations(r.Context(), stored)
	return id, list, err
}

func (s *Service) listOperations(w http.ResponseWriter, r *arm.Request) error {
	_, list, err := s.operationsOf(r, 1)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return arm.WriteJSON(w, http.StatusOK, map[string]any{"value": list})
}

func (s *Service) getOperation(w http.ResponseWriter, r *arm.Request) error {
	id, list, err := s.operationsOf(r, 2)
	if err != nil {
		return err
	}
	name := r.Vars["operation"]
	i := slices.IndexFunc(list, func(o shownOperation) bool { return strings.EqualFold(o.OperationID, name) })
	if i < 0 {
		return core.Errorf(core.CodeNotFound, "deployment %s has no operation %q: GET %s/operations lists them, as long as the log of its last run is kept", id, name, id).WithTarget(name)
	}
	return arm.WriteJSON(w, http.StatusOK, list[i])
}

// action answers POST {deployment}/{action}.
func (s *Service) action(w http.ResponseWriter, r *arm.Request) error {
	id, err := idOf(r, 1)
	if err != nil {
		return err
	}
	name := r.Vars["action"]
	switch strings.ToLower(name) {
	case "validate":
		return s.validate(w, r, id)
	case "whatif":
		return s.whatIf(w, r, id)
	case "cancel":
		return s.cancel(w, r, id)
	case "exporttemplate":
		stored, _, err := s.load(r.Context(), id)
		if err != nil {
			return err
		}
		text, err := s.template(stored)
		if err != nil {
			return err
		}
		return arm.WriteJSON(w, http.StatusOK, map[string]any{"template": json.RawMessage(text)})
	case "getgraph":
		stored, _, err := s.load(r.Context(), id)
		if err != nil {
			return err
		}
		return s.graph(w, r, stored)
	case strings.ToLower(actionSecureOutputs):
		stored, _, err := s.load(r.Context(), id)
		if err != nil {
			return err
		}
		out, err := s.secureOutputs(stored)
		if err != nil {
			return err
		}
		w.Header().Set("Cache-Control", "no-store")
		return arm.WriteJSON(w, http.StatusOK, out)
	}
	return core.Errorf(core.CodeNotFound, "The request 'POST %s' is invalid: a deployment has no action %q; it has validate, whatIf, cancel, exportTemplate, getGraph and %s.", r.URL.Path, name, actionSecureOutputs)
}

// cancel asks for the end of a run.
func (s *Service) cancel(w http.ResponseWriter, r *arm.Request, id core.ID) error {
	stored, live, err := s.load(r.Context(), id)
	if err != nil {
		return err
	}
	if live == nil {
		return core.Errorf(core.CodeConflict, "deployment %s is not running: it is %s", id, stateOf(stored.State)).WithTarget(id.String())
	}
	_, err = s.o.Store.Cancel(context.WithoutCancel(r.Context()), store.Cancel{
		Operation: live.ID, Error: core.Errorf(core.CodeCanceled, "the deployment was canceled on request. What it made stays: deploy again to go on"), Now: s.o.Now(),
	})
	if err != nil {
		return err
	}
	s.forget(live.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// secureOutputs are the outputs of a deployment, secure ones with their values.
func (s *Service) secureOutputs(r core.Resource) (map[string]any, error) {
	o, err := readOutcome(r)
	if err != nil {
		return nil, err
	}
	hidden := map[string]any{}
	if _, err := s.open(r, secretOutputs, &hidden); err != nil {
		return nil, err
	}
	outputs := map[string]any{}
	for _, v := range o.Outputs {
		outputs[v.Name] = shownValue{v.Type, v.Value}
		if secret, ok := hidden[v.Name]; ok {
			outputs[v.Name] = secret
		}
	}
	object, err := asObject(outputs)
	return map[string]any{"properties": map[string]any{"outputs": object}}, err
}

func asObject(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	return object, json.Unmarshal(raw, &object)
}

// look reads a request that only asks what would be, and the engine to ask.
func (s *Service) look(w http.ResponseWriter, r *arm.Request, id core.ID) (context.Context, *asked, *deploy.Engine, deploy.Request, error) {
	raw, err := arm.ReadLarge(w, r, maxBody, arm.MediaJSON)
	if err != nil {
		return nil, nil, nil, deploy.Request{}, err
	}
	ctx, _ := conceal.With(r.Context())
	a, err := s.read(ctx, id, raw)
	if err != nil {
		return nil, nil, nil, deploy.Request{}, err
	}
	if _, _, err := s.o.Store.Get(ctx, id.Scope()); err != nil {
		return nil, nil, nil, deploy.Request{}, err
	}
	ctx = concealInputs(ctx, a.template, a.in)
	a.facts.Started, a.facts.Correlation = a.started, s.o.NewID()
	as := As{Caller: caller(r.Context()), Group: id.Scope(), Scope: a.facts.scope(id)}
	engine := deploy.New(deploy.EngineOptions{Resolver: s.Resolver(as), Resources: s.Resources(as), Link: s.o.Link, Parallel: s.o.Parallel, Now: s.o.Now})
	return ctx, a, engine, s.request(id, a.text, a.in, a.facts), nil
}

// invalid is why a template that can be read cannot be deployed.
func invalid(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	e := concealError(ctx, core.AsError(badTemplate(err)))
	switch e.Code.Status() {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusServiceUnavailable:
		return e
	}
	details := e.Details
	if len(details) == 0 {
		details = []core.Error{*e}
	}
	return core.Errorf(core.CodeInvalidDeployment, "the template cannot be deployed: %s", e.Message).WithTarget(e.Target).WithDetails(details...)
}

func (s *Service) validate(w http.ResponseWriter, r *arm.Request, id core.ID) error {
	ctx, a, engine, req, err := s.look(w, r, id)
	if err != nil {
		return err
	}
	found, err := engine.Validate(ctx, req)
	if err != nil {
		return invalid(ctx, err)
	}
	out := shown{ID: id.String(), Name: id.Name(), Type: Type}
	p := &out.Properties
	p.ProvisioningState, p.Mode, p.TemplateHash, p.TemplateLink = string(core.StateSucceeded), a.facts.Mode, a.facts.TemplateHash, a.facts.TemplateLink
	p.Parameters, p.Providers, p.Dependencies, p.Extensions, p.CorrelationID = a.facts.Parameters, a.facts.Providers, a.facts.Dependencies, a.facts.Extensions, a.facts.Correlation
	p.Timestamp, p.Duration = s.o.Now().UTC().Format("2006-01-02T15:04:05.9999999Z07:00"), ISODuration(s.o.Now().Sub(a.started))
	p.ValidatedResource = showResources(found.Resources, a.facts.radius())
	for _, text := range found.Warnings {
		p.Diagnostics = append(p.Diagnostics, diagnostic{"Warning", "NamespaceNotFound", text})
	}
	for _, symbol := range found.Unknown {
		p.Diagnostics = append(p.Diagnostics, diagnostic{"Info", "NotKnownBefore", "the id of " + symbol + " is known when what it needs has been made"})
	}
	return arm.WriteJSON(w, http.StatusOK, out)
}
