package deploy

import (
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// TestOwnResources: control-plane resources are written in order, waited for, and
// read; their failures are theirs.
func TestOwnResources(t *testing.T) {
	text := doc(`"resources":{"o":{"type":"Test.X/things","apiVersion":"1","name":"o","tags":{"t":"1"},"properties":{"v":"1"}},
	 "p":{"type":"Test.X/things","apiVersion":"1","name":"p","properties":{"id":"[reference('o','1','full').id]","ready":"[reference('o').ready]","k":"[listSecrets('o','1').key]"}},
	 "e":{"existing":true,"type":"Test.X/things","apiVersion":"1","name":"there"}},
	 "outputs":{"v":{"type":"string","value":"[reference('e').v]"},"far":{"type":"string","value":"[reference('/planes/radius/local/resourceGroups/g/providers/Test.X/things/there','1').v]"}}`)
	there := func(s *seat) {
		id := core.GroupID("g").Resource("Test.X/things", "there")
		s.w.own[id.Key()] = map[string]any{"id": id.String(), "properties": map[string]any{"v": "7"}}
	}
	t.Run("waited for here", func(t *testing.T) {
		s := newSeat(t)
		there(s)
		res := s.must(text)
		p := s.w.own[core.GroupID("g").Resource("Test.X/things", "p").Key()]["properties"].(map[string]any)
		if p["id"] != "/planes/radius/local/resourceGroups/g/providers/Test.X/things/o" || p["k"] != "secret of o" || p["ready"] != true {
			t.Errorf("p has %v", p)
		}
		if res.Outputs[0].Value != "7" || res.Outputs[1].Value != "7" {
			t.Errorf("outputs %v", res.Outputs)
		}
		if a := res.Resources[0]; a.Scope != nil || a.ID != "/planes/radius/local/resourceGroups/g/providers/Test.X/things/o" || a.Identity != nil {
			t.Errorf("S-15: an ordinary resource is answered as %+v", a)
		}
		if !strings.Contains(s.w.bodies["own/o"][0], `"tags":{"t":"1"}`) {
			t.Errorf("the body: %s", s.w.bodies["own/o"])
		}
	})
	t.Run("parked for", func(t *testing.T) {
		s := newSeat(t)
		there(s)
		q := s.request(text)
		q.Park = true
		res, err := s.e.Deploy(t.Context(), q)
		if err != nil || !res.Waiting || len(s.w.calls("put")) != 1 || len(res.Outputs) > 0 {
			t.Fatalf("%+v, %v, %v", res, err, s.w.log)
		}
		if res, err = s.attempt(q); err != nil || res.Waiting {
			t.Fatalf("%+v, %v", res, err)
		}
		if n := len(s.w.calls("put")); n != 2 {
			t.Errorf("written %d times: %v", n, s.w.log)
		}
	})
	t.Run("failed", func(t *testing.T) {
		s := newSeat(t)
		there(s)
		s.w.refuse["o"] = core.Errorf(core.CodeRecipeDeployment, "the recipe failed: no room")
		_, err := s.deploy(text)
		if err == nil || err.Error() != "resource o (Test.X/things): the recipe failed: no room; not made because of it: p" || core.AsError(err).Details[0].Code != core.CodeRecipeDeployment {
			t.Errorf("S-43: got %v", err)
		}
	})
	t.Run("patched", func(t *testing.T) {
		s := newSeat(t)
		there(s)
		s.must(doc(`"resources":{"x":{"type":"Test.X/things","apiVersion":"1","name":"there","method":"PATCH","properties":{"w":"8"}}}`))
		p := s.w.own[core.GroupID("g").Resource("Test.X/things", "there").Key()]["properties"].(map[string]any)
		if p["v"] != "7" || p["w"] != "8" {
			t.Errorf("it has %v", p)
		}
		s.base.Run = "run-2"
		s.refused(doc(`"resources":{`+cm("x", `{}`, `"method":"PATCH"`)+`}`), "PATCH is for resources of the control plane")
	})
	t.Run("without a control plane", func(t *testing.T) {
		s := newSeat(t)
		s.base.Resources = nil
		s.refused(text, "no control plane is at hand here")
		if len(s.w.take()) > 0 {
			t.Error("something was done before it was refused")
		}
	})
	t.Run("of a plane that is not ours", func(t *testing.T) {
		s := newSeat(t)
		s.base.Scope, s.base.At = core.ID{}, "/subscriptions/s/resourceGroups/g"
		s.refused(doc(`"resources":{"v":{"type":"Microsoft.Storage/storageAccounts","apiVersion":"1","name":"v"}}`), "this control plane holds no such resource")
	})
}

// TestOptions: what compilers write as @options of a resource.
func TestOptions(t *testing.T) {
	t.Run("S-40 retryOn", func(t *testing.T) {
		s := newSeat(t)
		fails := 2
		s.w.before = func(call string) error {
			if fails > 0 && strings.HasPrefix(call, "apply") {
				fails--
				return core.Errorf(core.CodeTarget, "not able to answer now")
			}
			return nil
		}
		s.must(doc(`"resources":{` + cm("a", `{}`, `"@options":{"retryOn":[["targetunavailable"],3]}`) + `}`))
		if len(s.pauses) != 2 || s.pauses[0] != time.Second || s.pauses[1] != 2*time.Second {
			t.Errorf("pauses %v", s.pauses)
		}
		s.base.Run, fails = "run-2", 2
		s.refused(doc(`"resources":{`+cm("a", `{}`, `"@options":{"retryOn":[["Conflict"],3]}`)+`}`), "not able to answer now")
		s.base.Run, fails = "run-3", 3
		s.refused(doc(`"resources":{`+cm("a", `{}`, `"@options":{"retryOn":[["TargetUnavailable"],2]}`)+`}`), "not able to answer now")
	})
	t.Run("S-40 waitUntil", func(t *testing.T) {
		s := newSeat(t)
		s.w.after = func(call string) error {
			if len(s.w.calls("get")) == 3 { // somebody says that it is ready
				s.w.mu.Lock()
				s.w.objects["main/ns/a"].body["data"] = map[string]any{"ready": "yes"}
				s.w.mu.Unlock()
			}
			return nil
		}
		s.must(doc(`"resources":{` + cm("a", `{"ready":"no"}`, `"@options":{"waitUntil":["[lambda('x', equals(lambdaVariables('x').data.ready, 'yes'))]","PT1M"]}`) + `}`))
		if n := len(s.w.calls("get")); n != 4 {
			t.Errorf("looked %d times", n)
		}
	})
	t.Run("S-40 onlyIfNotExists", func(t *testing.T) {
		s := newSeat(t)
		text := doc(`"resources":{` + cm("a", `{"v":"1"}`, `"@options":{"onlyIfNotExists":[]}`) + `},"outputs":{"v":{"type":"string","value":"[reference('a').data.v]"}}`)
		res := s.must(text)
		if ids(res.Resources) != "a" {
			t.Errorf("made %q", ids(res.Resources))
		}
		s.base.Run = "run-2"
		res = s.must(strings.Replace(text, `{"v":"1"}`, `{"v":"2"}`, 1))
		if res.Outputs[0].Value != "1" || ids(res.Resources) != "a" || len(res.Warnings) != 1 {
			t.Errorf("read %v, answered %q, warned %v: it is left as it is, and stays what this deployment made", res.Outputs, ids(res.Resources), res.Warnings)
		}
		other := newSeat(t)
		other.w.objects["main/ns/a"] = &object{uid: "u", body: map[string]any{"metadata": map[string]any{"name": "a"}, "data": map[string]any{"v": "9"}}}
		if res := other.must(text); ids(res.Resources) != "" || res.Outputs[0].Value != "9" {
			t.Errorf("answered %q, %v: what somebody else made is not ours", ids(res.Resources), res.Outputs)
		}
	})
	t.Run("S-40 serial loops", func(t *testing.T) {
		s := newSeat(t)
		s.must(doc(`"resources":{"r":{"copy":{"name":"r","count":5,"mode":"serial","batchSize":2},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('r{0}', copyIndex())]"}}}}`))
		order := s.w.calls("apply")
		place := map[string]int{}
		for i, c := range order {
			place[c[len(c)-1:]] = i / 2
		}
		for name, batch := range map[string]int{"0": 0, "1": 0, "2": 1, "3": 1, "4": 2} {
			if place[name] != batch {
				t.Errorf("made in the order %v, want batches of two", order)
			}
		}
	})
	t.Run("S-40 conditions and asserts", func(t *testing.T) {
		s := newSeat(t)
		res := s.must(doc(`"parameters":{"on":{"type":"bool","defaultValue":false}},"resources":{` + cm("a", `{}`, `"condition":"[parameters('on')]"`) + `,` + cm("b", `{}`, `"dependsOn":["a"]`) + `}`))
		if ids(res.Resources) != "b" {
			t.Errorf("made %q", ids(res.Resources))
		}
		s.base.Run = "run-2"
		s.refused(doc(`"resources":{`+cm("a", `{"v":"1"}`, "")+`},"asserts":{"two":"[equals(reference('a').data.v, '2')]"}`), "what the template asserts does not hold: two")
	})
}

// TestSameInEveryAttempt: newGuid() is derived from the seed, nested deployment by
// nested deployment, whatever their order; another seed gives others.
func TestSameInEveryAttempt_S45(t *testing.T) {
	text := doc(`"parameters":{"g":{"type":"string","defaultValue":"[newGuid()]"},"h":{"type":"string","defaultValue":"[newGuid()]"},"at":{"type":"string","defaultValue":"[utcNow('o')]"}},"resources":{` +
		module("m", `{}`, doc(`"parameters":{"g":{"type":"string","defaultValue":"[newGuid()]"}},"resources":{},"outputs":{"g":{"type":"string","value":"[parameters('g')]"}}`), "") + `,` +
		module("n", `{}`, doc(`"parameters":{"g":{"type":"string","defaultValue":"[newGuid()]"}},"resources":{},"outputs":{"g":{"type":"string","value":"[parameters('g')]"}}`), "") + `},
		"outputs":{"all":{"type":"array","value":"[createArray(parameters('g'),parameters('h'),reference('m').outputs.g.value,reference('n').outputs.g.value)]"},"at":{"type":"string","value":"[parameters('at')]"}}`)
	seen := map[string]bool{}
	var first string
	for i := range 4 {
		s := newSeat(t)
		if i == 3 {
			s.base.Seed = []byte("another")
		}
		res := s.must(text)
		all := string(mustJSON(res.Outputs))
		switch {
		case i == 0:
			first = all
			for _, g := range res.Outputs[0].Value.([]any) {
				seen[g.(string)] = true
			}
			if len(seen) != 4 {
				t.Errorf("S-45: the GUIDs are not all different: %s", all)
			}
		case i < 3 && all != first:
			t.Errorf("S-45: attempts answer %s and %s", first, all)
		case i == 3 && all == first:
			t.Error("S-45: another seed answers the same GUIDs")
		}
	}
}
