package stack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/stack"
)

// world is what all clusters of a test hold, in memory. It is the target of the
// real engine, so that what a test sees is what the engine was asked for.
type world struct {
	mu      sync.Mutex
	objects map[string]object // by cluster and name
	made    int
	// calls are writes in their order: "apply a", "delete a", "release a".
	calls []string
	// refuse answers a call with an error, nil lets it pass.
	refuse func(call string) error
	// clusters are the marks of scopes; one that is missing is gone.
	clusters map[string]string
}

type object struct {
	uid   string
	owner core.ID
}

func newWorld() *world {
	return &world{objects: map[string]object{}, clusters: map[string]string{"": "cluster-0", "/c/1": "cluster-1", "/c/2": "cluster-2"}}
}

func (w *world) Resolve(_ context.Context, s extension.Scope, secrets extension.Secrets) (extension.Target, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Type == "UserOwned" {
		config, _ := secrets["kubeConfig"].(string)
		if config == "" {
			return nil, core.Errorf(extension.CodeCredentialsNeeded, "the scope %s needs its kubeConfig", s.Fingerprint)
		}
		return target{w, strings.TrimPrefix(config, "config-of-"), s.Namespace}, nil
	}
	mark, ok := w.clusters[s.ID]
	if !ok {
		return nil, core.Errorf(extension.CodeScopeGone, "%s does not exist", s.ID)
	}
	return target{w, mark, s.Namespace}, nil
}

// target is one cluster.
type target struct {
	w         *world
	mark      string
	namespace string
}

func (t target) name(identifiers json.RawMessage) string {
	var i struct{ Metadata struct{ Name string } }
	_ = json.Unmarshal(identifiers, &i)
	return i.Metadata.Name
}

func (t target) ref(r extension.Resource) extension.Ref {
	meta := r.Properties["metadata"].(map[string]any)
	name := meta["name"].(string)
	raw, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": name}})
	group, kind, _ := strings.Cut(r.Type, "/")
	return extension.Ref{ID: core.KubernetesID(t.mark, "", group, kind, name), Type: r.Type, APIVersion: r.APIVersion, Identifiers: raw, ConfigID: t.mark, Owner: r.Owner}
}

func (t target) call(verb, name string) error {
	call := verb + " " + name
	t.w.calls = append(t.w.calls, call)
	if t.w.refuse != nil {
		return t.w.refuse(call)
	}
	return nil
}

func (t target) Preview(_ context.Context, r extension.Resource) (extension.State, error) {
	ref := t.ref(r)
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	ref.UID = t.w.objects[t.mark+"/"+t.name(ref.Identifiers)].uid // "" before it is made
	return extension.State{Ref: ref, Properties: r.Properties}, nil
}

func (t target) Apply(_ context.Context, r extension.Resource) (extension.State, error) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	ref := t.ref(r)
	name := t.name(ref.Identifiers)
	if err := t.call("apply", name); err != nil {
		return extension.State{}, err
	}
	o, ok := t.w.objects[t.mark+"/"+name]
	if !ok {
		t.w.made++
		o = object{uid: fmt.Sprintf("uid-%d", t.w.made)}
	}
	o.owner = r.Owner
	t.w.objects[t.mark+"/"+name] = o
	ref.UID = o.uid
	return extension.State{Ref: ref, Properties: r.Properties}, nil
}

func (t target) Get(_ context.Context, ref extension.Ref) (extension.State, error) {
	if strings.HasSuffix(ref.Type, "SelfSubjectReview") {
		return extension.State{Ref: ref, Properties: map[string]any{"status": map[string]any{"userInfo": map[string]any{"username": "radial"}}}}, nil
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	o, ok := t.w.objects[t.mark+"/"+t.name(ref.Identifiers)]
	if !ok {
		return extension.State{}, core.Errorf(core.CodeNotFound, "no such object")
	}
	ref.UID = o.uid
	return extension.State{Ref: ref, Properties: map[string]any{"metadata": map[string]any{"uid": o.uid}}}, nil
}

func (t target) Delete(_ context.Context, ref extension.Ref) error {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	name := t.name(ref.Identifiers)
	if err := t.call("delete", name); err != nil {
		return err
	}
	o, ok := t.w.objects[t.mark+"/"+name]
	if ok && (ref.UID == o.uid || ref.UID == "" && o.owner.Equal(ref.Owner) || ref.Unverified) {
		delete(t.w.objects, t.mark+"/"+name)
	}
	return nil
}

func (t target) Release(_ context.Context, ref extension.Ref) error {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	name := t.name(ref.Identifiers)
	if err := t.call("release", name); err != nil {
		return err
	}
	if o, ok := t.w.objects[t.mark+"/"+name]; ok {
		o.owner = core.ID{}
		t.w.objects[t.mark+"/"+name] = o
	}
	return nil
}

func (t target) Detach(ctx context.Context, ref extension.Ref) error { return t.Release(ctx, ref) }

func (t target) ConfigID(context.Context) (string, error) { return t.mark, nil }

// session is a stack in memory. Like the control plane's it has no record of a
// run that did not come to its end, unless saved says so.
type session struct {
	record  stack.Record
	journal []core.Output
	removed bool
	// noteFails, when not nil, is what Note answers: the process is killed.
	noteFails func() error
	saveFails func(stack.Record) error
}

func (s *session) Context() context.Context { return context.Background() }
func (s *session) Record() stack.Record     { return s.record }
func (s *session) Journal() []core.Output   { return slices.Clone(s.journal) }
func (s *session) Close() error             { return nil }
func (s *session) Remove(context.Context) error {
	s.removed = true
	return nil
}

func (s *session) Note(_ context.Context, put []core.Output, drop []core.ID) error {
	if s.noteFails != nil {
		if err := s.noteFails(); err != nil {
			return err
		}
	}
	s.journal = stack.Noted(s.journal, put, drop)
	return nil
}

func (s *session) Save(_ context.Context, r stack.Record) error {
	if s.saveFails != nil {
		if err := s.saveFails(r); err != nil {
			return err
		}
	}
	s.record = r
	return nil
}

var stackID = core.GroupID("g").Resource(stack.Type, "shop")

type bench struct {
	*testing.T
	w     *world
	s     *session
	m     *stack.Manager
	waits []time.Duration
	runs  int
	run   string // of the next call; "" is a new one
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, w: newWorld(), s: &session{record: stack.Record{ID: stackID}}}
	b.m = stack.New(stack.Options{
		Engine: deploy.New(deploy.EngineOptions{Resolver: b.w}),
		Pause: func(_ context.Context, d time.Duration) error {
			b.waits = append(b.waits, d)
			return nil
		},
	})
	return b
}

func (b *bench) request(template string) deploy.Request {
	run := b.run
	if run == "" {
		b.runs++
		run = fmt.Sprintf("run-%d", b.runs)
	}
	return deploy.Request{
		ID: core.GroupID("g").Resource("Microsoft.Resources/deployments", "shop-"+run), Name: "shop", Template: []byte(template), Scope: core.GroupID("g"),
		Base: extension.Scope{Extension: "Kubernetes", Namespace: "default"}, Run: run, Started: time.Unix(1, 0), Seed: []byte("0123456789abcdef0123456789abcdef"),
	}
}

// try runs an update; err is only of a run that was cut off.
func (b *bench) try(template string, change ...func(*stack.Update)) (stack.Outcome, error) {
	b.Helper()
	u := stack.Update{Request: b.request(template), Unmanage: stack.Delete}
	for _, c := range change {
		c(&u)
	}
	return b.m.Update(b.Context(), b.s, u)
}

func (b *bench) update(template string, change ...func(*stack.Update)) stack.Outcome {
	b.Helper()
	out, err := b.try(template, change...)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// must is an update that succeeds.
func (b *bench) must(template string, change ...func(*stack.Update)) stack.Record {
	b.Helper()
	out := b.update(template, change...)
	if out.Failure != nil {
		b.Fatalf("update: %v", out.Failure)
	}
	if out.Record.State != stack.StateSucceeded {
		b.Fatalf("state %s", out.Record.State)
	}
	return out.Record
}

// objects are the names of what exists, with the cluster's mark when it is not 0.
func (b *bench) objects() string {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	var names []string
	for k := range b.w.objects {
		names = append(names, strings.TrimPrefix(k, "cluster-0/"))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (b *bench) calls(verb string) string {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	var names []string
	for _, c := range b.w.calls {
		if name, ok := strings.CutPrefix(c, verb+" "); ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func (b *bench) forget() {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	b.w.calls = nil
}

func names[T any](list []T, id func(T) string) string {
	var out []string
	for _, e := range list {
		text := id(e)
		out = append(out, text[strings.LastIndexByte(text, '/')+1:])
	}
	return strings.Join(out, " ")
}

func managed(r stack.Record) string {
	return names(r.Resources, func(m stack.Managed) string { return m.ID })
}

func affected(list []deploy.Affected) string {
	return names(list, func(a deploy.Affected) string { return a.ID })
}

// of makes a template of ConfigMaps: "a", or "b:a" for one that depends on a.
func of(resources ...string) string { return under("k8s", `"namespace":"default"`, resources...) }

func under(alias, config string, resources ...string) string {
	return fmt.Sprintf(`{"languageVersion":"2.0","contentVersion":"1.0.0.0","imports":{%q:{"provider":"Kubernetes","version":"1.0.0","config":{%s}}},"resources":{%s}}`,
		alias, config, members(alias, resources...))
}

func members(alias string, resources ...string) string {
	var out []string
	for _, r := range resources {
		name, on, ok := strings.Cut(r, ":")
		depends := ""
		if ok {
			depends = `"dependsOn":["` + on + `"],`
		}
		out = append(out, fmt.Sprintf(`%q:{"import":%q,"type":"core/ConfigMap@v1",%s"properties":{"metadata":{"name":%q}}}`, name, alias, depends, name))
	}
	return strings.Join(out, ",")
}

func TestUpdate_S29(t *testing.T) {
	b := newBench(t)
	r := b.must(of("a", "b"))
	if managed(r) != "a b" || b.objects() != "a b" {
		t.Fatalf("managed %q, there %q", managed(r), b.objects())
	}
	uid := b.w.objects["cluster-0/b"].uid
	r = b.must(of("b", "c"))
	if b.objects() != "b c" || managed(r) != "b c" || affected(r.Deleted) != "a" {
		t.Errorf("S-29: there %q, managed %q, deleted %q", b.objects(), managed(r), affected(r.Deleted))
	}
	if now := b.w.objects["cluster-0/b"].uid; now != uid {
		t.Errorf("S-29: b was made anew: %s, then %s", uid, now)
	}
	if r = b.must(of("b", "c")); len(r.Deleted) != 0 {
		t.Errorf("the lists are not of the last update only: %q", affected(r.Deleted))
	}
	if len(b.s.journal) != 2 {
		t.Errorf("the journal keeps %d entries", len(b.s.journal))
	}
}

func TestUpdate_detach_S51(t *testing.T) {
	b := newBench(t)
	b.must(of("a", "b"))
	r := b.must(of("b"), func(u *stack.Update) { u.Unmanage = stack.Detach })
	if b.objects() != "a b" || managed(r) != "b" || affected(r.Detached) != "a" || len(r.Deleted) != 0 || b.calls("delete") != "" {
		t.Errorf("S-51: there %q, managed %q, detached %q", b.objects(), managed(r), affected(r.Detached))
	}
	if owner := b.w.objects["cluster-0/a"].owner; !owner.IsZero() {
		t.Errorf("S-51: what was let go still has the mark of %s", owner)
	}
	// It is nobody's now: the next update does not touch it.
	if b.must(of()); b.objects() != "a" {
		t.Errorf("S-51: there %q", b.objects())
	}
}

func TestUpdate_same_S35(t *testing.T) {
	nested := func(where string) string {
		inner := fmt.Sprintf(`{"languageVersion":"2.0","contentVersion":"1.0.0.0","imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"default"}}},"resources":{%s}}`, members("k8s", "a"))
		return fmt.Sprintf(`{"languageVersion":"2.0","contentVersion":"1.0.0.0","resources":{%q:{"type":"Microsoft.Resources/deployments","apiVersion":"2022-09-01","name":%q,
			"properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"template":%s}}}}`, where, where, inner)
	}
	scoped := `"namespace":"default","scope":{"type":"AzureResourceManager","id":%q}`
	for name, c := range map[string]struct{ first, then string }{
		"S-35 from one nested deployment to another": {nested("m1"), nested("m2")},
		"S-35 out of a nested deployment":            {nested("m1"), of("a")},
		"S-35 under another alias":                   {of("a"), under("kube", `"namespace":"default"`, "a")},
		"by another symbol":                          {of("a"), strings.Replace(of("a"), `{"a":{`, `{"z":{`, 1)},
		"by another version of the type":             {of("a"), strings.Replace(of("a"), "ConfigMap@v1", "ConfigMap@v2", 1)},
		"an owner's id in another case":              {under("k", fmt.Sprintf(scoped, "/c/1"), "a"), under("k", fmt.Sprintf(scoped, "/C/1"), "a")},
		"by another scope that leads to the place":   {under("k", fmt.Sprintf(scoped, "/c/1"), "a"), under("k", fmt.Sprintf(scoped, "/c/one"), "a")},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.w.clusters["/C/1"], b.w.clusters["/c/one"] = "cluster-1", "cluster-1"
			b.must(c.first)
			before := fmt.Sprint(b.w.objects)
			r := b.must(c.then)
			if b.calls("delete") != "" || fmt.Sprint(b.w.objects) != before || len(r.Resources) != 1 {
				t.Errorf("before %s, after %v; calls %v, managed %q", before, b.w.objects, b.w.calls, managed(r))
			}
		})
	}
}

func TestUpdate_existing_S52(t *testing.T) {
	b := newBench(t)
	b.w.objects["cluster-0/storage"] = object{uid: "theirs"}
	read := strings.Replace(of("storage", "a:storage"), `"storage":{`, `"storage":{"existing":true,`, 1)
	r := b.must(read)
	if managed(r) != "a" {
		t.Errorf("S-52: managed %q", managed(r))
	}
	if r = b.must(of()); b.objects() != "storage" || len(r.Resources) != 0 {
		t.Errorf("S-52: there %q", b.objects())
	}
}

func TestUpdate_failed_S54(t *testing.T) {
	b := newBench(t)
	b.must(of("a"))
	b.w.refuse = func(call string) error {
		if call == "apply c" {
			return core.Errorf(core.CodeConflict, "no c today")
		}
		return nil
	}
	out := b.update(of("b", "c"))
	if out.Failure == nil || !strings.Contains(out.Failure.Error(), "no c today") || out.Record.State != stack.StateFailed || out.Record.Error == nil {
		t.Fatalf("S-54: %+v", out)
	}
	if b.objects() != "a b" || managed(out.Record) != "a b" || b.calls("delete") != "" {
		t.Errorf("S-54: there %q, managed %q, deleted %q", b.objects(), managed(out.Record), b.calls("delete"))
	}
	b.w.refuse = nil
	r := b.must(of("c"))
	if b.objects() != "c" || managed(r) != "c" || affected(r.Deleted) != "a b" {
		t.Errorf("S-54: the next one: there %q, managed %q", b.objects(), managed(r))
	}
	// A template that cannot even be read changes nothing.
	if out = b.update(`{"languageVersion":"2.0","resources":{"x":{"import":"none"}}}`); out.Failure == nil || b.objects() != "c" || managed(out.Record) != "c" {
		t.Errorf("S-54: a bad template: %+v, there %q", out, b.objects())
	}
}

func TestUnmanage_order_S53(t *testing.T) {
	b := newBench(t)
	b.must(of("a", "b:a", "c:b", "d"))
	b.forget()
	b.must(of("d"))
	if got := b.calls("delete"); got != "c b a" {
		t.Errorf("S-53: deleted in the order %q", got)
	}
}

func TestUnmanage_passes_S53(t *testing.T) {
	b := newBench(t)
	b.must(of("a", "b:a", "c"))
	tries := 0
	b.w.refuse = func(call string) error {
		if call == "delete b" {
			if tries++; tries < 3 {
				return core.Errorf(core.CodeConflict, "b is busy")
			}
		}
		return nil
	}
	if r := b.must(of()); b.objects() != "" || affected(r.Deleted) != "a b c" {
		t.Errorf("S-53: there %q, deleted %q", b.objects(), affected(r.Deleted))
	}
	if len(b.waits) == 0 {
		t.Error("S-53: it tried again without a pause")
	}
	for i := 1; i < len(b.waits); i++ {
		if b.waits[i] < b.waits[i-1] {
			t.Errorf("S-53: pauses %v", b.waits)
		}
	}
}

func TestUnmanage_ends_S53(t *testing.T) {
	b := newBench(t)
	b.must(of("a", "b:a", "c"))
	b.w.refuse = func(call string) error {
		if call == "delete b" {
			return core.Errorf(core.CodeConflict, "b holds a lock")
		}
		return nil
	}
	out := b.update(of("d"))
	if !core.IsCode(out.Failure, stack.CodeUnmanage) || !strings.Contains(out.Failure.Error(), "b holds a lock") || !strings.Contains(out.Failure.Error(), "next update") {
		t.Fatalf("S-53: %v", out.Failure)
	}
	r := out.Record
	if b.objects() != "a b d" || managed(r) != "a b d" || affected(r.Deleted) != "c" || affected(r.Failed) != "a b" {
		t.Errorf("S-53: there %q, managed %q, deleted %q, failed %q", b.objects(), managed(r), affected(r.Deleted), affected(r.Failed))
	}
	for _, m := range r.Resources {
		if want := map[string]string{"d": stack.StatusManaged}[m.ID[len(m.ID)-1:]]; want == "" && (m.Status != stack.StatusDeleteFailed || m.Error == nil) || want != "" && m.Status != want {
			t.Errorf("S-53: %s is %s, %v", m.ID, m.Status, m.Error)
		}
	}
	b.w.refuse = nil
	if r = b.must(of("d")); b.objects() != "d" || managed(r) != "d" || len(r.Failed) != 0 {
		t.Errorf("S-53: the next update: there %q, managed %q", b.objects(), managed(r))
	}
}

func TestUnmanage_already_S30(t *testing.T) {
	b := newBench(t)
	b.must(of("a", "b"))
	delete(b.w.objects, "cluster-0/a")
	b.w.objects["cluster-0/b"] = object{uid: "another"} // made anew by somebody
	if r := b.must(of()); affected(r.Deleted) != "a b" || b.objects() != "b" {
		t.Errorf("S-30: deleted %q, there %q", affected(r.Deleted), b.objects())
	}
}

const scoped = `"namespace":"default","scope":{"type":"AzureResourceManager","id":"/c/1"}`

func TestUnmanage_ownerGone_S31(t *testing.T) {
	b := newBench(t)
	b.must(under("k", scoped, "a"))
	delete(b.w.clusters, "/c/1")
	r := b.must(of())
	if affected(r.Deleted) != "a" || r.Deleted[0].Note == "" || r.Deleted[0].Scope.ID != "/c/1" || b.calls("delete") != "" {
		t.Errorf("S-31: %+v, calls %v", r.Deleted, b.w.calls)
	}
}

func TestUnmanage_wrongCluster_S32(t *testing.T) {
	b := newBench(t)
	b.must(under("k", scoped, "a"))
	b.w.clusters["/c/1"] = "cluster-new"
	b.w.objects["cluster-new/a"] = object{uid: "theirs"}
	out := b.update(of())
	if out.Failure == nil || !strings.Contains(out.Failure.Error(), "another place") || b.calls("delete") != "" {
		t.Fatalf("S-32: %v, calls %v", out.Failure, b.w.calls)
	}
	if _, ok := b.w.objects["cluster-new/a"]; !ok || managed(out.Record) != "a" || len(b.waits) != 0 {
		t.Errorf("S-32: there %q, managed %q, waited %v for what cannot change", b.objects(), managed(out.Record), b.waits)
	}
	if out.Record.Resources[0].Error == nil || out.Record.Resources[0].Error.Code != extension.CodeWrongTarget {
		t.Errorf("S-32: the reason of the resource: %v", out.Record.Resources[0].Error)
	}
}

func TestRemove(t *testing.T) {
	b := newBench(t)
	b.must(of("a", "b:a"))
	out, err := b.m.Remove(t.Context(), b.s, stack.Removal{Request: b.request(""), Unmanage: stack.Delete})
	if err != nil || !out.Removed || !b.s.removed || b.objects() != "" || b.calls("delete") != "b a" {
		t.Errorf("%+v, %v; there %q, calls %v", out, err, b.objects(), b.w.calls)
	}
	b = newBench(t)
	b.must(of("a"))
	out, err = b.m.Remove(t.Context(), b.s, stack.Removal{Request: b.request(""), Unmanage: stack.Detach})
	if err != nil || !out.Removed || b.objects() != "a" || b.calls("delete") != "" || !b.w.objects["cluster-0/a"].owner.IsZero() {
		t.Errorf("%+v, %v; there %q, calls %v", out, err, b.objects(), b.w.calls)
	}
	b = newBench(t)
	b.must(of("a"))
	b.w.refuse = func(call string) error { return core.Errorf(core.CodeConflict, "no %s", call) }
	out, err = b.m.Remove(t.Context(), b.s, stack.Removal{Request: b.request(""), Unmanage: stack.Delete})
	if err != nil || out.Removed || b.s.removed || out.Failure == nil || managed(b.s.record) != "a" || b.s.record.State != stack.StateFailed {
		t.Errorf("%+v, %v", out, err)
	}
}

// What an update would do, without doing it: what goes is sure, unless something
// of the template is known to the deployment alone.
func TestWhatIf_S51(t *testing.T) {
	b := newBench(t)
	r := b.must(of("a", "b"))
	b.forget()
	ask := func(template string, u stack.Update) string {
		u.Request = b.request(template)
		changes, err := b.m.WhatIf(t.Context(), r, b.s.journal, u)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range changes {
			out = append(out, strings.TrimSpace(c.ID[strings.LastIndexByte(c.ID, '/')+1:]+" "+c.Kind+" "+c.Certainty+" "+c.Management+" "+c.Deny))
		}
		return strings.Join(out, "; ")
	}
	if got, want := ask(of("b", "c"), stack.Update{Unmanage: stack.Delete}), "a delete definite unmanaged; b modify definite; c create definite managed"; strings.Replace(got, "b noChange", "b modify", 1) != want {
		t.Errorf("S-51: %s, want %s", got, want)
	}
	got := ask(of("c"), stack.Update{Unmanage: stack.Detach, Deny: stack.DenySettings{Mode: stack.DenyDelete}})
	if want := "a detach definite unmanaged; b detach definite unmanaged; c create definite managed denyDelete"; got != want {
		t.Errorf("S-51: %s, want %s", got, want)
	}
	if len(b.w.calls) != 0 || b.objects() != "a b" {
		t.Errorf("S-46: a what-if called %v", b.w.calls)
	}
}
