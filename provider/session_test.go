package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/conceal"
)

// contested is an API server on which somebody else has written meanwhile: every
// write of a status is refused, and live is what there is.
type contested struct {
	liveReader
	writes int
}

func (c *contested) Status() client.SubResourceWriter { return &refusing{writes: &c.writes} }

type refusing struct {
	client.SubResourceWriter
	writes *int
}

func (r *refusing) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	*r.writes++
	return apierrors.NewConflict(schema.GroupResource{Resource: "cloudresources"}, "x", errors.New("it was changed"))
}

// accepting is an API server that takes every status.
type accepting struct{ liveReader }

func (*accepting) Status() client.SubResourceWriter { return taking{} }

type taking struct{ client.SubResourceWriter }

func (taking) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return nil
}

// issuer is a cloud that issues one credential, which it takes at once, and notes
// what has ended.
type issuer struct {
	Credentials
	ended []string
}

func (*issuer) IssueCredential(context.Context, Request, v1alpha1.CredentialAsk) (Credential, error) {
	return Credential{ID: "k1", AccessKey: "an-access-key", SecretKey: "a-secret-key"}, nil
}

func (i *issuer) EndCredential(_ context.Context, _ Request, _ v1alpha1.CredentialAsk, id string) error {
	i.ended = append(i.ended, id)
	return nil
}

func (*issuer) CredentialUsable(context.Context, Request, v1alpha1.CredentialAsk, Credential, time.Time) error {
	return nil
}

type issuing struct {
	bare
	Identities
	Buckets
	*issuer
}

func newSession(read *v1alpha1.CloudResource, live client.Client, cloud Cloud, log *slog.Logger) *session {
	o := Options{Cloud: cloud, Settings: settings, Log: log}
	_ = o.complete()
	limiter := func() workqueue.TypedRateLimiter[types.NamespacedName] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, time.Minute)
	}
	return &session{server: &server{Options: o, live: live, metrics: processMetrics(), retry: limiter(), stale: limiter()},
		log: o.Log, obj: read, secrets: new(conceal.Values), req: Request{CreatedAt: read.CreationTimestamp.Time}}
}

// A credential that was issued for a request is ended at once if there is no
// writing it down: the request is another by now, of the same name, or is going,
// or somebody else serves it.
func TestIssuedInVain_C95_C105_C144(t *testing.T) {
	read := asked(v1alpha1.KindBucketCredential, v1alpha1.Subject{Project: "shop", Service: "reports"}, nil)
	for name, change := range map[string]func(*v1alpha1.CloudResource){
		"made again":        func(r *v1alpha1.CloudResource) { r.UID = "another" },
		"going":             func(r *v1alpha1.CloudResource) { r.DeletionTimestamp = new(metav1.Now()) },
		"served by another": func(r *v1alpha1.CloudResource) { r.Status.Phase = v1alpha1.PhaseWaiting },
	} {
		live := read.DeepCopy()
		change(live)
		cloud := &issuer{}
		n := newSession(read.DeepCopy(), &contested{liveReader: liveReader{live: live}}, issuing{issuer: cloud}, nil)
		_, err := n.make(t.Context(), v1alpha1.CredentialAsk{}, new(journal), 1)
		if !errors.Is(err, errStale) || !slices.Equal(cloud.ended, []string{"k1"}) || n.pending.get(read.UID) != nil {
			t.Errorf("%s: %v; ended are %v", name, err, cloud.ended)
		}
	}
}

// A request that is being removed is left as it is, in the cloud and in the
// cluster: no call (the cloud's methods are nil here), no write.
func TestGoing_C105_C106(t *testing.T) {
	live := asked(v1alpha1.KindBucketCredential, v1alpha1.Subject{Project: "shop", Service: "reports"}, map[string]string{
		v1alpha1.ParamBucket: must(v1alpha1.BucketName("acme", "shop", "reports")), v1alpha1.ParamIdentity: "i", v1alpha1.ParamSecretName: "reports-cloud-storage"})
	now := metav1.Now()
	live.DeletionTimestamp, live.Finalizers = &now, []string{"test/held"}
	live.Status.Credentials = []v1alpha1.CredentialEntry{{ID: "k", Generation: 1, State: v1alpha1.CredentialRetiring, Since: metav1.NewTime(now.Add(-24 * time.Hour))}}
	reads := &liveReader{live: live}
	n := newSession(live, reads, everything{}, nil)
	if r, err := n.Reconcile(t.Context(), reqFor(live)); err != nil || r.RequeueAfter != 0 || reads.gets != 1 {
		t.Errorf("%+v, %v, %d reads", r, err, reads.gets)
	}
}

// What panics on the cloud's side is a passing fault, and what it says stands
// nowhere.
func TestPanic_C97_C100(t *testing.T) {
	const canary = "wJalrXUtnFEMIbK7MDENGbPxRfiCYzEXAMPLEKEY99"
	var log bytes.Buffer
	n := newSession(asked(v1alpha1.KindIdentity, v1alpha1.Subject{Project: "shop", Service: "reports"}, nil), nil, everything{},
		slog.New(slog.NewJSONHandler(&log, nil)))
	err := n.call(t.Context(), "end_credential", func(context.Context) error { panic("the key was " + canary) })
	if err == nil || PhaseOf(err) != "" || strings.Contains(err.Error(), canary) {
		t.Errorf("it is %v", err)
	}
	if strings.Contains(log.String(), canary) || !strings.Contains(log.String(), "TestPanic_C97_C100") {
		t.Errorf("the log holds what was said, or not where:\n%s", &log)
	}
}

// Words that a cloud wrote for a member hold nothing that can be but a secret,
// and none that this session knows.
func TestOutcomeText_C32_C100(t *testing.T) {
	const canary = "wJalrXUtnFEMIbK7MDENGbPxRfiCYzEXAMPLEKEY99"
	n := newSession(asked(v1alpha1.KindIdentity, v1alpha1.Subject{Project: "shop", Service: "reports"}, nil), nil, everything{}, nil)
	n.secrets.Add("a-value-in-use")
	for _, err := range []error{Waiting("it said %s", canary), Refused("go to https://u:%s@h/ with a-value-in-use", canary), Refused("a-value-in-use")} {
		var o *outcome
		errors.As(err, &o)
		if got := outcomeText(n, o); strings.Contains(got, canary) || strings.Contains(got, "a-value-in-use") || got == "" {
			t.Errorf("%q is left of %q", got, err)
		}
	}
	var o *outcome
	n.Settings.KMSKey = "projects/acme/locations/here/keyRings/ring/cryptoKeys/wrap"
	errors.As(Refused("Cloud KMS key %s is disabled", n.Settings.KMSKey), &o)
	if got := outcomeText(n, o); got != "Cloud KMS key [the installation's key] is disabled" {
		t.Errorf("C-32: a member reads %q", got)
	}
	errors.As(Refused(""), &o)
	if got := outcomeText(n, o); got != v1alpha1.DetailNoReason {
		t.Errorf("without words it says %q", got)
	}
}

// An API server that calls every write overtaken, though nobody has written, is
// asked again later, and not for ever at once.
func TestConflictsWithoutEnd_C97(t *testing.T) {
	read := asked(v1alpha1.KindIdentity, v1alpha1.Subject{Project: "shop", Service: "reports"}, nil)
	api := &contested{liveReader: liveReader{live: read}}
	n := newSession(read.DeepCopy(), api, everything{}, nil)
	err := n.claim(t.Context())
	var of *apiError
	if !errors.As(err, &of) || api.writes > 20 {
		t.Errorf("%v after %d writes", err, api.writes)
	}
	if after := n.fault(t.Context(), err); after <= 0 {
		t.Errorf("it is looked at again after %s", after)
	}
}

// The grace of what is replaced counts from the report of what replaces it,
// however long that was in place before.
func TestGraceFromTheReport_C123_C124(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 5e8, time.UTC)
	read := asked(v1alpha1.KindBucketCredential, v1alpha1.Subject{Project: "shop", Service: "reports"}, nil)
	long := metav1.NewTime(now.Add(-1000 * time.Hour))
	read.Spec.CredentialGeneration, read.Status.CredentialGeneration = 2, 1
	n := newSession(read, &accepting{}, issuing{issuer: &issuer{}}, nil)
	n.Now = func() time.Time { return now }
	j := journal{{ID: "of an older request", State: v1alpha1.CredentialOffered, Since: long}, {ID: "k1", Generation: 1, State: v1alpha1.CredentialInPlace, Since: long},
		{ID: "k2", Generation: 2, State: v1alpha1.CredentialInPlace, Since: long}}
	if err := n.report(t.Context(), v1alpha1.CredentialAsk{SecretName: "s"}, j, "k2"); err != nil {
		t.Fatal(err)
	}
	st, want := n.obj.Status, metav1.NewTime(now.Add(5e8))
	if st.CredentialGeneration != 2 || !st.CredentialReportedAt.Equal(&want) {
		t.Errorf("C-123: generation %d is reported at %s", st.CredentialGeneration, st.CredentialReportedAt)
	}
	for _, e := range st.Credentials {
		if e.ID != "k2" && (e.State != v1alpha1.CredentialRetiring || !e.Since.Equal(&want)) || e.ID == "k2" && e.State != v1alpha1.CredentialInPlace {
			t.Errorf("C-124: %s is %s since %s; the report was at %s", e.ID, e.State, e.Since, want)
		}
	}
}

// A Secret that does not hold what it should is not written over if the request
// was served by somebody else meanwhile: they have put it there.
func TestReplacedMeanwhile_C144(t *testing.T) {
	var merged atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") != string(types.JSONPatchType) {
			merged.Add(1)
			return
		}
		status := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{Resource: "secrets"}, "s", "the test failed", 0, true).Status()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(status)
	}))
	defer api.Close()
	read := asked(v1alpha1.KindBucketCredential, v1alpha1.Subject{Project: "shop", Service: "reports"}, nil)
	read.Status.CredentialGeneration = 1
	live := read.DeepCopy()
	n := newSession(read, &accepting{liveReader{live: live}}, issuing{issuer: &issuer{}}, nil)
	var err error
	if n.writer, err = newSecretWriter(&rest.Config{Host: api.URL}, api.Client()); err != nil {
		t.Fatal(err)
	}
	j := journal{{ID: "k1", Generation: 1, State: v1alpha1.CredentialInPlace}, {ID: "k2", Generation: 2, State: v1alpha1.CredentialOffered}}
	at := secretRef{namespace: "ankka-shop", name: "reports-cloud-storage", subject: read.Spec.Subject}
	place := func() (bool, error) {
		return n.place(t.Context(), at, j, Credential{ID: "k2", AccessKey: "an-access-key", SecretKey: "a-secret-key"})
	}
	live.Status.Phase = v1alpha1.PhaseReady
	if _, err := place(); !errors.Is(err, errStale) || merged.Load() != 0 {
		t.Errorf("%v, and the Secret is written over %d times", err, merged.Load())
	}
	// Nobody else serves it: a hand has changed the Secret, and a raised
	// generation asks for just that.
	live.Status = *read.Status.DeepCopy()
	if placed, err := place(); err != nil || !placed || merged.Load() != 1 {
		t.Errorf("%v, %v, and the Secret is written over %d times", placed, err, merged.Load())
	}
}

// A cloud that was away for an hour keeps nobody waiting longer for a change of a
// synced secret than the interval; other requests are tried more and more seldom.
func TestAfterAnOutage_C70_C151(t *testing.T) {
	project := v1alpha1.Subject{Project: "shop"}
	for kind, most := range map[string]time.Duration{v1alpha1.KindSecretSync: 30 * time.Second, v1alpha1.KindWrappingKey: time.Minute} {
		n := newSession(asked(kind, project, nil), &accepting{}, everything{}, nil)
		for range 20 {
			if after := n.fault(t.Context(), errors.New("the cloud is away")); after <= 0 || after > most {
				t.Fatalf("%s: looked at again after %s", kind, after)
			} else if kind == v1alpha1.KindWrappingKey && after == most {
				break
			}
		}
	}
}
