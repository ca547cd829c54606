package deployment_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/audit"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/scope/armtest"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// Deny settings do not lock Radial out when it is known by another user than when
// they were made.
func TestDenyAnotherUser_S56(t *testing.T) {
	t.Parallel()
	user := "radial-one"
	p := newPlane(t, func(p *plane) {
		p.resolver = scope.NewResolver(map[string]scope.Connect{"local": func(context.Context) (*kubernetes.Cluster, error) {
			config := rest.CopyConfig(clustertest.Start(t).Config)
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
			return kubernetes.New("local", config, kubernetes.Options{})
		}})
	})
	name := "relocated-" + p.namespace
	const deny = `"denySettings":{"mode":"denyWriteAndDelete"}`
	p.apply(name, stackBody(p.maps("", "a", "b"), deny), "succeeded")
	p.denied(as(t, "mallory"), "a", true)
	for _, step := range []string{"update", "delete"} {
		p.stop()
		user = "radial-" + step
		again := scope.NewResolver(map[string]scope.Connect{"local": func(context.Context) (*kubernetes.Cluster, error) {
			config := rest.CopyConfig(clustertest.Start(t).Config)
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
			return kubernetes.New("local", config, kubernetes.Options{})
		}})
		p.resolver = again
		p.start()
		if step == "update" {
			p.apply(name, stackBody(strings.Replace(p.maps("", "a"), `"a":"b"`, `"a":"c"`, 1), deny), "succeeded")
			continue
		}
		if end := p.remove(name, "", ""); end.body["status"] != "Succeeded" || p.there() != "" {
			t.Errorf("S-56 the deletion as another user ended as %s; there is %q", end.raw, p.there())
		}
	}
}

// Of requests that come together for one name one is accepted (S-44, S-55).
func TestTogether_S55(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	for path, body := range map[string]string{all + "/one": body(p.maps("", "a")), stacks + "/one": stackBody(p.maps("", "b"), "")} {
		var done sync.WaitGroup
		statuses := make([]int, 12)
		links := make([]string, len(statuses))
		for i := range statuses {
			done.Go(func() {
				r, _ := http.NewRequestWithContext(t.Context(), "PUT", p.url+path+version, strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				if resp, err := http.DefaultClient.Do(r); err == nil {
					statuses[i], links[i] = resp.StatusCode, resp.Header.Get("Azure-AsyncOperation")
					_ = resp.Body.Close()
				}
			})
		}
		done.Wait()
		ops := map[string]bool{}
		for i, s := range statuses {
			switch s {
			case 200, 201:
				ops[links[i]] = true
			case 409:
			default:
				t.Errorf("%s: status %d", path, s)
			}
		}
		for link := range ops {
			if end := p.await(link); end.body["status"] != "Succeeded" {
				t.Errorf("%s: %s", path, end.raw)
			}
		}
	}
}

// A stack whose update is canceled while it waits manages what it had made, and the
// next update goes on.
func TestStackCanceled_S55(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	release, began := make(chan struct{}), make(chan struct{}, 1)
	p.recipes.mu.Lock()
	p.recipes.execute = blocking(began, release)
	p.recipes.mu.Unlock()
	template := `{` + head + `,` + p.k8s() + `,"resources":{
	 "m":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"before"}}},
	 "cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"cut","dependsOn":["m"],"properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}}}}`
	a := p.must(201, "PUT", stacks+"/cut"+version, stackBody(template, ""))
	<-began
	link := a.header.Get("Azure-AsyncOperation")
	p.eventually("it parks", func() bool { return at(p.must(200, "GET", link, "").body, "parked") == true })
	base, query, _ := strings.Cut(link, "?")
	p.must(202, "POST", base+"/cancel?"+query, "")
	if end := p.await(link); end.body["status"] != "Canceled" {
		t.Fatalf("it ended as %s", end.raw)
	}
	got := p.must(200, "GET", stacks+"/cut"+version, "")
	if state := at(got.body, "properties", "provisioningState"); state != "canceled" {
		t.Errorf("canceled it is %s", got.raw)
	}
	close(release)
	p.eventually("the resource is free", func() bool {
		a := p.send("GET", group+"/providers/Applications.Datastores/redisCaches/cut"+ucp, "")
		return a.status == 404 || core.State(text(at(a.body, "properties", "provisioningState"))).Terminal()
	})
	if got := p.apply("cut", stackBody(p.maps("", "after"), ""), "succeeded"); p.there() != "after" || listed(got, "resources") != "after" {
		t.Errorf("there is %q: %s", p.there(), got.raw)
	}
	p.must(404, "GET", group+"/providers/Applications.Datastores/redisCaches/cut"+ucp, "")
	if end := p.remove("cut", "", ""); end.body["status"] != "Succeeded" || p.there() != "" {
		t.Errorf("there is %q: %s", p.there(), end.raw)
	}
}

// What a nested deployment made before it failed is managed, and goes when the next
// update does not name it; ids of stacks and scopes count without case.
func TestStackAfterPartialFailure_S54(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t)
	far := second(t)
	arm := armtest.Start(t)
	aks := arm.AddCluster(t, armtest.ClusterID("prod"), clustertest.Second(t).Config)
	p := newPlane(t, cloudy(arm, cluster.Config))
	nested := func(id string) string {
		inner := scopedTo(`{"type":"AzureResourceManager","id":"`+id+`"}`, far.namespace, "a", "b")
		bad := strings.Replace(inner, `"resources":{`, `"resources":{"bad":{"import":"far","dependsOn":["a","b"],"type":"core/ConfigMap@v1","properties":{"metadata":{"name":"bad"},"data":{"x":["no"]}}},`, 1)
		return `{` + head + `,` + p.k8s() + `,"resources":{"here":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"here"}}},
		 "n":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"n","properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"template":` + bad + `}}}}`
	}
	got := p.apply("Shop", stackBody(nested(aks.ID()), ""), "failed")
	if listed(got, "resources") != "here a b" && listed(got, "resources") != "a b here" {
		t.Errorf("S-54 it manages %s", got.raw)
	}
	uid := far.uid("a")
	upper := strings.ToUpper(aks.ID())
	got = p.apply("SHOP", stackBody(scopedTo(`{"type":"AzureResourceManager","id":"`+upper+`"}`, far.namespace, "a"), ""), "succeeded")
	if far.there() != "a" || p.there() != "" || far.uid("a") != uid || listed(got, "resources") != "a" {
		t.Errorf("S-54 there is %q and %q (a was made anew: %t): %s", p.there(), far.there(), far.uid("a") != uid, got.raw)
	}
	// A cluster whose credentials are refused: nothing goes there, and it is said.
	arm.Fail(armtest.Fault{ID: aks.ID(), Status: 403, Code: "AuthorizationFailed", Message: "no"})
	got = p.apply("shop", stackBody(p.maps("", "here"), ""), "failed")
	if far.there() != "a" || p.there() != "here" || at(got.body, "properties", "failedResources", 0, "error") == nil || !strings.Contains(got.raw, "listClusterAdminCredential") {
		t.Errorf("forbidden: there is %q and %q: %s", p.there(), far.there(), got.raw)
	}
	arm.Heal()
	if end := p.remove("sHOP", "", ""); end.body["status"] != "Succeeded" || far.there() != "" || p.there() != "" {
		t.Errorf("there is %q and %q: %s", p.there(), far.there(), end.raw)
	}
}

func (e elsewhere) uid(name string) string {
	e.Helper()
	return uidOf(e.T, e.client, e.namespace, name)
}

// A role that is taken away while a deployment waits counts for what it writes
// after that.
func TestRoleTakenAway_D46(t *testing.T) {
	t.Parallel()
	tokens := map[string]string{}
	p := newPlane(t, func(p *plane) {
		for _, name := range []string{"owner", "contributor"} {
			tokens[name] = p.account(name)
		}
		p.token = tokens["owner"]
		p.door = func(db *sqlite.Store, broker *feed.Broker) auth.Options {
			authn, err := auth.NewAuthenticator(auth.AuthenticatorOptions{Cluster: p.client})
			if err != nil {
				t.Fatal(err)
			}
			return auth.Options{
				Authenticator: authn, Store: db,
				Assignments: auth.NewAssignments(db, broker, nil, auth.Assignment{Principal: auth.Principal{Kind: auth.KindServiceAccount, Name: p.namespace + "/owner"}, Role: auth.Owner, Scope: core.MustParseID("/planes/radius/local")}),
				Root:        func(context.Context, auth.Identity) (bool, error) { return false, nil },
				Audit:       func(audit.Record) {},
			}
		}
	})
	role := group + "/providers/System.Authorization/roleAssignments/c" + ucp
	assigned := p.send("PUT", role, `{"properties":{"principal":{"kind":"serviceAccount","name":"`+p.namespace+`/contributor"},"role":"Contributor"}}`)
	if assigned.status > 201 {
		t.Fatalf("the assignment: %d %s", assigned.status, assigned.raw)
	}
	release, began := make(chan struct{}), make(chan struct{}, 1)
	p.recipes.mu.Lock()
	p.recipes.execute = blocking(began, release)
	p.recipes.mu.Unlock()
	template := `{` + head + `,"resources":{
	 "cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"slow","properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}},
	 ` + strings.Replace(app, `"name":"a"`, `"name":"after","dependsOn":["cache"]`, 1) + `}}`
	p.eventually("the role counts", func() bool {
		p.token = tokens["contributor"]
		defer func() { p.token = tokens["owner"] }()
		return p.send("GET", all+version, "").status == 200
	})
	p.token = tokens["contributor"]
	link := p.begin("role", body(template))
	<-began
	p.token = tokens["owner"]
	if a := p.send("DELETE", role, ""); a.status > 204 {
		t.Fatalf("the role stays: %d %s", a.status, a.raw)
	}
	p.eventually("the role is gone", func() bool {
		p.token = tokens["contributor"]
		defer func() { p.token = tokens["owner"] }()
		return p.send("GET", all+"/role"+version, "").status == 403
	})
	close(release)
	end := p.await(link)
	if end.body["status"] != "Failed" || !strings.Contains(end.raw, "no role") {
		t.Errorf("D-46 it ended as %s", end.raw)
	}
	p.must(404, "GET", group+"/providers/Applications.Core/applications/after"+ucp, "")
}

// What a template could make grow without bound is refused, in bounded time; what
// just fits is taken.
func TestLimits(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	laughs := []string{`"v0":"aaaaaaaaaaaaaaaa"`}
	for i := 1; i < 60; i++ {
		laughs = append(laughs, fmt.Sprintf(`"v%d":"[concat(variables('v%d'),variables('v%d'))]"`, i, i-1, i-1))
	}
	deep := `{` + head + `,"metadata":` + strings.Repeat(`{"a":`, 200_000) + `1` + strings.Repeat(`}`, 200_000) + `,"resources":{}}`
	for name, c := range map[string]struct {
		template string
		status   int
	}{
		"range":  {`{` + head + `,"resources":{},"outputs":{"a":{"type":"array","value":"[range(0,100000000)]"}}}`, 400},
		"pad":    {`{` + head + `,"resources":{},"outputs":{"a":{"type":"string","value":"[padLeft('',2000000000)]"}}}`, 400},
		"laughs": {`{` + head + `,"variables":{` + strings.Join(laughs, ",") + `},"resources":{},"outputs":{"a":{"type":"string","value":"[variables('v59')]"}}}`, 400},
		"copies": {`{` + head + `,"resources":{},"outputs":{"a":{"type":"array","copy":{"count":100000000,"input":"x"}}}}`, 400},
		"deep":   {deep, 400},
		"nested": {`{` + head + `,"resources":{},"outputs":{"a":{"type":"string","value":"[` + strings.Repeat("concat(", 20_000) + "'a'" + strings.Repeat(")", 20_000) + `]"}}}`, 400},
	} {
		a := p.send("PUT", all+"/limit-"+name+version, body(c.template))
		if a.status == 201 { // only the run evaluates it
			if end := p.await(a.header.Get("Azure-AsyncOperation")); end.body["status"] == "Failed" {
				a.status, a.raw = 400, end.raw
			}
		}
		if a.status != c.status || len(a.raw) > 8<<10 {
			t.Errorf("%s: status %d, want %d: %.300s", name, a.status, c.status, a.raw)
		}
	}
	// As many resources as there may be; one more is refused, see TestRefused.
	wide := make([]string, 800)
	for i := range wide {
		wide[i] = strings.Replace(app, `"a"`, fmt.Sprintf(`"a%d"`, i), 2)
	}
	p.must(200, "POST", all+"/limit/validate"+version, body(one(strings.Join(wide, ","))))
	// A template of the greatest length, and one that is longer by a character.
	fit := func(size int) string {
		empty := `{` + head + `,"metadata":{"x":""},"resources":{}}`
		return strings.Replace(empty, `"x":""`, `"x":"`+strings.Repeat("x", size-len(empty))+`"`, 1)
	}
	p.must(200, "POST", all+"/limit/validate"+version, body(fit(4<<20)))
	p.must(413, "POST", all+"/limit/validate"+version, body(fit(4<<20+1)))
}

func uidOf(t *testing.T, c clientset.Interface, namespace, name string) string {
	t.Helper()
	m, err := c.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(m.UID)
}
