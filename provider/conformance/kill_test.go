package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/scripted"
)

// runMain makes the test binary be the scripted provider, so that what is
// killed is its real process.
const runMain = "RADIAL_TEST_RUN_SCRIPTED_PROVIDER"

// stage is a provider's process between an account and an API server that stand
// in this one, and see every call before and after.
type stage struct {
	*ankkatest.Mortal
	t        *testing.T
	name     string
	account  *scripted.Account
	cloudURL string
	config   string
	world    *World
	// kill is the point at which the process dies.
	kill int
	// args come after the others.
	args []string
}

const stageGrace = 2 * time.Second

func newStage(t *testing.T, kill int) *stage {
	t.Helper()
	in := ankkatest.Start(t)
	account, err := scripted.NewAccount("")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Mortal: ankkatest.NewMortal(), t: t, account: account, kill: kill, name: fmt.Sprintf("kill-%d", kill+1)}
	if kill < 0 {
		s.name = fmt.Sprintf("kill-none-%d", worlds.Add(1))
	}
	cloud := httptest.NewServer(http.HandlerFunc(s.cloud))
	t.Cleanup(cloud.Close)
	s.cloudURL = cloud.URL
	s.config = in.Behind(t, ankkatest.Provider, s.api)
	s.world = &World{Client: in.Admin, NamePrefix: "acme", Limit: 30 * time.Second, Keep: true,
		Settings: provider.Settings{Provider: s.name, Account: "acme-test", Location: "Nowhere-1", RotationGrace: stageGrace}}
	return s
}

// start starts a provider's process.
func (s *stage) start() {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], "--kubeconfig", s.config, "--account", s.cloudURL, "--health-listen", "0", "--metrics-listen", "0", "--log-level", "debug",
		"--retry-min", "20ms", "--retry-max", "200ms")
	cmd.Args = append(cmd.Args, s.args...)
	cmd.Env = append(os.Environ(), runMain+"=1", "ANKKA_CLOUD_PROVIDER="+s.name, "ANKKA_CLOUD_ACCOUNT=acme-test", "ANKKA_CLOUD_LOCATION=Nowhere-1",
		"ANKKA_CLOUD_KMS_KEY=", "ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND=2m", "ANKKA_CLOUD_ROTATION_GRACE="+stageGrace.String(), provider.EnvInstallation+"=under-test")
	if err := s.Start(s.t, cmd); err != nil {
		s.t.Fatal(err)
	}
}

// cloud serves the account.
func (s *stage) cloud(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var c scripted.Call
	_ = json.Unmarshal(body, &c)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if c.Op == scripted.OpEnd {
		s.live(c)
	}
	s.Between("cloud "+c.Op, w, func(w http.ResponseWriter) { s.account.ServeHTTP(w, r) })
}

// live fails the test if what is to be ended is in the Secret.
func (s *stage) live(c scripted.Call) {
	sec := &corev1.Secret{}
	err := s.world.Client.Get(s.t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(c.Request.Subject.Project), Name: v1alpha1.StorageSecretName(c.Request.Subject)}, sec)
	if err == nil && sec.Annotations[v1alpha1.AnnotationCredentialID] == c.Name {
		s.t.Errorf("C-144: the live credential is ended")
	}
}

// api passes on to the API server.
func (s *stage) api(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if !ankkatest.WritesCredential(r) {
		next.ServeHTTP(w, r)
		return
	}
	parts := strings.Split(r.URL.Path, "/")
	s.Between(r.Method+" "+parts[len(parts)-1], w, func(w http.ResponseWriter) { next.ServeHTTP(w, r) })
}

// play asks for a credential and has it rotated, with the process killed at the
// stage's point, and judges what is left. It answers the points that it passed.
func (s *stage) play(t *testing.T) []string {
	s.start()
	x := &T{World: s.world, ctx: t.Context(), scenario: Scenario{Rules: []string{"C-144"}}}
	var mu sync.Mutex // guards lost
	var lost int
	x.do(func(x *T) {
		svc := x.service(x.project(), "reports")
		c := x.storage(svc)
		name := v1alpha1.StorageSecretName(svc.Subject)
		s.Arm(s.kill)
		restarted := make(chan struct{})
		go func() {
			select {
			case <-s.Died():
				if s.Spared {
					// What the process still knows is lost to nobody; what the
					// cloud has said last is.
					mu.Lock()
					if s.Points()[s.kill] == "after cloud "+scripted.OpIssue {
						lost++
					}
					mu.Unlock()
					close(restarted)
					return
				}
				// An answer was lost if a credential was made that the Secret does
				// not hold.
				sec := &corev1.Secret{}
				_ = s.world.Client.Get(t.Context(), client.ObjectKey{Namespace: svc.namespace(), Name: name}, sec)
				issued := s.account.Records()
				for i := len(issued) - 1; i >= 0; i-- {
					if issued[i].Event == "issued" {
						if issued[i].ID != sec.Annotations[v1alpha1.AnnotationCredentialID] {
							mu.Lock()
							lost++
							mu.Unlock()
						}
						break
					}
				}
				s.start()
				close(restarted)
			case <-t.Context().Done():
			}
		}()
		if s.kill < 0 {
			close(restarted)
		}
		x.ready(c)
		sec := x.secret(svc.namespace(), name)
		firstAccess, firstKey := pair(sec)
		firstID := sec.Annotations[v1alpha1.AnnotationCredentialID]
		bucket := c.parameters[v1alpha1.ParamBucket]
		if !s.account.Reaches(firstAccess, firstKey, bucket) {
			t.Errorf("C-117: the first credential does not reach the bucket")
		}
		c.generation = 2
		o := x.ready(c)
		access, key := pair(x.secret(svc.namespace(), name))
		if access == firstAccess || !s.account.Reaches(access, key, bucket) {
			t.Errorf("C-122: the second credential is the first, or does not reach the bucket")
		}
		due := o.Status.CredentialReportedAt.Add(stageGrace)
		x.eventuallyBy("C-126", "one credential is left", due.Add(s.world.Limit), func() bool { return len(s.account.Live(svc.Project)) == 1 })
		x.await(c, "with one credential in its journal", func(o *v1alpha1.CloudResource) bool {
			return len(o.Status.Credentials) == 1 && o.Status.Credentials[0].State == v1alpha1.CredentialInPlace && o.Status.CredentialGeneration == 2
		})
		if !s.account.Reaches(access, key, bucket) || s.account.Reaches(firstAccess, firstKey, bucket) {
			t.Errorf("C-144: the credential in the Secret was ended, or the one before was not")
		}
		// The last point may come after all that can be seen of it.
		select {
		case <-restarted:
		case <-time.After(s.world.Limit):
			t.Fatalf("the process was never killed: there is no point %d in %q", s.kill, s.Points())
		}
		records := s.account.Records()
		issued, first := 0, firstID
		for _, r := range records {
			switch r.Event {
			case "issued":
				issued++
			case "ended":
				if r.ID == first && r.At.Before(due) {
					t.Errorf("C-124: the first credential ended before its grace was over")
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if want := 2 + lost; issued != want {
			t.Errorf("C-95: %d credentials were issued for two generations, with %d answers lost", issued, lost)
		}
		text := s.Output.String()
		for _, v := range x.secrets {
			if strings.Contains(text, v) {
				t.Errorf("C-100: a key stands in the provider's output")
			}
		}
	})
	x.do((*T).finish)
	for _, f := range x.failures {
		t.Error(f)
	}
	if t.Failed() {
		t.Logf("the provider said:\n%s", s.Output.String())
	}
	return s.Points()
}

// all says that every point is taken, and not a sample of them.
func all() bool { return os.Getenv("RADIAL_FAULT") == "all" }

// sample is n of the points whose name starts with prefix, or all of them. It is
// drawn by RADIAL_SEED, and otherwise by the time; the log says how to have it
// again.
func sample(t *testing.T, points []string, prefix string, n int) []int {
	t.Helper()
	var out []int
	for i, what := range points {
		if strings.HasPrefix(what, prefix) {
			out = append(out, i)
		}
	}
	if all() {
		return out
	}
	seed, err := strconv.ParseUint(os.Getenv("RADIAL_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("RADIAL_SEED=%d takes %d of %d points; RADIAL_FAULT=all takes all", seed, min(n, len(out)), len(out))
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(n, len(out))]
}

// slots bounds how many plays run at once.
var slots = make(chan struct{}, 4)

// undisturbed plays without a fault, once for all tests, and answers the points
// that every play comes by.
var undisturbed struct {
	sync.Mutex
	points []string
}

func pointsOf(t *testing.T) []string {
	t.Helper()
	undisturbed.Lock()
	defer undisturbed.Unlock()
	if undisturbed.points == nil {
		points := newStage(t, -1).play(t)
		if t.Failed() {
			t.FailNow()
		}
		if len(points) < 30 {
			t.Fatalf("%d points: %q", len(points), points)
		}
		undisturbed.points = points
	}
	return undisturbed.points
}

// The provider is killed at cloud calls and API writes of issue, rotation and
// ending, before each is carried out and after: at every one with
// RADIAL_FAULT=all.
func TestKilled_C95_C124_C125_C126_C144(t *testing.T) {
	t.Parallel()
	points := pointsOf(t)
	for _, i := range sample(t, points, "", 6) {
		t.Run(fmt.Sprintf("%02d %s", i, points[i]), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			newStage(t, i).play(t)
		})
	}
}

// The answer to a write of the API server, or to a call of the cloud, is lost
// while the process lives: it knows what it has made, so that nothing is issued
// again but where the cloud's own answer was lost.
func TestAnswersLost_C94_C95_C144(t *testing.T) {
	t.Parallel()
	points := pointsOf(t)
	for _, i := range sample(t, points, "after ", 3) {
		t.Run(fmt.Sprintf("%02d %s", i, points[i]), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			s := newStage(t, i)
			s.Spared, s.name = true, fmt.Sprintf("lose-%d", i)
			s.world.Settings.Provider = s.name
			s.play(t)
		})
	}
}

// A request that is applied a hundred times, while the provider is restarted
// gracefully, is issued one credential.
func TestGracefulRestarts_C94_C95(t *testing.T) {
	t.Parallel()
	s := newStage(t, -1)
	s.start()
	x := &T{World: s.world, ctx: t.Context(), scenario: Scenario{Rules: []string{"C-95"}}}
	x.do(func(x *T) {
		svc := x.service(x.project(), "reports")
		c := x.storage(svc)
		x.apply(c)
		for i := range reapplies {
			c.annotations = map[string]string{"conformance.radapp.io/applied": fmt.Sprint(i)}
			x.apply(c)
			if i%10 == 5 {
				s.Stop(t)
				s.start()
			}
		}
		x.ready(c)
		// Asked after all of it, and so answered after.
		x.ready(x.identity(x.service(svc.Project, "after")))
		issued := 0
		for _, r := range s.account.Records() {
			if r.Event == "issued" {
				issued++
			}
		}
		if issued != 1 {
			t.Errorf("C-95: %d credentials were issued", issued)
		}
	})
	for _, f := range x.failures {
		t.Error(f)
	}
}

// Two providers that serve the same requests at once, as by an accident of a
// rollout, leave one credential, which is the one in the Secret.
func TestTwoAtOnce_C93_C144(t *testing.T) {
	t.Parallel()
	s := newStage(t, -1)
	s.start()
	s.start()
	x := &T{World: s.world, ctx: t.Context(), scenario: Scenario{Rules: []string{"C-144"}}}
	x.do(func(x *T) {
		p := x.project()
		var all []*request
		for i := range 8 {
			all = append(all, x.storage(x.service(p, fmt.Sprintf("reports%d", i))))
		}
		for generation := int64(1); generation <= 3; generation++ {
			for _, c := range all {
				c.generation = generation
				x.apply(c)
			}
			for _, c := range all {
				if o := x.answered(c); o.Status.CredentialGeneration != generation {
					t.Errorf("C-123: %s is at generation %d of %d", c.name, o.Status.CredentialGeneration, generation)
				}
			}
		}
		x.eventually("C-126", "one credential for each service is left", func() bool { return len(s.account.Live(p)) == len(all) })
		for _, c := range all {
			access, key := pair(x.secret(c.namespace(), v1alpha1.StorageSecretName(c.Subject)))
			if !s.account.Reaches(access, key, c.parameters[v1alpha1.ParamBucket]) {
				t.Errorf("C-144: the credential of %s was ended", c.name)
			}
		}
	})
	for _, f := range x.failures {
		t.Error(f)
	}
}
