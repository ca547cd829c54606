package adopt

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/internal/clustertest"
	renderer "github.com/radial-project/radial/internal/container"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/scope"
)

// renders has the control plane render containers into the cluster; other types
// stay the test's cloud's.
func (s *system) renders() {
	engine := recipe.NewEngine(recipe.Options{
		Rendered: renderer.Drivers(renderer.NewRenderer(renderer.RendererOptions{
			Resolver: scope.NewResolver(map[string]scope.Connect{core.LocalCluster: func(context.Context) (*kubernetes.Cluster, error) {
				return kubernetes.New(core.LocalCluster, s.Config, kubernetes.Options{})
			}}),
		})),
	})
	s.server.Recipes.OnExecute(func(ctx context.Context, r recipe.Request) (recipe.Result, error) {
		if r.Resource.ID.Type() == renderer.Type {
			return engine.Execute(ctx, r)
		}
		return s.recipes.Execute(ctx, r)
	})
	s.server.Recipes.OnDelete(func(ctx context.Context, r recipe.Request) error {
		if r.Resource.ID.Type() == renderer.Type {
			return engine.Delete(ctx, r)
		}
		return nil
	})
}

// deploy runs a template to its end.
func (s *system) deploy(t *testing.T, group core.ID, template string) {
	t.Helper()
	d, err := s.api.Deploy(t.Context(), group.Resource("Microsoft.Resources/deployments", "shop"), json.RawMessage(`{"properties":{"mode":"Incremental","template":`+template+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	op, err := s.api.AwaitOperation(t.Context(), d.Properties.Operation)
	if err != nil || op.Status != string(core.StateSucceeded) {
		t.Fatalf("the deployment ended as %+v (%v)", op, err)
	}
}

// shop is a template of an application with a cache and a container that is
// connected to it, in a namespace.
func shop(application, environment, namespace string) string {
	return fmt.Sprintf(`{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"Radius":{"provider":"Radius","version":"1.0"}},"resources":{
 "app":{"import":"Radius","type":"Applications.Core/applications@2023-10-01-preview","properties":{"name":%q,"properties":{"environment":%q,
   "extensions":[{"kind":"kubernetesNamespace","namespace":%q}]}}},
 "db":{"import":"Radius","type":"Applications.Datastores/redisCaches@2023-10-01-preview","properties":{"name":"db","properties":{"environment":%[2]q,"application":"[reference('app').id]"}}},
 "web":{"import":"Radius","type":"Applications.Core/containers@2023-10-01-preview","properties":{"name":"web","properties":{"application":"[reference('app').id]",
   "container":{"image":"app:1","ports":{"web":{"containerPort":3000}}},"connections":{"redis":{"source":"[reference('db').id]"}}}}}}}`, application, environment, namespace)
}

// node is what a graph and a catalogue tell of a resource, without the group that
// it is in.
type node struct {
	Type, Name, State string
	// Connections are "direction name type/name", Stands whether the Deployment of
	// its name is what it stands for.
	Connections []string
	Stands      bool
}

// known is the catalogue of an application, and its graph.
func (s *system) known(t *testing.T, application core.ID, ns string) (catalogue []string, graph []node) {
	t.Helper()
	members, err := s.api.Members(t.Context(), application.Scope(), application, core.ID{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		catalogue = append(catalogue, m.Type+"/"+m.Name)
	}
	slices.Sort(catalogue)
	var answer struct {
		Resources []struct {
			ID, Name, Type, ProvisioningState string
			Connections                       []struct{ ID, Name, Direction string }
			OutputResources                   []struct{ ID string }
		}
	}
	if err := s.api.Action(t.Context(), application, "getGraph", containerVersion, map[string]any{}, &answer); err != nil {
		t.Fatal(err)
	}
	for _, r := range answer.Resources {
		n := node{Type: r.Type, Name: r.Name, State: r.ProvisioningState}
		for _, c := range r.Connections {
			to := core.MustParseID(c.ID)
			n.Connections = append(n.Connections, c.Direction+" "+c.Name+" "+to.Type()+"/"+to.Name())
		}
		slices.Sort(n.Connections)
		for _, o := range r.OutputResources {
			n.Stands = n.Stands || o.ID == core.KubernetesID(core.LocalCluster, ns, "apps", Kind, r.Name).String()
		}
		graph = append(graph, n)
	}
	slices.SortFunc(graph, func(a, b node) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name)) })
	return catalogue, graph
}

// TestDeployAndInstall_K40: a template and a chart of annotated objects end in
// the same catalogue and the same graph, and their pods have the same variables.
func TestDeployAndInstall_K40(t *testing.T) {
	s := start(t)
	s.renders()
	deployed := s.Namespace(t, "deployed")
	s.environment(t, "default", "*", deployed)
	environment := core.GroupID("default").Resource("Applications.Core/environments", "default").String()

	group := core.GroupID("default")
	s.deploy(t, group, shop(deployed, environment, deployed))

	chart := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml":                "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"templates/deployment.yaml": manifest("web", "web", "app:1", ""),
		"templates/recipe.yaml":     "apiVersion: radapp.io/v1alpha3\nkind: Recipe\nmetadata: {name: db}\nspec: {type: Applications.Datastores/redisCaches}\n",
	} {
		path := filepath.Join(chart, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	helm := exec.CommandContext(t.Context(), clustertest.Program(t, "helm"), "install", "shop", chart, "--namespace", s.ns)
	helm.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HOME="+t.TempDir())
	if out, err := helm.CombinedOutput(); err != nil {
		t.Fatalf("helm install: %v\n%s", err, out)
	}
	adopted := s.awaitRolledOut(t, s.awaitReady(t, s.deployment()))

	wantCatalogue, wantGraph := s.known(t, s.group().Resource("Applications.Core/applications", s.ns), s.ns)
	gotCatalogue, gotGraph := s.known(t, group.Resource("Applications.Core/applications", deployed), deployed)
	if diff := gocmp.Diff(wantCatalogue, gotCatalogue); diff != "" || len(gotCatalogue) != 2 {
		t.Errorf("K-40 the catalogue (-installed +deployed)\n%s", diff)
	}
	if diff := gocmp.Diff(wantGraph, gotGraph); diff != "" || len(gotGraph) < 2 {
		t.Errorf("K-40 the graph (-installed +deployed)\n%s", diff)
	}
	for _, n := range gotGraph {
		if n.Name == "web" && (!n.Stands || len(n.Connections) != 1) {
			t.Errorf("K-40 the container is %+v", n)
		}
	}
	rendered := new(appsv1.Deployment)
	if err := s.user.Get(t.Context(), kube.ObjectKey{Namespace: deployed, Name: "web"}, rendered); err != nil {
		t.Fatal(err)
	}
	want := s.env(t, adopted.Spec.Template.Spec.Containers[0])
	delete(want, "OWN")
	if diff := gocmp.Diff(want, s.envIn(t, deployed, rendered.Spec.Template.Spec.Containers[0])); diff != "" || len(want) == 0 {
		t.Errorf("K-20 the variables (-installed +deployed)\n%s", diff)
	}
}

// TestRenderedIsNotAdopted_K20: what the control plane rendered is nobody's to
// adopt, hold or hand back, whatever it is annotated with.
func TestRenderedIsNotAdopted_K20(t *testing.T) {
	s := start(t)
	s.renders()
	s.environment(t, "default", "*", s.ns)
	s.deploy(t, core.GroupID("default"), shop(s.ns, core.GroupID("default").Resource("Applications.Core/environments", "default").String(), s.ns))
	web := new(appsv1.Deployment)
	if err := s.user.Get(t.Context(), kube.ObjectKey{Namespace: s.ns, Name: "web"}, web); err != nil {
		t.Fatal(err)
	}
	before := marshal(web.Spec)
	s.create(t, s.recipe("other"))
	web = s.update(t, web, set(AnnotationEnabled, "true"), connect("redis", "other"))
	// What comes after it is adopted: the controller has seen the former.
	d := s.deployment(connect("redis", "other"))
	d.Name = "after"
	s.create(t, d)
	s.awaitReady(t, d)
	if err := s.user.Get(t.Context(), kube.ObjectKeyFromObject(web), web); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(before), string(marshal(web.Spec))); diff != "" || len(web.Finalizers) > 0 || web.Annotations[AnnotationStatus] != "" || PauseOf(web) != Free {
		t.Errorf("it was touched: finalizers %v, annotations %v\n%s", web.Finalizers, web.Annotations, diff)
	}
	if _, _, err := s.api.Get(t.Context(), containerID(s.group(), "web"), containerVersion); !core.IsCode(err, core.CodeNotFound) {
		t.Errorf("it is in the catalogue twice: %v", err)
	}
	if n := s.writes.matching("/deployments/web"); len(n) > 0 {
		t.Errorf("the controller wrote %s", strings.Join(n, "\n"))
	}
}
