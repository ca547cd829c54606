package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider/scripted"
)

const (
	kIdentity   = v1alpha1.KindIdentity
	kAccess     = v1alpha1.KindSecretAccess
	kSync       = v1alpha1.KindSecretSync
	kBucket     = v1alpha1.KindBucket
	kCredential = v1alpha1.KindBucketCredential
	kKey        = v1alpha1.KindWrappingKey
)

var storage = []string{kIdentity, kBucket, kCredential}

// Scenarios are all of them.
func Scenarios() []Scenario {
	return append([]Scenario{
		{Name: "an identity is answered", Rules: []string{"C-66", "C-65", "C-98", "C-10"}, Kinds: []string{kIdentity}, run: identityAnswered},
		{Name: "a service's bucket is answered under its name", Rules: []string{"C-71", "C-79", "C-98", "C-147"}, Kinds: []string{kBucket}, run: bucketAnswered},
		{Name: "buckets of names that join alike are two", Rules: []string{"C-82", "C-80"}, Kinds: []string{kBucket}, run: bucketsApart},
		{Name: "a backup bucket is granted to its project's database alone", Rules: []string{"C-78", "C-77"}, Kinds: storage, run: backup},
		{Name: "access to secrets is answered", Rules: []string{"C-67", "C-68"}, Kinds: []string{kIdentity, kAccess}, run: secretAccess},
		{Name: "a wrapping key is answered", Rules: []string{"C-73"}, Kinds: []string{kIdentity, kKey}, run: wrappingKey},
		{Name: "a Secret is kept in step with the account", Rules: []string{"C-69", "C-70"}, Kinds: []string{kSync}, NeedsScript: true, run: secretSync},
		{Name: "a kind that is not implemented is Failed in the contract's words", Rules: []string{"C-101"}, run: unknownKind},
		{Name: "parameters are a closed set", Rules: []string{"C-74", "C-9"}, run: closedParameters},
		{Name: "what is not the subject's is refused", Rules: []string{"C-143"}, run: foreign},
		{Name: "another provider's request is left alone", Rules: []string{"C-8"}, Kinds: []string{kIdentity}, run: notOurs},
		{Name: "what was made in another account or location is not served", Rules: []string{"C-102", "C-103", "C-104"}, Kinds: []string{kBucket}, run: moved},
		{Name: "what is deleted and asked for again is Recovered", Rules: []string{"C-99", "C-60", "C-105", "C-106"}, Kinds: storage, run: recovered},
		{Name: "nothing is made without a request", Rules: []string{"C-3"}, Kinds: []string{kIdentity}, NeedsScript: true, run: nothingUnasked},
		{Name: "a bucket held by someone else is Failed and left alone", Rules: []string{"C-87", "C-88", "C-148"}, Kinds: storage, NeedsScript: true, run: takenBucket},
		{Name: "a bucket that is gone is told, and none is made in its place", Rules: []string{"C-151", "C-104"}, Kinds: []string{kBucket}, NeedsScript: true, run: lostBucket},
		{Name: "the cloud's refusals are told, and tried again", Rules: []string{"C-151", "C-97", "C-100", "C-152"}, Kinds: []string{kIdentity, kBucket}, NeedsScript: true, run: refusals},
	}, credentialScenarios()...)
}

func identityAnswered(t *T) {
	p := t.project()
	for _, s := range []subject{t.service(p, "reports"), t.itself(p)} {
		o := t.ready(t.identity(s))
		a, err := v1alpha1.ParseIdentityAnswer(o.Status.Outputs)
		if err != nil {
			t.errorf("C-66", "%v", err)
		}
		if again := t.ready(t.identity(s)); again.Status.Outputs[v1alpha1.OutputIdentity] != a.Identity {
			t.errorf("C-66", "the identity of %s is %q and then another", s, a.Identity)
		}
	}
}

func bucketAnswered(t *T) {
	s := t.service(t.project(), "reports")
	r := t.bucket(s)
	o := t.ready(r)
	want, err := v1alpha1.BucketName(t.NamePrefix, s.Project, s.Service)
	t.must(err)
	if got := o.Status.Outputs[v1alpha1.OutputBucket]; got != want {
		t.errorf("C-79", "the bucket is %q, not %q", got, want)
	}
	if o.Status.Phase != v1alpha1.PhaseReady {
		t.errorf("C-147", "a new bucket is %s", o.Status.Phase)
	}
	// Another form of the same bucket is the same bucket.
	r.parameters[v1alpha1.ParamCORSOrigins] = "https://a.example"
	if o = t.ready(r); o.Status.Outputs[v1alpha1.OutputBucket] != want || o.Status.Phase != v1alpha1.PhaseReady {
		t.errorf("C-71", "with other origins it is %s, bucket %q", o.Status.Phase, o.Status.Outputs[v1alpha1.OutputBucket])
	}
}

func bucketsApart(t *T) {
	p := t.project()
	name := func(service string) string {
		return t.ready(t.bucket(t.service(p, service))).Status.Outputs[v1alpha1.OutputBucket]
	}
	long := strings.Repeat("s", 62)
	a, b := name(long+"a"), name(long+"b")
	if a == b || len(a) > 63 || len(b) > 63 {
		t.errorf("C-82", "two services have buckets %q and %q", a, b)
	}
}

func backup(t *T) {
	p := t.project()
	db, s := t.itself(p), t.service(p, "reports")
	r := t.storage(db)
	o := t.ready(r)
	access, key := pair(t.secret(db.namespace(), o.Status.Outputs[v1alpha1.OutputSecretName]))
	if access == "" || key == "" {
		t.errorf("C-78", "the database's credential is not in Secret %s", o.Status.Outputs[v1alpha1.OutputSecretName])
	}
	own := t.storage(s)
	t.refused("C-78", t.credential(s, own.parameters[v1alpha1.ParamIdentity], r.parameters[v1alpha1.ParamBucket]), v1alpha1.DetailBackupIdentity)
	// Another project's database asks under an identity that is not its own.
	other := t.itself(t.project())
	theirs := t.storage(other)
	t.refused("C-78", t.credential(other, own.parameters[v1alpha1.ParamIdentity], theirs.parameters[v1alpha1.ParamBucket]), v1alpha1.DetailBackupIdentity)
	if sc, ok := t.script("who was let into the backup bucket"); ok {
		if got := sc.Account.Granted(r.parameters[v1alpha1.ParamBucket]); len(got) != 1 || got[0] != r.parameters[v1alpha1.ParamIdentity] {
			t.errorf("C-78", "the backup bucket is granted to %v", got)
		}
	}
}

func secretAccess(t *T) {
	s := t.service(t.project(), "reports")
	identity := t.ready(t.identity(s)).Status.Outputs[v1alpha1.OutputIdentity]
	own, read := v1alpha1.ServiceSecretPrefix(s.Project, s.Service), v1alpha1.ProjectSecretPrefix(s.Project)
	params := func(identity, own, read string) map[string]string {
		return map[string]string{v1alpha1.ParamIdentity: identity, v1alpha1.ParamOwn: own, v1alpha1.ParamRead: read}
	}
	t.ready(t.request(s, kAccess, params(identity, own, read)))
	t.refused("C-143", t.request(s, kAccess, params(identity, v1alpha1.ServiceSecretPrefix(s.Project, "other"), read)), "no secret of")
	t.refused("C-143", t.request(s, kAccess, params(identity, own, v1alpha1.ProjectSecretPrefix("other"))), "no secret of")
	t.refused("C-143", t.request(s, kAccess, params("nobody", own, read)), "identity")
}

func wrappingKey(t *T) {
	p := t.itself(t.project())
	identity := t.ready(t.identity(p)).Status.Outputs[v1alpha1.OutputIdentity]
	params := func(key string) map[string]string {
		return map[string]string{v1alpha1.ParamIdentity: identity, v1alpha1.ParamKey: key}
	}
	if t.Settings.KMSKey == "" {
		t.skips = append(t.skips, "the installation names no key (ANKKA_CLOUD_KMS_KEY)")
		t.refused("C-73", t.request(p, kKey, params("any")), "names no key")
		return
	}
	if o := t.ready(t.request(p, kKey, params(t.Settings.KMSKey))); o.Status.Outputs[v1alpha1.OutputKey] != t.Settings.KMSKey {
		t.errorf("C-73", "the key is %q", o.Status.Outputs[v1alpha1.OutputKey])
	}
	t.refused("C-143", t.request(p, kKey, params("another")), "another key")
	identity = "nobody"
	t.refused("C-143", t.request(p, kKey, params(t.Settings.KMSKey)), "identity")
}

func secretSync(t *T) {
	p := t.project()
	s := t.itself(p)
	a, b := v1alpha1.ProjectSecretID(p, "stripe", "KEY"), v1alpha1.ProjectSecretID(p, "stripe", "OTHER")
	params := func(entries map[string]string, generation int64) map[string]string {
		m, err := v1alpha1.SecretSyncAsk{SecretName: v1alpha1.SyncedSecretName("stripe"), Entries: entries, EntryGeneration: generation}.Parameters()
		t.must(err)
		return m
	}
	account := t.Scripted.Account
	account.SetSecret(a, []byte("first-value-of-the-key"))
	o := t.ready(t.request(s, kSync, params(map[string]string{"KEY": a, "OTHER": b}, 3)))
	if o.Status.Outputs[v1alpha1.OutputEntryGeneration] != "3" {
		t.errorf("C-69", "the entry generation kept is %q", o.Status.Outputs[v1alpha1.OutputEntryGeneration])
	}
	name := v1alpha1.SyncedSecretName("stripe")
	if got := t.secret(s.namespace(), name); got == nil || string(got.Data["KEY"]) != "first-value-of-the-key" || len(got.Data) != 2 {
		t.errorf("C-69", "the Secret does not hold what the account does")
	}
	account.SetSecret(a, []byte("second-value-of-the-key"))
	t.eventually("C-70", "the Secret follows a change in the account", func() bool {
		got := t.secret(s.namespace(), name)
		return got != nil && string(got.Data["KEY"]) == "second-value-of-the-key"
	})
	t.ready(t.request(s, kSync, params(map[string]string{"KEY": a}, 4)))
	if got := t.secret(s.namespace(), name); got == nil || len(got.Data) != 1 {
		t.errorf("C-70", "an entry that is not asked for stays in the Secret")
	}
	account.SetSecret(b, nil)
	r := t.request(s, kSync, params(map[string]string{"KEY": a, "OTHER": b}, 5))
	t.apply(r)
	t.await(r, "waiting for a value", func(o *v1alpha1.CloudResource) bool {
		return o.Status.Phase == v1alpha1.PhaseWaiting && strings.Contains(o.Status.Detail, "OTHER")
	})
	account.SetSecret(b, []byte("there-now-at-last"))
	t.answered(r)
}

func unknownKind(t *T) {
	s := t.service(t.project(), "reports")
	r := t.request(s, "a-kind-of-tomorrow", map[string]string{"any": "thing"})
	o := t.refused("C-101", r, "")
	if want := v1alpha1.DetailNotImplemented(r.kind, o.Status.ProviderVersion); o.Status.Detail != want {
		t.errorf("C-101", "it says %q, not %q", o.Status.Detail, want)
	}
	for _, kind := range t.Unimplemented {
		s := s
		if kind == kSync || kind == kKey {
			s = t.itself(s.Project)
		}
		r := t.request(s, kind, map[string]string{v1alpha1.ParamSecretName: "x" + v1alpha1.SyncedSecretEnding})
		o := t.refused("C-101", r, "")
		if want := v1alpha1.DetailNotImplemented(kind, o.Status.ProviderVersion); o.Status.Detail != want {
			t.errorf("C-101", "it says %q, not %q", o.Status.Detail, want)
		}
	}
}

func closedParameters(t *T) {
	p := t.project()
	n := 0
	fresh := func() subject { n++; return t.service(p, fmt.Sprintf("s%d", n)) }
	for _, kind := range []string{kIdentity, kBucket, kAccess, kCredential} {
		if slices.Contains(t.Unimplemented, kind) {
			t.skips = append(t.skips, "parameters of kind "+kind+", which is not implemented")
			continue
		}
		whole := func(s subject) *request {
			switch kind {
			case kIdentity:
				return t.identity(s)
			case kBucket:
				return t.bucket(s)
			case kAccess:
				return t.request(s, kind, map[string]string{v1alpha1.ParamIdentity: "any", v1alpha1.ParamOwn: "", v1alpha1.ParamRead: ""})
			}
			return t.credential(s, "any", "any")
		}
		more := whole(fresh())
		more.parameters["colour"] = "blue"
		t.refused("C-74", more, "colour")
		fewer := whole(fresh())
		missing := v1alpha1.ParameterNames(kind)[0]
		delete(fewer.parameters, missing)
		t.refused("C-74", fewer, missing)
	}
	if !slices.Contains(t.Unimplemented, kBucket) {
		for name, value := range map[string]string{
			v1alpha1.ParamVersioning: "yes", v1alpha1.ParamSoftDeleteDays: "-1", v1alpha1.ParamPurpose: "other", v1alpha1.ParamNamePrefix: "-x",
			v1alpha1.ParamCORSOrigins: "not an origin", v1alpha1.ParamNoncurrentVersionDays: "0x1",
		} {
			r := t.bucket(fresh())
			r.parameters[name] = value
			t.refused("C-74", r, name)
		}
	}
}

// foreign asks for what belongs to another subject in every way there is.
func foreign(t *T) {
	kind := kIdentity
	if slices.Contains(t.Unimplemented, kind) {
		kind = kBucket
	}
	p, q := t.project(), t.project()
	mine := func(s subject) *request {
		if kind == kBucket {
			return t.bucket(s)
		}
		return t.identity(s)
	}
	a := t.service(p, "alpha")

	r := mine(a)
	r.owner = reference("", "", "", "")
	t.refused("C-143", r, "owner")

	b, c := t.service(p, "beta"), t.service(p, "gamma")
	r = mine(b)
	r.owner = c.owner
	t.refused("C-143", r, "not controlled by")

	// A subject of another project, in this one's namespace.
	d := t.service(q, "delta")
	r = mine(d)
	r.owner = t.service(p, "delta").owner // an owner that is not in the namespace would have a cluster collect the request
	wrong := *r
	wrong.name = r.name
	t.refusedIn("C-143", &wrong, p, "namespace")

	// Under a name that is another request's.
	e := t.service(p, "epsilon")
	r = mine(e)
	r.name = "zeta-" + kind
	t.refused("C-143", r, "is named")

	if kind == kIdentity {
		r = t.identity(t.service(p, "eta"))
		r.parameters[v1alpha1.ParamServiceAccount] = "alpha"
		t.refused("C-143", r, "ServiceAccount")
	}
	if slices.Contains(t.Unimplemented, kCredential) || slices.Contains(t.Unimplemented, kBucket) || kind != kIdentity {
		t.skips = append(t.skips, "credentials for another's bucket: the kinds are not implemented")
		return
	}
	theirs, own := t.storage(d), t.storage(t.service(p, "theta"))
	for _, x := range []struct{ param, value, words string }{
		{v1alpha1.ParamBucket, theirs.parameters[v1alpha1.ParamBucket], "bucket"},
		{v1alpha1.ParamIdentity, theirs.parameters[v1alpha1.ParamIdentity], "identity"},
		{v1alpha1.ParamSecretName, "delta" + v1alpha1.StorageSecretEnding, "Secret"},
	} {
		r := t.credential(own.subject, own.parameters[v1alpha1.ParamIdentity], own.parameters[v1alpha1.ParamBucket])
		r.parameters = maps.Clone(r.parameters)
		r.parameters[x.param] = x.value
		t.refused("C-143", r, x.words)
	}
	if s, ok := t.script("that nothing was issued or granted"); ok {
		if got := append(s.records(p, "issued"), s.records(q, "issued")...); len(got) > 0 {
			t.errorf("C-143", "%d credentials were issued", len(got))
		}
		if got := s.Account.Granted(theirs.parameters[v1alpha1.ParamBucket]); len(got) > 0 {
			t.errorf("C-143", "another's bucket is granted to %v", got)
		}
	}
	// The widening: a workload or a Recipe of the project asks for itself.
	w := t.workload(p, "adopted")
	r = t.identity(w)
	r.owner.BlockOwnerDeletion = nil
	t.apply(r)
	t.await(r, "answered", func(o *v1alpha1.CloudResource) bool { return o.Status.Phase.Done() })
}

// refusedIn is refused for a request in another namespace than its subject's.
func (t *T) refusedIn(rule string, r *request, project, words string) {
	moved := *r
	moved.subject.Subject = r.Subject
	q := misplaced{request: moved, namespace: v1alpha1.Namespace(project)}
	t.must(q.apply(t))
	probe := moved
	probe.subject.Project = project
	o := t.await(&probe, "answered", func(o *v1alpha1.CloudResource) bool {
		return o.Status.ObservedGeneration == o.Generation && o.Status.Phase != v1alpha1.PhaseWaiting && o.Status.Phase != ""
	})
	if o.Status.Phase != v1alpha1.PhaseFailed || !strings.Contains(o.Status.Detail, words) {
		t.errorf(rule, "a request of another project's service is %s: %s", o.Status.Phase, o.Status.Detail)
	}
}

func notOurs(t *T) {
	p := t.project()
	r := t.identity(t.service(p, "reports"))
	r.provider = "somebody-elses"
	t.apply(r)
	// Whatever comes later is answered; so this one was seen.
	t.ready(t.identity(t.service(p, "other")))
	h := t.history(r.namespace())
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.states[r.name] {
		if o.Status.Phase != "" || o.Status.ObservedGeneration != 0 {
			t.errorf("C-8", "a request of another provider's has phase %s", o.Status.Phase)
		}
	}
}

func moved(t *T) {
	p := t.project()
	for i, change := range []func(*v1alpha1.CloudResourceStatus){
		func(st *v1alpha1.CloudResourceStatus) { st.Account = "another-account" },
		func(st *v1alpha1.CloudResourceStatus) { st.Location = "another-location" },
	} {
		s := t.service(p, fmt.Sprintf("reports%d", i))
		r := t.bucket(s)
		o := t.ready(r)
		bucket := o.Status.Outputs[v1alpha1.OutputBucket]
		// As if it had been made before the installation's settings changed.
		t.status(o, change)
		r.parameters[v1alpha1.ParamCORSOrigins] = "https://moved.example"
		o = t.refused([]string{"C-102", "C-103"}[i], r, v1alpha1.DetailMoved)
		if o.Status.Detail != v1alpha1.DetailMoved {
			t.errorf("C-102", "it says %q", o.Status.Detail)
		}
		if o.Status.Account == t.Settings.Account && o.Status.Location == t.Settings.Location {
			t.errorf("C-104", "the status forgets where the thing was made")
		}
		if sc, ok := t.script("that no call reached the bucket"); ok {
			n := 0
			for _, c := range sc.records(p, "call") {
				if c.Op == scripted.OpEnsureBucket && c.ID == bucket {
					n++
				}
			}
			if n != 1 {
				t.errorf("C-104", "the bucket was made or changed %d times", n)
			}
		}
	}
}

func recovered(t *T) {
	s := t.service(t.project(), "reports")
	c := t.storage(s)
	t.ready(c)
	access, key := pair(t.secret(s.namespace(), v1alpha1.StorageSecretName(s.Subject)))
	bucket := c.parameters[v1alpha1.ParamBucket]
	t.gone(t.identity(s), t.bucket(s), c)
	if a, k := pair(t.secret(s.namespace(), v1alpha1.StorageSecretName(s.Subject))); a != access || k != key {
		t.errorf("C-106", "the Secret did not outlive its request")
	}
	// Creation times are whole seconds.
	t.nextSecond()
	b := t.ready(t.bucket(s))
	if b.Status.Phase != v1alpha1.PhaseRecovered || b.Status.Outputs[v1alpha1.OutputBucket] != bucket {
		t.errorf("C-99", "the bucket is %s, %q", b.Status.Phase, b.Status.Outputs[v1alpha1.OutputBucket])
	}
	if i := t.ready(t.identity(s)); i.Status.Outputs[v1alpha1.OutputIdentity] != c.parameters[v1alpha1.ParamIdentity] {
		t.errorf("C-99", "the identity is another")
	}
	if o := t.ready(c); o.Status.Phase != v1alpha1.PhaseReady || o.Status.Outputs[v1alpha1.OutputSecretName] != v1alpha1.StorageSecretName(s.Subject) {
		t.errorf("C-120", "the credential is %s", o.Status.Phase)
	}
	if a, k := pair(t.secret(s.namespace(), v1alpha1.StorageSecretName(s.Subject))); a != access || k != key {
		t.errorf("C-118", "what was in the Secret is not there any more")
	}
	if sc, ok := t.script("that nothing in the account was removed, and the second credential ended"); ok {
		issued, ended := sc.records(s.Project, "issued"), sc.records(s.Project, "ended")
		if len(issued) != 2 || len(ended) != 1 || ended[0].ID != issued[1].ID {
			t.errorf("C-119", "issued %d, ended %d credentials", len(issued), len(ended))
		}
		if !sc.Account.Holds(bucket) || !sc.Account.Holds(c.parameters[v1alpha1.ParamIdentity]) {
			t.errorf("C-105", "bucket or identity went with the request")
		}
		if !sc.Account.Reaches(access, key, bucket) {
			t.errorf("C-60", "the credential in the Secret does not reach the bucket")
		}
	}
}

func nothingUnasked(t *T) {
	asked := t.project()
	idle := t.project()
	t.service(idle, "reports")
	t.ready(t.identity(t.service(asked, "reports")))
	for _, r := range t.Scripted.Account.Records() {
		if r.Subject.Project == idle {
			t.errorf("C-3", "%s was called for a project that asked for nothing", r.Op)
		}
		if r.Subject.Project == asked && r.Op != scripted.OpEnsureIdentity {
			t.errorf("C-3", "%s was called for a service that asked for an identity", r.Op)
		}
	}
}

func takenBucket(t *T) {
	p := t.project()
	for i, holder := range []struct{ account, installation string }{{"somebody-elses", ""}, {t.Settings.Account, "another-installation"}, {t.Settings.Account, ""}} {
		s := t.service(p, fmt.Sprintf("reports%d", i))
		name, err := v1alpha1.BucketName(t.NamePrefix, s.Project, s.Service)
		t.must(err)
		t.Scripted.Account.Plant(name, holder.account, holder.installation)
		t.refused("C-87", t.bucket(s), name)
		// Nor is there a credential for it, though the name is the subject's.
		identity := t.ready(t.identity(s)).Status.Outputs[v1alpha1.OutputIdentity]
		t.refused("C-88", t.credential(s, identity, name), name)
		if got := t.Scripted.Account.Granted(name); len(got) > 0 {
			t.errorf("C-88", "somebody else's bucket is granted to %v", got)
		}
	}
	if got := t.Scripted.records(p, "issued"); len(got) > 0 {
		t.errorf("C-88", "%d credentials were issued for somebody else's bucket", len(got))
	}
}

// lostBucket takes away what was answered: an empty bucket in its place would
// hide that somebody's objects are gone.
func lostBucket(t *T) {
	s := t.service(t.project(), "reports")
	r := t.bucket(s)
	bucket := t.ready(r).Status.Outputs[v1alpha1.OutputBucket]
	t.Scripted.Account.Lose(bucket)
	t.await(r, "Failed at the slow re-check", func(o *v1alpha1.CloudResource) bool {
		return o.Status.Phase == v1alpha1.PhaseFailed && strings.Contains(o.Status.Detail, bucket)
	})
	r.parameters[v1alpha1.ParamCORSOrigins] = "https://a.example"
	t.refused("C-104", r, bucket)
	if t.Scripted.Account.Holds(bucket) {
		t.errorf("C-104", "bucket %s was made again", bucket)
	}
}

func refusals(t *T) {
	p := t.project()
	a := t.Scripted.Account
	s := t.service(p, "reports")
	canary := "Canary" + strings.Repeat("x7Q", 20)
	t.secrets = append(t.secrets, canary)
	b := t.bucket(s)

	script := func(sc scripted.Script) {
		sc.Op = scripted.OpEnsureBucket
		a.Script(p, sc)
	}
	script(scripted.Script{Phase: v1alpha1.PhaseFailed, Text: "permission buckets.create is missing \x1b[2J\u202e" + strings.Repeat("hostile ", 1<<17)})
	t.refused("C-100", b, "permission buckets.create is missing")
	script(scripted.Script{Phase: v1alpha1.PhaseWaiting, Text: "the cloud asks to wait"})
	t.await(b, "waiting, in the cloud's words", func(o *v1alpha1.CloudResource) bool {
		return o.Status.Phase == v1alpha1.PhaseWaiting && strings.Contains(o.Status.Detail, "asks to wait")
	})
	script(scripted.Script{Text: "Put \"https://user:" + canary + "@cloud.invalid?X-Amz-Signature=" + canary + "\": Authorization: Bearer " + canary})
	t.await(b, "waiting, without what is secret", func(o *v1alpha1.CloudResource) bool {
		return o.Status.Phase == v1alpha1.PhaseWaiting && strings.Contains(o.Status.Detail, "cloud.invalid")
	})
	// The cause goes, the request stays as it is.
	a.Script(p)
	t.await(b, "Ready once the cause is gone", func(o *v1alpha1.CloudResource) bool { return o.Status.Phase.Done() })
}
