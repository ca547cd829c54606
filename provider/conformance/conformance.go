// Package conformance is what every cloud provider must do, as scenarios that
// run against one in a cluster: they write requests as the operator does, by
// hand, and judge what is answered.
//
//	ANKKA_CLOUD_PROVIDER=… ANKKA_CLOUD_ACCOUNT=… ANKKA_CLOUD_LOCATION=… \
//	  go test ./provider/conformance -args -external=KUBECONFIG
//
// runs them against the provider of a cluster; [Run] runs them from another
// module's tests. What only a scripted account can show is skipped there, and
// said to be. docs/cloud/write-a-provider.md tells more.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/scripted"
)

// World is what the scenarios run against.
type World struct {
	// Client is whoever may make namespaces, services and requests, and read
	// the Secrets of the namespaces that the scenarios make.
	Client client.WithWatch
	// Settings are the installation's, as the provider has them. Installation
	// is not used.
	Settings provider.Settings
	// NamePrefix starts the names of buckets.
	NamePrefix string
	// Unimplemented are kinds that the provider says it does not serve: it must
	// answer so, and their scenarios do not count.
	Unimplemented []string
	// Limit bounds the wait for an answer.
	Limit time.Duration
	// Keep leaves the namespaces that scenarios made.
	Keep bool
	// Ended is told of each scenario as it ends, one at a time; nil tells nobody.
	Ended func(Result)
	// Scripted is there when the provider runs on a scripted account.
	Scripted *Scripted
}

// Scripted is what a scripted provider lets a scenario see and do.
type Scripted struct {
	Account *scripted.Account
	// Audit is what the provider has sent to the API server.
	Audit *Audit
	// Output is what the provider has logged and measured.
	Output func() string
	// Restart ends the provider gracefully and starts another.
	Restart func(context.Context) error
}

// A Scenario is one thing that a provider must do.
type Scenario struct {
	Name string
	// Rules are those of the contract that it is about.
	Rules []string
	// Kinds are those that it needs.
	Kinds []string
	// NeedsScript is that it shows nothing without a scripted account.
	NeedsScript bool
	run         func(*T)
}

// Result is how a scenario came out.
type Result struct {
	Scenario
	// Verdict is Passed, Failed, Skipped or NotImplemented.
	Verdict Verdict
	// Failures name the rule that was broken, and Skips the steps that were not
	// taken.
	Failures, Skips []string
	Took            time.Duration
}

// Verdict on a scenario.
type Verdict string

// The verdicts.
const (
	Passed         Verdict = "passed"
	Failed         Verdict = "FAILED"
	Skipped        Verdict = "skipped"
	NotImplemented Verdict = "not implemented"
)

// Run runs scenarios, several at once, and answers their results in order.
func Run(ctx context.Context, w *World, scenarios []Scenario) []Result {
	results := make([]Result, len(scenarios))
	var wg sync.WaitGroup
	var telling sync.Mutex
	slots := make(chan struct{}, 8)
	for i, s := range scenarios {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = w.one(ctx, s)
			if w.Ended != nil {
				telling.Lock()
				defer telling.Unlock()
				w.Ended(results[i])
			}
		})
	}
	wg.Wait()
	return results
}

func (w *World) one(ctx context.Context, s Scenario) (r Result) {
	r.Scenario = s
	start := time.Now()
	defer func() { r.Took = time.Since(start) }()
	for _, k := range s.Kinds {
		if slices.Contains(w.Unimplemented, k) {
			r.Verdict, r.Skips = NotImplemented, []string{"the provider does not implement kind " + k}
			return r
		}
	}
	if s.NeedsScript && w.Scripted == nil {
		r.Verdict, r.Skips = Skipped, []string{"needs a scripted account"}
		return r
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &T{World: w, ctx: ctx, scenario: s}
	t.do(s.run)
	t.do((*T).finish)
	r.Failures, r.Skips, r.Verdict = t.failures, t.skips, Passed
	if len(t.failures) > 0 {
		r.Verdict = Failed
	} else if t.steps == 0 {
		// Nothing was seen: that is no pass.
		r.Verdict, r.Failures = Failed, []string{"the scenario saw no answer of the provider"}
	}
	return r
}

// Report is the results for a reader, and whether the provider conforms: at
// least one scenario passed and none failed.
func Report(w *World, results []Result) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "provider %s, account %s, location %s\n\n", w.Settings.Provider, w.Settings.Account, w.Settings.Location)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
		fmt.Fprintf(tw, "%s\t%s\t%s\t%.1fs\n", r.Verdict, r.Name, strings.Join(r.Rules, " "), r.Took.Seconds())
		for _, f := range r.Failures {
			fmt.Fprintf(tw, "\t  %s\n", f)
		}
		if r.Verdict != NotImplemented {
			for _, s := range r.Skips {
				fmt.Fprintf(tw, "\t  step skipped: %s\n", s)
			}
		}
	}
	_ = tw.Flush()
	fmt.Fprintf(&b, "\n%d passed, %d failed, %d skipped, %d of kinds that are not implemented", count[Passed], count[Failed], count[Skipped], count[NotImplemented])
	if len(w.Unimplemented) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(w.Unimplemented, ", "))
	}
	b.WriteString("\n")
	switch {
	case count[Failed] > 0:
		return b.String(), fmt.Errorf("%d scenarios failed", count[Failed])
	case count[Passed] == 0:
		return b.String(), errors.New("no scenario passed: nothing was shown")
	}
	return b.String(), nil
}

// Audit is what went to the API server.
type Audit struct {
	mu    sync.Mutex
	calls []APICall
}

// APICall is one request to the API server.
type APICall struct{ Method, Path string }

// Wrap notes what goes through a transport.
func (a *Audit) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		a.mu.Lock()
		a.calls = append(a.calls, APICall{r.Method, r.URL.Path})
		a.mu.Unlock()
		return next.RoundTrip(r)
	})
}

// Calls are those whose path holds text.
func (a *Audit) Calls(text string) []APICall {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.calls), func(c APICall) bool { return !strings.Contains(c.Path, text) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
