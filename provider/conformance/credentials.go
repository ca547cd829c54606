package conformance

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider/scripted"
)

func credentialScenarios() []Scenario {
	return []Scenario{
		{Name: "a credential is offered once, however often it is asked for", Rules: []string{"C-95", "C-93", "C-94", "C-116", "C-117", "C-6"}, Kinds: storage, run: offeredOnce},
		{Name: "a Secret that is there is left as it is", Rules: []string{"C-118", "C-119", "C-120"}, Kinds: storage, run: secretThere},
		{Name: "a raised generation rotates the credential", Rules: []string{"C-121", "C-122", "C-123", "C-124", "C-126"}, Kinds: storage, run: rotation},
		{Name: "a provider that restarts still ends the credential before", Rules: []string{"C-125", "C-126", "C-144"}, Kinds: storage, NeedsScript: true, run: restart},
		{Name: "grants that were taken away by hand come back, and nothing is issued", Rules: []string{"C-151"}, Kinds: storage, NeedsScript: true, run: recheck},
		{Name: "what an older request left over is ended, and what is in the Secret is not", Rules: []string{"C-144", "C-126", "C-118"}, Kinds: storage, NeedsScript: true, run: olderRequest},
		{Name: "an answer of the cloud that was lost leaves no credential over", Rules: []string{"C-144", "C-95"}, Kinds: storage, NeedsScript: true, run: lostAnswer},
	}
}

// reapplies is how often a request is applied again.
const reapplies = 100

func offeredOnce(t *T) {
	s := t.service(t.project(), "reports")
	c := t.storage(s)
	o := t.ready(c)
	if got := o.Status.Outputs[v1alpha1.OutputSecretName]; got != v1alpha1.StorageSecretName(s.Subject) {
		t.errorf("C-117", "the answer names Secret %q", got)
	}
	sec := t.secret(s.namespace(), v1alpha1.StorageSecretName(s.Subject))
	access, key := pair(sec)
	switch {
	case access == "" || key == "":
		t.fatalf("C-116", "the Secret does not hold %s and %s", v1alpha1.EntryAccessKey, v1alpha1.EntrySecretKey)
	case len(sec.OwnerReferences) > 0:
		t.errorf("C-106", "the Secret is owned, and would go with its owner")
	}
	if o.Status.CredentialGeneration != 1 || o.Status.CredentialReportedAt == nil {
		t.errorf("C-123", "generation %d is in place, reported at %v", o.Status.CredentialGeneration, o.Status.CredentialReportedAt)
	}
	// Every apply is an event that a watch delivers.
	for i := range reapplies {
		c.annotations = map[string]string{"conformance.radapp.io/applied": fmt.Sprint(i)}
		t.apply(c)
	}
	// What is asked after them is answered after them.
	t.ready(t.identity(t.service(s.Project, "after")))
	t.quiet(c)
	if a, k := pair(t.secret(s.namespace(), v1alpha1.StorageSecretName(s.Subject))); a != access || k != key {
		t.errorf("C-118", "the Secret has changed")
	}
	if sc, ok := t.script("how many credentials were issued"); ok {
		if got := sc.records(s.Project, "issued"); len(got) != 1 {
			t.errorf("C-95", "%d credentials were issued for one request", len(got))
		}
		if !sc.Account.Reaches(access, key, c.parameters[v1alpha1.ParamBucket]) {
			t.errorf("C-117", "the credential in the Secret does not reach the bucket")
		}
	}
}

func secretThere(t *T) {
	s := t.service(t.project(), "reports")
	name := v1alpha1.StorageSecretName(s.Subject)
	t.must(t.Client.Create(t.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace()},
		Data: map[string][]byte{v1alpha1.EntryAccessKey: []byte("an-access-key-of-before"), v1alpha1.EntrySecretKey: []byte("a-secret-key-of-before"), "THEIRS": []byte("something-of-theirs")}}))
	c := t.storage(s)
	o := t.ready(c)
	if o.Status.Phase != v1alpha1.PhaseReady || o.Status.Outputs[v1alpha1.OutputSecretName] != name {
		t.errorf("C-120", "the answer is %s, naming %q", o.Status.Phase, o.Status.Outputs[v1alpha1.OutputSecretName])
	}
	if a, k := pair(t.secret(s.namespace(), name)); a != "an-access-key-of-before" || k != "a-secret-key-of-before" {
		t.errorf("C-118", "what was in the Secret is not there any more")
	}
	if sc, ok := t.script("that the credential just made has ended"); ok {
		issued := sc.records(s.Project, "issued")
		t.eventually("C-119", "the credential that came into no Secret has ended", func() bool { return len(sc.Account.Live(s.Project)) == 0 })
		if len(issued) > 1 {
			t.errorf("C-95", "%d credentials were issued", len(issued))
		}
	}
	// It is rotated all the same, and what else is in it stays.
	c.generation = 2
	if o = t.ready(c); o.Status.CredentialGeneration != 2 {
		t.errorf("C-123", "generation %d is in place", o.Status.CredentialGeneration)
	}
	sec := t.secret(s.namespace(), name)
	if a, k := pair(sec); a == "an-access-key-of-before" || k == "a-secret-key-of-before" || a == "" || k == "" || string(sec.Data["THEIRS"]) != "something-of-theirs" {
		t.errorf("C-122", "after the rotation the Secret holds what it held, or less")
	}
}

func rotation(t *T) {
	s := t.service(t.project(), "reports")
	name := v1alpha1.StorageSecretName(s.Subject)
	c := t.storage(s)
	bucket := c.parameters[v1alpha1.ParamBucket]
	t.ready(c)
	before := t.secret(s.namespace(), name)
	oldAccess, oldKey := pair(before)
	c.generation = 2
	o := t.ready(c)
	after := t.secret(s.namespace(), name)
	access, key := pair(after)
	switch {
	case o.Status.CredentialGeneration != 2 || o.Status.CredentialReportedAt == nil:
		t.fatalf("C-123", "generation %d is in place, reported at %v", o.Status.CredentialGeneration, o.Status.CredentialReportedAt)
	case after == nil || before == nil || after.UID != before.UID:
		t.fatalf("C-122", "it is not the same Secret")
	case access == oldAccess || key == oldKey:
		t.errorf("C-122", "the Secret holds the credential of before")
	}
	sc, ok := t.script("when the credential before ended")
	if !ok {
		return
	}
	if !sc.Account.Reaches(access, key, bucket) {
		t.errorf("C-122", "the new credential does not reach the bucket")
	}
	issued := sc.records(s.Project, "issued")
	if len(issued) != 2 {
		t.fatalf("C-95", "%d credentials were issued for two generations", len(issued))
	}
	due := o.Status.CredentialReportedAt.Add(t.Settings.RotationGrace)
	var ended []scripted.Record
	t.eventuallyBy("C-126", "the credential before has ended", due.Add(t.Limit), func() bool {
		ended = sc.records(s.Project, "ended")
		return len(ended) > 0
	})
	if len(ended) != 1 || ended[0].ID != issued[0].ID {
		t.fatalf("C-126", "ended are %d, not the one before alone", len(ended))
	}
	if ended[0].At.Before(due) {
		t.errorf("C-124", "the credential before ended %s before its grace was over", due.Sub(ended[0].At).Round(time.Millisecond))
	}
	if !sc.Account.Reaches(access, key, bucket) || sc.Account.Reaches(oldAccess, oldKey, bucket) {
		t.errorf("C-126", "the credential in the Secret does not reach the bucket, or the one before does")
	}
}

func restart(t *T) {
	s := t.service(t.project(), "reports")
	c := t.storage(s)
	t.ready(c)
	first := t.Scripted.Account.Live(s.Project)
	c.generation = 2
	o := t.ready(c)
	t.must(t.Scripted.Restart(t.ctx))
	due := o.Status.CredentialReportedAt.Add(t.Settings.RotationGrace)
	t.eventuallyBy("C-125", "the credential before has ended", due.Add(t.Limit), func() bool { return len(t.Scripted.Account.Live(s.Project)) == 1 })
	ended := t.Scripted.records(s.Project, "ended")
	if len(ended) != 1 || len(first) != 1 || ended[0].ID != first[0] {
		t.fatalf("C-125", "ended are %d, not the one before alone", len(ended))
	}
	if ended[0].At.Before(due) {
		t.errorf("C-124", "the credential before ended before its grace was over")
	}
	t.await(c, "without a trace of it in the journal", func(o *v1alpha1.CloudResource) bool { return len(o.Status.Credentials) == 1 })
}

func recheck(t *T) {
	s := t.service(t.project(), "reports")
	c := t.storage(s)
	t.ready(c)
	bucket := c.parameters[v1alpha1.ParamBucket]
	t.Scripted.Account.Revoke(bucket)
	t.eventually("C-151", "the grant is back", func() bool { return len(t.Scripted.Account.Granted(bucket)) == 1 })
	// A cloud that cannot be asked takes nothing back.
	a := t.Scripted.Account
	a.Script(s.Project, scripted.Script{Op: scripted.OpEnsureBucketAccess, Phase: v1alpha1.PhaseWaiting, Text: "out of order"}, scripted.Script{Op: scripted.OpEnsureBucket, Text: "out of order"})
	a.Revoke(bucket)
	before := len(t.Scripted.records(s.Project, "call"))
	t.eventually("C-151", "the cloud is asked in vain", func() bool {
		return len(t.Scripted.records(s.Project, "call")) > before+6
	})
	a.Script(s.Project)
	t.eventually("C-151", "the grant is back", func() bool { return len(a.Granted(bucket)) == 1 })
	h := t.history(s.namespace())
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, states := range h.states {
		done := false
		for _, o := range states {
			if done && !o.Status.Phase.Done() {
				t.errorf("C-151", "%s was taken back: %s", name, o.Status.Detail)
			}
			done = done || o.Status.Phase.Done()
		}
	}
	if got := t.Scripted.records(s.Project, "issued"); len(got) != 1 {
		t.errorf("C-151", "%d credentials were issued", len(got))
	}
}

// olderRequest deletes a request within a rotation's grace, and asks again: the
// new one knows nothing of the credentials but what the cloud lists.
func olderRequest(t *T) {
	s := t.service(t.project(), "reports")
	name, a := v1alpha1.StorageSecretName(s.Subject), t.Scripted.Account
	c := t.storage(s)
	bucket := c.parameters[v1alpha1.ParamBucket]
	t.ready(c)
	c.generation = 2
	t.ready(c)
	access, key := pair(t.secret(s.namespace(), name))
	t.gone(c)
	t.ready(c)
	if x, y := pair(t.secret(s.namespace(), name)); x != access || y != key || !a.Reaches(access, key, bucket) {
		t.fatalf("C-118", "the Secret does not hold what it held, or that was ended")
	}
	t.eventually("C-144", "the credential that the older request had retired has ended", func() bool { return len(a.Live(s.Project)) == 1 })
	if !a.Reaches(access, key, bucket) {
		t.fatalf("C-144", "the credential in the Secret was ended")
	}
	c.generation = 3
	t.ready(c)
	newAccess, newKey := pair(t.secret(s.namespace(), name))
	t.eventually("C-126", "the older request's credential has ended", func() bool { return len(a.Live(s.Project)) == 1 })
	if newAccess == access || !a.Reaches(newAccess, newKey, bucket) || a.Reaches(access, key, bucket) {
		t.errorf("C-126", "the credential in the Secret was ended, or the one before was not")
	}
}

func lostAnswer(t *T) {
	p := t.project()
	s := t.service(p, "reports")
	c := t.storage(s)
	t.Scripted.Account.Script(p, scripted.Script{Op: scripted.OpIssue, Times: 1, Lost: true})
	t.ready(c)
	t.eventually("C-144", "one credential is left", func() bool { return len(t.Scripted.Account.Live(p)) == 1 })
	access, key := pair(t.secret(s.namespace(), v1alpha1.StorageSecretName(s.Subject)))
	if !t.Scripted.Account.Reaches(access, key, c.parameters[v1alpha1.ParamBucket]) {
		t.errorf("C-144", "the credential in the Secret was ended")
	}
	if got := t.Scripted.records(p, "issued"); len(got) != 2 {
		t.errorf("C-95", "%d credentials were issued where one answer was lost", len(got))
	}
}

// eventually wants a condition of what has no watch: the account.
func (t *T) eventually(rule, what string, in func() bool) {
	t.eventuallyBy(rule, what, time.Now().Add(t.Limit), in)
}

func (t *T) eventuallyBy(rule, what string, end time.Time, in func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !in() {
		if time.Now().After(end) {
			t.fatalf(rule, "it does not come about that %s", what)
		}
		select {
		case <-t.ctx.Done():
			t.fatalf("scenario", "ended while waiting that %s", what)
		case <-tick.C:
		}
	}
	t.steps++
}

// quiet waits until the provider has looked at a request that was applied again
// and says what it said before: its last state is an answer.
func (t *T) quiet(r *request) {
	t.await(r, "answered still", func(o *v1alpha1.CloudResource) bool {
		return o.Annotations["conformance.radapp.io/applied"] == r.annotations["conformance.radapp.io/applied"] && o.Status.Phase.Done()
	})
}

// status writes a request's status, as no one but a provider does.
func (t *T) status(o *v1alpha1.CloudResource, change func(*v1alpha1.CloudResourceStatus)) {
	if t.forged == nil {
		t.forged = map[string]bool{}
	}
	t.forged[o.Name] = true
	for {
		live := &v1alpha1.CloudResource{}
		t.must(t.Client.Get(t.ctx, client.ObjectKeyFromObject(o), live))
		change(&live.Status)
		err := t.Client.Status().Update(t.ctx, live)
		if apierrors.IsConflict(err) {
			continue
		}
		t.must(err)
		return
	}
}

// gone deletes requests, as their owner's end does.
func (t *T) gone(requests ...*request) {
	for _, r := range requests {
		t.must(t.Client.Delete(t.ctx, &v1alpha1.CloudResource{ObjectMeta: metav1.ObjectMeta{Name: r.name, Namespace: r.namespace()}}))
	}
	for _, r := range requests {
		t.eventually("scenario", "request "+r.name+" is gone", func() bool {
			err := t.Client.Get(t.ctx, client.ObjectKey{Namespace: r.namespace(), Name: r.name}, &v1alpha1.CloudResource{})
			return apierrors.IsNotFound(err)
		})
	}
}

// nextSecond waits for the clock to show another second.
func (t *T) nextSecond() {
	timer := time.NewTimer(1100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
	case <-timer.C:
	}
}

// misplaced is a request outside of its project's namespace.
type misplaced struct {
	request
	namespace string
}

func (m misplaced) apply(t *T) error {
	owner, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m.owner)
	if err != nil {
		return err
	}
	params := map[string]any{}
	for k, v := range m.parameters {
		params[k] = strings.Clone(v)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.CloudResourceKind,
		"metadata": map[string]any{"name": m.name, "namespace": m.namespace, "ownerReferences": []any{owner}},
		"spec":     map[string]any{"provider": m.provider, "kind": m.kind, "subject": map[string]any{"project": m.Project, "service": m.Service}, "parameters": params}}}
	return t.Client.Apply(t.ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldManagerOperator), client.ForceOwnership)
}
