package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// three is a nest of three levels: the innermost ConfigMap's scope is the output
// of a deployment that runs before it (S-17).
var three = func() string {
	const scopes = `{"contentVersion":"1.0.0.0","languageVersion":"2.0","resources":{"own":{"type":"Test.X/things","apiVersion":"1","name":"owner"}},
	 "outputs":{"id":{"type":"string","value":"[reference('own','1','full').id]"}}}`
	deepest := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","parameters":{"at":{"type":"string"},"n":{"type":"string"}},
	 "imports":{"far":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"far","scope":{"type":"Radial","id":"[parameters('at')]"}}}},
	 "resources":{"leaf":{"import":"far","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[parameters('n')]"},"data":{"u":"[guid(parameters('n'))]"}}}},
	 "outputs":{"uid":{"type":"string","value":"[reference('leaf').metadata.uid]"}}}`
	middle := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","parameters":{"at":{"type":"string"}},"resources":{` +
		module("deep", `{"at":{"value":"[parameters('at')]"},"n":{"value":"leaf"}}`, deepest, "") + `},
	 "outputs":{"uid":{"type":"string","value":"[reference('deep').outputs.uid.value]"}}}`
	return doc(`"resources":{` + module("first", `{}`, scopes, "") + `,` +
		module("mid", `{"at":{"value":"[reference('first').outputs.id.value]"}}`, middle, "") + `,` +
		cm("top", `{"uid":"[reference('mid').outputs.uid.value]"}`, "") + `,` + cm("other", `{"v":"1"}`, "") + `},
	 "outputs":{"uid":{"type":"string","value":"[reference('top').data.uid]"}}`)
}()

const ownerID = "/planes/radius/local/resourceGroups/g/providers/Test.X/things/owner"

func TestNested_S17(t *testing.T) {
	s := newSeat(t)
	s.w.places[ownerID] = "far"
	res := s.must(three)
	if got := ids(res.Resources); got != "mid/deep/leaf other top first/own" {
		t.Errorf("S-17: the list at the root: %q", got)
	}
	leaf := res.Resources[0]
	if diff := cmp.Diff(&Scope{Type: "Radial", ID: ownerID}, leaf.Scope); diff != "" {
		t.Errorf("S-17: the evaluated scope: %s", diff)
	}
	if leaf.ID != "/planes/Kubernetes/import.namespace/far/type/core%2FConfigMap/properties.metadata.name/leaf" {
		t.Errorf("S-12: %s", leaf.ID)
	}
	if text := string(mustJSON(res.Resources)); strings.Contains(text, "[") && strings.Contains(text, "reference(") {
		t.Errorf("S-17: text that was not evaluated: %s", text)
	}
	if len(res.Outputs) != 1 || res.Outputs[0].Value != s.w.objects["far/far/leaf"].uid {
		t.Errorf("outputs: %v", res.Outputs)
	}
	var paths []string
	for _, d := range res.Deployments {
		paths = append(paths, d.Path+" "+string(d.State))
	}
	if got := strings.Join(paths, ", "); got != "first Succeeded, mid Succeeded, mid/deep Succeeded" {
		t.Errorf("nested deployments: %s", got)
	}
	// S-18: the object in the scope goes before what the scope is in, and what
	// reads a deployment before all in it.
	if got := strings.Join(leaf.DependsOn, " "); got != strings.ToLower(ownerID) {
		t.Errorf("S-18: leaf depends on %q, want its owner", got)
	}
	if top := res.Resources[2]; !slices.Contains(top.DependsOn, leaf.Key()) {
		t.Errorf("S-18: top depends on %v, want the leaf of the deployment that it reads", top.DependsOn)
	}
}

// TestDeterministic_S16 runs one template with its members in other orders and at
// other parallelisms: the answers are the same.
func TestDeterministic_S16(t *testing.T) {
	var want string
	for i, parallel := range []int{1, 32, 32, 4} {
		s := newSeat(t)
		s.w.places[ownerID] = "far"
		text := three
		if i > 1 {
			text = shuffled(t, three, uint64(i))
		}
		q := s.request(text)
		q.Parallel = parallel
		res, err := s.e.Deploy(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range res.Resources { // the world's own numbering
			if id := res.Resources[i].Identity; id != nil {
				id.UID = ""
			}
		}
		got := string(mustJSON(res.Resources))
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("S-16 parallel %d: %s", parallel, cmp.Diff(want, got))
		}
	}
}

// shuffled writes a JSON object with the members of every object in another
// order.
func shuffled(t *testing.T, text string, seed uint64) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	var write func(v any) string
	write = func(v any) string {
		switch v := v.(type) {
		case map[string]any:
			var parts []string
			for k, x := range v {
				parts = append(parts, fmt.Sprintf("%q:%s", k, write(x)))
			}
			slices.Sort(parts)
			r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			return "{" + strings.Join(parts, ",") + "}"
		case []any:
			var parts []string
			for _, x := range v {
				parts = append(parts, write(x))
			}
			return "[" + strings.Join(parts, ",") + "]"
		}
		return string(mustJSON(v))
	}
	return write(v)
}

// TestFailures_S43: what fails is said once, with its path, its type and its
// cause; what needs it is not made, the rest is.
func TestFailures_S43(t *testing.T) {
	inner := doc(`"resources":{` + cm("x", `{}`, "") + `,` + cm("y", `{}`, `"dependsOn":["x"]`) + `,` + cm("z", `{}`, "") + `}`)
	text := doc(`"resources":{` + module("dep", `{}`, inner, "") + `,` + cm("after", `{}`, `"dependsOn":["dep"]`) + `,` + cm("beside", `{}`, "") + `}`)
	s := newSeat(t)
	s.w.before = func(call string) error {
		if call == "apply main/ns/x" {
			return core.Errorf(core.CodeForbidden, "the cluster forbids it: grant the right")
		}
		return nil
	}
	res, err := s.deploy(text)
	want := "resource dep/x (core/ConfigMap): the cluster forbids it: grant the right; not made because of it: dep/y, after"
	if !core.IsCode(err, CodeFailed) || err.Error() != want {
		t.Fatalf("S-43: got %v\nwant %s", err, want)
	}
	if d := core.AsError(err).Details; len(d) != 1 || d[0].Target != "dep/x" || d[0].Code != core.CodeForbidden {
		t.Errorf("S-43: details: %+v", d)
	}
	if got := s.w.names(); got != "main/ns/beside main/ns/z" || ids(res.Resources) != "beside dep/z" {
		t.Errorf("S-43: made %q, answered %q: the rest runs to its end", got, ids(res.Resources))
	}
	if len(res.Deployments) != 1 || res.Deployments[0].State != core.StateFailed || !strings.HasPrefix(res.Deployments[0].Error.Message, "resource dep/x") {
		t.Errorf("S-43: the nested deployment: %+v", res.Deployments)
	}
	failed := 0
	for _, e := range s.events {
		if e.State == "Failed" && e.Symbol == "x" {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("S-43: %d events say that x failed", failed)
	}
	// The next run makes the rest.
	s.w.before = nil
	s.base.Run = "run-2"
	s.must(text)
	if got := s.w.names(); got != "main/ns/after main/ns/beside main/ns/x main/ns/y main/ns/z" {
		t.Errorf("after the next run: %s", got)
	}
}

// TestOutputsThatFail: those of the root are told apart from a failed resource;
// those of a nested deployment are that deployment's failure.
func TestOutputsThatFail_S43(t *testing.T) {
	s := newSeat(t)
	out := `"outputs":{"o":{"type":"string","value":"[fail('broken')]"}}`
	if err := s.refused(doc(`"resources":{`+cm("a", `{}`, "")+`},`+out), "broken"); !IsOutputs(err) {
		t.Errorf("got %v", err)
	}
	s.base.Run = "run-2"
	err := s.refused(doc(`"resources":{`+module("m", `{}`, doc(`"resources":{},`+out), "")+`,`+cm("b", `{}`, `"dependsOn":["m"]`)+`}`), "broken; not made because of it: b")
	if IsOutputs(err) || !core.IsCode(err, CodeFailed) || !strings.HasPrefix(err.Error(), "deployment m (Microsoft.Resources/deployments): ") {
		t.Errorf("S-43: got %v", err)
	}
}

// TestOneBound holds the resources of two nested deployments and the root's to
// one bound.
func TestOneBound_S43(t *testing.T) {
	loop := `"r":{"copy":{"name":"r","count":8},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('%s{0}', copyIndex())]"}}}`
	text := doc(`"resources":{` + fmt.Sprintf(loop, "root") + `,` + module("a", `{}`, doc(`"resources":{`+fmt.Sprintf(loop, "a")+`}`), "") + `,` +
		module("b", `{}`, doc(`"resources":{`+fmt.Sprintf(loop, "b")+`}`), "") + `}`)
	s := newSeat(t)
	const parallel = 3
	var mu sync.Mutex
	running, most := 0, 0
	full := make(chan struct{})
	s.w.before = func(call string) error {
		if !strings.HasPrefix(call, "apply") {
			return nil
		}
		mu.Lock()
		if running++; running > most {
			if most = running; most == parallel {
				close(full)
			}
		}
		mu.Unlock()
		<-full // until as many run as may
		return nil
	}
	s.w.after = func(call string) error {
		if strings.HasPrefix(call, "apply") {
			mu.Lock()
			running--
			mu.Unlock()
		}
		return nil
	}
	q := s.request(text)
	q.Parallel = parallel
	if _, err := s.e.Deploy(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if most != parallel {
		t.Errorf("S-43: %d were made at a time, the bound over all deployments is %d", most, parallel)
	}
}

// TestReadsDoNotBlock_S42: while a resource waits for what its expression reads,
// another one of the same plan is evaluated and made.
func TestReadsDoNotBlock_S42(t *testing.T) {
	s := newSeat(t)
	s.must(doc(`"resources":{` + cm("there", `{"v":"1"}`, "") + `}`))
	held, free := make(chan struct{}), make(chan struct{})
	s.w.before = func(call string) error {
		switch call {
		case "get main/ns/there":
			close(held)
			<-free
		case "apply main/ns/quick":
			<-held
			close(free)
		}
		return nil
	}
	s.base.Run = "run-2"
	res := s.must(doc(`"resources":{
	 "there":{"existing":true,"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"there"}}},` +
		cm("slow", `{"a":"[reference('there').data.v]","b":"[reference('there').metadata.uid]"}`, "") + `,` + cm("quick", `{"v":"[guid('x')]"}`, "") + `}`))
	if got := s.w.objects["main/ns/slow"].body["data"].(map[string]any)["a"]; got != "1" {
		t.Errorf("S-42: slow read %v", got)
	}
	if got := len(s.w.calls("get")); got != 1 {
		t.Errorf("S-42: what exists was read %d times", got)
	}
	// S-52: what is only read is none of what the deployment answers or keeps.
	if got := ids(res.Resources); got != "quick slow" {
		t.Errorf("S-52: answered %q", got)
	}
	for _, o := range s.j.previous() {
		if o.LocalID == "there" {
			t.Error("S-52: an existing resource is in the journal")
		}
	}
}

func TestExistingIsNeverManaged_S52(t *testing.T) {
	s := newSeat(t)
	s.base.Owner = owner
	s.w.objects["main/ns/there"] = &object{uid: "u", body: map[string]any{"metadata": map[string]any{"name": "there"}}}
	text := doc(`"resources":{"there":{"existing":true,"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"there"}}},
	 "absent":{"existing":true,"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"absent"}}},` +
		cm("x", `{"uid":"[reference('there').metadata.uid]"}`, "") + `},"outputs":{"u":{"type":"string","value":"[reference('%s').metadata.uid]"}}`)
	res := s.must(strings.Replace(text, "%s", "there", 1))
	if ids(res.Resources) != "x" || len(res.Journal) != 1 {
		t.Errorf("S-52: answered %q, journal %v", ids(res.Resources), res.Journal)
	}
	s.base.Run = "run-2"
	_, err := s.deploy(strings.Replace(text, "%s", "absent", 1))
	if !IsOutputs(err) || !strings.Contains(err.Error(), "absent does not exist") {
		t.Errorf("absent is an error for its reader only: got %v", err)
	}
	if _, err := s.e.Delete(t.Context(), DeleteRequest{Outputs: s.j.previous(), Record: s.j.record}); err != nil {
		t.Fatal(err)
	}
	if got := s.w.names(); got != "main/ns/there" {
		t.Errorf("S-52: left after the deletion: %s", got)
	}
}

// TestOneRequestForAScope: imports and nested deployments of one scope share what
// was resolved.
func TestOneRequestForAScope(t *testing.T) {
	s := newSeat(t)
	s.w.places["/planes/radius/local/resourceGroups/g/providers/Applications.Core/environments/e"] = "env"
	scoped := func(alias string) string {
		return fmt.Sprintf(`%q:{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"n","scope":{"type":"Radial","id":"/planes/radius/local/resourceGroups/g/providers/Applications.Core/environments/e"}}}`, alias)
	}
	r := func(symbol, alias string) string {
		return fmt.Sprintf(`%q:{"import":%q,"type":"core/ConfigMap@v1","properties":{"metadata":{"name":%q}}}`, symbol, alias, symbol)
	}
	inner := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{` + scoped("again") + `},"resources":{` + r("c", "again") + `}}`
	s.must(`{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{` + scoped("one") + `,` + scoped("two") + `},"resources":{` +
		r("a", "one") + `,` + r("b", "two") + `,` + module("m", `{}`, inner, "") + `}}`)
	if len(s.w.resolved) != 1 {
		t.Errorf("resolved %v: once for a scope", s.w.resolved)
	}
}

// TestScopeThroughModules_S9: main → module → module; what crosses is the id, and
// no credential is in anything that is kept or told (the engine's part).
func TestScopeThroughModules_S9(t *testing.T) {
	const secret = "apiVersion: v1 # the kubeConfig"
	const aks = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"
	leaf := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","parameters":{"aks":{"type":"string"},"kube":{"type":"securestring"}},
	 "imports":{"k":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"n","scope":{"type":"AzureResourceManager","id":"[parameters('aks')]"}}},
	  "u":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"n","scope":{"type":"UserOwned","kubeConfig":"[parameters('kube')]"}}}},
	 "resources":{"x":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"x"}}},"y":{"import":"u","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"y"}}}}}`
	pass := `{"aks":{"value":"[parameters('aks')]"},"kube":{"value":"[parameters('kube')]"}}`
	declared := `"parameters":{"aks":{"type":"string"},"kube":{"type":"securestring"}},`
	mid := `{"contentVersion":"1.0.0.0","languageVersion":"2.0",` + declared + `"resources":{` + module("leaf", pass, leaf, "") + `}}`
	s := newSeat(t)
	s.w.places[aks], s.w.places[secret] = "azure", "mine"
	q := s.request(`{"contentVersion":"1.0.0.0","languageVersion":"2.0",` + declared + `"resources":{` + module("mid", pass, mid, "") + `}}`)
	q.Parameters = map[string]any{"aks": aks, "kube": secret}
	v, err := s.e.Validate(t.Context(), q)
	if err != nil || !slices.Equal(v.Credentials, []string{"kube"}) {
		t.Errorf("S-45: credentials %v, %v", v, err)
	}
	res, err := s.e.Deploy(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.w.names(); got != "azure/n/x mine/n/y" {
		t.Fatalf("made %s", got)
	}
	if diff := cmp.Diff([]*Scope{{Type: "AzureResourceManager", ID: aks}, {Type: "UserOwned", Fingerprint: "mine"}}, []*Scope{res.Resources[0].Scope, res.Resources[1].Scope}); diff != "" {
		t.Errorf("S-15: scopes: %s", diff)
	}
	for name, kept := range map[string]any{"journal": s.j.previous(), "resources": res.Resources, "deployments": res.Deployments, "events": s.events, "warnings": res.Warnings} {
		if text := string(mustJSON(kept)); strings.Contains(text, "apiVersion: v1") || strings.Contains(text, "the kubeConfig") {
			t.Errorf("S-9: a credential is in %s: %s", name, text)
		}
	}
	// What was made under it is deleted with the kubeConfig supplied anew, and
	// only in the same cluster.
	del := DeleteRequest{Outputs: s.j.previous(), Record: s.j.record}
	if _, err := s.e.Delete(t.Context(), del); !strings.Contains(fmt.Sprint(err), "supply it again") {
		t.Errorf("without the kubeConfig: %v", err)
	}
	s.w.places["other"] = "another cluster"
	del.Outputs, del.Secrets = s.j.previous(), map[string]extension.Secrets{"": {kubeConfigEntry: "other"}}
	if _, err := s.e.Delete(t.Context(), del); !strings.Contains(fmt.Sprint(err), "leads to another cluster") {
		t.Errorf("with another cluster's: %v", err)
	}
	del.Secrets = map[string]extension.Secrets{"mine": {kubeConfigEntry: secret}}
	if _, err := s.e.Delete(t.Context(), del); err != nil || s.w.names() != "" {
		t.Errorf("with it: %v, left %q", err, s.w.names())
	}
}

func TestLiteralKubeConfig(t *testing.T) {
	s := newSeat(t)
	s.refused(`{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","version":"1.0.0","config":{"scope":{"type":"UserOwned","kubeConfig":"apiVersion: v1"}}}},
	 "resources":{"x":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"x","namespace":"n"}}}}}`, "declare a parameter of type securestring")
	if len(s.w.resolved) > 0 || len(s.w.take()) > 0 {
		t.Error("something was done before it was refused")
	}
}

// TestCancel: what is in flight when the end is asked for is on record.
func TestCancel(t *testing.T) {
	s := newSeat(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the end was asked for")
	s.w.after = func(call string) error {
		if call == "apply main/ns/a" {
			cancel(why)
		}
		return nil
	}
	text := doc(`"resources":{` + cm("a", `{}`, "") + `,` + cm("b", `{}`, `"dependsOn":["a"]`) + `}`)
	res, err := s.e.Deploy(ctx, s.request(text))
	if !errors.Is(err, why) || res == nil || ids(res.Resources) != "a" {
		t.Fatalf("got %v, %v", res, err)
	}
	if h, _ := readHandle(s.j.previous()[slices.IndexFunc(s.j.previous(), func(o core.Output) bool { return o.LocalID == "a" })]); h.Ref.UID == "" {
		t.Error("what was made when the run ended has no uid on record")
	}
	s.w.after = nil
	s.must(text)
	if got := s.w.names(); got != "main/ns/a main/ns/b" {
		t.Errorf("after the next attempt: %s", got)
	}
}

// TestTooManyResources: the bound of a run is over all its deployments; each
// template has the language's own.
func TestTooManyResources(t *testing.T) {
	loop := func(name string, n int) string {
		return doc(fmt.Sprintf(`"resources":{"r":{"copy":{"name":"r","count":%d},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('%s{0}', copyIndex())]"}}}}`, n, name))
	}
	s := newSeat(t)
	s.e.most = 10
	s.must(doc(`"resources":{` + module("a", `{}`, loop("a", 4), "") + `,` + module("b", `{}`, loop("b", 4), `"dependsOn":["a"]`) + `}`))
	s.base.Run = "run-2"
	s.refused(doc(`"resources":{`+module("a", `{}`, loop("a", 4), "")+`,`+module("b", `{}`, loop("b", 5), `"dependsOn":["a"]`)+`}`), "more than 10 resources")
	s.base.Run = "run-3"
	s.refused(doc(`"resources":{`+module("a", `{}`, loop("a", 400), "")+`,`+`"r":{"copy":{"name":"r","count":800},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[string(copyIndex())]"}}}}`), "more than 800 resources")
}

// TestSecretsInErrors: what a target quotes of a secret is in no error, event or
// journal.
func TestSecretsInErrors_S43(t *testing.T) {
	s := newSeat(t)
	s.w.before = func(call string) error {
		if strings.HasPrefix(call, "apply") {
			return core.Errorf(core.CodeInvalidTemplate, "data.pw: Invalid value: hunter2-is-secret: it is too short")
		}
		return nil
	}
	q := s.request(doc(`"parameters":{"pw":{"type":"securestring"}},"resources":{` + module("m", `{"pw":{"value":"[parameters('pw')]"}}`,
		doc(`"parameters":{"pw":{"type":"securestring"}},"resources":{`+cm("a", `{"pw":"[parameters('pw')]"}`, "")+`}`), "") + `}`))
	q.Parameters = map[string]any{"pw": "hunter2-is-secret"}
	res, err := s.e.Deploy(t.Context(), q)
	if err == nil || !strings.Contains(err.Error(), "it is too short") {
		t.Fatalf("got %v", err)
	}
	for name, kept := range map[string]any{"error": core.AsError(err), "events": s.events, "journal": s.j.previous(), "result": res} {
		if strings.Contains(string(mustJSON(kept)), "hunter2") {
			t.Errorf("the secret is in the %s", name)
		}
	}
}

// TestMemoryIsBounded: live states beyond what a run may hold are read again when
// something asks for them.
func TestMemoryIsBounded(t *testing.T) {
	s := newSeat(t)
	s.e.keep = 0
	res := s.must(doc(`"resources":{` + cm("a", `{"v":"1"}`, "") + `,` + cm("b", `{"v":"[reference('a').data.v]"}`, "") + `},"outputs":{"v":{"type":"string","value":"[reference('b').data.v]"}}`))
	if res.Outputs[0].Value != "1" || len(s.w.calls("get")) != 2 {
		t.Errorf("outputs %v, calls %v", res.Outputs, s.w.log)
	}
}
