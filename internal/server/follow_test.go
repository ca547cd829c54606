package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	wire "github.com/radial-project/radial/api/arm"
)

// A registration reaches every process on the store, and who is told of it by
// the change stream finds the type there.
func TestRegistrationFollows_D5(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	b := &api{Instance: startInstance(t, Options{Beside: a.Instance, NoWorkers: true}), t: t}
	for what, watched := range map[string]*api{"Same": a, "Another": b} {
		// A namespace of its own: another process may still hear of the other one.
		namespace := what + ".Things"
		provider := "/planes/radius/local/providers/System.Resources/resourceProviders/" + namespace
		lines, cancel := stream(t, watched.URL+"/watch/changes")
		next(t, lines, "the first line", func(c wire.Change) bool { return c.Reset })
		for _, registered := range []bool{true, false} {
			if registered {
				a.want(a.send("PUT", version(provider+"/manifest", ucp), manifestIn(namespace)), 200)
			} else {
				a.want(a.send("DELETE", version(provider, ucp), nil), 200)
			}
			next(t, lines, "the change of the provider", func(c wire.Change) bool { return c.ID == provider })
			got := watched.send("GET", version(provider+"/resourceTypes/one", ucp), nil)
			if known := got.status == 200; known != registered {
				t.Errorf("%s process: after the change, registered is %v and the answer %d %s", what, registered, got.status, got.raw)
			}
		}
		cancel()
	}
}

// Two servers on one store that change one namespace at the same time: the edits
// of both are there.
func TestRegistrationsAtOnce_D5(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	b := &api{Instance: startInstance(t, Options{Beside: a.Instance, NoWorkers: true}), t: t}
	const provider = "/planes/radius/local/providers/System.Resources/resourceProviders/At.Once"
	const each = 8
	a.want(a.send("PUT", version(provider+"/manifest", ucp), manifestIn("At.Once")), 200)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for n := range 2 * each {
		server := []*api{a, b}[n%2]
		all.Go(func() {
			<-begin
			if got := server.send("PUT", version(fmt.Sprintf("%s/resourceTypes/t%d", provider, n), ucp), props(map[string]any{"description": "d"})); got.status >= 300 {
				t.Errorf("type %d: %d %s", n, got.status, got.raw)
			}
		})
	}
	close(begin)
	all.Wait()
	got := a.want(a.send("GET", version(provider+"/manifest", ucp), nil), 200)
	stored, err := a.Store.Manifests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 * each {
		if name := fmt.Sprintf(`"t%d":`, n); !strings.Contains(string(stored["At.Once"]), name) {
			t.Errorf("D-5: the edit that made type %d is lost: %s, the server says %s", n, stored["At.Once"], got.raw)
		}
	}
}
