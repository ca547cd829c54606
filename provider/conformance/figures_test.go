package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// callLimit is how many requests to the API server an answer may cost.
const callLimit = 5

// A thousand requests (three hundred in a plain run) are each answered with at
// most five calls of the API server, reads included.
func TestThousandRequests_C93_C95(t *testing.T) {
	w := world(t, "", func(o *provider.Options) { o.Recheck = time.Hour })
	w.Limit = time.Minute
	x := &T{World: w, ctx: t.Context(), scenario: Scenario{Rules: []string{"C-95"}}}
	services := 100
	if all() {
		services = 334
	}
	x.do(func(x *T) {
		p := x.project()
		ns := v1alpha1.Namespace(p)
		all := make([]subject, services)
		each := func(f func(x *T, s *subject, i int)) {
			var wg sync.WaitGroup
			for part := range 8 {
				wg.Go(func() {
					y := &T{World: w, ctx: t.Context(), scenario: x.scenario, namespaces: x.namespaces}
					y.do(func(y *T) {
						for i := part; i < services; i += 8 {
							f(y, &all[i], i)
						}
					})
					for _, f := range y.failures {
						t.Error(f)
					}
				})
			}
			wg.Wait()
		}
		start := time.Now()
		each(func(x *T, s *subject, i int) {
			*s = x.service(p, fmt.Sprintf("s%03d", i))
			x.apply(x.identity(*s))
			x.apply(x.bucket(*s))
		})
		each(func(x *T, s *subject, _ int) { x.apply(x.storage(*s)) })
		each(func(x *T, s *subject, _ int) {
			if o := x.answered(x.request(*s, kCredential, nil)); o.Status.Phase != v1alpha1.PhaseReady {
				x.errorf("C-95", "%s is %s: %s", o.Name, o.Status.Phase, o.Status.Detail)
			}
		})
		took := time.Since(start)
		if t.Failed() {
			return
		}
		calls := w.Scripted.Audit.Calls("/namespaces/" + ns + "/")
		count := map[string]int{}
		posts := 0
		for _, c := range calls {
			parts := strings.Split(strings.TrimSuffix(c.Path, "/status"), "/")
			if strings.HasSuffix(c.Path, "/secrets") {
				posts++
				continue
			}
			count[parts[len(parts)-1]]++
		}
		most := map[string]int{}
		for name, n := range count {
			kind := "credential"
			if !strings.HasSuffix(name, "-"+v1alpha1.SuffixStorageCredential) {
				kind = "other"
			} else {
				n++ // its share of the Secrets
			}
			most[kind] = max(most[kind], n)
			if n > callLimit {
				t.Errorf("%s was answered with %d calls", name, n)
			}
		}
		if posts != services || len(count) != 3*services {
			t.Errorf("%d Secrets, %d requests", posts, len(count))
		}
		if issued := w.Scripted.records(p, "issued"); len(issued) != services {
			t.Errorf("C-95: %d credentials were issued for %d services", len(issued), services)
		}
		t.Logf("%d requests in %s, written and answered; %d calls in all, at most %d for a credential and %d for another", len(count), took.Round(time.Millisecond), len(calls), most["credential"], most["other"])
	})
	for _, f := range x.failures {
		t.Error(f)
	}
}

// A request is answered by an instant provider within three times what the
// three API writes take that it needs.
func TestLatency(t *testing.T) {
	w := world(t, "")
	x := &T{World: w, ctx: t.Context(), scenario: Scenario{Rules: []string{"C-98"}}}
	x.do(func(x *T) {
		p := x.project()
		const n = 30
		var answered, writes []time.Duration
		for i := range n {
			s := x.service(p, fmt.Sprintf("s%d", i))
			r := x.identity(s)
			start := time.Now()
			x.ready(r)
			answered = append(answered, time.Since(start))

			r = x.identity(x.service(p, fmt.Sprintf("w%d", i)))
			r.provider = "nobody"
			start = time.Now()
			x.apply(r)
			o := &v1alpha1.CloudResource{}
			x.must(w.Client.Get(t.Context(), client.ObjectKey{Namespace: r.namespace(), Name: r.name}, o))
			for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseWaiting, v1alpha1.PhaseReady} {
				o.Status.Phase, o.Status.ObservedGeneration = phase, 1
				x.must(w.Client.Status().Update(t.Context(), o))
			}
			writes = append(writes, time.Since(start))
		}
		slices.Sort(answered)
		slices.Sort(writes)
		t.Logf("median %s until Ready is seen, %s for the three writes", answered[n/2], writes[n/2])
		if answered[n/2] > 3*writes[n/2] {
			t.Errorf("a request takes %s until Ready, more than three times the %s of its three writes", answered[n/2], writes[n/2])
		}
	})
	for _, f := range x.failures {
		t.Error(f)
	}
}
