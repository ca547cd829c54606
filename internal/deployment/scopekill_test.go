package deployment_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/scope/armtest"
)

// S-55 and S-31, S-21: the process is killed at effective writes of stacks in a
// cluster of Azure that is gone or goes at that moment, or whose credentials are
// rotated before and at that moment, with those before revoked. The next process
// brings it to the end of an undisturbed run, nothing is left, and no credential is
// kept. RADIAL_FAULT=all takes every write, both ways.
func TestKillScopes_S55(t *testing.T) {
	t.Parallel()
	p, g, kubeconfig := killed(t)
	other := second(t)
	arm := armtest.Start(t)
	p.args, p.env = []string{"--azure-scopes", "*", "--azure-endpoint", arm.URL}, arm.Env(t)
	var good atomic.Value
	farURL, farCA := g.front(t, clustertest.Second(t).Config, func() string { return good.Load().(string) })
	var tokens []string
	rotate := func(aks *armtest.Cluster) {
		token := "rotated-" + rand.Text()
		tokens = append(tokens, token)
		good.Store(token)
		aks.HandOut([]byte(kubeconfigOf(farURL, farCA, token)))
	}
	server := p.launch(kubeconfig)
	p.must(200, "PUT", group+ucp, `{}`)

	template := func(aks *armtest.Cluster, here, there string) string {
		var resources []string
		add := func(alias, names string) {
			before := ""
			for _, name := range strings.Fields(names) {
				depends := ""
				if before != "" {
					depends = `"dependsOn":["` + alias + `-` + before + `"],`
				}
				resources = append(resources, fmt.Sprintf(`"%s-%s":{"import":%q,%s"type":"core/ConfigMap@v1","properties":{"metadata":{"name":%q},"data":{"a":"b"}}}`, alias, name, alias, depends, name))
				before = name
			}
		}
		add("k8s", here)
		add("far", there)
		imports := strings.TrimSuffix(p.k8s(), "}") + `,"far":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"` + other.namespace + `","scope":{"type":"AzureResourceManager","id":"` + aks.ID() + `"}}}}`
		return stackBody(`{`+head+`,`+imports+`,"resources":{`+strings.Join(resources, ",")+`}}`, "")
	}
	begin := func(method, name, body string) string {
		a := p.send(method, stacks+"/"+name+version, body)
		link := a.header.Get("Azure-AsyncOperation")
		if link == "" {
			t.Fatalf("%s %s: %d %s", method, name, a.status, a.raw)
		}
		return strings.TrimPrefix(link, p.url)
	}
	for _, s := range []struct {
		what string
		// first happens before the scenario, then with the kill.
		first, then func(aks *armtest.Cluster)
		// here and there are the objects of the update; "-" deletes the stack.
		here, there string
		// gone says that what is in the cluster cannot be asked for any more.
		gone bool
	}{
		{"owner gone, shrink", (*armtest.Cluster).Remove, nil, "y z", "", true},
		{"owner gone, delete", (*armtest.Cluster).Remove, nil, "-", "", true},
		{"owner goes, shrink", nil, (*armtest.Cluster).Remove, "y z", "", true},
		{"owner goes, delete", nil, (*armtest.Cluster).Remove, "-", "", true},
		{"rotated, shrink", rotate, rotate, "y", "c d", false},
		{"rotated, delete", rotate, rotate, "-", "", false},
	} {
		writes := 0
		for kills := []point{{}}; len(kills) > 0; kills = kills[1:] {
			at := kills[0]
			name := fmt.Sprintf("s-%s-%d-%t", strings.NewReplacer(" ", "", ",", "-").Replace(s.what), at.n, at.before)
			aks := arm.AddCluster(t, armtest.ClusterID(name), clustertest.Second(t).Config)
			rotate(aks)
			p.apply(name, template(aks, "x y", "a b c"), "succeeded")
			if p.there() != "x y" || other.there() != "a b c" {
				t.Fatalf("%s: there %q and %q", name, p.there(), other.there())
			}
			if s.first != nil {
				s.first(aks)
			}
			g.arm(at.n, at.before, func() {
				if s.then != nil {
					s.then(aks)
				}
				server.kill()
			})
			var link string
			if s.here == "-" {
				link = begin("DELETE", name, "")
			} else {
				link = begin("PUT", name, template(aks, s.here, s.there))
			}
			if at.n > 0 {
				server.gone(link, g)
				g.arm(0, false, nil)
				server = p.launch(kubeconfig)
			}
			end := p.await(link)
			if at.n == 0 {
				if writes = len(g.seen()); writes < 2 {
					t.Fatalf("S-55 %s: only %v", s.what, g.seen())
				}
				kills = append(kills, points(t, writes, 2)...)
			}
			where := fmt.Sprintf("S-55 %s killed at write %d of %d (before: %t)", s.what, at.n, writes, at.before)
			if end.body["status"] != "Succeeded" {
				t.Fatalf("%s: it ended as %s", where, end.raw)
			}
			if s.here == "-" {
				p.must(404, "GET", stacks+"/"+name+version, "")
			} else {
				if want := strings.TrimSpace(s.here); p.there() != want {
					t.Errorf("%s: here is %q, want %q", where, p.there(), want)
				}
				if !s.gone && other.there() != s.there {
					t.Errorf("%s: in the cluster is %q, want %q", where, other.there(), s.there)
				}
				got := p.must(200, "GET", stacks+"/"+name+version, "")
				if want := len(strings.Fields(s.here + " " + s.there)); len(strings.Fields(listed(got, "resources"))) != want || listed(got, "failedResources") != "" {
					t.Errorf("%s: it manages %s", where, got.raw)
				}
				if end := p.remove(name, "", ""); end.body["status"] != "Succeeded" {
					t.Fatalf("%s: its deletion ended as %s", where, end.raw)
				}
			}
			if p.there() != "" || !s.gone && other.there() != "" {
				t.Fatalf("%s: at the end there is %q, and in the cluster %q", where, p.there(), other.there())
			}
			if s.gone { // the API server of this test goes on
				if err := other.client.CoreV1().ConfigMaps(other.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
					t.Fatal(err)
				}
				p.eventually("the namespace is empty", func() bool { return other.there() == "" })
			}
		}
	}
	server.kill()
	secrets := append(arm.Secrets(), tokens...)
	scan(t, p.dir, secrets...)
	wantNone(t, "the log", []byte(p.log.String()), secrets...)
}
