package provider

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/conceal"
)

const (
	// beforeClaim bounds what is asked of the cloud before a request is
	// acknowledged, so that no slow cloud passes for a provider that is gone.
	beforeClaim = 15 * time.Second
	// maxConflicts is how often a write is sent again at once to an API server
	// that says somebody else was faster.
	maxConflicts = 10
	// shortKey is the length below which a key's name could be part of any word.
	shortKey = 6
	// afterStale is the first wait before a request that changed meanwhile is
	// read again.
	afterStale = 50 * time.Millisecond
)

// errStale is that the request is no longer as it was read.
var errStale = errors.New("the request has changed meanwhile")

// session is one look at one request.
type session struct {
	*server
	log *slog.Logger
	// obj is the request as the API server holds it: read from there at the
	// session's start (C-93), and again with each answer to a write.
	obj *v1alpha1.CloudResource
	req Request
	// secrets are values in use, which no text of this session may hold.
	secrets *conceal.Values
	// superseded is that obj asks for something else than was read first.
	superseded bool
	// first is that nobody had claimed the request when it was read: nothing was
	// made for it before this session.
	first bool
}

// Reconcile looks at one request, and says when to look again.
func (s *server) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	log := s.Log.With("namespace", q.Namespace, "request", q.Name)
	obj := &v1alpha1.CloudResource{}
	switch err := s.live.Get(ctx, q.NamespacedName, obj); {
	case apierrors.IsNotFound(err):
		s.forget(q.NamespacedName, "")
		return reconcile.Result{}, nil
	case err != nil:
		if ctx.Err() == nil {
			log.Warn("cannot read the request", "error", scrub(err.Error()))
		}
		return reconcile.Result{RequeueAfter: s.retry.When(q.NamespacedName)}, nil
	}
	if obj.Spec.Provider != s.Settings.Provider || !obj.DeletionTimestamp.IsZero() {
		// What is removed is left as it is, in the cloud and in the cluster
		// (C-105, C-106).
		s.forget(q.NamespacedName, obj.UID)
		return reconcile.Result{}, nil
	}
	n := &session{server: s, log: log.With("kind", kindLabel(obj.Spec.Kind)), obj: obj, secrets: new(conceal.Values), req: Request{
		Installation: s.Settings.Installation, Subject: obj.Spec.Subject, Namespace: obj.Namespace,
		Account: s.Settings.Account, Location: s.Settings.Location, KMSKey: s.Settings.KMSKey,
		CreatedAt: obj.CreationTimestamp.Time,
	}, first: obj.Status.Phase == ""}
	after, err := n.serve(ctx)
	if err == nil {
		s.retry.Forget(q.NamespacedName)
		s.stale.Forget(q.NamespacedName)
		return reconcile.Result{RequeueAfter: after}, nil
	}
	return reconcile.Result{RequeueAfter: n.fault(ctx, err)}, nil
}

// serve answers the request, or looks whether what was answered still holds,
// and says when to look again.
func (n *session) serve(ctx context.Context) (time.Duration, error) {
	ask, err := check(n.obj, n.Settings, n.Cloud)
	if err != nil {
		return 0, err
	}
	switch a := ask.(type) {
	case v1alpha1.CredentialAsk:
		return n.credential(ctx, a)
	case v1alpha1.SecretSyncAsk:
		return n.sync(ctx, a)
	}
	if n.answered() {
		if wait := n.untilRecheck(); wait > 0 {
			return wait, nil
		}
	} else if err := n.claim(ctx); err != nil {
		return 0, err
	}
	outputs, recovered, err := n.ensure(ctx, ask)
	if err != nil {
		return 0, err
	}
	return n.Recheck, n.done(ctx, outputs, recovered)
}

// ensure has the cloud make what is asked, for the kinds that it is made in one
// step.
func (n *session) ensure(ctx context.Context, ask any) (map[string]string, bool, error) {
	switch a := ask.(type) {
	case v1alpha1.IdentityAsk:
		answer, thing, err := call2(ctx, n, "ensure_identity", func(ctx context.Context) (v1alpha1.IdentityAnswer, Thing, error) {
			return n.Cloud.(Identities).EnsureIdentity(ctx, n.req, a)
		})
		if err != nil {
			return nil, false, err
		}
		return n.outputs(answer.Outputs, thing)
	case v1alpha1.BucketAsk:
		return n.bucket(ctx, a)
	case v1alpha1.SecretAccessAsk:
		if err := n.ownIdentity(ctx, a.Identity); err != nil {
			return nil, false, err
		}
		return nil, false, n.call(ctx, "ensure_secret_access", func(ctx context.Context) error {
			return n.Cloud.(SecretAccess).EnsureSecretAccess(ctx, n.req, a)
		})
	case v1alpha1.WrappingKeyAsk:
		if err := n.ownIdentity(ctx, a.Identity); err != nil {
			return nil, false, err
		}
		if err := n.call(ctx, "ensure_wrapping_key", func(ctx context.Context) error {
			return n.Cloud.(WrappingKeys).EnsureWrappingKey(ctx, n.req, a)
		}); err != nil {
			return nil, false, err
		}
		return n.outputs(v1alpha1.WrappingKeyAnswer{Key: a.Key}.Outputs, Thing{Made: true})
	}
	return nil, false, fmt.Errorf("no way to serve %T", ask)
}

func (n *session) bucket(ctx context.Context, a v1alpha1.BucketAsk) (map[string]string, bool, error) {
	name, err := v1alpha1.BucketNameFor(a.NamePrefix, n.obj.Spec.Subject, a.Purpose)
	if err != nil {
		return nil, false, invalid("%v", err)
	}
	// A bucket that was answered and is gone held somebody's objects: making an
	// empty one in its place would hide that.
	if made := n.obj.Status.Outputs[v1alpha1.OutputBucket]; made != "" {
		switch owns, err := n.ownsBucket(ctx, made); {
		case err != nil:
			return nil, false, err
		case !owns:
			return nil, false, Refused("bucket %s was made for %s and is no longer there for it; a provider makes no other in its place", made, n.obj.Spec.Subject)
		}
	}
	answer, thing, err := call2(ctx, n, "ensure_bucket", func(ctx context.Context) (v1alpha1.BucketAnswer, Thing, error) {
		return n.Cloud.(Buckets).EnsureBucket(ctx, n.req, BucketAsk{BucketAsk: a, Name: name})
	})
	if err != nil {
		return nil, false, err
	}
	if answer.Bucket != name {
		return nil, false, errors.New("the cloud answers a bucket of another name")
	}
	return n.outputs(answer.Outputs, thing)
}

func (n *session) outputs(format func() (map[string]string, error), t Thing) (map[string]string, bool, error) {
	o, err := format()
	if err != nil {
		return nil, false, fmt.Errorf("what the cloud answers cannot be written down: %w", err)
	}
	return o, n.recovered(t), nil
}

// recovered says whether the thing was there before the request was (C-147).
// What was said once stays. A request's time has whole seconds: what was made in
// the same one was there before, unless a session for this request may have made
// it.
func (n *session) recovered(t Thing) bool {
	switch {
	case len(n.obj.Status.Outputs) > 0:
		return n.obj.Status.Recovered
	case t.Made:
		return false
	case n.first && t.CreatedAt.Before(n.req.CreatedAt.Add(time.Second)):
		return true
	}
	return t.CreatedAt.IsZero() || t.CreatedAt.Before(n.req.CreatedAt)
}

func (n *session) ownIdentity(ctx context.Context, identity string) error {
	owns, _, err := call2(ctx, n, "owns_identity", func(ctx context.Context) (bool, struct{}, error) {
		owns, err := n.Cloud.(Identities).OwnsIdentity(ctx, n.req, identity)
		return owns, struct{}{}, err
	})
	switch {
	case err != nil:
		return err
	case !owns && n.obj.Spec.Subject.Service == "" && n.obj.Spec.Kind == v1alpha1.KindBucketCredential:
		return Refused("%s", v1alpha1.DetailBackupIdentity)
	case !owns:
		return Refused("the identity is not %s's", n.obj.Spec.Subject)
	}
	return nil
}

func (n *session) ownsBucket(ctx context.Context, bucket string) (bool, error) {
	owns, _, err := call2(ctx, n, "owns_bucket", func(ctx context.Context) (bool, struct{}, error) {
		owns, err := n.Cloud.(Buckets).OwnsBucket(ctx, n.req, bucket)
		return owns, struct{}{}, err
	})
	return owns, err
}

// answered says that the present generation has its answer.
func (n *session) answered() bool {
	return n.obj.Status.ObservedGeneration == n.obj.Generation && n.obj.Status.Phase.Done()
}

// claimed says that the present generation has a phase.
func (n *session) claimed() bool {
	return n.obj.Status.ObservedGeneration == n.obj.Generation && n.obj.Status.Phase != ""
}

// claim says that the request is being worked on, before anything is made: who
// has read an older one is refused here, and account and location are on record
// before there is a thing in them.
func (n *session) claim(ctx context.Context) error {
	if n.claimed() && n.obj.Status.Account != "" {
		return nil
	}
	return n.write(ctx, func(st *v1alpha1.CloudResourceStatus) {
		n.taken(st)
		st.Phase, st.Detail = v1alpha1.PhaseWaiting, doing(n.obj.Spec.Kind)
	})
}

func (n *session) taken(st *v1alpha1.CloudResourceStatus) {
	st.Account, st.Location = n.Settings.Account, n.Settings.Location
}

// doing is what a request waits for first.
func doing(kind string) string {
	return map[string]string{
		v1alpha1.KindIdentity:         "making the identity",
		v1alpha1.KindSecretAccess:     "granting access to the secrets",
		v1alpha1.KindSecretSync:       "reading the secrets of the account",
		v1alpha1.KindBucket:           "making the bucket",
		v1alpha1.KindBucketCredential: "issuing the credential",
		v1alpha1.KindWrappingKey:      "granting the use of the key",
	}[kind]
}

// done writes the answer.
func (n *session) done(ctx context.Context, outputs map[string]string, recovered bool) error {
	return n.write(ctx, func(st *v1alpha1.CloudResourceStatus) {
		n.ready(st, outputs, recovered)
	})
}

func (n *session) ready(st *v1alpha1.CloudResourceStatus, outputs map[string]string, recovered bool) {
	n.taken(st)
	st.Phase, st.Detail, st.Recovered, st.Outputs = v1alpha1.PhaseReady, "", recovered, outputs
	if recovered {
		st.Phase, st.Detail = v1alpha1.PhaseRecovered, "it was there already"
	}
	now := v1alpha1.ReportTime(n.Now())
	st.CheckedAt = &now
}

// write writes the status under the resourceVersion that was read. errStale says
// that the request is not there any more, asks for something else, or was
// answered by somebody else. A status that does not change is not written.
func (n *session) write(ctx context.Context, change func(*v1alpha1.CloudResourceStatus)) error {
	return n.update(ctx, false, func(st *v1alpha1.CloudResourceStatus) {
		before := *st
		st.ObservedGeneration, st.ProviderVersion = n.obj.Generation, n.Cloud.Version()
		change(st)
		st.Detail = v1alpha1.Clean(n.secrets.Text(st.Detail))
		if st.Phase != before.Phase || st.Detail != before.Detail {
			now := v1alpha1.ReportTime(n.Now())
			st.ReportedAt = &now
		}
	})
}

// note writes the journal and nothing else. Unlike an answer it may be written
// when the request asks for something else by now: what was made must be on
// record all the same. The session is superseded then, and answers nothing more.
func (n *session) note(ctx context.Context, j journal) error {
	return n.update(ctx, true, func(st *v1alpha1.CloudResourceStatus) { st.Credentials = slices.Clone(j) })
}

func (n *session) update(ctx context.Context, journalOnly bool, change func(*v1alpha1.CloudResourceStatus)) error {
	read := n.obj
	for tries := 1; ; tries++ {
		next := read.DeepCopy()
		change(&next.Status)
		if equality.Semantic.DeepEqual(read.Status, next.Status) {
			return nil
		}
		err := n.live.Status().Update(ctx, next)
		switch {
		case apierrors.IsNotFound(err):
			return errStale
		case apierrors.IsConflict(err) && tries < maxConflicts:
			// Only the status counts: whoever else serves this request has
			// changed it. Labels and the like change as they please.
			live := &v1alpha1.CloudResource{}
			if err := n.live.Get(ctx, types.NamespacedName{Namespace: read.Namespace, Name: read.Name}, live); apierrors.IsNotFound(err) {
				return errStale
			} else if err != nil {
				return &apiError{"read the request again", err}
			}
			if live.UID != read.UID || !live.DeletionTimestamp.IsZero() || !equality.Semantic.DeepEqual(live.Status, read.Status) ||
				live.Generation != n.obj.Generation && !journalOnly {
				return errStale
			}
			read = live
			continue
		case err != nil:
			return &apiError{"write the answer", err}
		}
		if st := next.Status; st.Phase != n.obj.Status.Phase || st.ObservedGeneration != n.obj.Status.ObservedGeneration {
			n.metrics.answers.WithLabelValues(kindLabel(n.obj.Spec.Kind), string(st.Phase)).Inc()
			n.log.Info("answered", "generation", st.ObservedGeneration, "phase", st.Phase, "detail", st.Detail)
		}
		n.superseded = n.superseded || next.Generation != n.obj.Generation
		n.obj = next
		return nil
	}
}

// unchanged is errStale if somebody else has written the status since it was
// read.
func (n *session) unchanged(ctx context.Context) error {
	live := &v1alpha1.CloudResource{}
	switch err := n.live.Get(ctx, types.NamespacedName{Namespace: n.obj.Namespace, Name: n.obj.Name}, live); {
	case apierrors.IsNotFound(err):
		return errStale
	case err != nil:
		return &apiError{"read the request again", err}
	}
	if live.UID != n.obj.UID || !equality.Semantic.DeepEqual(live.Status, n.obj.Status) {
		return errStale
	}
	return nil
}

// apiError is of the cluster, not of the cloud.
type apiError struct {
	what string
	err  error
}

func (e *apiError) Error() string { return e.what + ": " + e.err.Error() }
func (e *apiError) Unwrap() error { return e.err }

// fault answers what went wrong, and says when to try again.
func (n *session) fault(ctx context.Context, err error) time.Duration {
	key := types.NamespacedName{Namespace: n.obj.Namespace, Name: n.obj.Name}
	var o *outcome
	var api *apiError
	switch {
	case errors.Is(err, errStale):
		return n.stale.When(key)
	case ctx.Err() != nil:
		// The process ends; the next one goes on.
		return 0
	case errors.Is(err, ErrMoved):
		o = &outcome{phase: v1alpha1.PhaseFailed, text: v1alpha1.DetailMoved}
	case errors.As(err, &o):
	case errors.As(err, &api):
		// Of the cluster's troubles nothing can be said in the cluster, but
		// that it refuses the Secret, and will as long as it is the same: that
		// is for whoever runs it.
		n.log.Warn("the cluster refuses", "error", scrub(n.secrets.Text(err.Error())))
		if !apierrors.IsForbidden(api.err) && !apierrors.IsInvalid(api.err) && !apierrors.IsBadRequest(api.err) && !apierrors.IsRequestEntityTooLargeError(api.err) {
			return n.again(key)
		}
		o = &outcome{phase: v1alpha1.PhaseFailed, text: "the cluster refuses to " + scrub(n.secrets.Text(err.Error()))}
	default:
		text := scrub(n.secrets.Text(err.Error()))
		n.log.Warn("the cloud did not answer", "error", text)
		o = &outcome{phase: v1alpha1.PhaseWaiting, text: "the cloud did not answer as it should, and is asked again: " + text}
	}
	after := n.Recheck
	if !o.final {
		after = n.again(key)
	}
	if n.answered() && o.phase == v1alpha1.PhaseWaiting {
		// What is there is not taken back because the cloud cannot be asked
		// about it.
		n.log.Warn("cannot look at what was answered", "reason", v1alpha1.Clean(outcomeText(n, o)))
		return after
	}
	if err := n.write(ctx, func(st *v1alpha1.CloudResourceStatus) {
		st.Phase, st.Detail = o.phase, outcomeText(n, o)
	}); err != nil {
		if errors.Is(err, errStale) {
			return n.stale.When(key)
		}
		n.log.Warn("cannot write the answer", "error", scrub(err.Error()))
		return n.again(key)
	}
	return after
}

// again is when what went wrong is tried again. A Secret follows the account
// within its interval also after a fault, however long that took (C-70).
func (n *session) again(key types.NamespacedName) time.Duration {
	after := n.retry.When(key)
	if n.obj.Spec.Kind == v1alpha1.KindSecretSync {
		after = min(after, n.spread(n.SyncInterval))
	}
	return after
}

func outcomeText(n *session, o *outcome) string {
	if o.final {
		return o.text
	}
	text := n.secrets.Text(o.text)
	if key := n.Settings.KMSKey; len(key) >= shortKey {
		// A cloud may quote it, and its name is not for every member (C-32).
		text = strings.ReplaceAll(text, key, "[the installation's key]")
	}
	text = conspicuous(text)
	if text != "" {
		return text
	}
	return v1alpha1.DetailNoReason
}

// untilRecheck is how long what is answered is left alone. It is spread, and
// counted from the status, so that a restart does not ask the cloud about
// everything at once.
func (n *session) untilRecheck() time.Duration {
	at := n.obj.Status.CheckedAt
	if at == nil {
		return 0
	}
	// A clock that was set back does not put it off.
	return min(at.Add(n.spread(n.Recheck)).Sub(n.Now()), n.Recheck)
}

func (n *session) spread(d time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.obj.UID))
	return d - time.Duration(h.Sum32()%1000)*d/10000
}

// sync keeps a Secret in step with the account (C-70).
func (n *session) sync(ctx context.Context, ask v1alpha1.SecretSyncAsk) (time.Duration, error) {
	every := n.spread(n.SyncInterval)
	if n.answered() {
		if wait := n.synced.get(n.obj.UID).Add(every).Sub(n.Now()); wait > 0 {
			return wait, nil
		}
	} else if err := n.claim(ctx); err != nil {
		return 0, err
	}
	ids := slices.Sorted(maps.Values(ask.Entries))
	values, _, err := call2(ctx, n, "secret_values", func(ctx context.Context) (map[string][]byte, struct{}, error) {
		v, err := n.Cloud.(SecretValues).SecretValues(ctx, n.req, slices.Compact(ids))
		return v, struct{}{}, err
	})
	if err != nil {
		return 0, err
	}
	data := map[string][]byte{}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(ask.Entries)) {
		v, ok := values[ask.Entries[name]]
		if !ok {
			missing = append(missing, name)
			continue
		}
		n.secrets.Add(string(v))
		data[name] = v
	}
	if len(missing) > 0 {
		return 0, Waiting("the account has no value yet for %s", strings.Join(missing, ", "))
	}
	at := secretRef{n.obj.Namespace, ask.SecretName, n.obj.Spec.Subject}
	if err := n.syncSecret(ctx, at, data); err != nil {
		return 0, &apiError{"write Secret " + ask.SecretName, err}
	}
	n.synced.set(n.obj.UID, n.Now())
	if n.answered() && n.untilRecheck() > 0 {
		return every, nil
	}
	return every, n.done(ctx, map[string]string{v1alpha1.OutputEntryGeneration: v1alpha1.FormatNumber(ask.EntryGeneration)}, false)
}

func (n *session) syncSecret(ctx context.Context, at secretRef, data map[string][]byte) error {
	if len(n.obj.Status.Outputs) > 0 {
		if err := n.writer.replaceData(ctx, at, data); !apierrors.IsNotFound(err) {
			return err
		}
	}
	err := n.writer.create(ctx, at, nil, data)
	if apierrors.IsAlreadyExists(err) {
		return n.writer.replaceData(ctx, at, data)
	}
	return err
}
