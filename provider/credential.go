package provider

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// A credential's way, as docs/cloud/rotation.md tells it: issued, journalled as
// Offered, put into the Secret, InPlace, reported; the one before Retiring, and
// ended after the grace. What came into no Secret is ended at once.
//
// Two rules carry all of it. The journal is written before the Secret: so what
// the cloud has and the journal has not is in no Secret. And nothing is ended
// that was not written down as Retiring or Unused before: so a provider that
// reads an older request is refused by the resourceVersion before it can end
// what another has put in place.

const (
	// maxJournal leaves room under the kind's limit of 256 entries.
	maxJournal = 200
	// finish bounds what is done once a credential was issued, which the end of
	// the process does not cut off.
	finish = 20 * time.Second
)

type entry = v1alpha1.CredentialEntry

// pending is a credential that was issued and not yet reported: its keys are
// nowhere else but, perhaps, in the Secret.
type pending struct {
	request    types.NamespacedName
	credential Credential
	generation int64
}

// credential serves kind bucket-credential.
func (n *session) credential(ctx context.Context, ask v1alpha1.CredentialAsk) (time.Duration, error) {
	if p := n.pending.get(n.obj.UID); p != nil {
		n.secrets.Add(p.credential.SecretKey)
		n.secrets.Add(p.credential.AccessKey)
	}
	answered := n.answered() && n.obj.Status.CredentialGeneration >= n.obj.Spec.CredentialGeneration
	if !answered || n.untilRecheck() <= 0 {
		if err := n.issueOrCheck(ctx, ask, answered); err != nil {
			// What is due ends all the same: it has nothing to do with the fault.
			return 0, errors.Join(err, n.end(ctx, ask))
		}
	}
	if err := n.end(ctx, ask); err != nil {
		return 0, err
	}
	next := n.untilRecheck()
	for _, e := range n.obj.Status.Credentials {
		if e.State == v1alpha1.CredentialRetiring {
			next = min(next, e.Since.Add(n.Settings.RotationGrace).Sub(n.Now()))
		}
	}
	return max(next, time.Millisecond), nil
}

func (n *session) issueOrCheck(ctx context.Context, ask v1alpha1.CredentialAsk, answered bool) error {
	st := &n.obj.Status
	// The first look: what the identity has before anything was issued for this
	// request is of an older request's, and may be in the Secret.
	first := st.CheckedAt == nil && st.CredentialGeneration == 0 && len(st.Credentials) == 0
	if err := n.begin(ctx, ask, first, answered); err != nil {
		return err
	}
	if err := n.call(ctx, "ensure_bucket_access", func(ctx context.Context) error {
		return n.Cloud.(Credentials).EnsureBucketAccess(ctx, n.req, ask)
	}); err != nil {
		return err
	}
	if !first {
		if err := n.sweep(ctx, ask); err != nil {
			return err
		}
		if n.superseded {
			return errStale
		}
	}
	if answered || n.obj.Status.CredentialGeneration >= n.obj.Spec.CredentialGeneration {
		return n.done(ctx, map[string]string{v1alpha1.OutputSecretName: ask.SecretName}, false)
	}
	ctx, cancel := outlasting(ctx, finish)
	defer cancel()
	return n.issue(ctx, ask)
}

// outlasting is a context that ends some time after the one it is made from: a
// credential that was issued is not lost because the process is to end.
func outlasting(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() { time.AfterFunc(d, cancel) })
	return ctx, func() { stop(); cancel() }
}

// begin checks with the cloud whose bucket and identity are, and claims the
// request; at the first look with the journal of what there is already.
func (n *session) begin(ctx context.Context, ask v1alpha1.CredentialAsk, first, answered bool) error {
	// Acknowledged in time, however slow the cloud is.
	early, cancel := context.WithTimeout(ctx, beforeClaim)
	defer cancel()
	err := n.ownIdentity(early, ask.Identity)
	if err == nil {
		var owns bool
		if owns, err = n.ownsBucket(early, ask.Bucket); err == nil && !owns {
			err = Refused("bucket %s is not there for %s", ask.Bucket, n.obj.Spec.Subject)
		}
	}
	var found []entry
	if err == nil && first {
		var listed []Issued
		if listed, err = n.list(early, ask); err == nil {
			for _, i := range listed {
				found = append(found, entry{ID: i.ID, State: v1alpha1.CredentialOffered, Since: v1alpha1.ReportTime(n.Now())})
			}
		}
	}
	if err != nil {
		return err
	}
	if answered || !first && n.claimed() {
		return nil
	}
	return n.write(ctx, func(st *v1alpha1.CloudResourceStatus) {
		n.taken(st)
		st.Phase, st.Detail = v1alpha1.PhaseWaiting, doing(n.obj.Spec.Kind)
		if first {
			now := v1alpha1.ReportTime(n.Now())
			st.CheckedAt, st.Credentials = &now, found
		}
	})
}

func (n *session) list(ctx context.Context, ask v1alpha1.CredentialAsk) ([]Issued, error) {
	listed, _, err := call2(ctx, n, "list_credentials", func(ctx context.Context) ([]Issued, struct{}, error) {
		l, err := n.Cloud.(Credentials).ListCredentials(ctx, n.req, ask)
		return l, struct{}{}, err
	})
	if err == nil && len(listed) > maxJournal {
		err = Refused("the identity has %d credentials; more than %d are not kept track of", len(listed), maxJournal)
	}
	return listed, err
}

// sweep finds what was issued and never journalled, since the process died or
// the answer was lost: it is in no Secret. It is journalled as Unused before it
// is ended, which a provider that has not read the newest request cannot do.
func (n *session) sweep(ctx context.Context, ask v1alpha1.CredentialAsk) error {
	listed, err := n.list(ctx, ask)
	if err != nil {
		return err
	}
	mine := n.pending.get(n.obj.UID)
	var lost []entry
	for _, i := range listed {
		if mine != nil && mine.credential.ID == i.ID || find(n.obj.Status.Credentials, i.ID) != nil {
			continue
		}
		state := v1alpha1.CredentialUnused
		if !i.CreatedAt.IsZero() && i.CreatedAt.Before(n.req.CreatedAt) {
			// Older than the request, and not seen at the first look.
			state = v1alpha1.CredentialOffered
		}
		lost = append(lost, entry{ID: i.ID, State: state, Since: v1alpha1.ReportTime(n.Now())})
	}
	if len(lost) == 0 {
		return nil
	}
	if err := n.note(ctx, append(slices.Clone(n.obj.Status.Credentials), lost...)); err != nil {
		return err
	}
	return n.end(ctx, ask)
}

// issue brings a credential of the asked generation into the Secret and
// reports it.
func (n *session) issue(ctx context.Context, ask v1alpha1.CredentialAsk) error {
	want := n.obj.Spec.CredentialGeneration
	at := secretRef{n.obj.Namespace, ask.SecretName, n.obj.Spec.Subject}
	j := journal(slices.Clone(n.obj.Status.Credentials))

	// What an earlier pass may have put into the Secret without coming to say so.
	for i := range j {
		if e := &j[i]; e.State == v1alpha1.CredentialOffered && e.Generation > 0 {
			switch f, err := n.writer.holds(ctx, at, e.ID); {
			case err != nil:
				return &apiError{"look whether Secret " + at.name + " holds the credential", err}
			case f == held:
				j.settle(e.ID, n.Now())
			}
		}
	}
	if e := j.inPlace(); e != nil && e.Generation == want {
		return n.report(ctx, ask, j, e.ID)
	}
	if len(j) >= maxJournal {
		return Refused("%d credentials of the identity have not ended; no more are issued", len(j))
	}
	c, err := n.make(ctx, ask, &j, want)
	if err != nil {
		return err
	}
	placed, err := n.place(ctx, at, j, c)
	if err != nil {
		return err
	}
	if placed {
		return n.report(ctx, ask, j, c.ID)
	}
	return n.conflict(ctx, ask, at, j, c)
}

// make answers a credential of the generation that is journalled as Offered:
// the one that an earlier pass of this process has made, or a new one.
func (n *session) make(ctx context.Context, ask v1alpha1.CredentialAsk, j *journal, want int64) (Credential, error) {
	var c Credential
	p := n.pending.get(n.obj.UID)
	if p != nil {
		switch e := find(*j, p.credential.ID); {
		case e != nil && e.State == v1alpha1.CredentialOffered && p.generation == want:
			return p.credential, nil
		case e != nil || p.generation != want:
			p = nil
		}
	}
	if p != nil {
		c = p.credential
	} else {
		var err error
		c, _, err = call2(ctx, n, "issue_credential", func(ctx context.Context) (Credential, struct{}, error) {
			c, err := n.Cloud.(Credentials).IssueCredential(ctx, n.req, ask)
			return c, struct{}{}, err
		})
		if err != nil {
			return c, err
		}
		n.metrics.credentials.WithLabelValues("issued").Inc()
		n.secrets.Add(c.SecretKey)
		n.secrets.Add(c.AccessKey)
		n.pending.set(n.obj.UID, &pending{types.NamespacedName{Namespace: n.obj.Namespace, Name: n.obj.Name}, c, want})
	}
	if c.ID == "" || c.AccessKey == "" || c.SecretKey == "" {
		n.pending.drop(n.obj.UID)
		return c, errors.New("the cloud issues a credential without its id or keys")
	}
	*j = append(*j, entry{ID: c.ID, Generation: want, State: v1alpha1.CredentialOffered, Since: v1alpha1.ReportTime(n.Now())})
	err := n.note(ctx, *j)
	if errors.Is(err, errStale) {
		// Somebody else serves this request, or it is gone: nobody but this
		// process knows of the credential.
		n.pending.drop(n.obj.UID)
		return c, errors.Join(err, n.endOne(ctx, ask, c.ID, "stale"))
	}
	return c, err
}

// place offers the credential to the Secret, or puts it in the place of the one
// that is there. It answers false if the Secret was there and is not to be
// touched (C-118). The journal's other entries are brought up to what that told.
func (n *session) place(ctx context.Context, at secretRef, j journal, c Credential) (bool, error) {
	wrong := func(err error) error { return &apiError{"write Secret " + at.name, err} }
	create := func() (bool, error) {
		err := n.writer.create(ctx, at, map[string]string{v1alpha1.AnnotationCredentialID: c.ID}, credentialData(c))
		switch {
		case apierrors.IsAlreadyExists(err):
			return false, nil
		case err != nil:
			return false, wrong(err)
		}
		return true, nil
	}
	// The first is offered, and what is there stays. What is there may also be
	// this request's own, not yet reported when the next one was asked for.
	if n.obj.Status.CredentialGeneration == 0 && j.inPlace() == nil {
		placed, err := create()
		if placed {
			j.settle(c.ID, n.Now())
		}
		return placed, err
	}
	// The credential that the Secret is known to hold: in place by the journal,
	// or found by asking for each that may be.
	before, err := n.holding(ctx, at, j, c.ID)
	for tries := 0; err == nil; tries++ {
		f := other
		if before != "" {
			if f, err = n.writer.replaceCredential(ctx, at, before, c); err != nil {
				return false, wrong(err)
			}
		} else if err = n.writer.overwriteCredential(ctx, at, c); err == nil {
			f = held
		} else if apierrors.IsNotFound(err) {
			f, err = absent, nil
		} else {
			return false, wrong(err)
		}
		switch {
		case f == held:
			j.settle(c.ID, n.Now())
			return true, nil
		case f == absent:
			placed, err := create()
			if err == nil && !placed {
				err = errStale
			}
			if placed {
				j.settle(c.ID, n.Now())
			}
			return placed, err
		case tries > 2:
			return false, errStale
		}
		// Another provider that serves this request has journalled what it puts
		// there, so it would be seen here; else it was a hand.
		if err := n.unchanged(ctx); err != nil {
			return false, err
		}
		tried := before
		switch before, err = n.search(ctx, at, j); {
		case err != nil:
		case before == c.ID:
			// An answer that was lost: it is there.
			j.settle(c.ID, n.Now())
			return true, nil
		case before == tried:
			// It has the annotation and no data that could be replaced.
			before = ""
		}
	}
	return false, wrong(err)
}

// holding is the id that the Secret holds by what is known without asking, else
// by asking; empty if it is none of the journal's.
func (n *session) holding(ctx context.Context, at secretRef, j journal, except string) (string, error) {
	if e := j.inPlace(); e != nil {
		return e.ID, nil
	}
	if len(j) == 1 && j[0].ID == except {
		return "", nil
	}
	return n.search(ctx, at, j)
}

// search asks for each of the journal's whether the Secret holds it.
func (n *session) search(ctx context.Context, at secretRef, j journal) (string, error) {
	for i := range j {
		switch f, err := n.writer.holds(ctx, at, j[i].ID); {
		case err != nil:
			return "", err
		case f == absent:
			return "", nil
		case f == held:
			return j[i].ID, nil
		}
	}
	return "", nil
}

// conflict ends the credential for which there was no place, and answers that
// the Secret is there.
func (n *session) conflict(ctx context.Context, ask v1alpha1.CredentialAsk, at secretRef, j journal, c Credential) error {
	if n.superseded {
		return errStale
	}
	n.metrics.credentials.WithLabelValues("conflict").Inc()
	rest := j.without(c.ID)
	in, err := n.search(ctx, at, rest)
	if err != nil {
		return &apiError{"look what Secret " + at.name + " holds", err}
	}
	ended := n.endOne(ctx, ask, c.ID, "conflict")
	n.pending.drop(n.obj.UID)
	now := v1alpha1.ReportTime(n.Now())
	for i := range rest {
		e := &rest[i]
		switch {
		case e.ID == in:
			e.State, e.Since = v1alpha1.CredentialInPlace, now
		case e.State != v1alpha1.CredentialOffered:
		case e.Generation > 0:
			// Of this request, offered, and not what is there.
			e.State, e.Since = v1alpha1.CredentialUnused, now
		case in != "":
			// Of an older request, and followed by what is there.
			e.State, e.Since = v1alpha1.CredentialRetiring, now
		}
	}
	if ended != nil {
		rest = append(rest, entry{ID: c.ID, Generation: n.obj.Spec.CredentialGeneration, State: v1alpha1.CredentialUnused, Since: now})
	}
	err = n.write(ctx, func(st *v1alpha1.CloudResourceStatus) {
		n.ready(st, map[string]string{v1alpha1.OutputSecretName: ask.SecretName}, false)
		st.Credentials, st.CredentialReportedAt = rest, &now
		if st.CredentialGeneration == 0 {
			st.CredentialGeneration = n.obj.Spec.CredentialGeneration
		}
	})
	return errors.Join(err, ended)
}

// report says that the credential of this id is in place, once the cloud takes
// it. The grace of the one before counts from here.
func (n *session) report(ctx context.Context, ask v1alpha1.CredentialAsk, j journal, id string) error {
	e := find(j, id)
	c := Credential{ID: id}
	if p := n.pending.get(n.obj.UID); p != nil && p.credential.ID == id {
		c = p.credential
	}
	err := n.call(ctx, "credential_usable", func(ctx context.Context) error {
		return n.Cloud.(Credentials).CredentialUsable(ctx, n.req, ask, c, e.Since.Time)
	})
	if err != nil {
		// It is in the Secret: that is worth knowing before the process ends.
		return errors.Join(n.note(ctx, j), err)
	}
	if n.superseded {
		return errors.Join(n.note(ctx, j), errStale)
	}
	now := v1alpha1.ReportTime(n.Now())
	for i := range j {
		switch e := &j[i]; {
		case e.ID == id:
		case e.State == v1alpha1.CredentialInPlace, e.State == v1alpha1.CredentialOffered && e.Generation == 0:
			e.State, e.Since = v1alpha1.CredentialRetiring, now
		}
	}
	err = n.write(ctx, func(st *v1alpha1.CloudResourceStatus) {
		n.ready(st, map[string]string{v1alpha1.OutputSecretName: ask.SecretName}, false)
		st.Credentials, st.CredentialGeneration, st.CredentialReportedAt = j, e.Generation, &now
	})
	if err == nil {
		n.pending.drop(n.obj.UID)
	}
	return err
}

// end ends what is due, and only then takes it out of the journal.
func (n *session) end(ctx context.Context, ask v1alpha1.CredentialAsk) error {
	var errs []error
	var ended []string
	at := secretRef{n.obj.Namespace, ask.SecretName, n.obj.Spec.Subject}
	for _, e := range n.obj.Status.Credentials {
		switch {
		case e.State == v1alpha1.CredentialUnused:
			// Another provider that serves this request may have put it into the
			// Secret just before it was written down as unused.
			f, err := n.writer.holds(ctx, at, e.ID)
			if err != nil {
				errs = append(errs, &apiError{"look whether Secret " + at.name + " holds the credential", err})
				continue
			}
			if f == held {
				errs = append(errs, n.note(ctx, journal(slices.Clone(n.obj.Status.Credentials)).standing(e.ID, n.Now())))
				return errors.Join(errs...)
			}
		case e.State == v1alpha1.CredentialRetiring && !n.Now().Before(e.Since.Add(n.Settings.RotationGrace)):
		default:
			continue
		}
		if err := n.endOne(ctx, ask, e.ID, string(e.State)); err != nil {
			errs = append(errs, err)
			continue
		}
		ended = append(ended, e.ID)
	}
	if len(ended) > 0 {
		left := slices.DeleteFunc(slices.Clone(n.obj.Status.Credentials), func(e entry) bool { return slices.Contains(ended, e.ID) })
		errs = append(errs, n.note(ctx, left))
	}
	return errors.Join(errs...)
}

func (n *session) endOne(ctx context.Context, ask v1alpha1.CredentialAsk, id, why string) error {
	err := n.call(ctx, "end_credential", func(ctx context.Context) error { return n.Cloud.(Credentials).EndCredential(ctx, n.req, ask, id) })
	if err == nil {
		n.metrics.credentials.WithLabelValues("ended").Inc()
		n.log.Info("ended a credential", "id", id, "why", why)
	}
	return err
}

// journal is the credentials that have not ended.
type journal []entry

func find(j []entry, id string) *entry {
	for i := range j {
		if j[i].ID == id {
			return &j[i]
		}
	}
	return nil
}

// inPlace is the newest that is in place: there are two while the cloud does not
// yet take the newer, which is the one that the Secret holds.
func (j journal) inPlace() *entry {
	var newest *entry
	for i := range j {
		if e := &j[i]; e.State == v1alpha1.CredentialInPlace && (newest == nil || e.Generation >= newest.Generation) {
			newest = e
		}
	}
	return newest
}

// standing is the journal once the Secret turned out to hold the credential of this
// id: what was in place has been in the Secret too, and ends with its grace.
func (j journal) standing(id string, at time.Time) journal {
	for i := range j {
		switch e := &j[i]; {
		case e.ID == id:
			e.State, e.Since = v1alpha1.CredentialInPlace, v1alpha1.ReportTime(at)
		case e.State == v1alpha1.CredentialInPlace:
			e.State, e.Since = v1alpha1.CredentialRetiring, v1alpha1.ReportTime(at)
		}
	}
	return j
}

func (j journal) without(id string) journal {
	return slices.DeleteFunc(slices.Clone(j), func(e entry) bool { return e.ID == id })
}

// settle notes that the Secret holds the credential of this id now: what was
// offered before it for this request came into no Secret.
func (j journal) settle(id string, at time.Time) {
	for i := range j {
		switch e := &j[i]; {
		case e.ID == id:
			e.State, e.Since = v1alpha1.CredentialInPlace, v1alpha1.ReportTime(at)
		case e.State == v1alpha1.CredentialOffered && e.Generation > 0:
			e.State, e.Since = v1alpha1.CredentialUnused, v1alpha1.ReportTime(at)
		}
	}
}
