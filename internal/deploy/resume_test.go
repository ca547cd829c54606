package deploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
)

// scenario is a deployment whose every write is interrupted.
type scenario struct {
	name string
	text string
	// before is deployed, by another run, first.
	before   string
	params   map[string]any
	parallel int
}

// made tells all that newGuid(), utcNow() and live state may go into.
var scenarios = []scenario{{
	name: "deploy",
	text: doc(`"parameters":{"pw":{"type":"securestring","defaultValue":"[newGuid()]"},"at":{"type":"string","defaultValue":"[utcNow()]"}},"resources":{` +
		cm("a", `{"pw":"[parameters('pw')]","at":"[parameters('at')]"}`, "") + `,` + cm("b", `{"uid":"[reference('a').metadata.uid]"}`, "") + `,` +
		cm("c", `{"v":"1"}`, `"dependsOn":["b"]`) + `,` + `"late":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('late-{0}', reference('a').data.at)]"}}}},
		"outputs":{"pw":{"type":"securestring","value":"[parameters('pw')]"},"uid":{"type":"string","value":"[reference('b').data.uid]"}}`),
}, {
	name: "nested",
	text: doc(`"resources":{` +
		module("m", `{}`, doc(`"parameters":{"g":{"type":"string","defaultValue":"[newGuid()]"}},"resources":{`+cm("x", `{"g":"[parameters('g')]"}`, "")+`,`+cm("y", `{"g":"[reference('x').data.g]"}`, "")+`},
			"outputs":{"g":{"type":"string","value":"[reference('y').data.g]"},"s":{"type":"securestring","value":"[parameters('g')]"}}`), "") + `,` +
		module("n", `{}`, doc(`"parameters":{"g":{"type":"string","defaultValue":"[newGuid()]"}},"resources":{`+cm("z", `{"g":"[parameters('g')]"}`, "")+`}`), "") + `,` +
		cm("top", `{"g":"[reference('m').outputs.g.value]","s":"[listOutputsWithSecureValues('m','2025-04-01').s]"}`, "") + `},
		"outputs":{"g":{"type":"string","value":"[reference('m').outputs.g.value]"}}`),
}, {
	name: "the control plane's own",
	text: doc(`"resources":{"o":{"type":"Test.X/things","apiVersion":"1","name":"o","properties":{"v":"1"}},
		"p":{"type":"Test.X/things","apiVersion":"1","name":"p","properties":{"ready":"[reference('o').ready]"}},
		"q":{"type":"Test.X/sync","apiVersion":"1","name":"q","properties":{"key":"[listSecrets('p','1').key]"}},` +
		cm("c", `{"r":"[string(reference('p').ready)]"}`, "") + `},"outputs":{"r":{"type":"bool","value":"[reference('p').ready]"}}`),
}, {
	name:   "shrink",
	before: doc(`"resources":{` + cm("a", `{"v":"1"}`, "") + `,` + cm("b", `{"v":"1"}`, "") + `,` + cm("c", `{"v":"1"}`, "") + `}`),
	text: doc(`"resources":{` + cm("b", `{"v":"2"}`, "") + `,` + cm("d", `{"v":"1"}`, "") + `},"deletedResources":[
		{"import":"k","id":"/planes/Kubernetes/import.namespace/ns/type/core%2FConfigMap/properties.metadata.name/a","identity":{"configId":"main","uid":"uid-a-1"}},
		{"import":"k","id":"/planes/Kubernetes/import.namespace/ns/type/core%2FConfigMap/properties.metadata.name/c","identity":{"configId":"main","uid":"uid-c-1"},
		 "dependsOn":["/planes/Kubernetes/import.namespace/ns/type/core%2FConfigMap/properties.metadata.name/a"]}]`),
}}

// attempt runs until the end as a controller does: again when all that it waits
// for has ended.
func (s *seat) attempt(q Request) (*Result, error) {
	for {
		q.Previous = s.j.previous()
		res, err := s.e.Deploy(s.Context(), q)
		if err != nil || !res.Waiting {
			return res, err
		}
		if len(s.w.jobs) == 0 {
			return res, fmt.Errorf("it waits for nothing")
		}
		s.w.work()
	}
}

// end is the state that a run leaves: objects, and what it answered.
func (s *seat) end(res *Result) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(s.w.objects)) {
		o := s.w.objects[key]
		parts = append(parts, fmt.Sprintf("%s %s %s", key, o.uid, mustJSON(o.body)))
	}
	for _, key := range slices.Sorted(maps.Keys(s.w.own)) {
		parts = append(parts, fmt.Sprintf("%s %s", key, mustJSON(s.w.own[key])))
	}
	parts = append(parts, string(mustJSON(res.Outputs)), string(mustJSON(res.Resources)))
	for _, o := range s.j.previous() {
		parts = append(parts, o.ID.String()+" "+string(o.State))
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n")
}

// TestKilledAnywhere_S45 ends the process before and after every commit of the
// journal, every call on a target and every write of the control plane, and runs
// the deployment again from what the journal has. It ends as an undisturbed run
// does; nothing is applied twice with different bodies; what the journal says is
// made is not applied again.
func TestKilledAnywhere_S45(t *testing.T) {
	for _, sc := range scenarios {
		for i := range 4 {
			park, parallel := i%2 == 1, 1+7*(i/2)
			name := fmt.Sprintf("%s, %d at a time", sc.name, parallel)
			if park {
				name += ", parking"
			}
			sc.parallel = parallel
			t.Run("S-45 "+name, func(t *testing.T) {
				undisturbed := newSeat(t)
				res, err := undisturbed.play(sc, park, nil)
				if err != nil {
					t.Fatal(err)
				}
				want := undisturbed.end(res)
				kills := 0
				for _, late := range []bool{false, true} {
					for at := 1; ; at++ {
						s := newSeat(t)
						calls, killed := 0, false
						var mu sync.Mutex
						dead := func(string) error {
							mu.Lock()
							defer mu.Unlock()
							if killed {
								return errKilled
							}
							return nil
						}
						kill := func(string) error {
							mu.Lock()
							defer mu.Unlock()
							if killed {
								return errKilled // the process is gone
							}
							if calls++; calls == at {
								killed = true
								return errKilled
							}
							return nil
						}
						_, err := s.play(sc, park, func() {
							s.w.before, s.w.after = kill, nil
							if late {
								s.w.before, s.w.after = dead, kill
							}
						})
						if !killed {
							break // there is no such call any more
						}
						if err == nil {
							t.Fatalf("killed at call %d, and the run succeeded", at)
						}
						kills++
						s.w.before, s.w.after = nil, nil
						done := map[string]bool{}
						for _, o := range s.j.previous() {
							if h, err := readHandle(o); err == nil && h.Done && h.Run == "run-2" {
								done[o.ID.Name()] = true
							}
						}
						s.w.take()
						res, err := s.attempt(s.of(sc, park))
						if err != nil {
							t.Fatalf("killed at call %d (late %t): the next attempt: %v", at, late, err)
						}
						if diff := cmp.Diff(want, s.end(res)); diff != "" {
							t.Fatalf("killed at call %d (late %t): %s", at, late, diff)
						}
						for _, call := range append(s.w.calls("apply"), s.w.calls("put")...) {
							if name := call[strings.LastIndexAny(call, "/ ")+1:]; done[name] {
								t.Errorf("killed at call %d (late %t): %s, which the journal has as made", at, late, call)
							}
						}
						for object, bodies := range s.w.bodies {
							if len(sc.before) > 0 {
								bodies = bodies[min(1, len(bodies)-1):]
							}
							if slices.ContainsFunc(bodies, func(b string) bool { return b != bodies[0] }) {
								t.Errorf("killed at call %d (late %t): %s was applied with different bodies: %v", at, late, object, bodies)
							}
						}
					}
				}
				if kills < 8 {
					t.Errorf("only %d kills: the scenario has become empty", kills)
				}
			})
		}
	}
}

func (s *seat) of(sc scenario, park bool) Request {
	q := s.request(sc.text)
	q.Run, q.Park, q.Parallel, q.Parameters = "run-2", park, sc.parallel, sc.params
	return q
}

func (s *seat) play(sc scenario, park bool, arm func()) (*Result, error) {
	if sc.before != "" {
		q := s.request(sc.before)
		q.Parallel = 1
		if _, err := s.e.Deploy(s.Context(), q); err != nil {
			s.Fatal(err)
		}
	}
	if arm != nil {
		arm()
	}
	return s.attempt(s.of(sc, park))
}

// TestAnotherRunAppliesAgain: only attempts of one run take each other's word.
func TestAnotherRunAppliesAgain_S45(t *testing.T) {
	s := newSeat(t)
	text := doc(`"resources":{` + cm("a", `{"v":"1"}`, "") + `}`)
	s.must(text)
	s.must(text)
	if n := len(s.w.calls("apply")); n != 1 {
		t.Errorf("S-45: one run applied %d times", n)
	}
	s.base.Run = "run-2"
	s.must(text)
	if n := len(s.w.calls("apply")); n != 2 {
		t.Errorf("S-45: two runs applied %d times", n)
	}
}

// TestRecordedFailure: what failed while others wait for the control plane is
// said by the attempt that ends, once, and not tried again by it.
func TestRecordedFailure_S45(t *testing.T) {
	s := newSeat(t)
	s.w.before = func(call string) error {
		if call == "apply main/ns/bad" {
			return core.Errorf(core.CodeConflict, "another manager owns it")
		}
		return nil
	}
	q := s.request(doc(`"resources":{"o":{"type":"Test.X/things","apiVersion":"1","name":"o"},` + cm("bad", `{}`, "") + `,` + cm("next", `{}`, `"dependsOn":["o"]`) + `}`))
	q.Park = true
	res, err := s.e.Deploy(t.Context(), q)
	if err != nil || !res.Waiting {
		t.Fatalf("got %+v, %v; it waits for o", res, err)
	}
	s.w.work()
	q.Previous = s.j.previous()
	res, err = s.e.Deploy(t.Context(), q)
	if err == nil || err.Error() != "resource bad (core/ConfigMap): another manager owns it" || !core.IsCode(err, CodeFailed) {
		t.Errorf("S-45: got %v", err)
	}
	if ids(res.Resources) != "next o" || len(s.w.calls("apply main/ns/bad")) != 1 {
		t.Errorf("S-45: made %q, calls %v", ids(res.Resources), s.w.log)
	}
}

// TestWithoutASeed: a run that makes other GUIDs in each attempt applies its
// objects in each, so that they and the outputs agree; what the control plane has
// accepted is not written again.
func TestWithoutASeed(t *testing.T) {
	s := newSeat(t)
	s.base.Seed = nil
	q := s.request(doc(`"parameters":{"g":{"type":"string","defaultValue":"[newGuid()]"}},"resources":{"o":{"type":"Test.X/things","apiVersion":"1","name":"o"},` +
		cm("c", `{"g":"[parameters('g')]"}`, "") + `},"outputs":{"g":{"type":"string","value":"[parameters('g')]"}}`))
	q.Park = true
	res, err := s.attempt(q)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.w.objects["main/ns/c"].body["data"].(map[string]any)["g"]; got != res.Outputs[0].Value {
		t.Errorf("the object has %v, the output %v", got, res.Outputs[0].Value)
	}
	if len(s.w.calls("put")) != 1 {
		t.Errorf("calls: %v", s.w.log)
	}
}
