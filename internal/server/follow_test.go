package server_test

import (
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
