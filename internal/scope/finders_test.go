package scope_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/scope/armtest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

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

func configMap(name, namespace string) extension.Resource {
	meta := map[string]any{"name": name}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	return extension.Resource{Type: "core/ConfigMap", APIVersion: "v1", Properties: map[string]any{"metadata": meta}}
}

func exists(t *testing.T, c *rest.Config, namespace, name string) bool {
	t.Helper()
	client, err := clientset.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	return err == nil
}

func secrets(kubeconfig []byte) extension.Secrets {
	return extension.Secrets{"kubeConfig": string(kubeconfig)}
}

func TestUserOwned(t *testing.T) {
	first, second := clustertest.Start(t), clustertest.Second(t)
	t.Parallel()
	ns := first.Namespace(t, "user")
	r := scope.NewResolver(nil)
	s := extension.Scope{Extension: "Kubernetes", Type: "UserOwned", Namespace: ns}
	kubeconfig := armtest.Kubeconfig(t, first.Config)

	target, err := r.Resolve(t.Context(), s, secrets(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	made, err := target.Apply(t.Context(), configMap("a", ""))
	if err != nil || !exists(t, first.Config, ns, "a") {
		t.Fatalf("S-36: the resource is not in the user's cluster: %v", err)
	}
	mark, err := target.ConfigID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if name := made.Ref.ID.Plane.Name; name != "user-"+mark[:8] {
		t.Errorf("the cluster's name in ids is %q, the cluster's mark %q", name, mark)
	}
	s.Fingerprint = mark

	t.Run("S-37 credentials are supplied anew", func(t *testing.T) {
		for _, none := range []extension.Secrets{nil, {}, {"kubeConfig": ""}} {
			_, err := r.Resolve(t.Context(), s, none)
			wantError(t, err, extension.CodeCredentialsNeeded, mark, "never stored", "nothing was changed")
		}
	})
	t.Run("S-38 another cluster's are refused", func(t *testing.T) {
		_, err := r.Resolve(t.Context(), s, secrets(armtest.Kubeconfig(t, second.Config)))
		wantError(t, err, extension.CodeWrongTarget, mark, "nothing was changed")
		if !exists(t, first.Config, ns, "a") {
			t.Error("the object is gone")
		}
	})
	t.Run("S-38 other credentials of the same cluster are good", func(t *testing.T) {
		again := []byte(base64.StdEncoding.EncodeToString(armtest.Kubeconfig(t, first.Config)))
		target, err := r.Resolve(t.Context(), s, secrets(again))
		if err != nil {
			t.Fatal(err)
		}
		if err := target.Delete(t.Context(), made.Ref); err != nil || exists(t, first.Config, ns, "a") {
			t.Errorf("with another token, in base64: %v", err)
		}
	})
	t.Run("S-39 nothing of it shows", func(t *testing.T) {
		ctx, _ := conceal.With(t.Context())
		if _, err := r.Resolve(ctx, s, secrets(kubeconfig)); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if text := conceal.Text(ctx, "the token is "+config.BearerToken); strings.Contains(text, config.BearerToken) {
			t.Error("the token is not concealed in the run's texts")
		}
		stored, err := json.Marshal(s)
		if err != nil || strings.Contains(string(stored), "token") || strings.Contains(string(stored), "kube") && strings.Contains(string(stored), config.BearerToken) {
			t.Errorf("the scope that is stored: %s, %v", stored, err)
		}
	})
}

func TestUserOwnedWithContext(t *testing.T) {
	first, second := clustertest.Start(t), clustertest.Second(t)
	t.Parallel()
	k, err := clientcmd.Load(armtest.Kubeconfig(t, first.Config))
	if err != nil {
		t.Fatal(err)
	}
	other, err := clientcmd.Load(armtest.Kubeconfig(t, second.Config))
	if err != nil {
		t.Fatal(err)
	}
	k.Clusters["second"], k.AuthInfos["second"], k.Contexts["second"] = other.Clusters["aks"], other.AuthInfos["admin"], other.Contexts["aks-admin"].DeepCopy()
	k.Contexts["second"].Cluster, k.Contexts["second"].AuthInfo = "second", "second"
	text, err := clientcmd.Write(*k)
	if err != nil {
		t.Fatal(err)
	}
	r := scope.NewResolver(nil)
	ids := map[string]bool{}
	run := extension.WithSession(t.Context()) // one run, one kubeconfig, two clusters
	for _, config := range []string{"", `{"context":"second"}`} {
		target, err := r.Resolve(run, extension.Scope{Extension: "Kubernetes", Type: "UserOwned", Config: config}, secrets(text))
		if err != nil {
			t.Fatal(err)
		}
		id, err := target.ConfigID(run)
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	if len(ids) != 2 {
		t.Errorf("two contexts led to %d clusters", len(ids))
	}
	_, err = r.Resolve(run, extension.Scope{Extension: "Kubernetes", Type: "UserOwned", Config: `{"context":"third"}`}, secrets(text))
	wantError(t, err, core.CodeInvalidTemplate, `no context "third"`, "aks-admin, second")
}

func TestKubeconfigsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "the-servers-own-token")
	if err := os.WriteFile(file, []byte("s3cr3t-of-the-server"), 0o600); err != nil {
		t.Fatal(err)
	}
	made := func(cluster, user string) string {
		return `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
			"clusters":[{"name":"k","cluster":` + cluster + `}],"users":[{"name":"u","user":` + user + `}]}`
	}
	const cluster, user = `{"server":"https://127.0.0.1:1"}`, `{"token":"s3cr3t-of-the-user"}`
	quoted, _ := json.Marshal(file)
	for name, c := range map[string]struct {
		text  string
		parts []string
	}{
		"exec plug-in":       {made(cluster, `{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"/bin/steal","interactiveMode":"Never"}}`), []string{`exec plug-in "/bin/steal"`, `user "u"`}},
		"auth provider":      {made(cluster, `{"auth-provider":{"name":"gcp"}}`), []string{`auth-provider plug-in "gcp"`}},
		"token file":         {made(cluster, `{"tokenFile":`+string(quoted)+`}`), []string{"tokenFile", "put the contents in token"}},
		"certificate file":   {made(cluster, `{"client-certificate":`+string(quoted)+`}`), []string{"client-certificate-data"}},
		"key file":           {made(cluster, `{"client-key":`+string(quoted)+`}`), []string{"client-key-data"}},
		"authority file":     {made(`{"server":"https://127.0.0.1:1","certificate-authority":`+string(quoted)+`}`, user), []string{`cluster "k"`, "certificate-authority-data"}},
		"proxy":              {made(`{"server":"https://127.0.0.1:1","proxy-url":"http://127.0.0.1:2"}`, user), []string{"proxy-url"}},
		"plain http":         {made(`{"server":"http://127.0.0.1:1"}`, user), []string{"https"}},
		"no server":          {made(`{}`, user), []string{"no server"}},
		"no credentials":     {made(cluster, `{}`), []string{"no credentials"}},
		"no current context": {strings.Replace(made(cluster, user), `"current-context":"c",`, "", 1), []string{"no current-context"}},
		"dangling context":   {strings.Replace(made(cluster, user), `"user":"u"}`, `"user":"v"}`, 1), []string{`context "c"`}},
		"no kubeconfig":      {"s3cr3t-of-the-user: [", []string{"is not a kubeconfig"}},
		"another document":   {`{"apiVersion":"v1","kind":"Secret","data":"s3cr3t-of-the-user"}`, []string{"is not a kubeconfig"}},
		"too large":          {strings.Repeat("s3cr3t-of-the-user ", 1<<16), []string{"bytes"}},
	} {
		_, err := scope.NewResolver(nil).Resolve(t.Context(), extension.Scope{Extension: "Kubernetes", Type: "UserOwned"}, extension.Secrets{"kubeConfig": c.text})
		wantError(t, err, core.CodeInvalidTemplate, c.parts...)
		if err == nil {
			t.Errorf("%s was taken", name)
		} else if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("S-39: %s: the error quotes the kubeConfig: %v", name, err)
		}
	}
}

func TestRadialScopes(t *testing.T) {
	first, second := clustertest.Start(t), clustertest.Second(t)
	t.Parallel()
	nsFirst, nsSecond := first.Namespace(t, "radial"), second.Namespace(t, "radial")
	connect := func(name string, c *rest.Config) scope.Connect {
		return func(context.Context) (*kubernetes.Cluster, error) {
			return kubernetes.New(name, c, kubernetes.Options{})
		}
	}
	r := scope.NewResolver(map[string]scope.Connect{"local": connect("local", first.Config), "east": connect("east", second.Config)})
	environments := map[string]string{
		"core":   `{"compute":{"kind":"kubernetes","namespace":"` + nsFirst + `"}}`,
		"far":    `{"providers":{"kubernetes":{"namespace":"` + nsSecond + `","cluster":"east"}}}`,
		"moving": `{"compute":{"namespace":"` + nsFirst + `"}}`,
		"play":   `{"simulated":true,"compute":{"namespace":"x"}}`,
	}
	r.Type(scope.TypeRadial, scope.Radial{Load: func(_ context.Context, id core.ID) (core.Resource, error) {
		props, ok := environments[id.Name()]
		if !ok {
			return core.Resource{}, core.Errorf(core.CodeNotFound, "no such environment")
		}
		return core.Resource{ID: id, Properties: json.RawMessage(props)}, nil
	}})
	env := func(typ, name string) extension.Scope {
		return extension.Scope{Extension: "Kubernetes", Type: "Radial", ID: "/planes/radius/local/resourceGroups/g/providers/" + typ + "/" + name}
	}
	apply := func(s extension.Scope, name string) extension.State {
		t.Helper()
		target, err := r.Resolve(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		state, err := target.Apply(t.Context(), configMap(name, ""))
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	apply(env("Applications.Core/environments", "core"), "a")
	if !exists(t, first.Config, nsFirst, "a") {
		t.Error("an environment's resources are not in its namespace")
	}
	made := apply(env("Radius.Core/environments", "far"), "b")
	if !exists(t, second.Config, nsSecond, "b") || made.Ref.ID.Plane.Name != "east" {
		t.Errorf("an environment's resources are not in its cluster: %s", made.Ref.ID)
	}
	apply(extension.Scope{Extension: "Kubernetes", Type: "Radial", ID: "/planes/kubernetes/East", Namespace: nsSecond}, "c")
	if !exists(t, second.Config, nsSecond, "c") {
		t.Error("a registered cluster's resources are not in it")
	}
	own := env("Applications.Core/environments", "core")
	own.Namespace = first.Namespace(t, "own")
	apply(own, "d")
	if !exists(t, first.Config, own.Namespace, "d") {
		t.Error("S-8: the import's namespace does not come before the environment's")
	}
	apply(env("Applications.Core/environments", "moving"), "e")
	environments["moving"] = `{"compute":{"namespace":"` + nsSecond + `","cluster":"east"}}`
	apply(env("Applications.Core/environments", "moving"), "e")
	if !exists(t, second.Config, nsSecond, "e") {
		t.Error("an environment that moved is not resolved anew")
	}
	for name, c := range map[string]struct {
		s     extension.Scope
		code  core.Code
		parts []string
	}{
		"gone":           {env("Applications.Core/environments", "none"), core.CodeTarget, []string{"environments/none", "does not exist", "nothing was changed"}},
		"simulated":      {env("Applications.Core/environments", "play"), core.CodeTarget, []string{"simulated"}},
		"no environment": {env("Applications.Core/containers", "c"), core.CodeInvalidTemplate, []string{"environment", "/planes/kubernetes/<name>"}},
		"no id":          {extension.Scope{Extension: "Kubernetes", Type: "Radial", ID: "env"}, core.CodeInvalidTemplate, []string{"env"}},
		"no cluster":     {extension.Scope{Extension: "Kubernetes", Type: "Radial", ID: "/planes/kubernetes/west"}, core.CodeTarget, []string{`no cluster "west"`, "east, local"}},
		"unknown type":   {extension.Scope{Extension: "Kubernetes", Type: "Galactic", ID: "x"}, core.CodeTarget, []string{`"Galactic"`, "Radial, UserOwned"}},
		"turned off":     {extension.Scope{Extension: "Kubernetes", Type: "AzureResourceManager", ID: armtest.ClusterID("c")}, core.CodeTarget, []string{"AzureResourceManager", "--azure-scopes"}},
	} {
		_, err := r.Resolve(t.Context(), c.s, nil)
		if wantError(t, err, c.code, c.parts...); err == nil {
			t.Error(name)
		}
	}
}

// TestNamespace proves the one rule of S-8 on the way to the call.
func TestNamespace_S8(t *testing.T) {
	first := clustertest.Start(t)
	t.Parallel()
	config, body := first.Namespace(t, "config"), first.Namespace(t, "body")
	r := scope.NewResolver(map[string]scope.Connect{"local": func(context.Context) (*kubernetes.Cluster, error) {
		return kubernetes.New("local", first.Config, kubernetes.Options{})
	}})
	in := func(namespace string) extension.Target {
		target, err := r.Resolve(t.Context(), extension.Scope{Extension: "Kubernetes", Namespace: namespace}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	if _, err := in(config).Apply(t.Context(), configMap("a", "")); err != nil || !exists(t, first.Config, config, "a") {
		t.Errorf("the config's namespace does not reach the call: %v", err)
	}
	made, err := in(config).Apply(t.Context(), configMap("b", body))
	if err != nil || !exists(t, first.Config, body, "b") {
		t.Errorf("the body's namespace does not come first: %v", err)
	}
	for _, call := range []func(extension.Target) error{
		func(k extension.Target) error { _, err := k.Apply(t.Context(), configMap("c", "")); return err },
		func(k extension.Target) error { _, err := k.Preview(t.Context(), configMap("c", "")); return err },
	} {
		wantError(t, call(in("")), core.CodeInvalidTemplate, "metadata.namespace", "import's namespace")
	}
	if err := in("").Delete(t.Context(), made.Ref); err != nil || exists(t, first.Config, body, "b") {
		t.Errorf("a deletion does not take the namespace from the id: %v", err)
	}
}

func TestMemberFile(t *testing.T) {
	first, second := clustertest.Start(t), clustertest.Second(t)
	t.Parallel()
	ns := first.Namespace(t, "member")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	write := func(kubeconfig []byte) {
		t.Helper()
		next := path + ".next"
		if err := os.WriteFile(next, kubeconfig, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	tuned := 0
	r := scope.NewResolver(nil)
	r.Member("East", scope.File("east", path, kubernetes.Options{}, func(*rest.Config) { tuned++ }))
	s := extension.Scope{Extension: "Kubernetes", Cluster: "east", Namespace: ns}
	_, err := r.Resolve(t.Context(), s, nil)
	wantError(t, err, core.CodeTarget, `cluster "east"`, path)

	write(armtest.Kubeconfig(t, first.Config))
	target, err := r.Resolve(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Apply(t.Context(), configMap("a", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resolve(t.Context(), s, nil); err != nil || tuned != 1 {
		t.Errorf("an unchanged file was read %d times, %v", tuned, err)
	}
	write([]byte(strings.Replace(string(armtest.Kubeconfig(t, first.Config)), "token: ", "token: x", 1)))
	target, err = r.Resolve(t.Context(), s, nil)
	if err != nil || tuned != 2 {
		t.Fatalf("a changed file was read %d times, %v", tuned, err)
	}
	// The credentials are refused; meanwhile the file has good ones.
	write(armtest.Kubeconfig(t, first.Config))
	if _, err := target.Get(t.Context(), extension.Ref{Type: "core/ConfigMap", APIVersion: "v1", Identifiers: []byte(`{"metadata":{"name":"a","namespace":"` + ns + `"}}`)}); err != nil {
		t.Errorf("refused credentials are not read anew: %v", err)
	}
	before, err := target.ConfigID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write(armtest.Kubeconfig(t, second.Config))
	target, err = r.Resolve(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := target.ConfigID(t.Context()); err != nil || now == before {
		t.Errorf("the file names another cluster now: %q, %v", now, err)
	}
}

func TestParseMember(t *testing.T) {
	for text, want := range map[string][2]string{"east=/a/b=c": {"east", "/a/b=c"}, "east": {}, "=x": {}, "east=": {}, "a/b=c": {}} {
		name, path, err := scope.ParseMember(text)
		if (err == nil) != (want[0] != "") || name != want[0] && err == nil || path != want[1] && err == nil {
			t.Errorf("%q: %q, %q, %v", text, name, path, err)
		}
	}
}

func TestClusterName(t *testing.T) {
	a, b := scope.ClusterName(armtest.ClusterID("prod")), scope.ClusterName(strings.Replace(armtest.ClusterID("prod"), "group", "other", 1))
	if !strings.HasPrefix(a, "prod-") || !strings.HasPrefix(b, "prod-") || a == b {
		t.Errorf("names of two clusters: %q, %q", a, b)
	}
	if again := scope.ClusterName(strings.Replace(armtest.ClusterID("prod"), "resourceGroups", "resourcegroups", 1)); again != a {
		t.Errorf("one id in two spellings: %q, %q", a, again)
	}
}
