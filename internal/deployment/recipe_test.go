package deployment_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
	"github.com/radial-project/radial/internal/store"
)

// S-49: a recipe's template may hold resources of the control plane. They are
// child operations of the recipe's, for which it parks; they carry its mark, are
// among its outputs, and go with its resource.
func TestRecipeMakesResources_S49(t *testing.T) {
	t.Parallel()
	p := newPlane(t, func(p *plane) {
		driver := template.New(template.Options{Fetcher: oci.New(oci.Options{AllowFiles: true}), Resolver: p.resolver, Now: time.Now})
		p.engine = recipe.NewEngine(recipe.Options{
			Drivers:   map[string]recipe.Driver{"template": driver},
			Canonical: func(t string) (string, bool) { return t, true },
			Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
				r, _, err := p.db.Get(ctx, id)
				return r, err
			},
		})
	})
	inner := p.file("inner.json", `{`+head+`,"parameters":{"context":{"type":"object"}},"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0"}},
	 "resources":{"c":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[parameters('context').resource.name]"},"data":{"a":"b"}}}},
	 "outputs":{"result":{"type":"object","value":{"values":{"host":"inner-host"}}}}}`)
	outer := p.file("outer.json", `{`+head+`,"parameters":{"context":{"type":"object"},"made":{"type":"string","defaultValue":"[newGuid()]"},"db":{"type":"string","defaultValue":"made-db"}},"imports":{"k8s":{"provider":"Kubernetes","version":"1.0.0"}},
	 "resources":{
	  "first":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"outer-first"},"data":{"made":"[parameters('made')]"}}},
	  "db":{"type":"Applications.Datastores/mongoDatabases","apiVersion":"2023-10-01-preview","name":"[parameters('db')]","dependsOn":["first"],"properties":{"environment":"[parameters('context').environment.id]"}},
	  "last":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"outer-last"},"data":{"host":"[reference('db').host]","made":"[parameters('made')]"}}}},
	 "outputs":{"result":{"type":"object","value":{"values":{"host":"[reference('db').host]"}}}}}`)
	env := group + "/providers/Applications.Core/environments/default"
	p.must(200, "PUT", env+ucp, `{"properties":{"compute":{"kind":"kubernetes","namespace":"`+p.namespace+`"},"recipes":{
	 "Applications.Datastores/mongoDatabases":{"default":{"templateKind":"template","templatePath":"file://`+inner+`"}},
	 "Applications.Datastores/redisCaches":{"default":{"templateKind":"template","templatePath":"file://`+outer+`"},
	   "taken":{"templateKind":"template","templatePath":"file://`+outer+`","parameters":{"db":"theirs"}}}}}}`)
	cache := group + "/providers/Applications.Datastores/redisCaches/outer"
	db := group + "/providers/Applications.Datastores/mongoDatabases/made-db"
	put := p.must(201, "PUT", cache+ucp, `{"properties":{"environment":"`+env+`"}}`)
	if end := p.await(put.header.Get("Azure-AsyncOperation")); end.body["status"] != "Succeeded" {
		t.Fatalf("the recipe ended as %s", end.raw)
	}
	got := p.must(200, "GET", cache+ucp, "")
	if host := at(got.body, "properties", "host"); host != "inner-host" {
		t.Errorf("it answered %v: %s", host, got.raw)
	}
	if !strings.Contains(got.raw, db) || !strings.Contains(got.raw, "ConfigMap/outer-last") {
		t.Errorf("its output resources are %s", got.raw)
	}
	child := p.must(200, "GET", db+ucp, "")
	if tag := at(child.body, "tags", "radapp.io/resource-id"); tag != cache {
		t.Errorf("what it made carries the mark %v", tag)
	}
	all, err := p.db.Operations(t.Context(), store.OperationQuery{Resource: core.MustParseID(db)})
	if err != nil || len(all.Operations) != 1 || all.Operations[0].Parent == "" {
		t.Errorf("its operation is no child: %+v, %v", all.Operations, err)
	}
	secrets := p.must(200, "POST", cache+"/listSecrets"+ucp, `{}`)
	r, _, err := p.db.Get(t.Context(), core.MustParseID(cache))
	if _, kept := r.Secrets["$operation"]; err != nil || kept || strings.Contains(secrets.raw, "$operation") {
		t.Errorf("S-45 the seed of the run is left: %v, %s", err, secrets.raw)
	}
	first, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "outer-first", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "outer-last", metav1.GetOptions{})
	if err != nil || last.Data["made"] != first.Data["made"] {
		t.Errorf("the attempt after the wait made up something else: %v and %v", first.Data, last.Data)
	}

	t.Run("what is another's is not taken over", func(t *testing.T) {
		theirs := group + "/providers/Applications.Datastores/mongoDatabases/theirs"
		p.await(p.must(201, "PUT", theirs+ucp, `{"properties":{"environment":"`+env+`"}}`).header.Get("Azure-AsyncOperation"))
		put := p.must(201, "PUT", strings.Replace(cache, "outer", "taker", 1)+ucp, `{"properties":{"environment":"`+env+`","recipe":{"name":"taken"}}}`)
		end := p.await(put.header.Get("Azure-AsyncOperation"))
		if end.body["status"] != "Failed" || !strings.Contains(end.raw, "not taken over") && !strings.Contains(end.raw, "belongs to") {
			t.Errorf("it ended as %s", end.raw)
		}
		p.await(p.must(202, "DELETE", strings.Replace(cache, "outer", "taker", 1)+ucp, "").header.Get("Azure-AsyncOperation"))
		p.must(200, "GET", theirs+ucp, "")
	})
	end := p.await(p.must(202, "DELETE", cache+ucp, "").header.Get("Azure-AsyncOperation"))
	if end.body["status"] != "Succeeded" {
		t.Fatalf("its deletion ended as %s", end.raw)
	}
	p.must(404, "GET", cache+ucp, "")
	p.must(404, "GET", db+ucp, "")
	if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "made-db", metav1.GetOptions{}); err == nil {
		t.Error("what the child's recipe made is left")
	}
}
