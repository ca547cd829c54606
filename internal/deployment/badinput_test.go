package deployment_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/core"
)

func one(resource string) string { return `{` + head + `,"resources":{` + resource + `}}` }

const app = `"a":{"type":"Applications.Core/applications","apiVersion":"2023-10-01-preview","name":"a","properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}}`

// What cannot be deployed is refused when it is sent: by a code that clients know,
// with the place and the remedy.
func TestRefused(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	kubeconfig := `"apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\ncurrent-context: x\n"`
	wide := make([]string, 801)
	for i := range wide {
		wide[i] = strings.Replace(app, `"a"`, fmt.Sprintf(`"a%d"`, i), 2)
	}
	for name, c := range map[string]struct {
		body string
		code string
		says []string
	}{
		"no body":                     {``, "InvalidRequestContent", []string{"no body"}},
		"no JSON":                     {`{"properties":`, "InvalidRequestContent", []string{"JSON"}},
		"no properties":               {`{}`, "InvalidRequestContent", []string{"properties", "template"}},
		"no template":                 {`{"properties":{}}`, "InvalidRequestContent", []string{"properties.template", "templateLink"}},
		"both":                        {`{"properties":{"template":{},"templateLink":{"uri":"https://x/y"}}}`, "InvalidRequestContent", []string{"templateLink", "one of the two"}},
		"mode Complete":               {strings.Replace(body(one(app)), "Incremental", "Complete", 1), "InvalidRequestContent", []string{"Complete", "stack"}},
		"a mode that is none":         {strings.Replace(body(one(app)), "Incremental", "Sometimes", 1), "InvalidRequestContent", []string{"Sometimes", "Incremental"}},
		"onError":                     {strings.Replace(body(one(app)), `"mode"`, `"onErrorDeployment":{"type":"LastSuccessful"},"mode"`, 1), "InvalidRequestContent", []string{"onErrorDeployment"}},
		"a reference":                 {`{"properties":{"template":` + one(app) + `,"parameters":{"p":{"reference":{"keyVault":{"id":"/x"},"secretName":"s"}}}}}`, "InvalidRequestContent", []string{"properties.parameters.p.reference", "key vault"}},
		"an expression":               {`{"properties":{"template":` + one(app) + `,"parameters":{"p":{"expression":"[externalInputs('x')]"}}}}`, "InvalidRequestContent", []string{"properties.parameters.p.expression"}},
		"a bare parameter":            {`{"properties":{"template":` + one(app) + `,"parameters":{"p":1}}}`, "InvalidRequestContent", []string{`{"value": …}`}},
		"an unknown one":              {body(one(app), "nope", `1`), "InvalidTemplate", []string{"nope"}},
		"a wrong type":                {body(`{`+head+`,"parameters":{"n":{"type":"int"}},"resources":{}}`, "n", `"three"`), "InvalidTemplate", []string{"n", "int"}},
		"a missing one":               {body(`{` + head + `,"parameters":{"n":{"type":"int"}},"resources":{}}`), "InvalidTemplate", []string{"n", "no value"}},
		"an unknown function":         {body(one(strings.Replace(app, `"name":"a"`, `"name":"[nofunction('x')]"`, 1))), "InvalidTemplate", []string{"nofunction", "line"}},
		"a bad expression":            {body(one(strings.Replace(app, `"name":"a"`, `"name":"[concat('x']"`, 1))), "InvalidTemplate", []string{"concat"}},
		"a cycle":                     {body(one(strings.Replace(app, `"name":"a"`, `"name":"a","dependsOn":["b"]`, 1) + `,` + strings.Replace(strings.Replace(app, `"a":`, `"b":`, 1), `"name":"a"`, `"name":"b","dependsOn":["a"]`, 1))), "InvalidTemplate", []string{"a", "b"}},
		"a dangling name":             {body(one(strings.Replace(app, `"name":"a"`, `"name":"a","dependsOn":["nobody"]`, 1))), "InvalidTemplate", []string{"nobody"}},
		"an alias that is none":       {body(one(`"c":{"import":"k9s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"c"}}}`)), "InvalidTemplate", []string{"k9s"}},
		"too many resources":          {body(one(strings.Join(wide, ","))), "InvalidTemplate", []string{"800"}},
		"a subscription's template":   {body(strings.Replace(one(app), "2019-04-01/deploymentTemplate", "2018-05-01/subscriptionDeploymentTemplate", 1)), "InvalidTemplate", []string{"subscription", "resource group"}},
		"another language":            {body(strings.Replace(one(app), `"languageVersion":"2.0"`, `"languageVersion":"7.0"`, 1)), "InvalidTemplate", []string{"7.0"}},
		"S-39 a kubeConfig as text":   {body(`{` + head + `,"imports":{"k8s":{"provider":"Kubernetes","version":"1","config":{"namespace":"x","scope":{"type":"UserOwned","kubeConfig":` + kubeconfig + `}}}},"resources":{}}`), "InvalidTemplate", []string{"kubeConfig", "securestring"}},
		"S-39 as an open parameter":   {body(`{`+head+`,"parameters":{"kc":{"type":"string"}},"resources":{}}`, "kc", kubeconfig), "InvalidTemplate", []string{"kc", "securestring"}},
		"a template spec":             {`{"properties":{"templateLink":{"id":"/subscriptions/x"}}}`, "InvalidRequestContent", []string{"template spec"}},
		"a file that is none":         {`{"properties":{"templateLink":{"uri":"file:///nowhere/at/all.json"}}}`, "InvalidContentLink", []string{"file:///nowhere/at/all.json"}},
		"another group's deployments": {strings.Replace(body(one(app)), `"mode"`, `"providerConfig":{"deployments":{"type":"Microsoft.Resources","value":{"scope":"/planes/radius/local/resourceGroups/other"}}},"mode"`, 1), "InvalidRequestContent", []string{"providerConfig.deployments"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{all + "/x" + version, all + "/x/validate" + version, all + "/x/whatIf" + version} {
				method := "POST"
				if !strings.Contains(path, "/x/") {
					method = "PUT"
				}
				a := p.send(method, path, c.body)
				if a.status != http.StatusBadRequest || at(a.body, "error", "code") != c.code {
					t.Errorf("%s %s: status %d: %s; want code %s", method, path, a.status, a.raw, c.code)
				}
				for _, want := range c.says {
					if !strings.Contains(strings.ReplaceAll(a.raw, `\"`, `"`), want) {
						t.Errorf("%s %s does not say %q: %s", method, path, want, a.raw)
					}
				}
				if strings.Contains(a.raw, "current-context") {
					t.Errorf("the refusal shows the kubeConfig: %s", a.raw)
				}
			}
		})
	}
	p.must(404, "GET", all+"/x"+version, "")
	for path, status := range map[string]int{
		all + "/x":                                    400, // no api-version
		all + "/x?api-version=1999-01-01":             400,
		all + "/" + strings.Repeat("n", 65) + version: 400,
		strings.Replace(all, "/default/", "/nowhere/", 1) + "/x" + version:           404,
		"/planes/radius/local/providers/Microsoft.Resources/deployments/x" + version: 400,
		all + "/x/operations" + version:                                              405,
	} {
		p.must(status, "PUT", path, body(one(app)))
	}
	p.must(405, "PATCH", all+"/x"+version, `{}`)
	p.must(413, "PUT", all+"/x"+version, body(`{`+head+`,"metadata":{"x":"`+strings.Repeat("x", 4<<20)+`"},"resources":{}}`))
	p.must(404, "POST", all+"/x/nonsense"+version, `{}`)
}

// What fails while it runs names the resource, the cause and the remedy, and
// leaves a state from which the next run succeeds.
func TestFailures(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	fails := func(t *testing.T, name, template string, says ...string) {
		t.Helper()
		got := p.deploy(name, body(template), core.StateFailed)
		if code := at(got.body, "properties", "error", "code"); code != "DeploymentFailed" && code != "TargetUnavailable" {
			t.Errorf("the error is %v", at(got.body, "properties", "error"))
		}
		message := text(at(got.body, "properties", "error", "message"))
		for _, want := range says {
			if !strings.Contains(message, want) {
				t.Errorf("the error does not say %q: %s", want, message)
			}
		}
	}
	config := func(name, data string) string {
		return `"` + name + `":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"` + name + `"},` + data + `}}`
	}
	with := func(resources ...string) string {
		return `{` + head + `,` + p.k8s() + `,"resources":{` + strings.Join(resources, ",") + `}}`
	}
	t.Run("a kind that is not there yet", func(t *testing.T) {
		fails(t, "crd", with(config("good", `"data":{"a":"1"}`), `"w":{"import":"k8s","type":"example.com/Widget@v1","properties":{"metadata":{"name":"w"}}}`), "w (example.com/Widget", "Widget")
	})
	t.Run("an immutable field", func(t *testing.T) {
		p.deploy("immutable", body(with(config("fixed", `"immutable":true,"data":{"a":"1"}`))), core.StateSucceeded)
		fails(t, "immutable", with(config("fixed", `"immutable":true,"data":{"a":"2"}`)), "fixed (core/ConfigMap", "immutable")
		p.deploy("immutable", body(with(config("fixed", `"immutable":true,"data":{"a":"1"}`))), core.StateSucceeded)
	})
	t.Run("another manager's field", func(t *testing.T) {
		m := configMapOf(p.namespace, "theirs", map[string]string{"a": "theirs"})
		if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Create(t.Context(), m, metav1.CreateOptions{FieldManager: "kubectl"}); err != nil {
			t.Fatal(err)
		}
		fails(t, "conflict", with(config("theirs", `"data":{"a":"ours"}`)), "theirs (core/ConfigMap", "kubectl")
		p.deploy("conflict", body(with(config("theirs", `"data":{"b":"ours"}`))), core.StateSucceeded)
	})
	t.Run("one fails and its dependants wait for the next run", func(t *testing.T) {
		bad := strings.Replace(config("bad", `"data":{"a":["no","text"]}`), `"type"`, `"dependsOn":["first"],"type"`, 1)
		last := strings.Replace(config("last", `"data":{"a":"1"}`), `"type"`, `"dependsOn":["bad"],"type"`, 1)
		fails(t, "chain", with(config("first", `"data":{"a":"1"}`), bad, last), "bad (core/ConfigMap", "not made because of it: last")
		ops := p.must(200, "GET", all+"/chain/operations"+version, "")
		states := map[string]string{}
		for _, o := range ops.body["value"].([]any) {
			states[text(at(o, "properties", "targetResource", "symbolicName"))] = text(at(o, "properties", "provisioningState"))
		}
		if states["first"] != "Succeeded" || states["bad"] != "Failed" {
			t.Errorf("the operations are %v", states)
		}
		p.deploy("chain", body(with(config("first", `"data":{"a":"1"}`), strings.Replace(bad, `["no","text"]`, `"yes"`, 1), last)), core.StateSucceeded)
	})
	t.Run("no cluster there", func(t *testing.T) {
		fails(t, "azure", `{`+head+`,"imports":{"k8s":{"provider":"Kubernetes","version":"1","config":{"namespace":"x","scope":{"type":"Radial","id":"`+group+`/providers/Applications.Core/environments/none"}}}},"resources":{`+config("c", `"data":{}`)+`}}`, "k8s")
	})
	t.Run("a resource that is being written", func(t *testing.T) {
		release, began := make(chan struct{}), make(chan struct{}, 1)
		p.recipes.mu.Lock()
		p.recipes.execute = blocking(began, release)
		p.recipes.mu.Unlock()
		env := group + "/providers/Applications.Core/environments/default"
		first := p.must(201, "PUT", group+"/providers/Applications.Datastores/redisCaches/busy"+ucp, `{"properties":{"environment":"`+env+`"}}`)
		<-began
		busy := one(`"busy":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"busy","properties":{"environment":"` + env + `"}}`)
		fails(t, "busy", busy, "busy (Applications.Datastores/redisCaches", "in progress")
		close(release)
		p.await(first.header.Get("Azure-AsyncOperation"))
		p.deploy("busy", body(busy), core.StateSucceeded)
	})
}

// Linked templates come from a web server or a file, are bounded, and are always
// evaluated by themselves.
func TestLinked(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	linked := `{` + head + `,` + p.k8s() + `,"parameters":{"v":{"type":"string"}},"resources":{"c":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"linked"},"data":{"v":"[parameters('v')]"}}}},"outputs":{"v":{"type":"string","value":"[parameters('v')]"}}}`
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/linked.json" || r.URL.Query().Get("sig") != "token-of-the-link" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(linked))
	}))
	t.Cleanup(web.Close)
	got := p.deploy("root", `{"properties":{"mode":"Incremental","templateLink":{"uri":"`+web.URL+`/linked.json","queryString":"sig=token-of-the-link"},"parameters":{"v":{"value":"from-the-web"}}}}`, core.StateSucceeded)
	if at(got.body, "properties", "outputs", "v", "value") != "from-the-web" {
		t.Errorf("it answered %s", got.raw)
	}
	path := p.file("linked.json", linked)
	nested := `{` + head + `,"resources":{"n":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"n","properties":{"mode":"Incremental","templateLink":{"uri":"file://` + path + `"},"parameters":{"v":{"value":"from-a-file"}}}}},
		"outputs":{"v":{"type":"string","value":"[reference('n').outputs.v.value]"}}}`
	got = p.deploy("outer", body(nested), core.StateSucceeded)
	if at(got.body, "properties", "outputs", "v", "value") != "from-a-file" {
		t.Errorf("it answered %s", got.raw)
	}
	a := p.must(400, "PUT", all+"/gone"+version, `{"properties":{"mode":"Incremental","templateLink":{"uri":"`+web.URL+`/other.json?sig=token-of-the-link"}}}`)
	if !strings.Contains(a.raw, "404") || strings.Contains(a.raw, "token-of-the-link") {
		t.Errorf("the refusal is %s", a.raw)
	}
}
