package deployment_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/radial-project/radial/internal/core"
)

// A link's query is a password to where the template lies: it is shown and stored
// nowhere in the clear, in whichever member it comes.
func TestLinkTokens_S23(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	const token = "sig-of-the-link-0123456789"
	path := p.file("linked.json", `{`+head+`,"parameters":{"a":{"type":"string","defaultValue":"x"}},"resources":{}}`)
	values := p.file("values.json", `{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#","contentVersion":"1.0.0.0","parameters":{"a":{"value":"y"}}}`)
	for name, link := range map[string]string{
		"query":  `"templateLink":{"uri":"file://` + path + `","queryString":"` + token + `"}`,
		"uri":    `"templateLink":{"uri":"file://` + path + `?` + token + `"}`,
		"values": `"templateLink":{"uri":"file://` + path + `"},"parametersLink":{"uri":"file://` + values + `","queryString":"` + token + `"}`,
	} {
		a := p.send("PUT", all+"/"+name+version, `{"properties":{"mode":"Incremental",`+link+`}}`)
		if a.status == 201 {
			p.await(a.header.Get("Azure-AsyncOperation"))
		}
		wantNone(t, name+": the answer", []byte(a.raw), token)
		wantNone(t, name+": GET", []byte(p.send("GET", all+"/"+name+version, "").raw), token)
		if a := p.send("POST", all+"/"+name+"/validate"+version, `{"properties":{"mode":"Incremental",`+link+`}}`); strings.Contains(a.raw, token) {
			t.Errorf("%s: validate shows the token: %s", name, a.raw)
		}
	}
	p.stop()
	scan(t, p.dir, token)
	wantNone(t, "the log", []byte(p.log.String()), token)
}

// Two parameters that differ by case only are one, and which value counts nobody
// could tell.
func TestParametersByCase(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	template := `{` + head + `,"parameters":{"password":{"type":"securestring"}},"resources":{}}`
	a := p.must(400, "PUT", all+"/x"+version, body(template, "password", `"first-Secret-0123"`, "PASSWORD", `"second-Secret-0123"`))
	if msg := text(at(a.body, "error", "message")); !strings.Contains(strings.ToLower(msg), "password") || strings.Contains(a.raw, "Secret-0123") {
		t.Errorf("the refusal is %s", a.raw)
	}
	for name, c := range map[string]string{
		"aliases":    `{` + head + `,"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"a"}},"K8S":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"b"}}},"resources":{}}`,
		"names":      one(app + `,` + strings.Replace(strings.Replace(app, `"a":`, `"b":`, 1), `"name":"a"`, `"name":"A"`, 1)),
		"variables":  `{` + head + `,"variables":{"n":"x","N":"y"},"resources":{}}`,
		"parameters": `{` + head + `,"parameters":{"n":{"type":"string","defaultValue":"x"},"N":{"type":"string","defaultValue":"y"}},"resources":{}}`,
	} {
		if a := p.send("PUT", all+"/case"+version, body(c)); a.status != 400 {
			if a.status != 201 {
				t.Errorf("%s: %d %s", name, a.status, a.raw)
				continue
			}
			if end := p.await(a.header.Get("Azure-AsyncOperation")); end.body["status"] != "Failed" {
				t.Errorf("%s that differ by case only: %s", name, end.raw)
			}
		}
	}
}

// A kubeConfig is one in whatever form it comes: also as an object, whose text a
// template makes itself.
func TestKubeConfigAsObject_S39(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	const token = "token-in-an-object-0123456789"
	object := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"u","user":{"token":"` + token + `"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`
	for kind, status := range map[string]int{"object": 400, "secureObject": 201} {
		template := `{` + head + `,"parameters":{"kc":{"type":"` + kind + `"}},"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"x","scope":{"type":"UserOwned","kubeConfig":"[string(parameters('kc'))]"}}}},
		 "resources":{"c":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"c"}}}}}`
		a := p.send("PUT", all+"/"+kind+version, body(template, "kc", object))
		if a.status != status || strings.Contains(a.raw, token) {
			t.Errorf("S-39 as %s: status %d, want %d: %s", kind, a.status, status, a.raw)
		}
		if a.status == 201 {
			end := p.await(a.header.Get("Azure-AsyncOperation"))
			for _, want := range []string{"cannot be reached", "127.0.0.1:1", `import \"k8s\"`} { // nobody is there
				if !strings.Contains(end.raw, want) {
					t.Errorf("an unreachable cluster: no %s in %s", want, end.raw)
				}
			}
		}
		wantNone(t, "GET", []byte(p.send("GET", all+"/"+kind+version, "").raw), token)
	}
	p.stop()
	scan(t, p.dir, token)
	wantNone(t, "the log", []byte(p.log.String()), token)
}

// A value that is secure stays so where a template passes it on: to an output that
// is not secure, to a nested deployment, to an object that is no Secret.
func TestSecretsPassedOn_S23(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	const secret = "passed-on-Horse-Battery"
	template := `{` + head + `,` + p.k8s() + `,"parameters":{"password":{"type":"securestring"}},"resources":{
	 "c":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"passed"},"data":{"a":"[parameters('password')]"}}},
	 "n":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"passed-n","properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"parameters":{"p":{"value":"[parameters('password')]"}},
	  "template":{` + head + `,"parameters":{"p":{"type":"securestring"}},"resources":{},"outputs":{"plain":{"type":"string","value":"[parameters('p')]"},"sure":{"type":"securestring","value":"[parameters('p')]"}}}}}},
	 "outputs":{"plain":{"type":"string","value":"[concat('with ', parameters('password'))]"},"deep":{"type":"object","value":{"a":["[parameters('password')]"]}},"live":{"type":"string","value":"[reference('c').data.a]"}}}`
	send := body(template, "password", `"`+secret+`"`)
	end := p.await(p.begin("passed", send))
	said := end.raw + p.send("GET", all+"/passed"+version, "").raw + p.send("GET", all+"/passed-n"+version, "").raw + p.send("GET", all+"/passed/operations"+version, "").raw
	wantNone(t, "answers", []byte(said), secret)
	wantNone(t, "what-if", []byte(p.send("POST", all+"/passed/whatIf"+version, strings.Replace(send, secret, "other-"+secret, 1)).raw), secret)
	wantNone(t, "what-if of a new one", []byte(p.send("POST", all+"/passed2/whatIf"+version, strings.Replace(send, `"name":"passed"`, `"name":"passed2"`, 1)).raw), secret)
	stack := `{"properties":{"template":` + template + `,"parameters":{"password":{"value":"` + secret + `"}}}}`
	a := p.send("PUT", stacks+"/passed"+version, stack)
	end = p.await(a.header.Get("Azure-AsyncOperation"))
	wantNone(t, "the stack", []byte(end.raw+p.send("GET", stacks+"/passed"+version, "").raw), secret)
	p.stop()
	scan(t, p.dir, secret)
	wantNone(t, "the log", []byte(p.log.String()), secret)
}

// What a client of Kubernetes noted on a Secret holds its values: a what-if shows
// them no more than the values.
func TestWhatIfHidesNotes_S46(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	const secret = "noted-Horse-Battery"
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "noted", Annotations: map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"a":"` + encoded + `"}}`}}, Data: map[string][]byte{"a": []byte(secret)}}
	if _, err := p.client.CoreV1().Secrets(p.namespace).Create(t.Context(), s, metav1.CreateOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	a := p.must(200, "POST", all+"/noted/whatIf"+version, body(`{`+head+`,`+p.k8s()+`,"resources":{"s":{"import":"k8s","type":"core/Secret@v1","properties":{"metadata":{"name":"noted","labels":{"a":"b"}}}}}}`))
	if at(a.body, "properties", "changes", 0, "changeType") != "Modify" {
		t.Errorf("it is %s", a.raw)
	}
	wantNone(t, "what-if", []byte(a.raw), secret, encoded)
}

// A stack takes over what a plain deployment made, and not what it only touched:
// it would delete what is somebody else's.
func TestStackTakesOnlyWhatWasMade(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	theirs := configMapOf(p.namespace, "theirs", map[string]string{"a": "theirs"})
	if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	touch := `{` + head + `,` + p.k8s() + `,"resources":{"t":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"theirs","labels":{"seen":"yes"}}}},
	 "m":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"mine"},"data":{"a":"b"}}}}}`
	p.deploy("touch", body(touch), core.StateSucceeded)
	// What was made and touched by others afterwards is still ours.
	patch := []byte(`{"metadata":{"labels":{"later":"theirs"}}}`)
	if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Patch(t.Context(), "mine", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	got := p.apply("taker", stackBody(touch, ""), "failed")
	if msg := text(at(got.body, "properties", "error", "message")); !strings.Contains(msg, "theirs") || !strings.Contains(msg, "not made by Radial") {
		t.Errorf("it says %s", got.raw)
	}
	if listed(got, "resources") != "mine" {
		t.Errorf("it manages %q", listed(got, "resources"))
	}
	if end := p.remove("taker", "", ""); end.body["status"] != "Succeeded" || p.there() != "theirs" {
		t.Errorf("there is %q: %s", p.there(), end.raw)
	}
}

// A resource of the control plane is managed by one stack: another that names it is
// refused, and what stood there before the stack is nobody's to delete.
func TestStackOfOthersResources_S49(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	env := group + "/providers/Applications.Core/environments/default"
	p.must(200, "PUT", group+"/providers/Applications.Core/applications/old"+ucp, `{"properties":{"environment":"`+env+`"}}`)
	named := func(name string) string {
		return one(strings.Replace(app, `"name":"a"`, `"name":"`+name+`"`, 1))
	}
	p.apply("first", stackBody(named("a"), ""), "succeeded")
	got := p.apply("second", stackBody(named("a"), ""), "failed")
	if msg := text(at(got.body, "properties", "error", "message")); !strings.Contains(msg, "deploymentStacks/first") {
		t.Errorf("the second stack: %s", got.raw)
	}
	p.remove("second", "", "")
	p.must(200, "GET", group+"/providers/Applications.Core/applications/a"+ucp, "")
	p.apply("first", stackBody(named("a"), ""), "succeeded")
	p.remove("first", "", "")
	p.must(404, "GET", group+"/providers/Applications.Core/applications/a"+ucp, "")
}

// Names of some kinds tell capital letters apart, and ids do not: two such objects
// in one template are refused, and one that takes the other's place is not lost.
func TestNamesByCase(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	role := func(symbol, name string) string {
		return fmt.Sprintf(`%q:{"import":"k8s","type":"rbac.authorization.k8s.io/Role@v1","properties":{"metadata":{"name":%q},"rules":[]}}`, symbol, name)
	}
	with := func(roles ...string) string {
		return `{` + head + `,` + p.k8s() + `,"resources":{` + strings.Join(roles, ",") + `}}`
	}
	roles := func() (names []string) {
		var list *rbacv1.RoleList
		list, err := p.client.RbacV1().Roles(p.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.Items {
			names = append(names, r.Name)
		}
		return names
	}
	got := p.apply("case", stackBody(with(role("a", "Viewer")), ""), "succeeded")
	if listed(got, "resources") != "Viewer" {
		t.Errorf("it manages %s", got.raw)
	}
	p.apply("case", stackBody(with(role("a", "viewer")), ""), "succeeded")
	if names := roles(); len(names) != 1 || names[0] != "viewer" {
		t.Errorf("renamed by case, there are %q", names)
	}
	a := p.send("PUT", stacks+"/case"+version, stackBody(with(role("a", "viewer"), role("b", "Viewer")), ""))
	if a.status == 200 {
		p.await(a.header.Get("Azure-AsyncOperation"))
	}
	p.remove("case", "", "")
	if names := roles(); len(names) != 0 {
		t.Errorf("after the deletion there are %q", names)
	}
}

// A nested deployment does not write over one that runs, and says which.
func TestNestedNameOfARunningOne(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	release, began := make(chan struct{}), make(chan struct{}, 1)
	p.recipes.execute = blocking(began, release)
	slow := `{` + head + `,"resources":{"cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"slow","properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}}}}`
	link := p.begin("busy", body(slow))
	<-began
	nested := `{` + head + `,"resources":{"n":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"busy","properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"template":{` + head + `,` + p.k8s() + `,"resources":{"c":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"under-busy"}}}}}}}}}`
	got := p.deploy("outer", body(nested), core.StateFailed)
	if msg := text(at(got.body, "properties", "error", "message")); !strings.Contains(msg, "busy") || !strings.Contains(msg, "running") {
		t.Errorf("it says %s", got.raw)
	}
	if p.there() != "" {
		t.Errorf("it made %q", p.there())
	}
	close(release)
	p.await(link)
	if got := p.must(200, "GET", all+"/busy"+version, ""); at(got.body, "properties", "templateHash") == nil {
		t.Errorf("its row was written over: %s", got.raw)
	}
	p.deploy("outer", body(nested), core.StateSucceeded)
}
