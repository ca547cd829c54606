package azure_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/scope/armtest"
	"github.com/radial-project/radial/internal/scope/azure"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

var owner = core.MustParseID("/planes/radius/local/resourceGroups/g/providers/Microsoft.Resources/deploymentStacks/s")

// bench is a fake ARM with a resolver that asks it. Each newResolver is another
// engine: nothing is left of the ones before.
type bench struct {
	*testing.T
	arm       *armtest.Server
	namespace string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cluster := clustertest.Start(t)
	t.Parallel()
	return &bench{t, armtest.Start(t), cluster.Namespace(t, "azure")}
}

func (b *bench) newResolver(edit ...func(*azure.Options)) *scope.Resolver {
	o := azure.Options{Credentials: azure.Fixed(b.arm.Credential()), Cloud: b.arm.Cloud(), Transport: b.arm.Client(),
		Retry: policy.RetryOptions{RetryDelay: time.Millisecond, MaxRetryDelay: 2 * time.Second}}
	for _, e := range edit {
		e(&o)
	}
	r := scope.NewResolver(nil)
	r.Type(scope.TypeAzure, azure.New(o))
	return r
}

func (b *bench) scope(id string) extension.Scope {
	return extension.Scope{Extension: "Kubernetes", Type: "AzureResourceManager", ID: id, Namespace: b.namespace}
}

func (b *bench) resolve(ctx context.Context, r extension.Resolver, s extension.Scope) extension.Target {
	b.Helper()
	target, err := r.Resolve(ctx, s, nil)
	if err != nil {
		b.Fatal(err)
	}
	return target
}

func (b *bench) posts() int {
	n := 0
	for _, c := range b.arm.Calls() {
		if c.Method == http.MethodPost {
			n++
		}
	}
	return n
}

func configMap(name string, data map[string]any) extension.Resource {
	return extension.Resource{Type: "core/ConfigMap", APIVersion: "v1", Owner: owner,
		Properties: map[string]any{"metadata": map[string]any{"name": name}, "data": data}}
}

func exists(t *testing.T, config *rest.Config, namespace, name string) bool {
	t.Helper()
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	return err == nil
}

func wantError(t *testing.T, err error, code core.Code, parts ...string) {
	t.Helper()
	if !core.IsCode(err, code) {
		t.Errorf("got %v (code %s), want code %s", err, core.CodeOf(err), code)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error %q does not say %q", err, p)
		}
	}
}

// clean fails if a text holds a credential.
func (b *bench) clean(what, text string) {
	b.Helper()
	for _, secret := range b.arm.Secrets() {
		if strings.Contains(text, secret) {
			b.Errorf("S-23: %s holds a credential", what)
		}
	}
}

func TestCredentials_S20_S21(t *testing.T) {
	b := newBench(t)
	id := armtest.ClusterID("Prod")
	add := b.arm.AddFront // knows at once of a rotation
	if clustertest.Whole() {
		add = b.arm.AddCluster // the API server believes a token for ten seconds more
	}
	aks := add(t, id, clustertest.Start(t).Config)
	run := extension.WithSession(t.Context())
	r := b.newResolver()
	target := b.resolve(run, r, b.scope(id))
	made, err := target.Apply(run, configMap("a", map[string]any{"k": "v"}))
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientset.NewForConfig(clustertest.Start(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Fatalf("S-20: the resource is not in the cluster: %v", err)
	}
	other := b.scope(id)
	other.Namespace = "other"
	b.resolve(run, r, other)
	b.resolve(run, r, b.scope(strings.ToUpper(id[:20])+id[20:])) // the same id in another case
	calls := b.arm.Calls()
	if len(calls) != 1 || calls[0].Method != http.MethodPost || calls[0].Path != id+"/listClusterAdminCredential" || calls[0].APIVersion == "" {
		t.Errorf("S-20: ARM was asked %+v; want one POST for the id", calls)
	}
	user := b.scope(id)
	user.CredentialType = "User"
	b.resolve(run, r, user)
	if calls := b.arm.Calls(); len(calls) != 2 || calls[1].Path != id+"/listClusterUserCredential" {
		t.Errorf("credentialType User asked %+v", calls)
	}
	if plane := made.Ref.ID.Plane; plane.Type != "kubernetes" || !strings.HasPrefix(plane.Name, "Prod-") || plane.Name != scope.ClusterName(strings.ToLower(id)[:len(id)-4]+"Prod") {
		t.Errorf("the cluster's name in ids: %v", plane)
	}

	// Long after: another engine, nothing kept but the reference, new credentials.
	aks.Rotate(t)
	if _, err := target.Get(t.Context(), made.Ref); err != nil {
		t.Errorf("a run whose credentials were rotated under it does not ask anew: %v", err)
	}
	later := b.resolve(t.Context(), b.newResolver(), b.scope(id))
	if err := later.Delete(t.Context(), made.Ref); err != nil {
		t.Fatalf("S-21: %v", err)
	}
	if _, err := client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "a", metav1.GetOptions{}); err == nil {
		t.Error("S-21: the object is there after its deletion")
	}
}

func TestRotationIsAskedOnce(t *testing.T) {
	b := newBench(t)
	aks := b.arm.AddFront(t, armtest.ClusterID("c"), clustertest.Start(t).Config)
	run := extension.WithSession(t.Context())
	target := b.resolve(run, b.newResolver(), b.scope(aks.ID()))
	if _, err := target.ConfigID(run); err != nil {
		t.Fatal(err)
	}
	aks.Rotate(t)
	done := make(chan error)
	for i := range 6 {
		go func() {
			_, err := target.Apply(run, configMap("c"+string(rune('a'+i)), nil))
			done <- err
		}()
	}
	for range 6 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := b.posts(); n != 2 {
		t.Errorf("ARM was asked %d times for credentials that were rotated once, want 2", n)
	}
	// Credentials that ARM hands out and the cluster does not take are an error,
	// not a loop.
	aks.HandOut([]byte(strings.ReplaceAll(string(aks.Kubeconfig()), "token: ", "token: x")))
	bad := b.resolve(t.Context(), b.newResolver(), b.scope(aks.ID()))
	_, err := bad.ConfigID(t.Context())
	wantError(t, err, core.CodeTarget, "answered 401", "renew")
	b.clean("the error", err.Error())
	if n := b.posts(); n != 4 {
		t.Errorf("asked %d times in all, want 4", n)
	}
}

// TestClientCertificate is how AKS answers where tokens are turned off.
func TestClientCertificate(t *testing.T) {
	b := newBench(t)
	aks := b.arm.AddCluster(t, armtest.ClusterID("c"), clustertest.Start(t).Config)
	kubeconfig, err := os.ReadFile(clustertest.Start(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	aks.HandOut(kubeconfig)
	target := b.resolve(t.Context(), b.newResolver(), b.scope(aks.ID()))
	if _, err := target.Apply(t.Context(), configMap("by-certificate", nil)); err != nil || !exists(t, clustertest.Start(t).Config, b.namespace, "by-certificate") {
		t.Error(err)
	}
}

func TestFaults_S24(t *testing.T) {
	b := newBench(t)
	id := armtest.ClusterID("c")
	aks := b.arm.AddCluster(t, id, clustertest.Start(t).Config)
	good := aks.Kubeconfig()
	const action = "listClusterAdminCredential"
	seen := map[string]string{}
	for name, c := range map[string]struct {
		fault armtest.Fault
		code  core.Code
		parts []string
	}{
		"403":               {armtest.Fault{Status: 403, Code: "AuthorizationFailed", Message: "The client has no authorization to perform action."}, core.CodeForbidden, []string{"403", "AuthorizationFailed", "grant"}},
		"404":               {armtest.Fault{Status: 404, Code: "ResourceNotFound", Message: "The Resource was not found."}, extension.CodeScopeGone, []string{"404", "does not exist"}},
		"404 of the group":  {armtest.Fault{Status: 404, Code: "ResourceGroupNotFound", Message: "Resource group could not be found."}, extension.CodeScopeGone, []string{"404"}},
		"unseen":            {armtest.Fault{Status: 404, Code: "SubscriptionNotFound", Message: "The subscription could not be found."}, core.CodeTarget, []string{"404", "access to the subscription"}},
		"404 of a proxy":    {armtest.Fault{Status: 404, Body: "not here"}, core.CodeTarget, []string{"404", "without an explanation"}},
		"429":               {armtest.Fault{Status: 429, Code: "TooManyRequests", Message: "Too many.", RetryAfter: "3600"}, core.CodeTarget, []string{"429", "in 3600 seconds"}},
		"empty list":        {armtest.Fault{Body: armtest.EmptyList}, core.CodeTarget, []string{"200", "is empty"}},
		"bad base64":        {armtest.Fault{Body: armtest.BadBase64}, core.CodeTarget, []string{"200", "base64"}},
		"not a list":        {armtest.Fault{Body: `[]`}, core.CodeTarget, []string{"200", "not with a list"}},
		"no local accounts": {armtest.Fault{Status: 400, Code: "BadRequest", Message: "Getting static credential is not allowed because this cluster is set to disable local accounts."}, core.CodeTarget, []string{"400", "local accounts"}},
		"500":               {armtest.Fault{Status: 500, Code: "InternalServerError", Message: "Oops."}, core.CodeTarget, []string{"500", "later"}},
	} {
		b.arm.Fail(c.fault)
		_, err := b.newResolver().Resolve(t.Context(), b.scope(id), nil)
		b.arm.Heal()
		wantError(t, err, c.code, append(c.parts, id, action)...)
		if err == nil {
			t.Fatal(name)
		}
		if other := seen[err.Error()]; other != "" {
			t.Errorf("%s and %s are told by the same error", name, other)
		}
		seen[err.Error()] = name
		b.clean("the error of "+name, err.Error())
	}
	text := func(from, to string) []byte { return []byte(strings.ReplaceAll(string(good), from, to)) }
	for name, c := range map[string]struct {
		kubeconfig []byte
		parts      []string
	}{
		"exec plug-in": {[]byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
			"clusters":[{"name":"k","cluster":{"server":"https://127.0.0.1:1"}}],
			"users":[{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"kubelogin","interactiveMode":"Never"}}}]}`), []string{`exec plug-in "kubelogin"`}},
		"no kubeconfig": {[]byte("{{{ not yaml"), []string{"is not a kubeconfig"}},
		"plain http":    {text("https://", "http://"), []string{"https"}},
	} {
		aks.HandOut(c.kubeconfig)
		_, err := b.newResolver().Resolve(t.Context(), b.scope(id), nil)
		wantError(t, err, core.CodeTarget, append(c.parts, id)...)
		if err != nil {
			b.clean("the error of "+name, err.Error())
		}
	}
	aks.HandOut(good)

	t.Run("S-24 429 is asked again when ARM says", func(t *testing.T) {
		b.arm.Fail(armtest.Fault{Status: 429, RetryAfter: "1", Times: 2, Code: "TooManyRequests"})
		before, begun := b.posts(), time.Now()
		if _, err := b.newResolver().Resolve(t.Context(), b.scope(id), nil); err != nil {
			t.Fatal(err)
		}
		if n := b.posts() - before; n != 3 {
			t.Errorf("asked %d times, want 3", n)
		}
		if took := time.Since(begun); took < 2*time.Second {
			t.Errorf("Retry-After of one second, twice, was waited for %s", took)
		}
	})
	t.Run("nobody answers", func(t *testing.T) {
		dead := b.newResolver(func(o *azure.Options) { o.Cloud = azure.Endpoint("https://127.0.0.1:1", "") })
		_, err := dead.Resolve(t.Context(), b.scope(id), nil)
		wantError(t, err, core.CodeTarget, id, action, "no answer")
	})
	t.Run("a context that ends", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("it was canceled"))
		if _, err := b.newResolver().Resolve(ctx, b.scope(id), nil); err == nil || !strings.Contains(err.Error(), "it was canceled") {
			t.Errorf("answered %v", err)
		}
	})
}

func TestIDs_S25(t *testing.T) {
	arm := armtest.Start(t)
	b := &bench{t, arm, "n"}
	storage := armtest.ResourceID("Microsoft.Storage/storageAccounts", "s")
	arm.AddResource(storage)
	_, err := b.newResolver().Resolve(t.Context(), b.scope(storage), nil)
	wantError(t, err, core.CodeInvalidTemplate, storage, "Microsoft.Storage/storageAccounts", "Microsoft.ContainerService/managedClusters", "Microsoft.ContainerService/fleets")
	for _, id := range []string{"", "/", "c1", "/subscriptions/s", "/subscriptions/s/resourceGroups/g",
		armtest.ClusterID(".."), armtest.ClusterID("c?x=y"), armtest.ClusterID("c/../../d"), armtest.ClusterID("c#f"), armtest.ClusterID("c%2f"),
		"/planes/radius/local/resourceGroups/g/providers/Applications.Core/environments/e"} {
		_, err := b.newResolver().Resolve(t.Context(), b.scope(id), nil)
		wantError(t, err, core.CodeInvalidTemplate)
	}
	allowed := b.newResolver(func(o *azure.Options) {
		o.Allow = []string{"/subscriptions/" + armtest.Subscription + "/resourceGroups/gro"}
	})
	_, err = allowed.Resolve(t.Context(), b.scope(armtest.ClusterID("c")), nil)
	wantError(t, err, core.CodeForbidden, "may not be used", "resourceGroups/gro")
	if calls := arm.Calls(); len(calls) != 0 {
		t.Errorf("S-25: ARM was asked for ids that can lead nowhere: %+v", calls)
	}
}

// double stands in for a type of ARM resources.
type double struct{ kubeconfig []byte }

func (d double) Kubeconfig(context.Context, *azure.Client, *arm.ResourceID, string) ([]byte, error) {
	return d.kubeconfig, nil
}

// finder stands in for a type of scopes.
type finder struct{ scope.Finder }

func (f finder) Find(ctx context.Context, s extension.Scope, secrets extension.Secrets) (scope.Place, error) {
	s.ID = armtest.ClusterID("c") // whatever the template says
	return f.Finder.Find(ctx, s, secrets)
}

func TestReplaceable_S22(t *testing.T) {
	b := newBench(t)
	aks := b.arm.AddCluster(t, armtest.ClusterID("c"), clustertest.Start(t).Config)
	options := azure.Options{Cloud: b.arm.Cloud(), Transport: b.arm.Client(), Credentials: azure.Fixed(b.arm.Credential())}
	works := func(t *testing.T, f scope.Finder, ctx context.Context, id string) {
		t.Helper()
		r := b.newResolver()
		r.Type(scope.TypeAzure, f)
		if _, err := b.resolve(ctx, r, b.scope(id)).Preview(ctx, configMap("x", nil)); err != nil {
			t.Fatal(err)
		}
	}
	subject := func() string {
		calls := b.arm.Calls()
		return calls[len(calls)-1].Subject
	}
	t.Run("S-22 by ARM resource type", func(t *testing.T) {
		f := azure.New(options)
		before := len(b.arm.Calls())
		f.Source("Microsoft.Test/clusters", double{armtest.Kubeconfig(t, clustertest.Start(t).Config)})
		works(t, f, t.Context(), armtest.ResourceID("Microsoft.Test/clusters", "t"))
		if len(b.arm.Calls()) != before {
			t.Error("ARM was asked past the double")
		}
	})
	t.Run("S-22 another type of its own", func(t *testing.T) {
		fleet := b.arm.AddCluster(t, armtest.ResourceID("Microsoft.ContainerService/fleets", "f"), clustertest.Start(t).Config)
		works(t, azure.New(options), t.Context(), fleet.ID())
		if calls := b.arm.Calls(); calls[len(calls)-1].Path != fleet.ID()+"/listCredentials" {
			t.Errorf("a fleet was asked by %s", calls[len(calls)-1].Path)
		}
	})
	t.Run("S-22 by scope type", func(t *testing.T) {
		works(t, finder{azure.New(options)}, t.Context(), armtest.ClusterID("elsewhere"))
	})
	t.Run("S-22 on behalf of the user", func(t *testing.T) {
		o := options
		o.Credentials = azure.OnBehalfOf{Tenant: armtest.Tenant, Client: armtest.Application, Secret: armtest.Password, Cloud: o.Cloud, Transport: o.Transport}
		_, err := azure.New(o).Find(t.Context(), b.scope(aks.ID()), nil)
		wantError(t, err, core.CodeTarget, "on behalf of users", aks.ID())
		run := extension.WithSession(t.Context())
		before := b.posts()
		for _, user := range []string{"ann", "ben", "ann"} {
			works(t, azure.New(o), azure.WithUser(run, user), aks.ID())
		}
		if subject() != "user:ben" || b.posts() != before+2 {
			t.Errorf("asked %d times, last as %s; each user's credentials are their own", b.posts()-before, subject())
		}
	})
}

// TestServer signs in as a server does: by what is in its environment.
func TestServer(t *testing.T) {
	cluster := clustertest.Start(t)
	arm := armtest.Start(t)
	b := &bench{t, arm, cluster.Namespace(t, "azure")}
	aks := arm.AddCluster(t, armtest.ClusterID("c"), cluster.Config)
	asServer := func(o *azure.Options) { o.Credentials = nil }
	t.Setenv("AZURE_TENANT_ID", armtest.Tenant)
	t.Setenv("AZURE_CLIENT_ID", armtest.Application)
	t.Run("workload identity", func(t *testing.T) {
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte(base64.RawURLEncoding.EncodeToString([]byte("signed by the cluster"))), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AZURE_FEDERATED_TOKEN_FILE", token)
		b.resolve(t.Context(), b.newResolver(asServer), b.scope(aks.ID()))
	})
	t.Run("secret", func(t *testing.T) {
		t.Setenv("AZURE_CLIENT_SECRET", armtest.Password)
		b.resolve(t.Context(), b.newResolver(asServer), b.scope(aks.ID()))
	})
	t.Run("refused", func(t *testing.T) {
		t.Setenv("AZURE_CLIENT_SECRET", "wrong-secret-of-the-application")
		_, err := b.newResolver(asServer).Resolve(t.Context(), b.scope(aks.ID()), nil)
		wantError(t, err, core.CodeTarget, aks.ID(), "cannot sign in to Azure", "AZURE_TENANT_ID")
		if err != nil && strings.Contains(err.Error(), "wrong-secret") {
			t.Errorf("the error holds the secret: %v", err)
		}
	})
}

// TestOtherCluster recreates a cluster under its id: what was made in the first
// is not looked for in the second.
func TestOtherCluster_S32(t *testing.T) {
	b := newBench(t)
	second := clustertest.Second(t)
	aks := b.arm.AddCluster(t, armtest.ClusterID("c"), clustertest.Start(t).Config)
	made, err := b.resolve(t.Context(), b.newResolver(), b.scope(aks.ID())).Apply(t.Context(), configMap("a", nil))
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientset.NewForConfig(second.Config)
	if err != nil {
		t.Fatal(err)
	}
	aks.Replace(t, second.Config)
	target := b.resolve(t.Context(), b.newResolver(), b.scope(aks.ID()))
	ns := configMap("", nil)
	ns.Type, ns.Properties = "core/Namespace", map[string]any{"metadata": map[string]any{"name": b.namespace}}
	if _, err := target.Apply(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	if _, err := target.Apply(t.Context(), configMap("a", nil)); err != nil { // of the same name and owner
		t.Fatal(err)
	}
	for _, uid := range []string{made.Ref.UID, ""} {
		ref := made.Ref
		ref.UID = uid
		wantError(t, target.Delete(t.Context(), ref), extension.CodeWrongTarget, "ConfigMap "+b.namespace+"/a", "nothing was changed")
	}
	_, err = target.Get(t.Context(), made.Ref)
	wantError(t, err, extension.CodeWrongTarget)
	if _, err := client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("S-32: the other cluster's object: %v", err)
	}

	// A cluster that is replaced while a run goes on gets nothing of that run.
	run := extension.WithSession(t.Context())
	front := b.arm.AddFront(t, armtest.ClusterID("d"), clustertest.Start(t).Config)
	target = b.resolve(run, b.newResolver(), b.scope(front.ID()))
	if _, err := target.ConfigID(run); err != nil {
		t.Fatal(err)
	}
	front.Rotate(t)
	front.HandOut(armtest.Kubeconfig(t, second.Config))
	_, err = target.Apply(run, configMap("late", nil))
	wantError(t, err, extension.CodeWrongTarget, "replaced by another")

	aks.Remove()
	_, err = b.newResolver().Resolve(t.Context(), b.scope(aks.ID()), nil)
	wantError(t, err, extension.CodeScopeGone, aks.ID())
}
