package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
)

const (
	coreContainers = "/providers/Applications.Core/containers/"
	redis          = "/providers/Applications.Datastores/redisCaches/"
	linkRedis      = "/providers/applications.link/REDISCACHES/"
)

// adopted is the body with which a controller puts a container.
func adopted(groupID, app, namespace, name, uid string) map[string]any {
	return map[string]any{
		"implicitParents": true,
		"owner":           map[string]any{"cluster": "local", "namespace": namespace, "kind": "Deployment", "name": name, "uid": uid},
		"properties": map[string]any{
			"application": groupID + "/providers/Applications.Core/applications/" + app, "environment": envID,
			"resourceProvisioning": "manual", "container": map[string]any{"image": "none"},
			"resources": []any{map[string]any{"id": "/planes/kubernetes/local/namespaces/" + namespace + "/providers/apps/Deployment/" + name}},
		},
	}
}

func TestAllowedNamespaces_K4(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	closed := group + "/providers/Applications.Core/environments/closed"
	set := func(allowed ...string) {
		t.Helper()
		properties := map[string]any{"compute": map[string]any{"kind": "kubernetes", "namespace": "default"}}
		if allowed != nil {
			properties["allowedNamespaces"] = allowed
		}
		a.want(a.send("PUT", version(closed, ucp), props(properties)), 200)
	}
	put := func(a *api, cluster, namespace string) answer {
		body := props(map[string]any{"environment": closed})
		body["owner"] = map[string]any{"cluster": cluster, "namespace": namespace, "kind": "Recipe", "name": "r", "uid": "u"}
		return a.send("PUT", inert(cluster+"-"+namespace), body)
	}
	for _, c := range []struct {
		name               string
		allowed            []string
		cluster, namespace string
		ok                 bool
		command            string
	}{
		{"absent means none", nil, "local", "shop", false, "radial env update closed --allow-namespace shop"},
		{"a namespace of the local cluster", []string{"shop"}, "local", "shop", true, ""},
		{"another namespace", []string{"shop"}, "local", "shop2", false, "--allow-namespace shop2"},
		{"the same name in another cluster", []string{"shop"}, "east", "shop", false, "--allow-namespace east/shop"},
		{"a namespace of another cluster", []string{"east/shop"}, "east", "shop", true, ""},
		{"which is not the local one", []string{"east/shop"}, "local", "shop", false, ""},
		{"a whole cluster", []string{"east/*"}, "east", "any", true, ""},
		{"which is not every cluster", []string{"east/*"}, "local", "any", false, ""},
		{"everyone", []string{"*"}, "west", "any", true, ""},
	} {
		t.Run("K-4 "+c.name, func(t *testing.T) {
			set(c.allowed...)
			a := &api{a.Instance, t}
			got := put(a, c.cluster, c.namespace)
			if c.ok {
				a.succeed(a.want(got, 201))
				a.succeed(a.want(a.send("DELETE", inert(c.cluster+"-"+c.namespace), nil), 202))
				return
			}
			a.want(got, 403)
			if got.code() != "AuthorizationFailed" || !strings.Contains(got.message(), closed) || !strings.Contains(got.message(), c.namespace) || !strings.Contains(got.message(), c.command) {
				t.Errorf("answered %s", got.raw)
			}
			a.want(a.send("GET", inert(c.cluster+"-"+c.namespace), nil), 404)
		})
	}
	t.Run("K-4 a write through the API is not restricted by it", func(t *testing.T) {
		set()
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("PUT", inert("cli"), props(map[string]any{"environment": closed})), 201))
	})
	t.Run("K-4 an owner stays bound though a later write does not name it", func(t *testing.T) {
		set("shop")
		a := &api{a.Instance, t}
		a.succeed(a.want(put(a, "local", "shop"), 201))
		set()
		a.want(a.send("PUT", inert("local-shop"), props(map[string]any{"environment": closed})), 403)
	})
	t.Run("K-4 implicit parents open nothing", func(t *testing.T) {
		set()
		a := &api{a.Instance, t}
		g := "/planes/radius/local/resourceGroups/closed-shop"
		body := adopted(g, "shop", "shop", "web", "u1")
		body["properties"].(map[string]any)["environment"] = closed
		a.want(a.send("PUT", version(g+coreContainers+"web", ucp), body), 403)
		a.want(a.send("GET", version(g, ucp), nil), 404)
	})
	t.Run("K-4 a missing environment is named with what to do", func(t *testing.T) {
		a := &api{a.Instance, t}
		missing := group + "/providers/Radius.Core/environments/nowhere"
		got := a.want(a.send("PUT", inert("x"), props(map[string]any{"environment": missing})), 404)
		if dig(got.body, "error", "target") != missing || !strings.Contains(got.message(), "radial env create nowhere") {
			t.Errorf("answered %s", got.raw)
		}
	})
}

func TestImplicitParents_K5(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	g := "/planes/radius/local/resourceGroups/default-shop"
	app := g + "/providers/Applications.Core/applications/shop"
	t.Run("K-5 group and application come with the first member", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.want(a.send("GET", version(g, ucp), nil), 404)
		a.succeed(a.want(a.send("PUT", version(g+coreContainers+"web", ucp), adopted(g, "shop", "shop", "web", "u1")), 201))
		a.want(a.send("GET", version(g, ucp), nil), 200)
		got := a.want(a.send("GET", version(app, ucp), nil), 200)
		if got.prop("environment") != envID || mustJSON(got.prop("extensions")) != `[{"kind":"kubernetesNamespace","namespace":"shop"}]` {
			t.Errorf("the application is %s", got.raw)
		}
	})
	t.Run("K-5 they stay while a member lives and go with the last", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("PUT", version(g+coreContainers+"api", ucp), adopted(g, "shop", "shop", "api", "u2")), 201))
		a.succeed(a.want(a.send("DELETE", version(g+coreContainers+"web", ucp), nil), 202))
		a.want(a.send("GET", version(app, ucp), nil), 200)
		a.succeed(a.want(a.send("DELETE", version(g+coreContainers+"api", ucp), nil), 202))
		a.want(a.send("GET", version(app, ucp), nil), 404)
		a.want(a.send("GET", version(g, ucp), nil), 404)
	})
	t.Run("K-5 what was made explicitly stays", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("PUT", version(group+coreContainers+"web", ucp), adopted(group, "own", "own", "web", "u3")), 201))
		a.succeed(a.want(a.send("DELETE", version(group+coreContainers+"web", ucp), nil), 202))
		a.want(a.send("GET", version(group, ucp), nil), 200)
		a.want(a.send("GET", version(group+"/providers/Applications.Core/applications/own", ucp), nil), 404)
	})
	t.Run("K-5 a refused write leaves no parents", func(t *testing.T) {
		a := &api{a.Instance, t}
		other := "/planes/radius/local/resourceGroups/default-other"
		body := adopted(other, "other", "other", "web", "u4")
		body["properties"].(map[string]any)["connections"] = map[string]any{"db": map[string]any{"source": 7}}
		a.want(a.send("PUT", version(other+coreContainers+"web", ucp), body), 400)
		a.want(a.send("GET", version(other, ucp), nil), 404)
	})
	t.Run("K-5 without them the application must exist", func(t *testing.T) {
		a := &api{a.Instance, t}
		body := adopted(group, "none", "none", "web", "u5")
		delete(body, "implicitParents")
		got := a.want(a.send("PUT", version(group+coreContainers+"web", ucp), body), 404)
		if !strings.Contains(got.message(), "applications/none") {
			t.Errorf("answered %s", got.raw)
		}
	})
	t.Run("K-5 members that come and go at once leave either all or nothing", func(t *testing.T) {
		a := &api{a.Instance, t}
		busy := "/planes/radius/local/resourceGroups/default-busy"
		var wait sync.WaitGroup
		for i := range 8 {
			wait.Go(func() {
				path := version(fmt.Sprintf("%s%sw%d", busy, coreContainers, i), ucp)
				for round := range 5 {
					name := fmt.Sprintf("w%d", i)
					put, err := a.try("PUT", path, adopted(busy, "busy", "busy", name, name))
					if err != nil || put.status != 201 {
						t.Errorf("member %d round %d: %v %d %s", i, round, err, put.status, put.raw)
						return
					}
					if _, err := a.try("GET", put.header.Get("Azure-AsyncOperation"), nil, "Prefer", "wait=30"); err != nil {
						t.Error(err)
					}
					gone, err := a.try("DELETE", path, nil)
					if err != nil || gone.status != 202 {
						t.Errorf("member %d round %d: %v %d %s", i, round, err, gone.status, gone.raw)
						return
					}
					if _, err := a.try("GET", gone.header.Get("Azure-AsyncOperation"), nil, "Prefer", "wait=30"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		a.want(a.send("GET", version(busy, ucp), nil), 404)
	})
}

func TestManualContainer_K8(t *testing.T) {
	t.Parallel()
	d := &driver{}
	a := start(t, Options{Recipes: engine(d)})
	path := version(group+coreContainers+"web", ucp)
	t.Run("K-8 a manual container lists its workload and nothing is made for it", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("PUT", path, adopted(group, "shop", "shop", "web", "u1")), 201))
		got := a.want(a.send("GET", path, nil), 200)
		want := []any{map[string]any{"id": "/planes/kubernetes/local/namespaces/shop/providers/apps/Deployment/web", "localID": "", "radiusManaged": false}}
		if diff := cmp.Diff(want, got.prop("status", "outputResources")); diff != "" {
			t.Errorf("outputResources (-want +got):\n%s", diff)
		}
		a.succeed(a.want(a.send("DELETE", path, nil), 202))
		if n := d.count(); n != 0 || len(d.gone) != 0 {
			t.Errorf("%d recipes ran, deleted were %v", n, d.gone)
		}
	})
	for name, change := range map[string]struct {
		mode, property string
		value          any
	}{
		"no container runs a recipe":                      {"recipe", "resourceProvisioning", "recipe"},
		"what cannot be rendered":                         {"internal", "restartPolicy", "Never"},
		"what cannot be rendered, in the mode of default": {"", "runtimes", map[string]any{"aci": map[string]any{"gatewayID": "x"}}},
	} {
		t.Run("K-39 "+name+" is refused by name and stored nowhere", func(t *testing.T) {
			a := &api{a.Instance, t}
			body := adopted(group, "shop", "shop", "web", "u1")
			properties := body["properties"].(map[string]any)
			delete(properties, "resourceProvisioning")
			if change.mode != "" {
				properties["resourceProvisioning"] = change.mode
			}
			properties[change.property] = change.value
			got := a.want(a.send("PUT", path, body), 400)
			if got.code() != "InvalidRequestContent" || !strings.Contains(got.raw, change.property) {
				t.Errorf("answered %s", got.raw)
			}
			a.want(a.send("GET", path, nil), 404)
		})
	}
}

func TestAliases_K12(t *testing.T) {
	t.Parallel()
	d := &driver{}
	a := start(t, Options{Recipes: engine(d)})
	a.succeed(a.want(a.send("PUT", version(group+linkRedis+"cache", ucp), props(map[string]any{"environment": envID})), 201))
	t.Run("K-12 one resource by either name", func(t *testing.T) {
		a := &api{a.Instance, t}
		want := group + redis + "cache"
		for _, path := range []string{group + redis + "cache", group + linkRedis + "CACHE"} {
			got := a.want(a.send("GET", version(path, ucp), nil), 200)
			if got.body["id"] != want || got.body["type"] != "Applications.Datastores/redisCaches" {
				t.Errorf("GET %s answered %s", path, got.raw)
			}
		}
		list := a.want(a.send("GET", version(group+strings.TrimSuffix(linkRedis, "/"), ucp), nil), 200)
		if values, _ := list.body["value"].([]any); len(values) != 1 {
			t.Errorf("the list by the other name is %s", list.raw)
		}
	})
	t.Run("K-12 one registered recipe by either name", func(t *testing.T) {
		if run := d.last(t); run.Definition.Path != "test/redis:1" || run.Context.Resource.Type != "Applications.Datastores/redisCaches" {
			t.Errorf("what ran is %+v", run.Definition)
		}
	})
	t.Run("K-12 a connection by the other name is the same edge", func(t *testing.T) {
		a := &api{a.Instance, t}
		body := adopted(group, "shop", "shop", "web", "u1")
		body["properties"].(map[string]any)["connections"] = map[string]any{"redis": map[string]any{"source": group + linkRedis + "cache"}}
		a.succeed(a.want(a.send("PUT", version(group+coreContainers+"web", ucp), body), 201))
		g := a.want(a.send("POST", version(group+"/providers/Applications.Core/applications/shop/getGraph", ucp), `{}`), 200)
		if !strings.Contains(g.raw, `{"id":"`+group+redis+`cache","direction":"Outbound","kind":"Connection","name":"redis"}`) {
			t.Errorf("the graph is %s", g.raw)
		}
	})
	t.Run("K-12 the summaries answer by either namespace", func(t *testing.T) {
		a := &api{a.Instance, t}
		got := a.want(a.send("GET", version("/planes/radius/local/providers/applications.LINK", ucp), nil), 200)
		if dig(got.body, "resourceTypes", "redisCaches") == nil {
			t.Errorf("the summary is %s", got.raw)
		}
	})
	t.Run("K-12 an unknown type is refused with the nearest names", func(t *testing.T) {
		a := &api{a.Instance, t}
		got := a.want(a.send("PUT", version(group+"/providers/Applications.Datastores/redisCache/x", ucp), props(map[string]any{"environment": envID})), 400)
		if got.code() != "InvalidResourceType" || !strings.Contains(got.message(), "Applications.Datastores/redisCaches") {
			t.Errorf("answered %s", got.raw)
		}
	})
}

func TestOwners_K49(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	path := version(group+coreContainers+"web", ucp)
	first := adopted(group, "shop", "shop", "web", "uid-1")
	second := adopted(group, "shop", "other", "web", "uid-2")
	a.succeed(a.want(a.send("PUT", path, first), 201))
	before := a.want(a.send("GET", path, nil), 200)

	t.Run("K-49 the second object is refused and told of the first", func(t *testing.T) {
		a := &api{a.Instance, t}
		got := a.want(a.send("PUT", path, second), 409)
		info, _ := dig(got.body, "error", "additionalInfo").([]any)
		if got.code() != "NameConflict" || len(info) != 1 || dig(info[0], "type") != "owner" {
			t.Fatalf("answered %s", got.raw)
		}
		want := map[string]any{"cluster": "local", "namespace": "shop", "kind": "Deployment", "name": "web", "uid": "uid-1"}
		if diff := cmp.Diff(want, dig(info[0], "info")); diff != "" {
			t.Errorf("owner (-want +got):\n%s", diff)
		}
		if after := a.want(a.send("GET", path, nil), 200); after.raw != before.raw {
			t.Errorf("the first one's resource changed: %s", after.raw)
		}
	})
	t.Run("K-49 deleting the second deletes nothing of the first's", func(t *testing.T) {
		a := &api{a.Instance, t}
		if got := a.want(a.send("DELETE", path, nil, "Radial-Owner-Uid", "uid-2"), 409); got.code() != "NameConflict" {
			t.Errorf("answered %s", got.raw)
		}
		if after := a.want(a.send("GET", path, nil), 200); after.raw != before.raw {
			t.Errorf("the first one's resource changed: %s", after.raw)
		}
	})
	t.Run("K-49 it takes over from one that it knows to be gone", func(t *testing.T) {
		a := &api{a.Instance, t}
		body := adopted(group, "shop", "other", "web", "uid-2")
		body["replaces"] = "uid-0"
		a.want(a.send("PUT", path, body), 409)
		body["replaces"] = "uid-1"
		a.succeed(a.want(a.send("PUT", path, body), 201))
		if got := a.want(a.send("GET", path, nil), 200); dig(got.body, "owner", "uid") != "uid-2" {
			t.Errorf("answered %s", got.raw)
		}
	})
	t.Run("K-49 and when the first has gone", func(t *testing.T) {
		a := &api{a.Instance, t}
		a.succeed(a.want(a.send("DELETE", path, nil, "Radial-Owner-Uid", "uid-2"), 202))
		a.succeed(a.want(a.send("PUT", path, first), 201))
	})
	t.Run("K-49 half an owner is refused", func(t *testing.T) {
		a := &api{a.Instance, t}
		body := props(map[string]any{})
		body["owner"] = map[string]any{"cluster": "local", "namespace": "shop", "kind": "Recipe", "name": "x"}
		if got := a.want(a.send("PUT", inert("half"), body), 400); !strings.Contains(got.message(), "owner.uid") {
			t.Errorf("answered %s", got.raw)
		}
	})
}

func TestGraph(t *testing.T) {
	t.Parallel()
	d := &driver{execute: func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		return recipe.Result{Definition: run.Definition, Outputs: []core.Output{output("redis")}, Secrets: map[string]any{"password": "needle"}}, nil
	}}
	a := start(t, Options{Recipes: engine(d)})
	a.succeed(a.want(a.send("PUT", version(group+redis+"cache", ucp), props(map[string]any{"environment": envID})), 201))
	body := adopted(group, "shop", "shop", "web", "u1")
	body["properties"].(map[string]any)["connections"] = map[string]any{"redis": map[string]any{"source": group + redis + "cache"}}
	a.succeed(a.want(a.send("PUT", version(group+coreContainers+"web", ucp), body), 201))

	ofApplication := a.want(a.send("POST", version(group+"/providers/applications.core/APPLICATIONS/shop/getgraph", ucp), `{}`), 200)
	want := map[string]any{"resources": []any{
		map[string]any{
			"id": group + coreContainers + "web", "name": "web", "type": "Applications.Core/containers", "provisioningState": "Succeeded",
			"connections":     []any{map[string]any{"id": group + redis + "cache", "direction": "Outbound", "kind": "Connection", "name": "redis"}},
			"outputResources": []any{map[string]any{"id": "/planes/kubernetes/local/namespaces/shop/providers/apps/Deployment/web", "name": "web", "type": "apps/Deployment"}},
		},
		map[string]any{
			"id": group + redis + "cache", "name": "cache", "type": "Applications.Datastores/redisCaches", "provisioningState": "Succeeded",
			"connections":     []any{map[string]any{"id": group + coreContainers + "web", "direction": "Inbound", "kind": "Connection", "name": "redis"}},
			"outputResources": []any{map[string]any{"id": output("redis").ID.String(), "name": "redis", "type": "apps/Deployment"}},
		},
	}}
	if diff := cmp.Diff(want, ofApplication.body); diff != "" {
		t.Errorf("the application's graph (-want +got):\n%s", diff)
	}
	if strings.Contains(ofApplication.raw, "needle") {
		t.Error("the graph shows a secret")
	}
	if again := a.want(a.send("POST", version(group+"/providers/Applications.Core/applications/shop/getGraph", ucp), `{}`), 200); again.raw != ofApplication.raw {
		t.Errorf("the same graph again is %s", again.raw)
	}
	ofEnvironment := a.want(a.send("POST", version(envID+"/getGraph", ucp), `{}`), 200)
	if n := len(ofEnvironment.body["resources"].([]any)); n != 3 {
		t.Errorf("the environment's graph has %d nodes, want application, container and cache: %s", n, ofEnvironment.raw)
	}
	a.want(a.send("POST", version(group+redis+"cache/getGraph", ucp), `{}`), 404)

	if got := a.want(a.send("DELETE", version(envID, ucp), nil), 409); !strings.Contains(got.message(), "redisCaches/cache") {
		t.Errorf("deleting an environment in use answered %s", got.raw)
	}
	if got := a.want(a.send("DELETE", version(group+"/providers/Applications.Core/applications/shop", ucp), nil), 409); !strings.Contains(got.message(), "containers/web") {
		t.Errorf("deleting an application in use answered %s", got.raw)
	}
}
