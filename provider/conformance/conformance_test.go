package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/common/expfmt"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/scripted"
)

var (
	external      = flag.String("external", "", "kubeconfig of a cluster that runs the provider to be tried, with the ANKKA_CLOUD_* variables of its installation in the environment")
	unimplemented = flag.String("unimplemented", "", "kinds, comma-separated, that the provider says it does not serve")
	namePrefix    = flag.String("name-prefix", "conformance", "start of buckets' names")
	limit         = flag.Duration("limit", 5*time.Minute, "how long an answer of an external provider may take")
	keep          = flag.Bool("keep", false, "leave the namespaces that scenarios made")
)

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := scripted.Main(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	clustertest.Parallel(4)
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	clustertest.Main(m)
}

func newClient(c *rest.Config) (client.WithWatch, error) {
	c = rest.CopyConfig(c)
	c.QPS = -1
	return client.NewWithWatch(c, client.Options{Scheme: ankkatest.Scheme()})
}

// TestExternal_C136_C137_C138_C139 tries the provider of a cluster that runs
// one. Without -external it is skipped; with it and without the variables it
// fails.
func TestExternal_C136_C137_C138_C139(t *testing.T) {
	if *external == "" {
		t.Skip("-external names no kubeconfig")
	}
	w, err := externalWorld(*external, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	w.Ended = func(r Result) {
		ended++
		fmt.Printf("%d of %d: %s, %s (%s)\n", ended, len(Scenarios()), r.Name, r.Verdict, r.Took.Round(time.Millisecond))
	}
	results := Run(t.Context(), w, Scenarios())
	for _, r := range results {
		t.Run(strings.ReplaceAll(r.Name, " ", "_"), func(t *testing.T) {
			switch r.Verdict {
			case Failed:
				t.Error(strings.Join(r.Failures, "\n"))
			case Skipped, NotImplemented:
				t.Skip(strings.Join(r.Skips, "; "))
			case Passed:
				for _, s := range r.Skips {
					t.Log("step skipped:", s)
				}
			}
		})
	}
	text, err := Report(w, results)
	fmt.Println(text)
	if err != nil {
		t.Error(err)
	}
}

// externalWorld reads what an installation is from the environment.
func externalWorld(kubeconfig string, lookup func(string) (string, bool)) (*World, error) {
	var missing []string
	value := func(name string, needed bool) string {
		v, ok := lookup(name)
		if needed && (!ok || v == "") {
			missing = append(missing, name)
		}
		return v
	}
	s := provider.Settings{Provider: value("ANKKA_CLOUD_PROVIDER", true), Account: value("ANKKA_CLOUD_ACCOUNT", true),
		Location: value("ANKKA_CLOUD_LOCATION", true), KMSKey: value("ANKKA_CLOUD_KMS_KEY", false)}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the suite does not know what to try: %s must be set to what the installation under test names", strings.Join(missing, ", "))
	}
	w := &World{Settings: s, NamePrefix: *namePrefix, Limit: *limit, Keep: *keep}
	if *unimplemented != "" {
		w.Unimplemented = strings.Split(*unimplemented, ",")
	}
	for _, k := range w.Unimplemented {
		if !v1alpha1.KnownKind(k) {
			return nil, fmt.Errorf("-unimplemented: %q is no kind", k)
		}
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	w.Client, err = newClient(c)
	return w, err
}

func TestExternalNeedsVariables_C139(t *testing.T) {
	all := map[string]string{"ANKKA_CLOUD_PROVIDER": "p", "ANKKA_CLOUD_ACCOUNT": "a", "ANKKA_CLOUD_LOCATION": "l"}
	for name := range all {
		_, err := externalWorld("", func(n string) (string, bool) { v, ok := all[n]; return v, ok && n != name })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// A suite of which every scenario was skipped, or that saw nothing, is no pass.
func TestReport_C139(t *testing.T) {
	w := &World{}
	for name, results := range map[string][]Result{
		"Nothing":     nil,
		"SkippedOnly": {{Verdict: Skipped}, {Verdict: NotImplemented}},
		"OneFailed":   {{Verdict: Passed}, {Verdict: Failed}},
	} {
		if _, err := Report(w, results); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if got := w.one(t.Context(), Scenario{Name: "sees nothing", Rules: []string{"C-139"}, run: func(*T) {}}); got.Verdict != Failed {
		t.Errorf("a scenario that sees nothing is %s", got.Verdict)
	}
}

// running is a provider under test, in this process, under a minted token of
// the shipped grant.
type running struct {
	options provider.Options
	account *scripted.Account
	audit   *Audit
	logs    clustertest.Buffer
	cancel  context.CancelFunc
	ended   chan error
	// restarted is called between the end of a process and the next one's start.
	restarted func()
}

func (r *running) start(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- provider.Run(ctx, r.options) }()
}

func (r *running) stop() error {
	r.cancel()
	return <-r.ended
}

// output is all that the provider has said: logs and metrics.
func (r *running) output() string {
	var b strings.Builder
	b.WriteString(r.logs.String())
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		b.WriteString(err.Error())
	}
	for _, f := range families {
		_, _ = expfmt.MetricFamilyToText(&b, f)
	}
	return b.String()
}

var worlds atomic.Int64

// world runs a scripted provider, honest if lie is empty, and answers what
// scenarios need to try it.
func world(t *testing.T, lie string, change ...func(*provider.Options)) *World {
	t.Helper()
	w, _ := run(t, lie, change...)
	return w
}

// run is world with what runs.
func run(t *testing.T, lie string, change ...func(*provider.Options)) (*World, *running) {
	t.Helper()
	in := ankkatest.Start(t)
	// A name of its own: what another test's provider was asked is not this one's.
	name := fmt.Sprintf("scripted-%d", worlds.Add(1))
	account, err := scripted.NewAccount("")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{account: account, audit: &Audit{}}
	config := in.As(t, ankkatest.Provider)
	config.Wrap(r.audit.Wrap)
	r.options = provider.Options{
		Cloud: scripted.Cloud{Account: account}, Config: config,
		Settings: provider.Settings{Provider: name, Account: "acme-test", Location: "Nowhere-1", KMSKey: "keys/wrap", RotationGrace: 2 * time.Second, Installation: "under-test"},
		Log:      slog.New(slog.NewJSONHandler(&r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Recheck:  2 * time.Second, SyncInterval: 200 * time.Millisecond, RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond,
	}
	for _, f := range change {
		f(&r.options)
	}
	if lie != "" {
		if err := scripted.Lie(&r.options, lie); err != nil {
			t.Fatal(err)
		}
	}
	r.start(context.Background())
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the provider ended: %v", err)
		}
	})
	return &World{Client: in.Admin, Settings: r.options.Settings, NamePrefix: "acme", Limit: 60 * time.Second, Keep: true,
		Scripted: &Scripted{Account: account, Audit: r.audit, Output: r.output, Restart: func(context.Context) error {
			if err := r.stop(); err != nil {
				return err
			}
			if r.restarted != nil {
				r.restarted()
			}
			r.start(context.Background())
			return nil
		}}}, r
}

// The honest scripted provider does all that the contract wants.
func TestScripted_C10_C18_C132_C134_C135(t *testing.T) {
	t.Parallel()
	w := world(t, "")
	results := Run(t.Context(), w, Scenarios())
	text, err := Report(w, results)
	t.Log("\n" + text)
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		t.Run(strings.Join(r.Rules, " ")+" "+r.Name, func(t *testing.T) {
			if r.Verdict != Passed || len(r.Skips) > 0 {
				t.Errorf("%s: %q, skipped %q", r.Verdict, r.Failures, r.Skips)
			}
		})
	}
}

// What a provider sends to the API server in all, under its own token: the
// requests and their status, and Secrets that it makes or patches.
func TestCallsOfAProvider_C5_C115_C116_C145(t *testing.T) {
	t.Parallel()
	var whole atomic.Int64
	w := world(t, "", func(o *provider.Options) {
		o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				res, err := next.RoundTrip(r)
				if err != nil || !strings.Contains(r.URL.Path, "/secrets") {
					return res, err
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				res.Body = io.NopCloser(bytes.NewReader(body))
				var o struct {
					Kind string         `json:"kind"`
					Data map[string]any `json:"data"`
				}
				if json.Unmarshal(body, &o) != nil || o.Kind != "PartialObjectMetadata" && o.Kind != "Status" || len(o.Data) > 0 {
					whole.Add(1)
				}
				return res, err
			})
		})
	})
	for _, r := range Run(t.Context(), w, credentialScenarios()[:3]) {
		if r.Verdict != Passed { // the entries of the Secret are C-116's
			t.Errorf("C-116: %s: %s", r.Name, strings.Join(r.Failures, "; "))
		}
	}
	seen := map[string]int{}
	for _, c := range w.Scripted.Audit.Calls("") {
		what := c.Method + " other: " + c.Path
		parts := strings.Split(strings.Trim(c.Path, "/"), "/")
		switch {
		case c.Path == "/apis/"+v1alpha1.GroupVersion.String()+"/cloudresources":
			what = c.Method + " cloudresources"
		case len(parts) > 5 && parts[5] == "cloudresources":
			what = c.Method + " cloudresource" + strings.Join(append([]string{""}, parts[7:]...), "/")
		case len(parts) > 4 && parts[4] == "secrets":
			what = c.Method + " secret"
		}
		seen[what]++
	}
	for _, want := range []string{"GET cloudresources", "GET cloudresource", "PUT cloudresource/status", "POST secret", "PATCH secret"} {
		if seen[want] == 0 {
			t.Errorf("%s is never sent", want)
		}
		delete(seen, want)
	}
	for what, n := range seen {
		t.Errorf("C-5: %d times %s", n, what)
	}
	if n := whole.Load(); n > 0 {
		t.Errorf("C-145: %d answers to writes of Secrets hold more than metadata", n)
	}
}

// The suite as it runs against a provider of which it has neither records nor
// script: it passes, and says which steps it could not take.
func TestScriptedFromOutside_C136_C137_C138(t *testing.T) {
	t.Parallel()
	w := world(t, "")
	s := w.Settings
	vars := map[string]string{"ANKKA_CLOUD_PROVIDER": s.Provider, "ANKKA_CLOUD_ACCOUNT": s.Account, "ANKKA_CLOUD_LOCATION": s.Location, "ANKKA_CLOUD_KMS_KEY": s.KMSKey}
	outside, err := externalWorld(ankkatest.Start(t).Kubeconfig, func(n string) (string, bool) { v, ok := vars[n]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	outside.Limit = w.Limit
	results := Run(t.Context(), outside, Scenarios())
	text, err := Report(outside, results)
	t.Log("\n" + text)
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		switch {
		case r.NeedsScript && r.Verdict != Skipped:
			t.Errorf("C-138: %s is %s without a script", r.Name, r.Verdict)
		case !r.NeedsScript && r.Verdict != Passed:
			t.Errorf("C-136: %s is %s", r.Name, r.Verdict)
		}
	}
	if !strings.Contains(text, "step skipped: how many credentials were issued") || !strings.Contains(text, "step skipped: needs a scripted account") {
		t.Error("C-137: the report does not say what was skipped")
	}
}

// Each dishonest provider is named by a scenario, and by the rule that it
// breaks.
func TestLiars(t *testing.T) {
	t.Parallel()
	for lie, caught := range map[string]struct{ scenario, rule string }{
		scripted.LieStaleCopy:         {"a credential is offered once, however often it is asked for", "C-95"},
		scripted.LieReadsSecret:       {"a credential is offered once, however often it is asked for", "C-5"},
		scripted.LiePhaseBehind:       {"an identity is answered", "C-91"},
		scripted.LieEndsEarly:         {"a raised generation rotates the credential", "C-124"},
		scripted.LieNeverEnds:         {"a Secret that is there is left as it is", "C-119"},
		scripted.LieAdoptsBucket:      {"a bucket held by someone else is Failed and left alone", "C-88"},
		scripted.LieOverwritesSecret:  {"a Secret that is there is left as it is", "C-118"},
		scripted.LieSecretInDetail:    {"a credential is offered once, however often it is asked for", "C-100"},
		scripted.LieIgnoresMove:       {"what was made in another account or location is not served", "C-102"},
		scripted.LieTakesAnyParameter: {"parameters are a closed set", "C-74"},
		scripted.LieAlwaysRecovered:   {"a service's bucket is answered under its name", "C-147"},
		scripted.LieLongDetail:        {"the cloud's refusals are told, and tried again", "C-152"},
		scripted.LieReissues:          {"a raised generation rotates the credential", "C-122"},
	} {
		t.Run(lie+" "+strings.Replace(caught.rule, "C-", "C", 1), func(t *testing.T) {
			t.Parallel()
			w := world(t, lie)
			w.Limit = 15 * time.Second
			var one []Scenario
			for _, s := range Scenarios() {
				if s.Name == caught.scenario {
					one = append(one, s)
				}
			}
			results := Run(t.Context(), w, one)
			if len(results) != 1 {
				t.Fatalf("there is no scenario %q", caught.scenario)
			}
			// That nothing was answered in time names nobody: a slow machine does that.
			named := slices.ContainsFunc(results[0].Failures, func(f string) bool {
				return strings.HasPrefix(f, caught.rule+":") && !strings.Contains(f, "is not answered; it says")
			})
			if r := results[0]; r.Verdict != Failed || !named {
				t.Errorf("the liar is not named: %s is %s, with %q", r.Name, r.Verdict, r.Failures)
			} else {
				t.Logf("named by %q: %q", r.Name, r.Failures)
			}
		})
	}
	if n := len(scripted.Lies()); n < 6 {
		t.Errorf("%d lies", n)
	}
}

// A provider that restarts on a node whose clock is an hour ahead, or behind,
// ends the credential before when its grace is over, and not by that clock.
func TestSkewedClock_C124_C125_C126(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var skew atomic.Int64
			w, r := run(t, "", func(o *provider.Options) {
				o.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
			})
			r.restarted = func() { skew.Store(int64(off)) }
			for _, s := range credentialScenarios() {
				if s.Name != "a provider that restarts still ends the credential before" {
					continue
				}
				if r := w.one(t.Context(), s); r.Verdict != Passed {
					t.Errorf("%s: %q", r.Verdict, r.Failures)
				}
			}
		})
	}
}

// What the cluster will not take, however often it is sent, is told: a Secret of
// more than its limit, by the kind's own check (1 MiB) or before it is read.
func TestTooLargeForASecret_C70_C100(t *testing.T) {
	t.Parallel()
	w := world(t, "")
	x := &T{World: w, ctx: t.Context(), scenario: Scenario{Rules: []string{"C-70"}}}
	x.do(func(x *T) {
		p := x.project()
		for name, size := range map[string]int{"larger": 2 << 20, "far-larger": 8 << 20} {
			id := v1alpha1.ProjectSecretID(p, name, "KEY")
			w.Scripted.Account.SetSecret(id, bytes.Repeat([]byte("k"), size))
			params, err := v1alpha1.SecretSyncAsk{SecretName: v1alpha1.SyncedSecretName(name), Entries: map[string]string{"KEY": id}, EntryGeneration: 1}.Parameters()
			x.must(err)
			x.refused("C-70", x.request(x.itself(p), kSync, params), "the cluster refuses to write Secret "+v1alpha1.SyncedSecretName(name))
		}
	})
	for _, f := range x.failures {
		t.Error(f)
	}
}
