package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// world stands for clusters and the control plane where a test must fail them at
// a chosen call: the real parts are used everywhere else.
type world struct {
	mu       sync.Mutex
	places   map[string]string // scope's id, or cluster: the mark of what it leads to
	objects  map[string]*object
	resolved []string
	log      []string
	// bodies are those that each object was applied with, in order.
	bodies map[string][]string
	uids   map[string]int // objects made, by key
	// before and after are called around every call; an error fails it. After a
	// call that failed afterwards, what it did stays done.
	before, after func(call string) error

	own  map[string]map[string]any
	ops  map[string]*core.Operation
	jobs []string // operations that have not ended
	// refuse says why an operation fails, by the resource's name.
	refuse map[string]*core.Error
}

type object struct {
	uid   string
	owner core.ID
	body  map[string]any
}

func newWorld() *world {
	return &world{places: map[string]string{"": "main"}, objects: map[string]*object{}, bodies: map[string][]string{}, uids: map[string]int{},
		own: map[string]map[string]any{}, ops: map[string]*core.Operation{}, refuse: map[string]*core.Error{}}
}

func (w *world) call(format string, args ...any) (done func(error) error, err error) {
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	w.log = append(w.log, text)
	w.mu.Unlock()
	if w.before != nil {
		if err := w.before(text); err != nil {
			return nil, err
		}
	}
	return func(err error) error {
		if w.after != nil {
			if late := w.after(text); late != nil {
				return late
			}
		}
		return err
	}, nil
}

func (w *world) calls(prefix string) (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.log {
		if strings.HasPrefix(c, prefix) {
			found = append(found, c)
		}
	}
	return found
}

func (w *world) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	w.log = nil
	return log
}

// names are the objects that exist.
func (w *world) names() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(w.objects)), " ")
}

// Resolve implements extension.Resolver.
func (w *world) Resolve(ctx context.Context, s extension.Scope, secrets extension.Secrets) (extension.Target, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	at := s.ID
	if at == "" {
		at = s.Cluster
	}
	if k, ok := secrets[kubeConfigEntry].(string); ok {
		at = k
	} else if s.Type == "UserOwned" {
		return nil, core.Errorf(extension.CodeCredentialsNeeded, "the kubeConfig of the cluster %s is not kept: supply it again", s.Fingerprint)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resolved = append(w.resolved, at)
	mark, ok := w.places[at]
	if !ok {
		return nil, core.Errorf(extension.CodeScopeGone, "%s does not exist", at).WithTarget(at)
	}
	return &place1{w, mark, s.Namespace}, nil
}

// place1 is one place of the world.
type place1 struct {
	w         *world
	mark      string
	namespace string
}

func (t *place1) ref(r extension.Resource) (extension.Ref, string, error) {
	meta, _ := r.Properties["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	ns, _ := meta["namespace"].(string)
	if ns == "" {
		ns = t.namespace
	}
	if name == "" || ns == "" {
		return extension.Ref{}, "", core.Errorf(core.CodeInvalidTemplate, "it needs name and namespace")
	}
	group, kind, _ := strings.Cut(r.Type, "/")
	return extension.Ref{ID: core.KubernetesID(t.mark, ns, group, kind, name), Type: r.Type, APIVersion: r.APIVersion, Owner: r.Owner,
		Identifiers: mustJSON(map[string]any{"metadata": map[string]any{"name": name, "namespace": ns}})}, t.mark + "/" + ns + "/" + name, nil
}

func (t *place1) key(ref extension.Ref) string {
	var ids struct {
		Metadata struct{ Name, Namespace string }
	}
	if err := json.Unmarshal(ref.Identifiers, &ids); err != nil {
		panic(err)
	}
	return t.mark + "/" + ids.Metadata.Namespace + "/" + ids.Metadata.Name
}

func (t *place1) Preview(ctx context.Context, r extension.Resource) (extension.State, error) {
	ref, key, err := t.ref(r)
	if err == nil && len(r.Unevaluated) == 0 {
		var done func(error) error
		if done, err = t.w.call("preview %s", key); err == nil {
			err = done(nil)
		}
	}
	return extension.State{Ref: ref, Properties: r.Properties}, err
}

func (t *place1) Apply(ctx context.Context, r extension.Resource) (extension.State, error) {
	ref, key, err := t.ref(r)
	if err != nil {
		return extension.State{}, err
	}
	done, err := t.w.call("apply %s", key)
	if err != nil {
		return extension.State{}, err
	}
	t.w.mu.Lock()
	t.w.bodies[key] = append(t.w.bodies[key], string(mustJSON(r.Properties)))
	o := t.w.objects[key]
	if o == nil {
		t.w.uids[key]++
		o = &object{uid: fmt.Sprintf("uid-%s-%d", ref.ID.Name(), t.w.uids[key])}
		t.w.objects[key] = o
	}
	if !o.owner.IsZero() && !o.owner.Equal(r.Owner) {
		t.w.mu.Unlock()
		return extension.State{}, core.Errorf(core.CodeConflict, "it belongs to %s", o.owner)
	}
	o.owner, o.body = r.Owner, maps.Clone(r.Properties)
	ref.UID = o.uid
	s := extension.State{Ref: ref, Properties: o.live()}
	t.w.mu.Unlock()
	return s, done(nil)
}

func (o *object) live() map[string]any {
	live := maps.Clone(o.body)
	meta, _ := live["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	meta["uid"] = o.uid
	if !o.owner.IsZero() {
		meta["annotations"] = map[string]any{ownerAnnotation: o.owner.String()}
	}
	live["metadata"] = meta
	return live
}

func (t *place1) Get(ctx context.Context, ref extension.Ref) (extension.State, error) {
	key := t.key(ref)
	done, err := t.w.call("get %s", key)
	if err != nil {
		return extension.State{}, err
	}
	t.w.mu.Lock()
	o := t.w.objects[key]
	if o == nil {
		t.w.mu.Unlock()
		return extension.State{}, core.Errorf(core.CodeNotFound, "%s does not exist", key)
	}
	ref.UID = o.uid
	s := extension.State{Ref: ref, Properties: o.live()}
	t.w.mu.Unlock()
	return s, done(nil)
}

func (t *place1) Delete(ctx context.Context, ref extension.Ref) error {
	key := t.key(ref)
	done, err := t.w.call("delete %s", key)
	if err != nil {
		return err
	}
	t.w.mu.Lock()
	if o := t.w.objects[key]; o != nil && (o.uid == ref.UID || ref.UID == "" && o.owner.Equal(ref.Owner) || ref.Unverified) {
		delete(t.w.objects, key)
	}
	t.w.mu.Unlock()
	return done(nil)
}

func (t *place1) Release(ctx context.Context, ref extension.Ref) error {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if o := t.w.objects[t.key(ref)]; o != nil && o.owner.Equal(ref.Owner) {
		o.owner = core.ID{}
	}
	return nil
}

func (t *place1) ConfigID(context.Context) (string, error) { return t.mark, nil }

// plane is the world's control plane, as one operation of it sees it.
type plane struct{ *world }

func (p plane) Get(ctx context.Context, id core.ID, _ string) (map[string]any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.own[id.Key()]
	if r == nil {
		return nil, core.Errorf(core.CodeNotFound, "%s does not exist", id)
	}
	return maps.Clone(r), nil
}

func (p plane) Preview(ctx context.Context, id core.ID, _ string, body map[string]any) (map[string]any, error) {
	return body, nil
}

// Put begins an operation for every type but those named sync.
func (p plane) Put(ctx context.Context, id core.ID, version string, body map[string]any, patch bool) (map[string]any, string, error) {
	done, err := p.call("put %s", id.Name())
	if err != nil {
		return nil, "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := "own/" + id.Name()
	p.bodies[key] = append(p.bodies[key], string(mustJSON(body)))
	operation := "op-" + id.Name()
	if op := p.ops[operation]; op != nil && !op.State.Terminal() {
		return nil, operation, done(nil) // the one that it began before
	}
	props, _ := body["properties"].(map[string]any)
	if props = maps.Clone(props); props == nil {
		props = map[string]any{}
	}
	if patch {
		old, _ := p.own[id.Key()]["properties"].(map[string]any)
		merged := maps.Clone(old)
		maps.Copy(merged, props)
		props = merged
	}
	p.own[id.Key()] = map[string]any{"id": id.String(), "name": id.Name(), "type": id.Type(), "properties": props}
	if strings.HasSuffix(id.Type(), "sync") {
		return p.own[id.Key()], "", done(nil)
	}
	p.ops[operation] = &core.Operation{ID: operation, ResourceID: id, Verb: core.VerbPut, State: core.StateUpdating}
	p.jobs = append(p.jobs, operation)
	return nil, operation, done(nil)
}

func (p plane) Delete(ctx context.Context, id core.ID, _ string) (string, error) {
	done, err := p.call("delete own/%s", id.Name())
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, id.Key())
	return "", done(nil)
}

func (p plane) Operation(ctx context.Context, operation string) (core.Operation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if op := p.ops[operation]; op != nil {
		return *op, nil
	}
	return core.Operation{}, core.Errorf(core.CodeNotFound, "no operation %s", operation)
}

// work ends the operations that have begun.
func (w *world) work() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.jobs {
		op := w.ops[name]
		op.State = core.StateSucceeded
		if bad := w.refuse[op.ResourceID.Name()]; bad != nil {
			op.State, op.Error = core.StateFailed, bad
		} else if r := w.own[op.ResourceID.Key()]; r != nil {
			r["properties"].(map[string]any)["ready"] = true
		}
	}
	w.jobs = nil
}

func (p plane) Await(ctx context.Context, operation string) (core.Operation, error) {
	p.work()
	return p.Operation(ctx, operation)
}

func (p plane) Ask(ctx context.Context, id core.ID, _, action string, args map[string]any) (any, error) {
	done, err := p.call("ask %s %s", action, id.Name())
	if err != nil {
		return nil, err
	}
	return map[string]any{"key": "secret of " + id.Name(), "args": args}, done(nil)
}

// journal is an inventory in memory.
type journal struct {
	w    *world
	mu   sync.Mutex
	rows []core.Output
	// commits are what each write had.
	commits []string
}

func (j *journal) record(_ context.Context, put []core.Output, drop []core.ID) error {
	var parts []string
	for _, o := range put {
		parts = append(parts, o.LocalID+"="+string(o.State))
	}
	done, err := j.w.call("record")
	if err != nil {
		return err
	}
	j.mu.Lock()
	for _, id := range drop {
		parts = append(parts, "-"+id.Name())
		j.rows = slices.DeleteFunc(j.rows, func(k core.Output) bool { return k.ID.Equal(id) })
	}
	for _, o := range put {
		j.rows = slices.DeleteFunc(j.rows, func(k core.Output) bool { return k.ID.Equal(o.ID) })
		j.rows = append(j.rows, o)
	}
	j.commits = append(j.commits, strings.Join(parts, " "))
	j.mu.Unlock()
	return done(nil)
}

func (j *journal) previous() []core.Output {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.rows)
}

// seat is a world with an engine, a journal and what a request needs.
type seat struct {
	*testing.T
	w      *world
	e      *Engine
	j      *journal
	events []Event
	pauses []time.Duration
	base   Request
}

func newSeat(t *testing.T) *seat {
	s := &seat{T: t, w: newWorld()}
	s.j = &journal{w: s.w}
	s.e = New(EngineOptions{Resolver: s.w, Pause: func(_ context.Context, d time.Duration) error {
		s.pauses = append(s.pauses, d)
		return nil
	}})
	s.base = Request{
		Name: "main", Scope: core.GroupID("g"), ID: core.GroupID("g").Resource("Microsoft.Resources/deployments", "main"),
		Base: extension.Scope{Extension: "Kubernetes", Namespace: "ns"}, Run: "run-1", Seed: []byte("0123456789abcdef0123456789abcdef"),
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Resources: plane{s.w}, Record: s.j.record,
		Progress: func(e Event) { s.events = append(s.events, e) },
	}
	return s
}

func (s *seat) request(text string) Request {
	q := s.base
	q.Template, q.Previous = []byte(text), s.j.previous()
	return q
}

func (s *seat) deploy(text string) (*Result, error) { return s.e.Deploy(s.Context(), s.request(text)) }

func (s *seat) must(text string) *Result {
	s.Helper()
	res, err := s.deploy(text)
	if err != nil {
		s.Fatal(err)
	}
	return res
}

// refused wants an error with a text.
func (s *seat) refused(text, want string) error {
	s.Helper()
	_, err := s.deploy(text)
	if err == nil || !strings.Contains(err.Error(), want) {
		s.Errorf("got %v, want an error with %q", err, want)
	}
	return err
}

// doc is a template of symbolic resources with the import k.
func doc(body string) string {
	return `{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","version":"1.0.0"}},` + body + `}`
}

// cm is a ConfigMap of the import k; more are further members of the resource.
func cm(symbol, data, more string) string {
	if more != "" {
		more += ","
	}
	return fmt.Sprintf(`%q:{"import":"k","type":"core/ConfigMap@v1",%s"properties":{"metadata":{"name":%q},"data":%s}}`, symbol, more, symbol, data)
}

// module is a nested deployment of inner scope.
func module(symbol, params, template, more string) string {
	if more != "" {
		more += ","
	}
	return fmt.Sprintf(`%q:{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":%q,%s"properties":{"expressionEvaluationOptions":{"scope":"inner"},"parameters":%s,"template":%s}}`,
		symbol, symbol, more, params, template)
}

var errKilled = errors.New("killed")

func ids(list []Affected) string {
	var out []string
	for _, a := range list {
		out = append(out, a.Symbol)
	}
	return strings.Join(out, " ")
}
