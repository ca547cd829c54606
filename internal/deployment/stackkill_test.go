package deployment_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S-55: the process is killed at effective writes of a stack that shrinks, gets
// deny settings, and is deleted, before and after the cluster has done them; the
// next process brings it to the end of an undisturbed run, and nothing is left.
// RADIAL_FAULT=all takes every write, both ways; else a sample, by a seed.
func TestKillStack_S55(t *testing.T) {
	t.Parallel()
	p, g, kubeconfig := killed(t)
	server := p.launch(kubeconfig)
	p.must(200, "PUT", group+ucp, `{}`)
	const deny = `"denySettings":{"mode":"denyDelete"}`
	policies := func() (names []string) {
		list, err := p.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list.Items {
			if strings.HasPrefix(l.Annotations["radapp.io/resource-id"], stacks+"/k-"+p.namespace) {
				names = append(names, l.Name)
			}
		}
		return names
	}
	begin := func(method, name, body string) string {
		a := p.send(method, stacks+"/"+name+version, body)
		link := a.header.Get("Azure-AsyncOperation")
		if link == "" {
			t.Fatalf("%s %s: %d %s", method, name, a.status, a.raw)
		}
		return strings.TrimPrefix(link, p.url)
	}
	for what, scenario := range map[string]struct {
		act  func(name string) string
		end  string
		gone bool
	}{
		"shrink": {func(name string) string { return begin("PUT", name, stackBody(p.maps("", "c", "d"), deny)) }, "c d", false},
		"delete": {func(name string) string { return begin("DELETE", name, "") }, "", true},
	} {
		// An undisturbed run says how many writes there are.
		writes := 0
		for kills := []point{{}}; len(kills) > 0; kills = kills[1:] {
			n, before := kills[0].n, kills[0].before
			name := fmt.Sprintf("k-%s-%s-%d-%t", p.namespace, what, n, before)
			p.apply(name, stackBody(p.maps("", "a", "b:a", "c:b"), map[bool]string{true: deny}[scenario.gone]), "succeeded")
			g.arm(n, before, server.kill)
			link := scenario.act(name)
			if n > 0 {
				server.gone(link, g)
				g.arm(0, false, nil)
				server = p.launch(kubeconfig)
			}
			end := p.await(link)
			if n == 0 {
				writes = len(g.seen())
				if writes < 4 {
					t.Fatalf("S-55 %s: only %v", what, g.seen())
				}
				kills = append(kills, points(t, writes, 3)...)
			}
			at := fmt.Sprintf("S-55 %s killed at write %d of %d (before: %t)", what, n, writes, before)
			if end.body["status"] != "Succeeded" {
				t.Fatalf("%s: it ended as %s", at, end.raw)
			}
			if p.there() != scenario.end {
				t.Errorf("%s: there is %q, want %q", at, p.there(), scenario.end)
			}
			if scenario.gone {
				p.must(404, "GET", stacks+"/"+name+version, "")
			} else if got := p.must(200, "GET", stacks+"/"+name+version, ""); listed(got, "resources") != "c d" || len(policies()) != 2 {
				t.Errorf("%s: %d policies; %s", at, len(policies()), got.raw)
			}
			if !scenario.gone {
				if end := p.remove(name, "", ""); end.body["status"] != "Succeeded" {
					t.Fatalf("%s: its deletion ended as %s", at, end.raw)
				}
			}
			if left := policies(); len(left) > 0 || p.there() != "" {
				t.Errorf("%s: at the end there are the policies %v and %q", at, left, p.there())
			}
		}
	}
	server.kill()
}
