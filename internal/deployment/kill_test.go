package deployment_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// gate stands before a cluster, counts its effective writes, and at one of them
// calls kill: before the cluster sees it, or when it has been done and nobody was
// told.
type gate struct {
	url, ca string

	mu     sync.Mutex
	writes []string
	at     int
	before bool
	kill   func()
}

func newGate(t *testing.T, config *rest.Config) *gate {
	t.Helper()
	g := &gate{}
	g.url, g.ca = g.front(t, config, nil)
	return g
}

// front stands before one more cluster, whose writes are counted with the others.
// good, when it is not nil, is the token that is let in at this moment.
func (g *gate) front(t *testing.T, config *rest.Config, good func() string) (server, ca string) {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = transport
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if good != nil && r.Header.Get("Authorization") != "Bearer "+good() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`))
			return
		}
		r.Header.Del("Authorization")
		if r.Method == http.MethodGet || r.URL.Query().Get("dryRun") != "" {
			forward.ServeHTTP(w, r)
			return
		}
		g.mu.Lock()
		g.writes = append(g.writes, r.Method+" "+r.URL.Path)
		mine := g.kill != nil && len(g.writes) == g.at
		kill, before := g.kill, g.before
		if mine {
			g.kill = nil
		}
		g.mu.Unlock()
		switch {
		case mine && before:
			kill()
			panic(http.ErrAbortHandler)
		case mine:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			kill()
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// arm has kill called at the n-th write from now.
func (g *gate) arm(n int, before bool, kill func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes, g.at, g.before, g.kill = nil, n, before, kill
}

func (g *gate) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.writes...)
}

// kubeconfig is one that leads through the gate.
func (g *gate) kubeconfig(token string) string { return kubeconfigOf(g.url, g.ca, token) }

func kubeconfigOf(url, ca, token string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: %s\n    certificate-authority-data: %s\nusers:\n- name: u\n  user:\n    token: %s\ncontexts:\n- name: x\n  context:\n    cluster: c\n    user: u\ncurrent-context: x\n", url, ca, token)
}

// process is a real radial-server.
type process struct {
	*plane
	cmd    *exec.Cmd
	exited chan struct{}
}

// launch starts a radial-server on the plane's directory.
func (p *plane) launch(kubeconfig string) *process {
	p.Helper()
	ready := filepath.Join(p.dir, "ready")
	_ = os.Remove(ready)
	x := &process{plane: p, exited: make(chan struct{})}
	x.cmd = exec.Command(clustertest.Program(p.T, "radial-server"), append([]string{
		"--developer-mode", "--listen", "127.0.0.1:0", "--store", filepath.Join(p.dir, "radial.db"), "--key-file", filepath.Join(p.dir, "key"),
		"--ready-file", ready, "--lease", "1s", "--kubeconfig", kubeconfig, "--log-level", "debug"}, p.args...)...)
	x.cmd.Env = append(os.Environ(), p.env...)
	x.cmd.Stderr = p.log
	if err := x.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	go func() { _ = x.cmd.Wait(); close(x.exited) }()
	p.Cleanup(x.kill)
	p.eventually("radial-server answers", func() bool {
		raw, err := os.ReadFile(ready)
		p.url = strings.TrimSpace(string(raw))
		return err == nil && p.url != ""
	})
	return x
}

// kill ends the process as a power cut does.
func (x *process) kill() {
	_ = x.cmd.Process.Signal(syscall.SIGKILL)
	<-x.exited
}

// gone waits until the gate has killed the process.
func (x *process) gone(link string, g *gate) {
	x.Helper()
	select {
	case <-x.exited:
	case <-time.After(time.Minute):
		x.Fatalf("the write to be killed at did not come: %v; %s", g.seen(), x.send("GET", link, "").raw)
	}
}

// point is a write to be killed at, before the cluster sees it or after.
type point struct {
	n      int
	before bool
}

// points are those that a scenario of so many writes is killed at: some, drawn by
// RADIAL_SEED or a seed of its own that the log names; with RADIAL_FAULT=all every
// one, both ways.
func points(t *testing.T, writes, sample int) []point {
	t.Helper()
	var all []point
	for n := 1; n <= writes; n++ {
		all = append(all, point{n, true}, point{n, false})
	}
	if os.Getenv("RADIAL_FAULT") == "all" {
		return all
	}
	seed, err := strconv.ParseUint(os.Getenv("RADIAL_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("RADIAL_SEED=%d; RADIAL_FAULT=all kills at all %d points", seed, len(all))
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(sample, len(all))]
}

// killed makes a plane without a server of its own.
func killed(t *testing.T) (*plane, *gate, string) {
	t.Helper()
	cluster := clustertest.Start(t)
	client, err := clientset.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{T: t, dir: t.TempDir(), client: client, log: &clustertest.Buffer{}, namespace: cluster.Namespace(t, "kill")}
	g := newGate(t, cluster.Config)
	return p, g, p.file("kubeconfig", g.kubeconfig("unused"))
}

// wantWiped looks into the store: no operation's inputs are left.
func (p *plane) wantWiped(names ...string) {
	p.Helper()
	db, err := sqlite.Open(context.Background(), filepath.Join(p.dir, "radial.db"), sqlite.Options{Listener: feed.New().Publish})
	if err != nil {
		p.Fatal(err)
	}
	defer db.Close()
	for _, name := range names {
		r, live, err := db.Get(context.Background(), core.MustParseID(all+"/"+name))
		if err != nil || live != nil {
			p.Fatalf("deployment %s: %v, live %v", name, err, live)
		}
		if _, kept := r.Secrets["$operation"]; kept {
			p.Errorf("S-45 the sealed inputs of %s are still in the store", name)
		}
	}
}

// S-45: the process is killed at every effective write of a deployment, before
// and after the cluster has done it; the next process brings it to the same end:
// nothing is lost, and nothing made twice with another outcome.
func TestKill_S45(t *testing.T) {
	t.Parallel()
	p, g, kubeconfig := killed(t)
	server := p.launch(kubeconfig)
	p.must(200, "PUT", group+ucp, `{}`)
	p.must(200, "PUT", group+"/providers/Applications.Core/environments/default"+ucp, `{"properties":{"compute":{"kind":"kubernetes","namespace":"x"}}}`)
	const secret = "killed-Horse-Battery"
	template := func(name string) string {
		return `{` + head + `,` + p.k8s() + `,"parameters":{"password":{"type":"securestring"},"made":{"type":"string","defaultValue":"[newGuid()]"}},"resources":{
		 "app":{"type":"Applications.Core/applications","apiVersion":"2023-10-01-preview","name":"` + name + `","properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}},
		 "one":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"` + name + `-one"},"data":{"made":"[parameters('made')]"}}},
		 "two":{"import":"k8s","type":"core/Secret@v1","dependsOn":["one"],"properties":{"metadata":{"name":"` + name + `-two"},"stringData":{"password":"[parameters('password')]","made":"[reference('one').data.made]"}}},
		 "in":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"` + name + `-in","dependsOn":["two","app"],"properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},
		   "parameters":{"made":{"value":"[parameters('made')]"}},
		   "template":{` + head + `,` + p.k8s() + `,"parameters":{"made":{"type":"string"}},"resources":{"three":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"` + name + `-three"},"data":{"made":"[parameters('made')]"}}}}}}}},
		 "outputs":{"made":{"type":"string","value":"[parameters('made')]"}}}`
	}
	const writes = 3
	var names []string
	for n := 1; n <= writes; n++ {
		for _, before := range []bool{true, false} {
			name := fmt.Sprintf("d%d-%t", n, before)
			names = append(names, name)
			g.arm(n, before, server.kill)
			link := strings.TrimPrefix(p.begin(name, body(template(name), "password", `"`+secret+`"`)), p.url)
			server.gone(link, g)
			first := g.seen()
			g.arm(0, false, nil)
			server = p.launch(kubeconfig)
			if end := p.await(link); end.body["status"] != "Succeeded" {
				t.Fatalf("S-45 killed at write %d (before: %t) it ended as %s", n, before, end.raw)
			}
			got := p.must(200, "GET", all+"/"+name+version, "")
			made := text(at(got.body, "properties", "outputs", "made", "value"))
			one, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), name+"-one", metav1.GetOptions{})
			if err != nil || one.Data["made"] != made || made == "" {
				t.Errorf("S-45 %s: one has %v, the output says %q (%v)", name, one.Data, made, err)
			}
			two, err := p.client.CoreV1().Secrets(p.namespace).Get(t.Context(), name+"-two", metav1.GetOptions{})
			if err != nil || string(two.Data["made"]) != made || string(two.Data["password"]) != secret {
				t.Errorf("S-45 %s: two: %v", name, err)
			}
			three, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), name+"-three", metav1.GetOptions{})
			if err != nil || three.Data["made"] != made {
				t.Errorf("S-45 %s: three has %v (%v)", name, three.Data, err)
			}
			// What the journal knew as made was left alone by the next attempt.
			again := map[string]int{}
			for _, w := range append(first, g.seen()...) {
				again[w]++
			}
			killed := name + []string{"-one", "-two", "-three"}[n-1]
			for w, times := range again {
				if times > 1 && !strings.HasSuffix(w, killed) && !lastBefore(first, w) {
					t.Errorf("S-45 %s: %s was written %d times: %v then %v", name, w, times, first, g.seen())
				}
			}
			if n := len(at(got.body, "properties", "outputResources").([]any)); n != 4 {
				t.Errorf("S-45 %s: %d output resources", name, n)
			}
			nested := p.must(200, "GET", all+"/"+name+"-in"+version, "")
			if at(nested.body, "properties", "provisioningState") != "Succeeded" {
				t.Errorf("S-45 %s: its nested deployment is %s", name, nested.raw)
			}
		}
	}
	server.kill()
	p.wantWiped(names...)
	scan(t, p.dir, secret)
	wantNone(t, "the log", []byte(p.log.String()), secret)
}

// lastBefore reports whether a write was the last before the kill or the one just
// before it, which the journal may not have had time to note.
func lastBefore(writes []string, w string) bool {
	for i := max(0, len(writes)-2); i < len(writes); i++ {
		if writes[i] == w {
			return true
		}
	}
	return false
}

// S-45: a kubeConfig is in no store. A deployment that had one and was killed
// ends as Failed, CredentialsNeeded, and the next PUT goes on with its run.
func TestKillUserOwned_S45(t *testing.T) {
	t.Parallel()
	p, g, kubeconfig := killed(t)
	server := p.launch(kubeconfig)
	p.must(200, "PUT", group+ucp, `{}`)
	const token, secret = "token-of-the-owner-0123456789", "owned-Horse-Battery"
	template := `{` + head + `,"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"` + p.namespace + `","scope":{"type":"UserOwned","kubeConfig":"[parameters('kc')]"}}}},
	 "parameters":{"kc":{"type":"securestring"},"password":{"type":"securestring"},"made":{"type":"string","defaultValue":"[newGuid()]"}},"resources":{
	 "one":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"own-one"},"data":{"made":"[parameters('made')]"}}},
	 "two":{"import":"k8s","type":"core/Secret@v1","dependsOn":["one"],"properties":{"metadata":{"name":"own-two"},"stringData":{"password":"[parameters('password')]","made":"[parameters('made')]"}}}},
	 "outputs":{"made":{"type":"string","value":"[parameters('made')]"}}}`
	send := func(token string) string {
		return body(template, "kc", fmt.Sprintf("%q", g.kubeconfig(token)), "password", `"`+secret+`"`)
	}
	g.arm(2, true, server.kill)
	link := strings.TrimPrefix(p.begin("own", send(token)), p.url)
	server.gone(link, g)
	scan(t, p.dir, token, secret) // while it is to go on
	g.arm(0, false, nil)
	server = p.launch(kubeconfig)
	if end := p.await(link); at(end.body, "error", "code") != "CredentialsNeeded" {
		t.Fatalf("S-45 it ended as %s", end.raw)
	}
	got := p.must(200, "GET", all+"/own"+version, "")
	if at(got.body, "properties", "error", "code") != "CredentialsNeeded" || !strings.Contains(got.raw, "send the deployment again") {
		t.Errorf("S-45 it is %s", got.raw)
	}
	one, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "own-one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// With a new token of the same cluster: the same run, so the same GUID.
	p.deploy("own", send("another-token-of-the-owner-98765"), core.StateSucceeded)
	got = p.must(200, "GET", all+"/own"+version, "")
	made := at(got.body, "properties", "outputs", "made", "value")
	after, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "own-one", metav1.GetOptions{})
	if err != nil || after.ResourceVersion != one.ResourceVersion || after.Data["made"] != made {
		t.Errorf("S-45 what was made was made again: %v, then %v; the output is %v", one.Data, after.Data, made)
	}
	if at(got.body, "properties", "outputResources", 0, "scope", "type") != "UserOwned" || at(got.body, "properties", "outputResources", 0, "scope", "fingerprint") == nil {
		t.Errorf("S-15 the scope of UserOwned resources is shown as %s", got.raw)
	}
	wantNone(t, "GET", []byte(got.raw), token, "another-token-of-the-owner-98765")
	// With another password it is another run.
	p.deploy("own", strings.Replace(send(token), secret, "changed-"+secret, 1), core.StateSucceeded)
	two, err := p.client.CoreV1().Secrets(p.namespace).Get(t.Context(), "own-two", metav1.GetOptions{})
	if err != nil || !bytes.Equal(two.Data["password"], []byte("changed-"+secret)) {
		t.Errorf("the changed password did not arrive: %v", err)
	}
	server.kill()
	p.wantWiped("own")
	scan(t, p.dir, token, "another-token-of-the-owner-98765", secret)
	wantNone(t, "the log", []byte(p.log.String()), token, secret)
}
