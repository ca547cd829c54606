package deployment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
)

const stacks = group + "/providers/Microsoft.Resources/deploymentStacks"

// maps is a template of ConfigMaps, with further members of it.
func (p *plane) maps(more string, names ...string) string {
	var resources []string
	for _, n := range names {
		name, on, ok := strings.Cut(n, ":")
		depends := ""
		if ok {
			depends = `"dependsOn":["` + on + `"],`
		}
		resources = append(resources, fmt.Sprintf(`%q:{"import":"k8s",%s"type":"core/ConfigMap@v1","properties":{"metadata":{"name":%q},"data":{"a":"b"}}}`, name, depends, name))
	}
	return `{` + head + `,` + p.k8s() + `,"resources":{` + strings.Join(resources, ",") + `}` + more + `}`
}

// stackBody is a PUT's body of a stack.
func stackBody(template, more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"properties":{"template":` + template + more + `}}`
}

// apply runs an update of a stack to its end and answers its GET.
func (p *plane) apply(name, body string, want string) answer {
	p.Helper()
	a := p.send("PUT", stacks+"/"+name+version, body)
	if a.status != 201 && a.status != 200 {
		p.Fatalf("PUT %s: status %d: %s", name, a.status, a.raw)
	}
	end := p.await(a.header.Get("Azure-AsyncOperation"))
	got := p.must(200, "GET", stacks+"/"+name+version, "")
	if state := at(got.body, "properties", "provisioningState"); state != want {
		p.Fatalf("stack %s is %v, want %s: %s\noperation: %s", name, state, want, got.raw, end.raw)
	}
	return got
}

// remove deletes a stack and waits for the end of that.
func (p *plane) remove(name, query, body string) answer {
	p.Helper()
	a := p.must(202, "DELETE", stacks+"/"+name+version+query, body)
	return p.await(a.header.Get("Azure-AsyncOperation"))
}

// listed are the last segments of the ids of a list of a stack.
func listed(a answer, list string) string {
	var names []string
	entries, _ := at(a.body, "properties", list).([]any)
	for _, e := range entries {
		id := text(at(e, "id"))
		names = append(names, id[strings.LastIndexByte(id, '/')+1:])
	}
	return strings.Join(names, " ")
}

// there are the names of the ConfigMaps of the plane's namespace.
func (p *plane) there() string {
	p.Helper()
	list, err := p.client.CoreV1().ConfigMaps(p.namespace).List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	var names []string
	for _, m := range list.Items {
		if m.Name != "kube-root-ca.crt" {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// S-51: stacks as a resource. S-29: what is dropped goes, what stays is left.
func TestStack(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.must(404, "GET", stacks+"/shop"+version, "")
	first := p.must(201, "PUT", stacks+"/shop"+version, stackBody(p.maps(`,"outputs":{"n":{"type":"int","value":2},"s":{"type":"securestring","value":"x"}}`, "a", "b:a"), `"description":"the shop"`))
	if state := at(first.body, "properties", "provisioningState"); state != "creating" {
		t.Errorf("S-51 a new stack is %v", state)
	}
	p.await(first.header.Get("Azure-AsyncOperation"))
	got := p.must(200, "GET", stacks+"/shop"+version, "")
	props := got.body["properties"]
	t.Run("S-51 GET", func(t *testing.T) {
		for name, want := range map[string]any{"provisioningState": "succeeded", "description": "the shop", "deploymentScope": group} {
			if at(props, name) != want {
				t.Errorf("%s is %v, want %v", name, at(props, name), want)
			}
		}
		if at(props, "actionOnUnmanage", "resources") != "delete" || at(props, "denySettings", "mode") != "none" || at(props, "outputs", "n", "value") != 2.0 || at(props, "outputs", "s", "value") != nil {
			t.Errorf("%s", got.raw)
		}
		for _, name := range []string{"correlationId", "deploymentId", "duration", "deploymentExtensions"} {
			if at(props, name) == nil {
				t.Errorf("there is no %s: %s", name, got.raw)
			}
		}
		one := at(props, "resources", 0)
		if listed(got, "resources") != "a b" || at(one, "status") != "managed" || at(one, "denyStatus") != "none" || at(one, "extension", "name") != "Kubernetes" ||
			text(at(one, "extension", "configId")) == "" || at(one, "identifiers", "metadata", "name") != "a" || at(one, "type") != "core/ConfigMap" || at(one, "scope", "type") == nil {
			t.Errorf("resources are %v", at(props, "resources"))
		}
		for _, list := range []string{"detachedResources", "deletedResources", "failedResources"} {
			if entries, ok := at(props, list).([]any); !ok || len(entries) != 0 {
				t.Errorf("%s is %v", list, at(props, list))
			}
		}
		deployment := p.must(200, "GET", text(at(props, "deploymentId"))+version, "")
		if at(deployment.body, "properties", "provisioningState") != "Succeeded" || len(at(deployment.body, "properties", "outputResources").([]any)) != 2 {
			t.Errorf("its deployment is %s", deployment.raw)
		}
	})
	b, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("S-51 what-if", func(t *testing.T) {
		for action, kind := range map[string]string{"delete": "delete", "detach": "detach"} {
			a := p.must(200, "POST", stacks+"/shop/whatIf"+version, stackBody(p.maps("", "b", "c"), `"actionOnUnmanage":{"resources":"`+action+`"}`))
			kinds := map[string]string{}
			changes, _ := at(a.body, "properties", "changes", "resourceChanges").([]any)
			for _, c := range changes {
				id := text(at(c, "id"))
				kinds[id[strings.LastIndexByte(id, '/')+1:]] = text(at(c, "changeType")) + " " + text(at(c, "changeCertainty"))
			}
			if kinds["a"] != kind+" definite" || kinds["c"] != "create definite" || kinds["b"] != "noChange definite" {
				t.Errorf("S-51: %v: %s", kinds, a.raw)
			}
		}
		if p.there() != "a b" {
			t.Errorf("S-46: a what-if made or took something: %s", p.there())
		}
	})
	got = p.apply("shop", stackBody(p.maps("", "b", "c"), ""), "succeeded")
	now, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "b", metav1.GetOptions{})
	if err != nil || now.UID != b.UID {
		t.Errorf("S-29: b is another one: %v", err)
	}
	if p.there() != "b c" || listed(got, "resources") != "b c" || listed(got, "deletedResources") != "a" {
		t.Errorf("S-29: there %q; %s", p.there(), got.raw)
	}
	got = p.apply("shop", stackBody(p.maps("", "b"), `"actionOnUnmanage":{"resources":"detach"}`), "succeeded")
	if p.there() != "b c" || listed(got, "detachedResources") != "c" || listed(got, "deletedResources") != "" {
		t.Errorf("S-51: there %q; %s", p.there(), got.raw)
	}
	c, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil || len(c.Labels) != 0 || len(c.Annotations) != 0 {
		t.Errorf("S-51: what was let go is marked: %v %v, %v", c.Labels, c.Annotations, err)
	}
	exported := p.must(200, "POST", stacks+"/shop/exportTemplate"+version, `{}`)
	if at(exported.body, "template", "resources", "b") == nil {
		t.Errorf("exported: %s", exported.raw)
	}
	if n := len(p.must(200, "GET", stacks+version, "").body["value"].([]any)); n != 1 {
		t.Errorf("%d stacks are listed", n)
	}
	valid := p.must(200, "POST", stacks+"/shop/validate"+version, stackBody(p.maps("", "x"), ""))
	if entries, _ := at(valid.body, "properties", "validatedResources").([]any); len(entries) != 1 || !strings.HasSuffix(text(at(entries[0], "id")), "/x") {
		t.Errorf("validated: %s", valid.raw)
	}
	// Deleted: with what it manages, by what it says itself.
	p.apply("shop", stackBody(p.maps("", "b", "d:b"), ""), "succeeded")
	if end := p.remove("shop", "", ""); end.body["status"] != "Succeeded" {
		t.Fatalf("its deletion ended as %s", end.raw)
	}
	p.must(404, "GET", stacks+"/shop"+version, "")
	p.must(204, "DELETE", stacks+"/shop"+version, "")
	if p.there() != "c" {
		t.Errorf("after the stack there is %q", p.there())
	}
	// Deleted without it.
	p.apply("shop", stackBody(p.maps("", "e"), ""), "succeeded")
	if end := p.remove("shop", "&unmanageAction.Resources=detach", ""); end.body["status"] != "Succeeded" || p.there() != "c e" {
		t.Errorf("its deletion ended as %s, there %q", end.raw, p.there())
	}
}

// S-49, S-18: resources of the control plane are managed too, and go with the
// stack, by operations of their own.
func TestStack_controlPlane_S49(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	const cache = group + "/providers/Applications.Datastores/redisCaches/"
	of := func(names ...string) string {
		var resources []string
		for _, n := range names {
			resources = append(resources, `"`+n+`":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"`+n+`","properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}}`)
		}
		resources = append(resources, `"m":{"import":"k8s","dependsOn":["`+names[0]+`"],"type":"core/ConfigMap@v1","properties":{"metadata":{"name":"m"},"data":{"host":"[reference('`+names[0]+`').host]"}}}`)
		return `{` + head + `,` + p.k8s() + `,"resources":{` + strings.Join(resources, ",") + `}}`
	}
	got := p.apply("shop", stackBody(of("one", "two"), `"denySettings":{"mode":"denyDelete"}`), "succeeded")
	if listed(got, "resources") != "m one two" || at(got.body, "properties", "resources", 1, "denyStatus") != "notSupported" || at(got.body, "properties", "resources", 0, "denyStatus") != "denyDelete" {
		t.Errorf("S-49: %s", got.raw)
	}
	got = p.apply("shop", stackBody(of("two"), ""), "succeeded")
	if listed(got, "deletedResources") != "one" {
		t.Errorf("S-49: %s", got.raw)
	}
	p.must(404, "GET", cache+"one"+ucp, "")
	p.must(200, "GET", cache+"two"+ucp, "")
	if end := p.remove("shop", "", ""); end.body["status"] != "Succeeded" {
		t.Fatalf("its deletion ended as %s", end.raw)
	}
	p.must(404, "GET", cache+"two"+ucp, "")
	if p.there() != "" {
		t.Errorf("there is %q", p.there())
	}
}

// S-55: a second update is refused while one runs, and a worker that stops hands
// it on.
func TestStack_running_S55(t *testing.T) {
	t.Parallel()
	var p *plane
	hold, held := make(chan struct{}), make(chan struct{}, 10)
	p = newPlane(t)
	p.recipes.execute = blocking(held, hold)
	template := `{` + head + `,` + p.k8s() + `,"resources":{
	 "m":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"before"}}},
	 "cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"slow","dependsOn":["m"],"properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}}}}`
	a := p.must(201, "PUT", stacks+"/shop"+version, stackBody(template, ""))
	<-held
	busy := p.must(409, "PUT", stacks+"/shop"+version, stackBody(p.maps("", "x"), ""))
	if !strings.Contains(text(at(busy.body, "error", "message")), "is being changed") {
		t.Errorf("S-55: the refusal is %s", busy.raw)
	}
	p.must(409, "DELETE", stacks+"/shop"+version, "")
	if state := at(p.must(200, "GET", stacks+"/shop"+version, "").body, "properties", "provisioningState"); state != "deploying" {
		t.Errorf("S-51: while it runs it is %v", state)
	}
	p.stop()
	p.start()
	close(hold)
	link := a.header.Get("Azure-AsyncOperation")
	if end := p.await(p.url + link[strings.Index(link, "/planes"):]); end.body["status"] != "Succeeded" {
		t.Fatalf("S-45: after a restart it ended as %s", end.raw)
	}
	if got := p.must(200, "GET", stacks+"/shop"+version, ""); listed(got, "resources") != "before slow" {
		t.Errorf("S-45: %s", got.raw)
	}
}

func TestStack_faults(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	template := p.maps("", "a")
	for name, c := range map[string]struct {
		status     int
		path, body string
		want       string
	}{
		"no template":       {400, "/s", `{"properties":{}}`, "template"},
		"action":            {400, "/s", stackBody(template, `"actionOnUnmanage":{"resources":"keep"}`), "delete or detach"},
		"groups":            {400, "/s", stackBody(template, `"actionOnUnmanage":{"resources":"delete","resourceGroups":"delete"}`), "only resources are unmanaged"},
		"deny mode":         {400, "/s", stackBody(template, `"denySettings":{"mode":"all"}`), "denyWriteAndDelete"},
		"scope":             {400, "/s", stackBody(template, `"deploymentScope":"/planes/radius/local/resourceGroups/other"`), "the group that it stands in"},
		"key vault":         {400, "/s", `{"properties":{"template":` + template + `},"credentials":{"*":{"kubeConfig":{"reference":{}}}}}`, "key vault"},
		"name":              {400, "/s%20t", stackBody(template, ""), "character"},
		"group is not":      {404, "", stackBody(template, ""), ""},
		"literal, S-39":     {400, "/s", stackBody(strings.Replace(template, `"namespace":`, `"scope":{"type":"UserOwned","kubeConfig":"apiVersion: v1, clusters: [], users: [], contexts: [] and more"},"namespace":`, 1), ""), "securestring"},
		"no template level": {400, "/s", stackBody(strings.Replace(template, "2019-04-01/deploymentTemplate", "2018-05-01/subscriptionDeploymentTemplate", 1), ""), "resource group"},
	} {
		path := stacks + c.path
		if c.path == "" {
			path = "/planes/radius/local/resourceGroups/none/providers/Microsoft.Resources/deploymentStacks/s"
		}
		a := p.send("PUT", path+version, c.body)
		if a.status != c.status || !strings.Contains(a.raw, c.want) {
			t.Errorf("%s: status %d, want %d with %q: %s", name, a.status, c.status, c.want, a.raw)
		}
	}
	// What only the run can find ends it as failed, at once and with the reason; the
	// next one succeeds (S-54).
	bad := strings.Replace(p.maps("", "a", "b"), `{"metadata":{"name":"b"}`, `{"metadata":{"name":"B C"}`, 1)
	got := p.apply("s", stackBody(bad, ""), "failed")
	if !strings.Contains(text(at(got.body, "properties", "error", "message")), "B C") {
		t.Errorf("S-54: %s", got.raw)
	}
	if got = p.apply("s", stackBody(p.maps("", "c"), ""), "succeeded"); p.there() != "c" || listed(got, "resources") != "c" {
		t.Errorf("S-54: there %q: %s", p.there(), got.raw)
	}
}

// S-53: what stays undeletable is failed with its reason.
func TestStack_undeletable_S53(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.apply("shop", stackBody(p.maps("", "a"), ""), "succeeded")
	maps := p.client.CoreV1().ConfigMaps(p.namespace)
	// Somebody made it anew: it is another object, so it is not the stack's.
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := p.apply("shop", stackBody(p.maps(""), ""), "succeeded"); listed(got, "deletedResources") != "a" {
		t.Errorf("S-30: %s", got.raw)
	}
	if _, err := maps.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("S-30: %v", err)
	}
}

// A deletion that an operation of the control plane fails at is tried a few times,
// and then ends; the next update tries again (S-53).
func TestStack_childFails_S53(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	template := `{` + head + `,` + p.k8s() + `,"resources":{
	 "cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"stuck","properties":{"environment":"[resourceId('Applications.Core/environments','default')]"}},
	 "m":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"m"}}}}}`
	p.apply("shop", stackBody(template, ""), "succeeded")
	tried := 0
	p.recipes.mu.Lock()
	p.recipes.undo = func(recipe.Request) error {
		p.recipes.mu.Lock()
		defer p.recipes.mu.Unlock()
		tried++
		return core.Errorf(core.CodeRecipeDeletion, "the cache is in use elsewhere")
	}
	p.recipes.mu.Unlock()
	got := p.apply("shop", stackBody(p.maps(""), ""), "failed")
	if listed(got, "deletedResources") != "m" || listed(got, "failedResources") != "stuck" || listed(got, "resources") != "stuck" || !strings.Contains(text(at(got.body, "properties", "error", "message")), "in use elsewhere") {
		t.Errorf("S-53: %s", got.raw)
	}
	p.recipes.mu.Lock()
	n := tried
	p.recipes.undo = nil
	p.recipes.mu.Unlock()
	if n < 2 || n > 10 {
		t.Errorf("S-53: its deletion was tried %d times", n)
	}
	got = p.apply("shop", stackBody(p.maps(""), ""), "succeeded")
	if listed(got, "deletedResources") != "stuck" || listed(got, "resources") != "" {
		t.Errorf("S-53: %s", got.raw)
	}
}

// A group that is deleted with all that is in it takes its stacks along by their
// own rule: what they manage is deleted or let go.
func TestStack_cascade(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	p.apply("gone", stackBody(p.maps("", "a"), ""), "succeeded")
	p.apply("kept", stackBody(p.maps("", "b"), `"actionOnUnmanage":{"resources":"detach"}`), "succeeded")
	p.await(p.must(201, "PUT", all+"/old?api-version=2016-02-01", body(p.maps(""))).header.Get("Azure-AsyncOperation"))
	p.must(409, "DELETE", group+ucp, "")
	a := p.must(202, "DELETE", group+ucp+"&cascade=true", "")
	end := p.await(a.header.Get("Azure-AsyncOperation"))
	if end.body["status"] != "Succeeded" || p.there() != "b" {
		t.Errorf("it ended as %s; there %q", end.raw, p.there())
	}
}
