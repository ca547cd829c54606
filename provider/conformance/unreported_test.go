package conformance

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/scripted"
)

// What stands in the Secret before it is reported: the generation may be raised
// meanwhile, and the process may die more than once.
func TestUnreported_C121_C122_C144(t *testing.T) {
	t.Parallel()
	w := world(t, "", func(o *provider.Options) { o.Recheck = time.Hour })
	for name, run := range map[string]func(*T){"C-122 RaisedBeforeReported": raisedBeforeReported, "C-144 DiedTwice": diedTwice} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := w.one(t.Context(), Scenario{Name: name, Rules: []string{"C-144"}, Kinds: storage, run: run}); r.Verdict != Passed {
				t.Errorf("%s: %q", r.Verdict, r.Failures)
			}
		})
	}
}

// raisedBeforeReported asks for a second credential while the cloud does not yet
// take the first, which is in the Secret: it is a rotation, and not an offer to a
// Secret that somebody else made.
func raisedBeforeReported(t *T) {
	s := t.service(t.project(), "reports")
	a, c := t.Scripted.Account, t.storage(s)
	a.Script(s.Project, scripted.Script{Op: scripted.OpUsable, Phase: v1alpha1.PhaseWaiting, Text: "not taken yet"})
	t.apply(c)
	t.await(c, "waiting for the cloud to take the first", func(o *v1alpha1.CloudResource) bool {
		return len(o.Status.Credentials) == 1 && o.Status.Credentials[0].State == v1alpha1.CredentialInPlace
	})
	first, _ := pair(t.secret(s.namespace(), v1alpha1.StorageSecretName(s.Subject)))
	c.generation = 2
	t.apply(c)
	t.await(c, "waiting for the cloud to take the second", func(o *v1alpha1.CloudResource) bool {
		return len(o.Status.Credentials) == 2 || o.Status.Phase.Done()
	})
	a.Script(s.Project)
	o := t.ready(c)
	access, key := pair(t.secret(s.namespace(), v1alpha1.StorageSecretName(s.Subject)))
	if o.Status.CredentialGeneration != 2 || access == first || !a.Reaches(access, key, c.parameters[v1alpha1.ParamBucket]) {
		t.fatalf("C-122", "generation %d is said to be in place, and the Secret holds the first credential or one that has ended", o.Status.CredentialGeneration)
	}
	t.eventually("C-126", "the first credential has ended", func() bool { return len(a.Live(s.Project)) == 1 })
	for _, r := range t.Scripted.records(s.Project, "ended") {
		if r.At.Before(o.Status.CredentialReportedAt.Add(t.Settings.RotationGrace)) {
			t.errorf("C-124", "the first credential, which was in the Secret, ended before its grace was over")
		}
	}
}

// diedTwice finds the journal of a process that died before its first credential
// came into the Secret, and of the next one, which died after its own had.
func diedTwice(t *T) {
	s := t.service(t.project(), "reports")
	a, c := t.Scripted.Account, t.storage(s)
	name := v1alpha1.StorageSecretName(s.Subject)
	c.provider = "nobody-yet"
	t.apply(c)
	o := &v1alpha1.CloudResource{}
	t.must(t.Client.Get(t.ctx, client.ObjectKey{Namespace: c.namespace(), Name: c.name}, o))
	now := v1alpha1.ReportTime(time.Now())
	journal := []v1alpha1.CredentialEntry{}
	var last scripted.Answer
	for i := range 2 {
		k, err := a.Do(t.ctx, scripted.Call{Op: scripted.OpIssue, Name: c.parameters[v1alpha1.ParamBucket], Identity: c.parameters[v1alpha1.ParamIdentity],
			Request: provider.Request{Subject: s.Subject, Account: t.Settings.Account, Installation: t.Settings.Installation}})
		t.must(err)
		t.secrets = append(t.secrets, k.SecretKey)
		journal = append(journal, v1alpha1.CredentialEntry{ID: k.ID, Generation: 1, State: v1alpha1.CredentialOffered, Since: now})
		if last = k; i == 0 && k.ID == "" {
			t.fatalf("scenario", "the account issues nothing")
		}
	}
	t.must(t.Client.Create(t.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace(), Annotations: map[string]string{v1alpha1.AnnotationCredentialID: last.ID}},
		Data:       map[string][]byte{v1alpha1.EntryAccessKey: []byte(last.AccessKey), v1alpha1.EntrySecretKey: []byte(last.SecretKey)}}))
	t.status(o, func(st *v1alpha1.CloudResourceStatus) {
		*st = v1alpha1.CloudResourceStatus{ObservedGeneration: o.Generation, Phase: v1alpha1.PhaseWaiting, ProviderVersion: scripted.Version,
			Account: t.Settings.Account, Location: t.Settings.Location, CheckedAt: &now, Credentials: journal}
	})
	c.provider = t.Settings.Provider
	t.ready(c)
	t.eventually("C-144", "the credential that came into no Secret has ended", func() bool { return fmt.Sprint(a.Live(s.Project)) == fmt.Sprint([]string{last.ID}) })
	t.await(c, "without a trace of it in the journal", func(o *v1alpha1.CloudResource) bool { return len(o.Status.Credentials) == 1 })
	if got := t.Scripted.records(s.Project, "issued"); len(got) != 2 {
		t.errorf("C-95", "%d credentials were issued, beside the two", len(got)-2)
	}
}
