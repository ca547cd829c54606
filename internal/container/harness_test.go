package container_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/container"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/servertest"
	"github.com/radial-project/radial/internal/store"
)

func TestMain(m *testing.M) {
	clustertest.Parallel(4)
	clustertest.Main(m)
}

const (
	version    = "2023-10-01-preview"
	containers = "Applications.Core/containers"
	caches     = "Applications.Datastores/redisCaches"
)

// stage is a whole control plane with the real recipe engine and renderer on a
// real cluster, and a namespace that its environment "test" is of.
type stage struct {
	*testing.T
	*servertest.Plane
	api   *client.Client
	kube  clientset.Interface
	ns    string
	dir   string
	group core.ID
	// kept is the plane's store.
	kept store.Store
	// resolver leads to the cluster.
	resolver extension.Resolver
}

// newStage starts one. The caches of its environment are made by a recipe that
// answers a host, a port and a password.
func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	cluster := clustertest.Start(t)
	return stageOn(t, cluster.Config, cluster.Namespace(t, "containers"))
}

func stageOn(t *testing.T, given *rest.Config, ns string) *stage {
	t.Helper()
	config := rest.CopyConfig(given)
	config.QPS = -1
	kube, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, kube: kube, ns: ns, dir: t.TempDir(), group: core.GroupID("default")}
	s.resolver = scope.NewResolver(map[string]scope.Connect{core.LocalCluster: func(context.Context) (*kubernetes.Cluster, error) {
		return kubernetes.New(core.LocalCluster, config, kubernetes.Options{ReadyTimeout: time.Minute})
	}})
	s.Plane = servertest.StartWith(t, func(o *server.Options) {
		s.kept = o.Store
		o.Types = manifest.NewRegistry(manifest.Builtin()...)
		o.Loopback = true
		driver := template.New(template.Options{Fetcher: oci.New(oci.Options{AllowFiles: true}), Resolver: s.resolver, Now: time.Now, NewGUID: uuid.NewString})
		o.Recipes = recipe.NewEngine(recipe.Options{
			Drivers:   map[string]recipe.Driver{"template": driver},
			Rendered:  container.Drivers(container.NewRenderer(container.RendererOptions{Resolver: s.resolver})),
			Canonical: o.Types.Canonical,
		})
		o.Deployments = server.DeploymentOptions{Resolver: s.resolver, Base: extension.Scope{Cluster: core.LocalCluster}}
	})
	s.api = client.New(s.URL, client.Options{})
	s.cacheRecipe("hunter2-first")
	s.environment("test", nil)
	s.put(s.id("Applications.Core/applications", "shop"), map[string]any{"environment": s.id("Applications.Core/environments", "test").String()})
	return s
}

// cacheRecipe is what caches are made by from now on.
func (s *stage) cacheRecipe(password string) {
	s.Helper()
	text := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","version":"1.0.0"}},
 "parameters":{"context":{"type":"object"}},
 "resources":{"map":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[parameters('context').resource.name]"},"data":{"a":"b"}}}},
 "outputs":{"result":{"type":"secureObject","value":{"values":{"host":"cache.example","port":6379},"secrets":{"password":"` + password + `"}}}}}`
	if err := os.WriteFile(filepath.Join(s.dir, "cache.json"), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// environment makes an environment of the namespace.
func (s *stage) environment(name string, more map[string]any) {
	s.Helper()
	properties := map[string]any{
		"compute": map[string]any{"kind": "kubernetes", "namespace": s.ns},
		"recipes": map[string]any{caches: map[string]any{"default": map[string]any{"templateKind": "template", "templatePath": "file://" + filepath.Join(s.dir, "cache.json")}}},
	}
	for k, v := range more {
		properties[k] = v
	}
	s.put(s.id("Applications.Core/environments", name), properties)
}

func (s *stage) id(resourceType, name string) core.ID { return s.group.Resource(resourceType, name) }

// try writes a resource and returns how that ended.
func (s *stage) try(id core.ID, properties map[string]any) error {
	s.Helper()
	a, err := s.api.Put(s.Context(), id, version, arm.Put{Resource: arm.Resource{Location: "global", Properties: properties}})
	if err != nil || a.Token == "" {
		return err
	}
	return s.api.Wait(s.Context(), a.Token)
}

func (s *stage) put(id core.ID, properties map[string]any) *arm.Resource {
	s.Helper()
	if err := s.try(id, properties); err != nil {
		s.Fatalf("PUT %s: %v", id, err)
	}
	return s.get(id)
}

func (s *stage) get(id core.ID) *arm.Resource {
	s.Helper()
	r, _, err := s.api.Get(s.Context(), id, version)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

func (s *stage) remove(id core.ID) {
	s.Helper()
	a, err := s.api.Delete(s.Context(), id, version, "")
	if err == nil && a.Token != "" {
		err = s.api.Wait(s.Context(), a.Token)
	}
	if err != nil {
		s.Fatalf("DELETE %s: %v", id, err)
	}
}

// web are the properties of a container of application shop.
func (s *stage) web(properties string) map[string]any {
	s.Helper()
	out := map[string]any{"application": s.id("Applications.Core/applications", "shop").String(), "container": map[string]any{"image": "registry.example.com/web:1"}}
	if properties != "" {
		var more map[string]any
		if err := json.Unmarshal([]byte(properties), &more); err != nil {
			s.Fatal(err)
		}
		for k, v := range more {
			out[k] = v
		}
	}
	return out
}

func (s *stage) deployment(name string) *appsv1.Deployment {
	s.Helper()
	d, err := s.kube.AppsV1().Deployments(s.ns).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// outputs are the ids of the objects that stand for a resource.
func outputs(r *arm.Resource) map[string]bool {
	status, _ := r.Properties["status"].(map[string]any)
	list, _ := status["outputResources"].([]any)
	ids := map[string]bool{}
	for _, o := range list {
		id, _ := o.(map[string]any)["id"].(string)
		ids[id], _ = o.(map[string]any)["radiusManaged"].(bool)
	}
	return ids
}
