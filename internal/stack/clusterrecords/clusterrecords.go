// Package clusterrecords keeps the records of stacks in a cluster: the form of
// [stack.Records] for teams without a control plane. Each stack is one Secret, as
// releases of Helm are, though it holds no secret: Secrets are what a cluster
// guards best.
//
// The lock is in the Secret too: its holder and until when it holds, renewed
// while the process lives. Every write carries the resourceVersion of the one
// before, so that who lost the lock can write nothing any more, whatever its clock
// says.
package clusterrecords

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/stack"
)

// DefaultNamespace is where records lie unless another namespace is named.
const DefaultNamespace = "radial-stacks"

const (
	secretType  = "radapp.io/stack"
	label       = "radapp.io/stack-record"
	holderKey   = "radapp.io/lock-holder"
	untilKey    = "radapp.io/lock-until"
	documentKey = "stack"
	// maxPacked is what a Secret holds, in bytes, with room for its metadata.
	maxPacked = 1000 << 10
)

// DefaultLease is how long a lock is held without a renewal.
const DefaultLease = 60 * time.Second

// Options of Records. Client is required.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// Lease is how long a killed process's lock keeps others out.
	Lease time.Duration
	// Holder names this process to others; nil is user, host and pid.
	Holder string
	Now    func() time.Time
}

// Records are those of one namespace.
type Records struct{ o Options }

var _ stack.Records = (*Records)(nil)

// New returns the records of a namespace, which is made with the first record.
func New(o Options) *Records {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "a machine"
		}
		o.Holder = fmt.Sprintf("process %d on %s", os.Getpid(), host)
	}
	return &Records{o}
}

// name is the Secret's: readable, and unique for the id.
func name(id core.ID) string {
	readable := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' {
			return c
		}
		return '-'
	}, strings.ToLower(id.Name()))
	sum := sha256.Sum256([]byte(id.Key()))
	return "radial-stack-" + strings.Trim(readable, "-") + "-" + hex.EncodeToString(sum[:5])
}

func (r *Records) fault(err error, doing string) error {
	code := core.CodeTarget
	if apierrors.IsForbidden(err) {
		code = core.CodeForbidden
	}
	return core.Errorf(code, "cannot %s the record of the stack in namespace %s of the cluster: %w", doing, r.o.Namespace, err)
}

func decode(s *corev1.Secret) (stack.Document, error) { return stack.Decode(s.Data[documentKey]) }

// Read implements [stack.Records].
func (r *Records) Read(ctx context.Context, id core.ID) (stack.Record, error) {
	s, err := r.o.Client.CoreV1().Secrets(r.o.Namespace).Get(ctx, name(id), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && len(s.Data[documentKey]) == 0 {
		return stack.Record{}, stack.NotFoundError(id, "in namespace "+r.o.Namespace)
	}
	if err != nil {
		return stack.Record{}, r.fault(err, "read")
	}
	d, err := decode(s)
	return d.Record, err
}

// List implements [stack.Records].
func (r *Records) List(ctx context.Context) ([]stack.Record, error) {
	found, err := r.o.Client.CoreV1().Secrets(r.o.Namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, r.fault(err, "list")
	}
	var list []stack.Record
	for _, s := range found.Items {
		if len(s.Data[documentKey]) == 0 {
			continue // locked, and nothing done yet
		}
		d, err := decode(&s)
		if err != nil {
			return nil, err
		}
		list = append(list, d.Record)
	}
	slices.SortFunc(list, func(a, b stack.Record) int { return strings.Compare(a.ID.Key(), b.ID.Key()) })
	return list, nil
}

// Open implements [stack.Records].
func (r *Records) Open(ctx context.Context, id core.ID) (stack.Session, error) {
	api := r.o.Client.CoreV1().Secrets(r.o.Namespace)
	holder := r.o.Holder + " (" + uuid.NewString()[:8] + ")"
	for {
		s, err := api.Get(ctx, name(id), metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return nil, r.fault(err, "read")
		}
		if missing {
			s = &corev1.Secret{Type: secretType, ObjectMeta: metav1.ObjectMeta{Name: name(id), Labels: map[string]string{label: "true"}}}
		}
		if other := s.Annotations[holderKey]; other != "" {
			until, err := time.Parse(time.RFC3339, s.Annotations[untilKey])
			if err == nil && r.o.Now().Before(until) {
				return nil, stack.LockedError(id, fmt.Sprintf("%s, which holds its lock until %s", other, until.UTC().Format(time.RFC3339)))
			}
		}
		r.stamp(s, holder)
		if missing {
			s, err = r.create(ctx, s)
		} else {
			s, err = api.Update(ctx, s, metav1.UpdateOptions{})
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue // somebody was faster: look who
		}
		if err != nil {
			return nil, r.fault(err, "lock")
		}
		d := stack.Document{Record: stack.Record{ID: id}}
		if len(s.Data[documentKey]) > 0 {
			if d, err = decode(s); err != nil {
				return nil, err
			}
		}
		held, cancel := context.WithCancelCause(ctx)
		session := &session{r: r, id: id, ctx: held, cancel: cancel, holder: holder, secret: s, doc: d, stop: make(chan struct{}), stopped: make(chan struct{})}
		go session.renew()
		return session, nil
	}
}

func (r *Records) stamp(s *corev1.Secret, holder string) {
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[holderKey] = holder
	s.Annotations[untilKey] = r.o.Now().Add(r.o.Lease).UTC().Format(time.RFC3339)
}

// create makes the Secret, and its namespace where that is missing.
func (r *Records) create(ctx context.Context, s *corev1.Secret) (*corev1.Secret, error) {
	api := r.o.Client.CoreV1()
	made, err := api.Secrets(r.o.Namespace).Create(ctx, s, metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) {
		return made, err
	}
	_, err = api.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.o.Namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return api.Secrets(r.o.Namespace).Create(ctx, s, metav1.CreateOptions{})
}

type session struct {
	r      *Records
	id     core.ID
	ctx    context.Context
	cancel context.CancelCauseFunc
	holder string

	mu      sync.Mutex
	secret  *corev1.Secret
	doc     stack.Document
	removed bool
	// later writes what became of resources, nil when nothing waits.
	later *time.Timer

	stop, stopped chan struct{}
}

func (s *session) Context() context.Context { return s.ctx }

func (s *session) Record() stack.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doc.Record
}

func (s *session) Journal() []core.Output {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.doc.Journal)
}

// renew keeps the lock. When it could not be renewed for most of its time, the
// session ends before another may begin.
func (s *session) renew() {
	defer close(s.stopped)
	tick := time.NewTicker(s.r.o.Lease / 4)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.r.o.Lease/4)
		err := s.write(ctx, nil)
		cancel()
		switch {
		case err == nil:
			last = time.Now()
		case core.IsCode(err, core.CodeFenced):
			return
		case time.Since(last) > s.r.o.Lease*3/5:
			s.cancel(core.Errorf(core.CodeFenced, "the lock of stack %s could not be renewed: %w", s.id.Name(), err))
			return
		}
	}
}

// write stores what change makes of the document, under the lock.
func (s *session) write(ctx context.Context, change func(*stack.Document)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil
	}
	next, secret := s.doc, s.secret.DeepCopy()
	if change != nil || s.later != nil {
		if s.later != nil {
			s.later.Stop()
			s.later = nil
		}
		if change == nil {
			change = func(*stack.Document) {}
		}
		change(&next)
		packed, err := next.Pack()
		if err != nil {
			return err
		}
		if len(packed) > maxPacked {
			return core.Errorf(core.CodeTooLarge, "the record of stack %s has %d KiB, more than a Secret holds: keep it in a file (--record file:PATH), or split the stack", s.id.Name(), len(packed)>>10)
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[documentKey] = packed
	}
	s.r.stamp(secret, s.holder)
	written, err := s.update(ctx, secret)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		lost := stack.LostError(s.id)
		s.cancel(lost)
		return lost
	}
	if err != nil {
		return s.r.fault(err, "write")
	}
	s.secret, s.doc = written, next
	return nil
}

// update writes the Secret. A conflict need not be another holder: the answer to
// an own write may have been lost, or somebody put a label on it. Whoever takes the
// lock writes its name.
func (s *session) update(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	api := s.r.o.Client.CoreV1().Secrets(s.r.o.Namespace)
	for {
		written, err := api.Update(ctx, secret, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return written, err
		}
		now, get := api.Get(ctx, secret.Name, metav1.GetOptions{})
		switch {
		case get != nil:
			return nil, get
		case now.Annotations[holderKey] != s.holder:
			return nil, err
		}
		secret.ResourceVersion = now.ResourceVersion
	}
}

// Note keeps what is planned at once, and what became of it a moment later, with
// what comes until then: a Secret is written whole. What a killed process did not
// get to note was planned, so that it is found by the stack's mark on it.
func (s *session) Note(ctx context.Context, put []core.Output, drop []core.ID) error {
	s.mu.Lock()
	known := map[string]bool{}
	for _, o := range s.doc.Journal {
		known[o.ID.Key()] = true
	}
	late := len(drop) == 0
	for _, o := range put {
		late = late && known[o.ID.Key()]
	}
	if !late {
		s.mu.Unlock()
		return s.write(ctx, func(d *stack.Document) { d.Journal = stack.Noted(d.Journal, put, drop) })
	}
	defer s.mu.Unlock()
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	s.doc.Journal = stack.Noted(s.doc.Journal, put, drop)
	if s.later == nil {
		s.later = time.AfterFunc(gather, func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.r.o.Lease/4)
			defer cancel()
			_ = s.write(ctx, func(*stack.Document) {}) // a lost lock ends the session's context
		})
	}
	return nil
}

// gather is how long outcomes wait for each other.
const gather = 500 * time.Millisecond

func (s *session) Save(ctx context.Context, r stack.Record) error {
	return s.write(ctx, func(d *stack.Document) { d.Record = r })
}

func (s *session) Remove(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.secret.ResourceVersion
	err := s.r.o.Client.CoreV1().Secrets(s.r.o.Namespace).Delete(ctx, name(s.id), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	switch {
	case apierrors.IsConflict(err):
		lost := stack.LostError(s.id)
		s.cancel(lost)
		return lost
	case err != nil && !apierrors.IsNotFound(err):
		return s.r.fault(err, "delete")
	}
	s.removed = true
	return nil
}

// Close gives the lock back. A stack of which nothing was recorded leaves nothing.
func (s *session) Close() error {
	close(s.stop)
	<-s.stopped
	s.mu.Lock()
	waits := s.later != nil
	s.mu.Unlock()
	if waits && s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.r.o.Lease/4)
		defer cancel()
		if err := s.write(ctx, nil); err != nil && !core.IsCode(err, core.CodeFenced) {
			return err
		}
	}
	defer s.cancel(errors.New("the session is closed"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed || s.ctx.Err() != nil && core.IsCode(context.Cause(s.ctx), core.CodeFenced) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.r.o.Lease/4)
	defer cancel()
	api := s.r.o.Client.CoreV1().Secrets(s.r.o.Namespace)
	if len(s.secret.Data[documentKey]) == 0 {
		version := s.secret.ResourceVersion
		err := api.Delete(ctx, s.secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return s.r.fault(err, "unlock")
		}
		return nil
	}
	free := s.secret.DeepCopy()
	delete(free.Annotations, holderKey)
	delete(free.Annotations, untilKey)
	if _, err := api.Update(ctx, free, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return s.r.fault(err, "unlock")
	}
	return nil
}
