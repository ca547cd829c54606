package deployment_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/core"
)

// shop is a template with a ConfigMap that reads a control-plane resource, a
// Secret of a secure parameter, a nested deployment and outputs.
func (p *plane) shop() string {
	return `{` + head + `,` + p.k8s() + `,
	"parameters":{"name":{"type":"string"},"password":{"type":"securestring"},"size":{"type":"int","defaultValue":2}},
	"resources":{
	 "app":{"type":"Applications.Core/applications","apiVersion":"2023-10-01-preview","name":"[parameters('name')]",
	   "properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}},
	 "cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"cache","dependsOn":["app"],
	   "properties":{"environment":"[resourceId('Applications.Core/environments','default')]","application":"[resourceId('Applications.Core/applications',parameters('name'))]"}},
	 "config":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[parameters('name')]"},
	   "data":{"host":"[reference('cache').host]","size":"[string(parameters('size'))]"}}},
	 "secret":{"import":"k8s","type":"core/Secret@v1","properties":{"metadata":{"name":"[parameters('name')]"},"stringData":{"password":"[parameters('password')]"}}},
	 "inner":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"inner","dependsOn":["config"],"properties":{"mode":"Incremental",
	   "expressionEvaluationOptions":{"scope":"inner"},"parameters":{"name":{"value":"[parameters('name')]"}},
	   "template":{` + head + `,` + p.k8s() + `,"parameters":{"name":{"type":"string"}},
	     "resources":{"deep":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[concat(parameters('name'),'-deep')]"},"data":{"a":"b"}}}},
	     "outputs":{"uid":{"type":"string","value":"[reference('deep').metadata.name]"}}}}}
	},
	"outputs":{"host":{"type":"string","value":"[reference('cache').host]"},"deep":{"type":"string","value":"[reference('inner').outputs.uid.value]"},
	 "token":{"type":"securestring","value":"[concat('t-',parameters('password'))]"}}}`
}

const password = "s3cr3t-Horse-Battery"

// S-44: PUT, GET, HEAD, list, DELETE, operations, export and secure outputs, in the
// shapes of Azure Resource Manager; S-15: what it made; S-49: control-plane
// resources and nested deployments by the same template.
func TestDeployment(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.must(404, "HEAD", all+"/shop"+version, "")
	p.must(404, "GET", all+"/shop"+version, "")
	send := body(p.shop(), "name", `"shop"`, "password", `"`+password+`"`)
	first := p.must(201, "PUT", all+"/shop"+version, send)
	if got := at(first.body, "properties", "provisioningState"); got != "Accepted" {
		t.Errorf("S-44 a new deployment is %v", got)
	}
	if end := p.await(first.header.Get("Azure-AsyncOperation")); end.body["status"] != "Succeeded" {
		t.Fatalf("S-44 it ended as %s", end.raw)
	}
	p.must(204, "HEAD", all+"/shop"+version, "")
	got := p.must(200, "GET", all+"/shop"+version, "")
	props := got.body["properties"]

	t.Run("S-44 GET", func(t *testing.T) {
		for name, want := range map[string]any{
			"mode": "Incremental", "provisioningState": "Succeeded",
		} {
			if at(props, name) != want {
				t.Errorf("%s is %v, want %v", name, at(props, name), want)
			}
		}
		for _, name := range []string{"correlationId", "timestamp", "duration", "templateHash", "dependencies", "providers"} {
			if at(props, name) == nil {
				t.Errorf("there is no %s: %s", name, got.raw)
			}
		}
		if at(props, "parameters", "name", "value") != "shop" || at(props, "parameters", "password", "value") != nil || !strings.EqualFold(text(at(props, "parameters", "password", "type")), "securestring") {
			t.Errorf("parameters are %v", at(props, "parameters"))
		}
		if at(props, "outputs", "host", "value") != "cache.example" || at(props, "outputs", "deep", "value") != "shop-deep" {
			t.Errorf("outputs are %v", at(props, "outputs"))
		}
		if token, ok := at(props, "outputs", "token").(map[string]any); !ok || token["value"] != nil {
			t.Errorf("the secure output is %v", token)
		}
		secure := p.must(200, "POST", all+"/shop/listOutputsWithSecureValues"+version, `{}`)
		if at(secure.body, "properties", "outputs", "token", "value") != "t-"+password {
			t.Errorf("secure outputs are %s", secure.raw)
		}
	})
	t.Run("S-15 output resources", func(t *testing.T) {
		list, _ := at(props, "outputResources").([]any)
		var ids []string
		for _, r := range list {
			id := text(at(r, "id"))
			ids = append(ids, id)
			extensible := strings.HasPrefix(id, "/planes/Kubernetes/")
			if extensible != (at(r, "scope", "type") != nil) {
				t.Errorf("%s has scope %v", id, at(r, "scope"))
			}
			if m, _ := r.(map[string]any); !extensible && len(m) != 1 {
				t.Errorf("an ordinary resource is %v", m)
			}
		}
		in := "/planes/Kubernetes/import.namespace/" + p.namespace + "/type/core%2F"
		want := []string{in + "ConfigMap/properties.metadata.name/shop", in + "ConfigMap/properties.metadata.name/shop-deep", in + "Secret/properties.metadata.name/shop",
			group + "/providers/Applications.Core/applications/shop", group + "/providers/Applications.Datastores/redisCaches/cache"}
		if !slices.Equal(ids, want) {
			t.Errorf("output resources are %q, want %q", ids, want)
		}
	})
	t.Run("S-49 what it made", func(t *testing.T) {
		m, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil || m.Data["host"] != "cache.example" || m.Data["size"] != "2" {
			t.Errorf("the ConfigMap is %v, %v", m.Data, err)
		}
		s, err := p.client.CoreV1().Secrets(p.namespace).Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil || string(s.Data["password"]) != password {
			t.Errorf("the Secret is %v", err)
		}
		p.must(200, "GET", group+"/providers/Applications.Datastores/redisCaches/cache"+ucp, "")
		nested := p.must(200, "GET", all+"/inner"+version, "")
		if at(nested.body, "properties", "provisioningState") != "Succeeded" || at(nested.body, "properties", "outputs", "uid", "value") != "shop-deep" ||
			len(at(nested.body, "properties", "outputResources").([]any)) != 1 {
			t.Errorf("the nested deployment is %s", nested.raw)
		}
	})
	t.Run("the graph shows output resources", func(t *testing.T) {
		g := p.must(200, "POST", all+"/shop/getGraph"+version, `{}`)
		var outputs, nodes []string
		for _, o := range at(g.body, "resources", 0, "outputResources").([]any) {
			outputs = append(outputs, text(at(o, "type"))+"/"+text(at(o, "name")))
		}
		for _, n := range g.body["resources"].([]any) {
			nodes = append(nodes, text(at(n, "name")))
		}
		slices.Sort(outputs)
		slices.Sort(nodes)
		if !slices.Equal(outputs, []string{"core/ConfigMap/shop", "core/ConfigMap/shop-deep", "core/Secret/shop"}) || !slices.Equal(nodes, []string{"cache", "shop", "shop"}) {
			t.Errorf("the graph has nodes %v, outputs %v: %s", nodes, outputs, g.raw)
		}
	})
	t.Run("S-44 operations", func(t *testing.T) {
		ops := p.must(200, "GET", all+"/shop/operations"+version, "")
		list, _ := ops.body["value"].([]any)
		symbols := map[string]string{}
		for _, o := range list {
			symbols[text(at(o, "properties", "targetResource", "symbolicName"))] = text(at(o, "properties", "provisioningState"))
		}
		for _, s := range []string{"app", "cache", "config", "secret", "inner"} {
			if symbols[s] != "Succeeded" {
				t.Errorf("the operation of %s is %q: %s", s, symbols[s], ops.raw)
			}
		}
		one := text(at(list[0], "operationId"))
		p.must(200, "GET", all+"/shop/operations/"+one+version, "")
		p.must(404, "GET", all+"/shop/operations/none"+version, "")
		inner := p.must(200, "GET", all+"/inner/operations"+version, "")
		if at(inner.body, "value", 0, "properties", "targetResource", "symbolicName") != "deep" {
			t.Errorf("the operations of the nested one are %s", inner.raw)
		}
	})
	t.Run("S-44 list, export", func(t *testing.T) {
		list := p.must(200, "GET", all+version, "")
		if n := len(list.body["value"].([]any)); n != 2 {
			t.Errorf("%d deployments are listed", n)
		}
		none := p.must(200, "GET", all+version+"&%24filter=provisioningState%20eq%20%27Failed%27", "")
		if n := len(none.body["value"].([]any)); n != 0 {
			t.Errorf("%d failed deployments are listed", n)
		}
		p.must(400, "GET", all+version+"&%24filter=name%20eq%20%27x%27", "")
		exported := p.must(200, "POST", all+"/shop/exportTemplate"+version, `{}`)
		var want any
		if err := json.Unmarshal([]byte(p.shop()), &want); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(at(exported.body, "template"))
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Error("the exported template is another one")
		}
		prefixed := p.must(200, "GET", "/apis/api.ucp.dev/v1alpha3"+strings.ToLower(all)+"/shop?api-version=2020-10-01", "")
		if at(prefixed.body, "name") != "shop" {
			t.Errorf("with the prefix it is %s", prefixed.raw)
		}
	})
	t.Run("again, and forgotten", func(t *testing.T) {
		again := p.must(200, "PUT", all+"/shop"+version, body(`{`+head+`,`+p.k8s()+`,"resources":{"config":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"shop"},"data":{"host":"new"}}}}}`))
		if end := p.await(again.header.Get("Azure-AsyncOperation")); end.body["status"] != "Succeeded" {
			t.Fatalf("it ended as %s", end.raw)
		}
		// Incremental: what the template no longer names stays.
		if _, err := p.client.CoreV1().Secrets(p.namespace).Get(t.Context(), "shop", metav1.GetOptions{}); err != nil {
			t.Errorf("the Secret that the second template does not name: %v", err)
		}
		r := p.must(200, "GET", all+"/shop"+version, "")
		if n := len(at(r.body, "properties", "outputResources").([]any)); n != 1 {
			t.Errorf("the second run made %d resources: %s", n, r.raw)
		}
		p.must(204, "DELETE", all+"/shop"+version, "")
		p.must(404, "GET", all+"/shop"+version, "")
		p.must(204, "DELETE", all+"/shop"+version, "")
		if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "shop", metav1.GetOptions{}); err != nil {
			t.Errorf("forgetting a deployment took what it made: %v", err)
		}
	})
}

// S-23 for plain deployments: no secure value is in the store, in logs, answers,
// operations or errors.
func TestNoSecretAnywhere_S23(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	params := []string{"name", `"shop"`, "password", `"` + password + `"`}
	p.deploy("shop", body(p.shop(), params...), core.StateSucceeded)
	// One that fails with the secret in what is at fault, and a what-if of it.
	faulty := strings.Replace(p.shop(), `"stringData":{"password":"[parameters('password')]"}`, `"stringData":{"password":"[parameters('password')]"},"type":"[concat(parameters('password'),'/x y/')]","immutable":"[parameters('password')]"`, 1)
	var said strings.Builder
	keep := func(a answer) { said.WriteString(a.raw) }
	for name, template := range map[string]string{"faulty": faulty, "cut": strings.Replace(p.shop(), "concat('t-',parameters('password'))", "first(split(parameters('password'),'zz')).no", 1)} {
		keep(p.await(p.begin(name, body(template, params...))))
		keep(p.must(200, "GET", all+"/"+name+version, ""))
		keep(p.must(200, "GET", all+"/"+name+"/operations"+version, ""))
		keep(p.send("POST", all+"/"+name+"/whatIf"+version, body(template, params...)))
		keep(p.send("POST", all+"/"+name+"/validate"+version, body(template, params...)))
	}
	keep(p.send("POST", all+"/shop/whatIf"+version, body(p.shop(), "name", `"shop"`, "password", `"another-`+password+`"`)))
	keep(p.must(200, "GET", all+version, ""))
	keep(p.must(200, "GET", all+"/shop/operations"+version, ""))
	p.stop()
	said.WriteString(p.log.String())
	wantNone(t, "answers and logs", []byte(said.String()), password)
	scan(t, p.dir, password)
}

// A deployment that runs refuses a second one of its name, is watched, and is
// canceled (S-44).
func TestRunning(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	release := make(chan struct{})
	began := make(chan struct{}, 1)
	p.recipes.execute = blocking(began, release)
	template := `{` + head + `,` + p.k8s() + `,"resources":{
	 "cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"slow","properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}},
	 "config":{"import":"k8s","type":"core/ConfigMap@v1","dependsOn":["cache"],"properties":{"metadata":{"name":"after"},"data":{"a":"b"}}}}}`
	link := p.begin("slow", body(template))
	<-began
	t.Run("S-44 DeploymentActive", func(t *testing.T) {
		a := p.must(409, "PUT", all+"/slow"+version, body(template))
		if at(a.body, "error", "code") != "DeploymentActive" {
			t.Errorf("the refusal is %s", a.raw)
		}
		p.must(409, "DELETE", all+"/slow"+version, "")
	})
	t.Run("S-44 progress", func(t *testing.T) {
		p.eventually("GET says that it runs", func() bool {
			return at(p.must(200, "GET", all+"/slow"+version, "").body, "properties", "provisioningState") == "Running"
		})
		p.eventually("operations are there while it runs", func() bool {
			ops := p.must(200, "GET", all+"/slow/operations"+version, "")
			return at(ops.body, "value", 0, "properties", "provisioningState") == "Running"
		})
		name := link[strings.LastIndex(link, "/")+1:]
		name, _, _ = strings.Cut(name, "?")
		messages := p.must(200, "GET", "/planes/radius/local/providers/System.Resources/locations/global/operationStatuses/"+name+"/messages"+ucp, "")
		if at(messages.body, "value", 0, "event", "symbol") != "cache" || at(messages.body, "value", 0, "event", "state") != "Running" || strings.Contains(messages.raw, "\\u001e") {
			t.Errorf("the stream says %s", messages.raw)
		}
		status := p.must(200, "GET", link, "")
		if at(status.body, "parked") != true { // it holds no worker while it waits (D-45)
			p.eventually("it parks", func() bool { return at(p.must(200, "GET", link, "").body, "parked") == true })
		}
	})
	t.Run("S-44 cancel", func(t *testing.T) {
		p.must(204, "POST", all+"/slow/cancel"+version, `{}`)
		if end := p.await(link); end.body["status"] != "Canceled" {
			t.Fatalf("it ended as %s", end.raw)
		}
		got := p.must(200, "GET", all+"/slow"+version, "")
		if at(got.body, "properties", "provisioningState") != "Canceled" || at(got.body, "properties", "error", "code") == nil {
			t.Errorf("canceled it is %s", got.raw)
		}
		p.must(409, "POST", all+"/slow/cancel"+version, `{}`)
		r, _, err := p.db.Get(t.Context(), core.MustParseID(all+"/slow"))
		if err != nil {
			t.Fatal(err)
		}
		if _, kept := r.Secrets["$operation"]; kept {
			t.Error("S-45 the inputs of a canceled deployment are still there")
		}
		if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "after", metav1.GetOptions{}); err == nil {
			t.Error("what was to come after the canceled was made")
		}
	})
	close(release)
	// The next run of the name succeeds (the child that was canceled may still end).
	p.eventually("the resource is free", func() bool {
		a := p.must(200, "GET", group+"/providers/Applications.Datastores/redisCaches/slow"+ucp, "")
		return core.State(text(at(a.body, "properties", "provisioningState"))).Terminal()
	})
	p.deploy("slow", body(template), core.StateSucceeded)
}

// A nested deployment says how far it is while it runs, by its own name, which is
// not the symbol of the resource that it is.
func TestNestedProgress_S44(t *testing.T) {
	p := newPlane(t)
	release, began := make(chan struct{}), make(chan struct{}, 1)
	p.recipes.execute = blocking(began, release)
	link := p.begin("outer", body(`{`+head+`,"resources":{"module":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"within","properties":{"mode":"Incremental",
	 "expressionEvaluationOptions":{"scope":"inner"},"template":{`+head+`,"resources":{
	  "cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"nested","properties":{"environment":"`+group+`/providers/Applications.Core/environments/default"}}}}}}}}`))
	<-began
	within := func() map[string]any { return p.must(200, "GET", all+"/within/operations"+version, "").body }
	p.eventually("the nested deployment's operations are there while it runs", func() bool {
		ops := within()
		return at(ops, "value", 0, "properties", "targetResource", "symbolicName") == "cache" && at(ops, "value", 0, "properties", "provisioningState") == "Running"
	})
	close(release)
	p.await(link)
	if ops := within(); at(ops, "value", 0, "properties", "provisioningState") != "Succeeded" {
		t.Errorf("after it ended, the operations of the nested deployment are %v", ops)
	}
}

// A request of a client of Radius: providerConfig names where its resources go,
// and every id that is answered is one of a plane.
func TestRadiusClient(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.must(200, "PUT", "/planes/radius/local/resourceGroups/apps"+ucp, `{}`)
	template := `{` + head + `,` + p.k8s() + `,"resources":{` + strings.Replace(app, "[resourceId('Applications.Core/environments','default')]", group+"/providers/Applications.Core/environments/default", 1) + `,
	 "c":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"c"},"data":{"a":"b"}}}}}`
	send := `{"tags":null,"properties":{"template":` + template + `,"parameters":{},"mode":"Incremental","providerconfig":{
	 "radius":{"type":"Radius","value":{"scope":"/planes/radius/local/resourceGroups/apps"}},"deployments":{"type":"Microsoft.Resources","value":{"scope":"` + strings.ToLower(group) + `"}}}}}`
	a := p.must(201, "PUT", "/apis/api.ucp.dev/v1alpha3"+strings.ToLower(all)+"/rad-deploy-1?api-version=2020-10-01", send)
	p.await(a.header.Get("Azure-AsyncOperation"))
	got := p.must(200, "GET", all+"/rad-deploy-1?api-version=2020-10-01", "")
	var ids []string
	for _, r := range at(got.body, "properties", "outputResources").([]any) {
		id := text(at(r, "id"))
		if _, err := core.ParseID(id); err != nil {
			t.Errorf("a client of Radius cannot read %s", id)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	want := []string{"/planes/kubernetes/local/namespaces/" + p.namespace + "/providers/core/ConfigMap/c", "/planes/radius/local/resourceGroups/apps/providers/Applications.Core/applications/a"}
	if !slices.Equal(ids, want) {
		t.Errorf("output resources are %q, want %q: %s", ids, want, got.raw)
	}
	ops := p.must(200, "GET", all+"/rad-deploy-1/operations?api-version=2020-10-01", "")
	for _, o := range ops.body["value"].([]any) {
		if id := text(at(o, "properties", "targetResource", "id")); id != "" && !slices.Contains(want, id) {
			t.Errorf("an operation is on %s", id)
		}
	}
}

// What is compiled for Radius names resources of the control plane by an import
// (S-49).
func TestRadiusImport_S49(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	template := `{` + strings.Replace(head, `"2.0"`, `"2.1-experimental"`, 1) + `,"imports":{"Radius":{"provider":"Radius","version":"latest"}},"resources":{
	 "app":{"import":"Radius","type":"Applications.Core/applications@2023-10-01-preview","properties":{"name":"compiled","properties":{"environment":"` + group + `/providers/Applications.Core/environments/default"}}},
	 "db":{"import":"Radius","type":"Applications.Datastores/redisCaches@2023-10-01-preview","dependsOn":["app"],"properties":{"name":"db","properties":{"application":"[reference('app').id]","environment":"` + group + `/providers/Applications.Core/environments/default"}}}},
	 "outputs":{"id":{"type":"string","value":"[reference('app').id]"},"host":{"type":"string","value":"[reference('db').properties.host]"}}}`
	got := p.deploy("compiled", body(template), core.StateSucceeded)
	if at(got.body, "properties", "outputs", "id", "value") != group+"/providers/Applications.Core/applications/compiled" || at(got.body, "properties", "outputs", "host", "value") != "db.example" {
		t.Errorf("the outputs are %s", got.raw)
	}
	p.must(200, "GET", group+"/providers/Applications.Datastores/redisCaches/db"+ucp, "")
	same, _ := p.whatIf("compiled", body(template))
	for name, c := range same {
		if c["changeType"] != "NoChange" && c["changeType"] != "Deploy" {
			t.Errorf("S-46 what-if of the same: %s is %v", name, c)
		}
	}
}
