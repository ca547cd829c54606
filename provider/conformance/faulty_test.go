package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// faulty answers the first calls of each sort by an error of the API server, one
// after the other, in place of carrying them out.
type faulty struct {
	mu    sync.Mutex
	calls map[string]int
}

// errorsOf are the errors that a sort of call meets.
func errorsOf(r *http.Request) (sort string, faults []error) {
	of := schema.GroupResource{Resource: "things"}
	always := []error{
		apierrors.NewInternalError(errors.New("etcd is away")), apierrors.NewTooManyRequestsError("too many"),
		apierrors.NewResourceExpired("too old"), apierrors.NewTimeoutError("in time", 0), apierrors.NewUnauthorized("the token has just expired"),
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case strings.Contains(r.URL.RawQuery, "watch=true"):
		return "watch", []error{apierrors.NewResourceExpired("too old")}
	case parts[len(parts)-1] == "cloudresources":
		return "list", nil
	case parts[len(parts)-1] == "status":
		// Overtaken, though nobody has written.
		return "status", append(always, apierrors.NewConflict(of, "x", errors.New("the object has been modified")))
	case strings.Contains(r.URL.Path, "/secrets"):
		return r.Method + " secret", always
	}
	return r.Method, always
}

func (f *faulty) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		sort, faults := errorsOf(r)
		f.mu.Lock()
		n := f.calls[sort]
		f.calls[sort]++
		f.mu.Unlock()
		// Every other call gets through, so that each fault is met by itself.
		if n%2 == 1 || n/2 >= len(faults) {
			return next.RoundTrip(r)
		}
		var status apierrors.APIStatus
		if !errors.As(faults[n/2], &status) {
			return nil, faults[n/2]
		}
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		raw, err := json.Marshal(s)
		return &http.Response{StatusCode: int(s.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(raw)), Body: io.NopCloser(bytes.NewReader(raw))}, err
	})
}

// Whatever the API server answers to whichever call, what follows is what would
// have followed: one credential for each generation, and the one before ended.
func TestFaultyAPIServer_C94_C95_C97_C144(t *testing.T) {
	t.Parallel()
	f := &faulty{calls: map[string]int{}}
	w := world(t, "", func(o *provider.Options) {
		o.Recheck = time.Hour
		o.Config.Wrap(f.wrap)
	})
	x := &T{World: w, ctx: t.Context(), scenario: Scenario{Rules: []string{"C-95"}}}
	x.do(func(x *T) {
		s := x.service(x.project(), "reports")
		c := x.storage(s)
		for generation := int64(1); generation <= 4; generation++ {
			c.generation = generation
			x.apply(c)
			// A call that is refused for good for now is Failed, and tried again.
			x.await(c, "Ready", func(o *v1alpha1.CloudResource) bool {
				return o.Status.ObservedGeneration == o.Generation && o.Status.CredentialGeneration == generation && o.Status.Phase.Done()
			})
		}
		access, key := pair(x.secret(s.namespace(), v1alpha1.StorageSecretName(s.Subject)))
		x.eventually("C-144", "one credential is left", func() bool { return len(w.Scripted.Account.Live(s.Project)) == 1 })
		if !w.Scripted.Account.Reaches(access, key, c.parameters[v1alpha1.ParamBucket]) {
			x.errorf("C-144", "the credential in the Secret was ended")
		}
		if got := w.Scripted.records(s.Project, "issued"); len(got) != 4 {
			x.errorf("C-95", "%d credentials were issued for four generations", len(got))
		}
	})
	x.do((*T).finish)
	for _, f := range x.failures {
		t.Error(f)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, sort := range []string{"watch", "GET", "status", "POST secret", "PATCH secret"} {
		if f.calls[sort] < 2 {
			t.Errorf("%s was called %d times: no fault was met", sort, f.calls[sort])
		}
	}
	t.Log(f.calls)
}
