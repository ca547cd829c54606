package conformance

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider/scripted"
)

// T is a scenario as it runs.
type T struct {
	*World
	ctx      context.Context
	scenario Scenario

	mu              sync.Mutex
	failures, skips []string
	// steps counts answers that were judged.
	steps int
	// secrets are values that may stand in no status.
	secrets []string
	// forged are requests whose status the scenario itself has written.
	forged     map[string]bool
	namespaces []*history
}

type abort struct{}

func (t *T) do(f func(*T)) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(abort); !ok {
				panic(p)
			}
		}
	}()
	f(t)
}

// errorf notes that a rule was broken.
func (t *T) errorf(rule, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := rule + ": " + fmt.Sprintf(format, args...); !slices.Contains(t.failures, f) {
		t.failures = append(t.failures, f)
	}
}

func (t *T) fatalf(rule, format string, args ...any) {
	t.errorf(rule, format, args...)
	panic(abort{})
}

// must is for what the scenario itself needs.
func (t *T) must(err error) {
	if err != nil {
		t.fatalf("scenario", "%v", err)
	}
}

// script says whether there is a scripted account; if not, the step is noted as
// skipped.
func (t *T) script(step string) (*Scripted, bool) {
	if t.Scripted == nil {
		t.skips = append(t.skips, step)
		return nil, false
	}
	return t.Scripted, true
}

// history is every state that the requests of a namespace were seen in.
type history struct {
	namespace string
	mu        sync.Mutex
	changed   chan struct{}
	states    map[string][]*v1alpha1.CloudResource
	stop      func()
}

func (h *history) add(r *v1alpha1.CloudResource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states[r.Name] = append(h.states[r.Name], r)
	close(h.changed)
	h.changed = make(chan struct{})
}

// project makes a project that no other scenario has.
func (t *T) project() string {
	id := "c" + strings.ToLower(rand.Text()[:9])
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace(id)}}
	t.must(t.Client.Create(t.ctx, ns))
	h := &history{namespace: ns.Name, changed: make(chan struct{}), states: map[string][]*v1alpha1.CloudResource{}}
	w, err := t.Client.Watch(t.ctx, &v1alpha1.CloudResourceList{}, client.InNamespace(ns.Name))
	t.must(err)
	h.stop = w.Stop
	go func() {
		for e := range w.ResultChan() {
			if r, ok := e.Object.(*v1alpha1.CloudResource); ok && e.Type != "DELETED" {
				h.add(r)
			}
		}
	}()
	t.namespaces = append(t.namespaces, h)
	t.must(t.Client.Create(t.ctx, &v1alpha1.AnkkaProject{ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: ns.Name}, Spec: v1alpha1.AnkkaProjectSpec{ProjectID: id}}))
	return id
}

// subject is whom requests are for, with its owner.
type subject struct {
	v1alpha1.Subject
	owner metav1.OwnerReference
}

func (s subject) namespace() string { return v1alpha1.Namespace(s.Project) }

func reference(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: &yes, BlockOwnerDeletion: &yes}
}

// service makes a service of a project.
func (t *T) service(project, name string) subject {
	s := &v1alpha1.AnkkaService{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace(project)},
		Spec: v1alpha1.AnkkaServiceSpec{ProjectID: project, ServiceName: name, Generation: 1, Image: "registry.invalid/none"}}
	t.must(t.Client.Create(t.ctx, s))
	return subject{v1alpha1.Subject{Project: project, Service: name}, reference(v1alpha1.GroupVersion.String(), v1alpha1.AnkkaServiceKind, name, s.UID)}
}

// workload makes a Deployment of no instances in a project's namespace, as one
// that is adopted there. It is real: what an owner that is none owns is collected.
func (t *T) workload(project, name string) subject {
	labels := map[string]any{"app": name}
	d := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "namespace": v1alpha1.Namespace(project)},
		"spec": map[string]any{"replicas": int64(0), "selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "registry.invalid/none"}}}}},
	}}
	t.must(t.Client.Create(t.ctx, d))
	return subject{v1alpha1.Subject{Project: project, Service: name}, reference("apps/v1", "Deployment", name, d.GetUID())}
}

// itself is a project as a subject.
func (t *T) itself(project string) subject {
	p := &v1alpha1.AnkkaProject{}
	t.must(t.Client.Get(t.ctx, client.ObjectKey{Namespace: v1alpha1.Namespace(project), Name: project}, p))
	return subject{v1alpha1.Subject{Project: project}, reference(v1alpha1.GroupVersion.String(), v1alpha1.AnkkaProjectKind, project, p.UID)}
}

// request is one as the operator writes it.
type request struct {
	subject
	name, provider, kind string
	parameters           map[string]string
	generation           int64
	annotations          map[string]string
}

func (t *T) request(s subject, kind string, parameters map[string]string) *request {
	secret := ""
	if kind == v1alpha1.KindSecretSync {
		secret, _ = strings.CutSuffix(parameters[v1alpha1.ParamSecretName], v1alpha1.SyncedSecretEnding)
	}
	name, err := v1alpha1.RequestName(s.Subject, kind, secret)
	if err != nil {
		name = v1alpha1.ServiceRequestName(s.Service, kind)
	}
	r := &request{subject: s, name: name, provider: t.Settings.Provider, kind: kind, parameters: parameters}
	if kind == v1alpha1.KindBucketCredential {
		r.generation = 1
	}
	return r
}

// apply writes the request as the operator does.
func (t *T) apply(r *request) {
	t.must(t.tryApply(r))
}

func (t *T) tryApply(r *request) error {
	owner, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&r.owner)
	if err != nil {
		return err
	}
	params := map[string]any{}
	for k, v := range r.parameters {
		params[k] = v
	}
	sub := map[string]any{"project": r.Project}
	if r.Service != "" {
		sub["service"] = r.Service
	}
	spec := map[string]any{"provider": r.provider, "kind": r.kind, "subject": sub, "parameters": params}
	if r.generation > 0 {
		spec["credentialGeneration"] = r.generation
	}
	meta := map[string]any{"name": r.name, "namespace": r.namespace()}
	if r.owner.Kind != "" {
		meta["ownerReferences"] = []any{owner}
	}
	if r.annotations != nil {
		a := map[string]any{}
		for k, v := range r.annotations {
			a[k] = v
		}
		meta["annotations"] = a
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.CloudResourceKind, "metadata": meta, "spec": spec}}
	return t.Client.Apply(t.ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldManagerOperator), client.ForceOwnership)
}

func (t *T) history(namespace string) *history {
	for _, h := range t.namespaces {
		if h.namespace == namespace {
			return h
		}
	}
	t.fatalf("scenario", "namespace %s is no scenario's", namespace)
	return nil
}

// await waits until a request is in a state, and answers it.
func (t *T) await(r *request, what string, in func(*v1alpha1.CloudResource) bool) *v1alpha1.CloudResource {
	h := t.history(r.namespace())
	timer := time.NewTimer(t.Limit)
	defer timer.Stop()
	for {
		h.mu.Lock()
		changed := h.changed
		var last *v1alpha1.CloudResource
		if s := h.states[r.name]; len(s) > 0 {
			last = s[len(s)-1]
		}
		h.mu.Unlock()
		if last != nil && in(last) {
			t.steps++
			return last
		}
		select {
		case <-changed:
		case <-t.ctx.Done():
			t.fatalf("scenario", "ended while waiting for %s", what)
		case <-timer.C:
			said := "nothing"
			if last != nil {
				said = fmt.Sprintf("%s at generation %d of %d: %s", last.Status.Phase, last.Status.ObservedGeneration, last.Generation, last.Status.Detail)
			}
			t.fatalf(t.scenario.Rules[0], "within %s request %s is not %s; it says %s", t.Limit, r.name, what, said)
		}
	}
}

// answered waits for an answer to what stands in the API server now.
func (t *T) answered(r *request) *v1alpha1.CloudResource {
	var live v1alpha1.CloudResource
	t.must(t.Client.Get(t.ctx, client.ObjectKey{Namespace: r.namespace(), Name: r.name}, &live))
	return t.await(r, "answered", func(o *v1alpha1.CloudResource) bool {
		return o.UID == live.UID && o.Generation >= live.Generation && o.Status.ObservedGeneration == o.Generation &&
			o.Status.Phase != "" && o.Status.Phase != v1alpha1.PhaseWaiting
	})
}

// ready applies a request and wants it done.
func (t *T) ready(r *request) *v1alpha1.CloudResource {
	t.apply(r)
	o := t.answered(r)
	if !o.Status.Phase.Done() {
		t.fatalf(t.scenario.Rules[0], "request %s is %s: %s", r.name, o.Status.Phase, o.Status.Detail)
	}
	return o
}

// refused applies a request and wants it Failed, with words in it.
func (t *T) refused(rule string, r *request, words string) *v1alpha1.CloudResource {
	t.apply(r)
	o := t.answered(r)
	switch {
	case o.Status.Phase != v1alpha1.PhaseFailed:
		t.errorf(rule, "request %s is %s, not Failed", r.name, o.Status.Phase)
	case !strings.Contains(o.Status.Detail, words):
		t.errorf(rule, "request %s is Failed with %q, which does not say %q", r.name, o.Status.Detail, words)
	}
	return o
}

// identity, bucket and credential are requests as the operator writes them.
func (t *T) identity(s subject) *request {
	return t.request(s, v1alpha1.KindIdentity, map[string]string{v1alpha1.ParamServiceAccount: v1alpha1.ServiceAccountName(s.Subject)})
}

func (t *T) bucket(s subject) *request {
	purpose := v1alpha1.PurposeService
	if s.Service == "" {
		purpose = v1alpha1.PurposeBackup
	}
	p, err := v1alpha1.BucketAsk{Purpose: purpose, Location: t.Settings.Location, NamePrefix: t.NamePrefix}.Parameters()
	t.must(err)
	return t.request(s, v1alpha1.KindBucket, p)
}

func (t *T) credential(s subject, identity, bucket string) *request {
	return t.request(s, v1alpha1.KindBucketCredential, map[string]string{
		v1alpha1.ParamIdentity: identity, v1alpha1.ParamBucket: bucket, v1alpha1.ParamSecretName: v1alpha1.StorageSecretName(s.Subject)})
}

// storage asks for identity and bucket, and answers the request for the
// credential, not yet written.
func (t *T) storage(s subject) *request {
	i, b := t.identity(s), t.bucket(s)
	t.apply(i)
	t.apply(b)
	io, bo := t.answered(i), t.answered(b)
	if !io.Status.Phase.Done() || !bo.Status.Phase.Done() {
		t.fatalf(t.scenario.Rules[0], "identity is %s (%s), bucket %s (%s)", io.Status.Phase, io.Status.Detail, bo.Status.Phase, bo.Status.Detail)
	}
	return t.credential(s, io.Status.Outputs[v1alpha1.OutputIdentity], bo.Status.Outputs[v1alpha1.OutputBucket])
}

// secret reads a Secret as whoever runs the suite, never as the provider. Its
// values may stand in no status.
func (t *T) secret(namespace, name string) *corev1.Secret {
	s := &corev1.Secret{}
	if err := t.Client.Get(t.ctx, client.ObjectKey{Namespace: namespace, Name: name}, s); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		t.must(err)
	}
	for _, v := range s.Data {
		if len(v) >= 8 {
			t.secrets = append(t.secrets, string(v), base64.StdEncoding.EncodeToString(v))
		}
	}
	return s
}

// pair is the credential in a Secret.
func pair(s *corev1.Secret) (access, secret string) {
	if s == nil {
		return "", ""
	}
	return string(s.Data[v1alpha1.EntryAccessKey]), string(s.Data[v1alpha1.EntrySecretKey])
}

// records are the events of a project in the scripted account.
func (s *Scripted) records(project, event string) []scripted.Record {
	var out []scripted.Record
	for _, r := range s.Account.Records() {
		if r.Subject.Project == project && r.Event == event {
			out = append(out, r)
		}
	}
	return out
}

// finish judges every state that was seen of every request of the scenario.
func (t *T) finish() {
	for _, h := range t.namespaces {
		h.stop()
		h.mu.Lock()
		for name, states := range h.states {
			var before *v1alpha1.CloudResource
			for _, o := range states {
				t.judge(name, before, o)
				before = o
			}
		}
		h.mu.Unlock()
	}
	if s := t.Scripted; s != nil {
		text := s.Output()
		for _, v := range t.secrets {
			if strings.Contains(text, v) {
				t.errorf("C-100", "a secret value stands in the provider's logs or metrics")
			}
		}
		for _, h := range t.namespaces {
			for _, c := range s.Audit.Calls("/namespaces/" + h.namespace + "/") {
				if !granted(c) {
					t.errorf("C-5", "the provider sends %s %s, which is not in its grant", c.Method, c.Path)
				}
			}
		}
	}
	if t.Keep {
		return
	}
	for _, h := range t.namespaces {
		_ = t.Client.Delete(t.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}})
	}
}

// granted says whether a call is one of the few that providers make.
func granted(c APICall) bool {
	parts := strings.Split(strings.Trim(c.Path, "/"), "/")
	resource, last := "", parts[len(parts)-1]
	for i, p := range parts {
		if p == "namespaces" && i+2 < len(parts) {
			resource = parts[i+2]
		}
	}
	switch resource {
	case "cloudresources":
		return c.Method == "GET" || last == "status" && (c.Method == "PUT" || c.Method == "PATCH")
	case "secrets":
		return c.Method == "POST" && last == "secrets" || c.Method == "PATCH" && last != "secrets"
	}
	return false
}

// judge is what holds of every state of every request.
func (t *T) judge(name string, before, o *v1alpha1.CloudResource) {
	st := o.Status
	// The journal may be written at any time: it answers nothing.
	answer := func(st v1alpha1.CloudResourceStatus) v1alpha1.CloudResourceStatus {
		st.Credentials, st.CheckedAt = nil, nil
		return st
	}
	said := before == nil && st.Phase != "" || before != nil && before.UID == o.UID && !equality.Semantic.DeepEqual(answer(before.Status), answer(st))
	if said && st.ObservedGeneration < o.Generation {
		t.errorf("C-91", "request %s has phase %s at observedGeneration %d, written while the generation is %d", name, st.Phase, st.ObservedGeneration, o.Generation)
	}
	if st.Phase == "" || o.Spec.Provider != t.Settings.Provider {
		return
	}
	if len(st.Detail) > v1alpha1.MaxDetail || v1alpha1.Clean(st.Detail) != st.Detail {
		t.errorf("C-152", "request %s has a detail of %d bytes, too long or with what does not print", name, len(st.Detail))
	}
	if st.ProviderVersion == "" {
		t.errorf("C-65", "request %s has no providerVersion in its status", name)
	}
	if st.Phase.Done() {
		if !t.forged[name] && (st.Account != t.Settings.Account || st.Location != t.Settings.Location) {
			t.errorf("C-18", "request %s is %s in account %q and location %q", name, st.Phase, st.Account, st.Location)
		}
		if err := v1alpha1.CheckOutputs(o.Spec.Kind, st.Outputs); err != nil {
			t.errorf("C-74", "request %s: %v", name, err)
		}
		if st.Recovered != (st.Phase == v1alpha1.PhaseRecovered) {
			t.errorf("C-99", "request %s is %s with recovered %v", name, st.Phase, st.Recovered)
		}
	}
	if st.Phase == v1alpha1.PhaseFailed && st.Detail == "" {
		t.errorf("C-100", "request %s is Failed without a word", name)
	}
	for _, v := range t.secrets {
		if strings.Contains(fmt.Sprintf("%+v", st), v) {
			t.errorf("C-100", "request %s has a secret value in its status", name)
		}
	}
}
