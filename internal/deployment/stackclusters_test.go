package deployment_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/scope/armtest"
	"github.com/radial-project/radial/internal/scope/azure"
	"github.com/radial-project/radial/internal/template"
)

// cloudy gives a plane the scopes of Azure and of users, with a fake ARM.
func cloudy(arm *armtest.Server, local *rest.Config) func(*plane) {
	return func(p *plane) {
		r := scope.NewResolver(map[string]scope.Connect{
			"local": func(context.Context) (*kubernetes.Cluster, error) {
				return kubernetes.New("local", local, kubernetes.Options{})
			},
		})
		r.Type(template.ScopeUserOwned, scope.UserOwned{})
		r.Type(template.ScopeAzure, azure.New(azure.Options{Credentials: azure.Fixed(arm.Credential()), Cloud: arm.Cloud(), Transport: arm.Client()}))
		p.resolver = r
	}
}

// elsewhere is a namespace of another cluster.
type elsewhere struct {
	*testing.T
	client    clientset.Interface
	namespace string
}

func second(t *testing.T) elsewhere {
	t.Helper()
	return in(t, clustertest.Second(t))
}

func in(t *testing.T, c *clustertest.Cluster) elsewhere {
	t.Helper()
	client, err := clientset.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return elsewhere{t, client, c.Namespace(t, "stack")}
}

func (e elsewhere) there() string {
	e.Helper()
	list, err := e.client.CoreV1().ConfigMaps(e.namespace).List(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
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

// scopedTo is a template of ConfigMaps in a scope.
func scopedTo(scope, namespace string, names ...string) string {
	var resources []string
	for _, n := range names {
		resources = append(resources, fmt.Sprintf(`%q:{"import":"far","type":"core/ConfigMap@v1","properties":{"metadata":{"name":%q},"data":{"a":"b"}}}`, n, n))
	}
	return `{` + head + `,"parameters":{"config":{"type":"securestring","defaultValue":""}},"imports":{"far":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":"` + namespace + `","scope":` + scope + `}}},
	 "resources":{` + strings.Join(resources, ",") + `}}`
}

// The seed's own story on two clusters: a stack in a cluster of Azure, whose
// credentials nobody keeps.
func TestStack_azure(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t)
	far := second(t)
	arm := armtest.Start(t)
	aks := arm.AddCluster(t, armtest.ClusterID("prod"), clustertest.Second(t).Config)
	p := newPlane(t, cloudy(arm, cluster.Config))
	in := func(names ...string) string {
		return stackBody(scopedTo(`{"type":"AzureResourceManager","id":"`+aks.ID()+`"}`, far.namespace, names...), "")
	}
	got := p.apply("shop", in("a", "b"), "succeeded")
	if far.there() != "a b" || p.there() != "" || at(got.body, "properties", "resources", 0, "scope", "id") != aks.ID() {
		t.Fatalf("S-18: there %q, here %q: %s", far.there(), p.there(), got.raw)
	}
	// Long after: another process, another credential, the old one revoked.
	p.stop()
	aks.Rotate(t)
	p.start()
	if got = p.apply("shop", in("b"), "succeeded"); far.there() != "b" || listed(got, "deletedResources") != "a" {
		t.Fatalf("S-21: there %q: %s", far.there(), got.raw)
	}
	// The same id, and another cluster behind it: its object survives.
	home := elsewhere{t, p.client, far.namespace}
	if _, err := home.client.CoreV1().Namespaces().Create(t.Context(), namespaced(far.namespace), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := home.client.CoreV1().ConfigMaps(far.namespace).Create(t.Context(), configMap("b"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	aks.Replace(t, cluster.Config)
	got = p.apply("shop", in(), "failed")
	if home.there() != "b" || far.there() != "b" || listed(got, "failedResources") != "b" || at(got.body, "properties", "failedResources", 0, "error", "code") != "TargetMismatch" ||
		at(got.body, "properties", "resources", 0, "status") != "deleteFailed" {
		t.Fatalf("S-32: in the new cluster %q, in the old one %q: %s", home.there(), far.there(), got.raw)
	}
	// The cluster is gone: so is what was inside.
	aks.Remove()
	end := p.remove("shop", "", "")
	if end.body["status"] != "Succeeded" || home.there() != "b" {
		t.Fatalf("S-31: the deletion ended as %s", end.raw)
	}
	p.must(404, "GET", stacks+"/shop"+version, "")
	p.stop()
	wantNone(t, "the log", []byte(p.log.String()), arm.Secrets()...)
	scan(t, p.dir, arm.Secrets()...)
}

// What-if of a stack whose cluster is not there yet: the resources are created
// inside of it.
func TestStack_whatIfInside_S19(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t)
	p := newPlane(t, cloudy(armtest.Start(t), cluster.Config))
	id := armtest.ClusterID("soon")
	a := p.must(200, "POST", stacks+"/shop/whatIf"+version, stackBody(scopedTo(`{"type":"AzureResourceManager","id":"`+id+`"}`, "ns", "a"), ""))
	change := at(a.body, "properties", "changes", "resourceChanges", 0)
	if at(change, "changeType") != "create" || at(change, "scope", "id") != id || at(change, "managementStatusChange") != "managed" {
		t.Errorf("S-19: %s", a.raw)
	}
}

// A cluster of the user's own: its kubeConfig comes with every request, and only
// the fingerprint stays.
func TestStack_userOwned(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t)
	far := second(t)
	arm := armtest.Start(t)
	p := newPlane(t, cloudy(arm, cluster.Config))
	mine := string(armtest.Kubeconfig(t, clustertest.Second(t).Config))
	other := string(armtest.Kubeconfig(t, cluster.Config))
	quoted := func(text string) string { raw, _ := json.Marshal(text); return string(raw) }
	with := func(config string, names ...string) string {
		return `{"properties":{"template":` + scopedTo(`{"type":"UserOwned","kubeConfig":"[parameters('config')]"}`, far.namespace, names...) + `,"parameters":{"config":{"value":` + quoted(config) + `}}}}`
	}
	var said strings.Builder
	got := p.apply("shop", with(mine, "a", "b", "c"), "succeeded")
	said.WriteString(got.raw)
	if far.there() != "a b c" || text(at(got.body, "properties", "resources", 0, "scope", "fingerprint")) == "" {
		t.Fatalf("S-36: there %q: %s", far.there(), got.raw)
	}
	if got = p.apply("shop", with(mine, "a", "b"), "succeeded"); far.there() != "a b" {
		t.Fatalf("S-37: there %q: %s", far.there(), got.raw)
	}
	// Not supplied: refused, and nothing deleted.
	none := p.maps("", "here")
	got = p.apply("shop", stackBody(none, ""), "failed")
	said.WriteString(got.raw)
	if far.there() != "a b" || at(got.body, "properties", "failedResources", 0, "error", "code") != "CredentialsNeeded" {
		t.Fatalf("S-37: there %q: %s", far.there(), got.raw)
	}
	credentials := func(config string) string {
		return `"credentials":{"*":{"kubeConfig":{"value":` + quoted(config) + `}}}`
	}
	got = p.apply("shop", `{`+credentials(other)+`,"properties":{"template":`+none+`}}`, "failed")
	said.WriteString(got.raw)
	if far.there() != "a b" || at(got.body, "properties", "failedResources", 0, "error", "code") != "TargetMismatch" {
		t.Fatalf("S-38: there %q: %s", far.there(), got.raw)
	}
	// The deletion of the stack likewise: without it, and with it.
	end := p.remove("shop", "", "")
	said.WriteString(end.raw)
	if end.body["status"] != "Failed" || far.there() != "a b" || p.there() != "" {
		t.Fatalf("S-37: there %q, here %q: %s", far.there(), p.there(), end.raw)
	}
	if end = p.remove("shop", "", `{`+credentials(mine)+`}`); end.body["status"] != "Succeeded" || far.there() != "" {
		t.Fatalf("S-37: there %q: %s", far.there(), end.raw)
	}
	p.stop()
	said.WriteString(p.log.String())
	for _, config := range []string{mine, other} {
		secrets := append(secretsOf(t, config), config)
		wantNone(t, "answers and logs", []byte(said.String()), secrets...)
		scan(t, p.dir, secrets...)
	}
}

// secretsOf are the tokens of a kubeconfig.
func secretsOf(t *testing.T, config string) []string {
	t.Helper()
	var found []string
	for line := range strings.SplitSeq(config, "\n") {
		if _, token, ok := strings.Cut(line, "token: "); ok {
			found = append(found, strings.TrimSpace(token))
		}
	}
	if len(found) == 0 {
		t.Fatal("the kubeconfig has no token")
	}
	return found
}

func namespaced(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// The seed's own template, repaired: only an import and an id. It deletes, and the
// answer says that nothing vouched for it.
func TestSeedDeletes_S28(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t)
	far := second(t)
	arm := armtest.Start(t)
	aks := arm.AddCluster(t, armtest.ClusterID("seed"), clustertest.Second(t).Config)
	p := newPlane(t, cloudy(arm, cluster.Config))
	for _, name := range []string{"web", "other"} {
		if _, err := far.client.CoreV1().ConfigMaps(far.namespace).Create(t.Context(), configMap(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const seed = `{"languageVersion":"2.0","contentVersion":"1.0.0.0",
	  "imports":{"k8s":{"type":"Kubernetes","version":"1.0.0","config":{"scope":{"type":"AzureResourceManager","id":"%s"}}}},
	  "resources":{},
	  "deletedResources":[{"import":"k8s","id":"/planes/Kubernetes/import.namespace/%s/type/core%%2FConfigMap/properties.metadata.name/web"}]}`
	got := p.deploy("seed", body(fmt.Sprintf(seed, aks.ID(), far.namespace)), core.StateSucceeded)
	one := at(got.body, "properties", "deletedResources", 0)
	if far.there() != "other" || !strings.HasSuffix(text(at(one, "id")), "/web") || at(one, "scope", "id") != aks.ID() || at(one, "unverified") != true {
		t.Errorf("S-28: there %q: %s", far.there(), got.raw)
	}
	// Once more: it is gone already, which is no failure (S-30).
	p.deploy("seed", body(fmt.Sprintf(seed, aks.ID(), far.namespace)), core.StateSucceeded)
}
