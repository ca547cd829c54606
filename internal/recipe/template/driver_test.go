package template_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/recipes"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// bench runs recipes from files against the real cluster, with an inventory
// in memory.
type bench struct {
	*testing.T
	namespace string
	client    clientset.Interface
	engine    *recipe.Engine
	file      string
	pack      string // the properties of every recipe pack
	inventory []core.Output
	records   []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	c := clustertest.Start(t)
	t.Parallel()
	client, err := clientset.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	driver := template.New(template.Options{
		Fetcher: oci.New(oci.Options{AllowFiles: true}),
		Resolver: scope.NewResolver(map[string]scope.Connect{"local": func(context.Context) (*kubernetes.Cluster, error) {
			return kubernetes.New("local", c.Config, kubernetes.Options{})
		}}),
		Now: time.Now, NewGUID: uuid.NewString,
	})
	b := &bench{T: t, namespace: c.Namespace(t, "recipe"), client: client, file: filepath.Join(t.TempDir(), "recipe.json")}
	b.engine = recipe.NewEngine(recipe.Options{Drivers: map[string]recipe.Driver{"template": driver},
		Load: func(_ context.Context, id core.ID) (core.Resource, error) {
			return core.Resource{ID: id, Properties: json.RawMessage(b.pack)}, nil
		}})
	return b
}

func (b *bench) record(_ context.Context, put []core.Output, drop []core.ID) error {
	var names []string
	for _, o := range put {
		names = append(names, string(o.State)+" "+o.ID.Name())
		b.inventory = slices.DeleteFunc(b.inventory, func(k core.Output) bool { return k.ID.Equal(o.ID) })
		b.inventory = append(b.inventory, o)
	}
	for _, id := range drop {
		names = append(names, "drop "+id.Name())
		b.inventory = slices.DeleteFunc(b.inventory, func(k core.Output) bool { return k.ID.Equal(id) })
	}
	b.records = append(b.records, strings.Join(names, ", "))
	return nil
}

func (b *bench) request(resourceType string, properties map[string]any) recipe.Request {
	env, err := json.Marshal(map[string]any{
		"compute": map[string]any{"kind": "kubernetes", "namespace": b.namespace},
		"recipes": map[string]any{resourceType: map[string]any{"default": map[string]any{"templateKind": "template", "templatePath": "file://" + b.file}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	return recipe.Request{
		Resource:    core.Resource{ID: core.GroupID("g").Resource(resourceType, "Db")},
		Properties:  properties,
		Environment: core.Resource{ID: core.GroupID("g").Resource("Applications.Core/environments", "dev"), Properties: env},
		Previous:    slices.Clone(b.inventory),
		Record:      b.record,
	}
}

func (b *bench) use(content []byte) {
	b.Helper()
	if err := os.WriteFile(b.file, content, 0o600); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) count() int {
	b.Helper()
	n := 0
	for _, count := range []func() (int, error){
		func() (int, error) {
			l, err := b.client.AppsV1().Deployments(b.namespace).List(b.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := b.client.AppsV1().StatefulSets(b.namespace).List(b.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := b.client.CoreV1().Services(b.namespace).List(b.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := b.client.CoreV1().Secrets(b.namespace).List(b.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := b.client.CoreV1().Pods(b.namespace).List(b.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
	} {
		c, err := count()
		if err != nil {
			b.Fatal(err)
		}
		n += c
	}
	return n
}

// TestLocalRecipes runs each shipped recipe for each of its types: what it
// answers, that a second run keeps the password and changes no object, and
// that deletion leaves nothing.
func TestLocalRecipes(t *testing.T) {
	for _, r := range recipes.Local() {
		t.Run(r.File+" for "+r.Type, func(t *testing.T) {
			b := newBench(t)
			b.use(r.Content)
			first, err := b.engine.Execute(t.Context(), b.request(r.Type, map[string]any{"database": "shop"}))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"host", "port"} {
				if first.Values[name] == nil {
					t.Errorf("it answers no %q: %v", name, keys(first.Values))
				}
			}
			password, _ := first.Secrets["password"].(string)
			if len(password) < 32 {
				t.Errorf("the password has %d characters", len(password))
			}
			b.checkURL(first)
			if !strings.HasPrefix(first.Definition.Digest, "sha256:") {
				t.Errorf("D-32: no digest is recorded: %q", first.Definition.Digest)
			}
			if len(first.Outputs) != 3 || b.count() != 4 { // and the pod
				t.Errorf("%d outputs, %d objects", len(first.Outputs), b.count())
			}
			secret := b.secret()
			if string(secret.Data["password"]) != password {
				t.Error("the Secret's password is not the one that is answered")
			}

			second, err := b.engine.Execute(t.Context(), b.request(r.Type, map[string]any{"database": "shop"}))
			if err != nil {
				t.Fatal(err)
			}
			if second.Secrets["password"] != password {
				t.Error("a second run changed the password")
			}
			if again := b.secret(); again.ResourceVersion != secret.ResourceVersion {
				t.Error("a second run wrote the Secret")
			}
			if err := b.engine.Delete(t.Context(), b.request(r.Type, nil)); err != nil {
				t.Fatal(err)
			}
			if len(b.inventory) != 0 || b.count() != 0 {
				t.Errorf("after the deletion: %d in the inventory, %d in the cluster", len(b.inventory), b.count())
			}
		})
	}
}

// checkURL holds the address of the answer against its parts.
func (b *bench) checkURL(res recipe.Result) {
	b.Helper()
	for _, name := range []string{"url", "uri", "connectionString"} {
		text, ok := res.Secrets[name].(string)
		if !ok || !strings.Contains(text, "://") {
			continue
		}
		u, err := url.Parse(text)
		if err != nil {
			b.Errorf("%s is not a URL", name) // not quoted: it holds the password
			continue
		}
		password, _ := u.User.Password()
		if u.Hostname() != res.Values["host"] || password != res.Secrets["password"] {
			b.Errorf("%s names the host %s, and the password fits: %t", name, u.Hostname(), password == res.Secrets["password"])
		}
		return
	}
	b.Errorf("it answers no URL: %v", keys(res.Secrets))
}

func (b *bench) secret() *corev1.Secret {
	b.Helper()
	list, err := b.client.CoreV1().Secrets(b.namespace).List(b.Context(), metav1.ListOptions{LabelSelector: kubernetes.OwnerKey})
	if err != nil || len(list.Items) != 1 {
		b.Fatalf("%d Secrets, %v", len(list.Items), err)
	}
	return &list.Items[0]
}

func keys(m map[string]any) []string {
	var names []string
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

func TestPasswordOfTheDeveloper(t *testing.T) {
	b := newBench(t)
	for _, r := range recipes.Local() {
		if r.Type == "Radius.Data/postgreSqlDatabases" {
			b.use(r.Content)
		}
	}
	for _, password := range []string{"p@ss/1", "p@ss/2"} {
		res, err := b.engine.Execute(t.Context(), b.request("Radius.Data/postgreSqlDatabases", map[string]any{"username": "joe", "password": password}))
		if err != nil {
			t.Fatal(err)
		}
		if res.Secrets["password"] != password || res.Values["username"] != "joe" {
			t.Errorf("it answers the user %v, and the given password: %t", res.Values["username"], res.Secrets["password"] == password)
		}
		b.checkURL(res)
	}
}

const head = `{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","version":"1.0.0","config":{"kubeConfig":"","namespace":"[parameters('context').runtime.kubernetes.namespace]"}}},
 "parameters":{"context":{"type":"object"},"size":{"type":"string","defaultValue":"S","allowedValues":["S","M"]}},`

func maps(names ...string) string {
	var parts []string
	for _, n := range names {
		parts = append(parts, `"`+n+`":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"`+n+`"},"data":{"v":"1"}}}`)
	}
	return `"resources":{` + strings.Join(parts, ",") + `}`
}

func TestUpdate_D31(t *testing.T) {
	b := newBench(t)
	b.use([]byte(head + maps("a", "b") + `}`))
	if _, err := b.engine.Execute(t.Context(), b.request("Test.X/things", nil)); err != nil {
		t.Fatal(err)
	}
	if b.records[0] != "Planned a, Planned b" {
		t.Errorf("D-31: recorded first: %q", b.records[0])
	}
	uid := b.configMap("b").UID

	// A run that fails deletes nothing and forgets nothing.
	b.use([]byte(head + maps("b", "c") + `,"outputs":{"result":{"type":"object","value":{"values":{"x":"[fail('broken')]"}}}}}`))
	_, err := b.engine.Execute(t.Context(), b.request("Test.X/things", nil))
	if core.CodeOf(err) != core.CodeRecipeOutputs || !strings.Contains(err.Error(), "outputs.result.value.values.x (line") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
	if b.configMap("a") == nil || len(b.inventory) != 3 {
		t.Errorf("D-31: after a failure the inventory has %d outputs, want 3", len(b.inventory))
	}

	b.use([]byte(head + maps("b", "c") + `}`))
	if _, err := b.engine.Execute(t.Context(), b.request("Test.X/things", nil)); err != nil {
		t.Fatal(err)
	}
	if b.configMap("a") != nil || b.configMap("c") == nil || b.configMap("b").UID != uid {
		t.Error("D-31: after the update a is gone, c is there and b is the same object")
	}
	if len(b.inventory) != 2 {
		t.Errorf("the inventory: %v", b.inventory)
	}
	// D-32: the template is gone, and deletion does not need it.
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	if err := b.engine.Delete(t.Context(), b.request("Test.X/things", nil)); err != nil {
		t.Error(err)
	}
	if b.configMap("b") != nil || b.configMap("c") != nil {
		t.Error("D-31: something was left")
	}
}

func (b *bench) configMap(name string) *corev1.ConfigMap {
	b.Helper()
	m, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return m
}

func TestAnswers_D30(t *testing.T) {
	b := newBench(t)
	id := "/planes/kubernetes/local/namespaces/x/providers/core/Secret/s"
	for name, c := range map[string]struct {
		outputs string
		want    recipe.Result
		code    core.Code
		message string
	}{
		"result": {outputs: `"result":{"type":"object","value":{"values":{"host":"h"},"secrets":{"pw":"p"},"resources":["` + id + `"]}}`,
			want: recipe.Result{Values: map[string]any{"host": "h"}, Secrets: map[string]any{"pw": "p"}, Resources: []string{id}}},
		"pass-through": {outputs: `"host":{"type":"string","value":"h"},"pw":{"type":"securestring","value":"p"}`,
			want: recipe.Result{Values: map[string]any{"host": "h"}, Secrets: map[string]any{"pw": "p"}}},
		"the context's shape": {outputs: `"result":{"type":"object","value":{"values":{"name":"[parameters('context').resource.name]","app":"[parameters('context').application.name]","size":"[parameters('context').resource.properties.size]"}}}`,
			want: recipe.Result{Values: map[string]any{"name": "Db", "app": "", "size": "L"}, Secrets: map[string]any{}}},
		"unknown member": {outputs: `"result":{"type":"object","value":{"value":{}}}`, code: core.CodeRecipeOutputs, message: `has a member "value": it may have values, secrets and resources`},
		"not an id":      {outputs: `"result":{"type":"object","value":{"resources":["x"]}}`, code: core.CodeRecipeOutputs, message: "not a resource id"},
		"in both":        {outputs: `"result":{"type":"object","value":{"values":{"a":1},"secrets":{"a":1}}}`, code: core.CodeRecipeOutputs, message: "both as a value and as a secret"},
	} {
		b.use([]byte(head + maps() + `,"outputs":{` + c.outputs + `}}`))
		res, err := b.engine.Execute(t.Context(), b.request("Test.X/things", map[string]any{"size": "L"}))
		if c.code != "" {
			if core.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), `recipe "default"`) {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, _ := json.Marshal([]any{res.Values, res.Secrets, res.Resources})
		want, _ := json.Marshal([]any{c.want.Values, c.want.Secrets, c.want.Resources})
		if string(got) != string(want) {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestPackOutputs maps the outputs of a template that knows nothing of recipes.
func TestPackOutputs(t *testing.T) {
	b := newBench(t)
	b.use([]byte(`{"contentVersion":"1.0.0.0","resources":[],"outputs":{"addr":{"type":"string","value":"h"},"pw":{"type":"securestring","value":"p"},"more":{"type":"int","value":1}}}`))
	for name, c := range map[string]struct{ mapping, want string }{
		"mapped":          {`{"host":"addr","secrets":{"password":"pw"}}`, `[{"host":"h"},{"password":"p"}]`},
		"secure stays so": {`{"password":"PW"}`, `[{},{"password":"p"}]`},
		"no such output":  {`{"host":"adress"}`, `the pack maps "host" to the output adress, which the template does not have`},
	} {
		r := b.request("Test.X/things", nil)
		r.Environment = core.Resource{ID: core.GroupID("g").Resource("Radius.Core/environments", "dev"),
			Properties: json.RawMessage(`{"recipePacks":["p"],"providers":{"kubernetes":{"namespace":"` + b.namespace + `"}}}`)}
		b.pack = `{"recipes":{"Test.X/things":{"kind":"template","source":"file://` + b.file + `","outputs":` + c.mapping + `}}}`
		res, err := b.engine.Execute(t.Context(), r)
		got, _ := json.Marshal([]any{res.Values, res.Secrets})
		if err != nil {
			got = []byte(err.Error())
		}
		if !strings.Contains(string(got), c.want) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestFaults_D33(t *testing.T) {
	b := newBench(t)
	b.use([]byte(head + maps("a") + `}`))
	for name, c := range map[string]struct {
		parameters map[string]any
		want       string
	}{
		"D-33 unknown name":     {map[string]any{"sise": "M"}, `recipe "default" (file://` + b.file + `): the template has no parameter "sise"; did you mean "size"?`},
		"a value not allowed":   {map[string]any{"size": "XXL"}, `parameter "size" must be one of ["S","M"]`},
		"the context of others": {map[string]any{"Context": map[string]any{}}, `the parameter "Context" is given by Radial`},
	} {
		_, err := b.engine.Execute(t.Context(), b.request("Test.X/things", map[string]any{"recipe": map[string]any{"parameters": c.parameters}}))
		if core.CodeOf(err) != core.CodeRecipeInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	b.use([]byte(head + `"resources":{"a":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[toLowr('x')]"}}}}}`))
	_, err := b.engine.Execute(t.Context(), b.request("Test.X/things", nil))
	if core.CodeOf(err) != core.CodeRecipeInvalid || !strings.Contains(err.Error(), `resources.a.properties.metadata.name (line 2, column`) || !strings.Contains(err.Error(), `did you mean "toLower"?`) {
		t.Errorf("a fault in the template: %v", err)
	}
	if len(b.records) > 0 {
		t.Errorf("recorded before it was refused: %v", b.records)
	}
}

// TestSecretsStayOut gives a secret to a recipe that fails wherever it can, and
// looks for it in errors, progress and the inventory.
func TestSecretsStayOut(t *testing.T) {
	b := newBench(t)
	const secret = "hunter2-hunter2"
	var seen []string
	for _, fault := range []string{
		`"x":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"s"},"type":"[parameters('context').resource.properties.password]","immutable":"[parameters('context').resource.properties.password]"}}`,
		`"x":{"import":"k","type":"core/Service@v1","properties":{"metadata":{"name":"s"},"spec":{"type":"[parameters('context').resource.properties.password]","ports":[{"port":1}]}}}`,
		`"x":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"s"},"stringData":{"a b":"[parameters('context').resource.properties.password]"}}}`,
		`"x":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"s"},"stringData":{"x":"[int(parameters('context').resource.properties.password)]"}}}`,
		`"x":{"import":"k","type":"core/Pod@v1","properties":{"metadata":{"name":"s"},"spec":{"containers":"[parameters('context').resource.properties.password]"}}}`,
	} {
		b.use([]byte(head + `"resources":{` + fault + `}}`))
		r := b.request("Test.X/things", map[string]any{"password": secret})
		r.Progress = func(m string) { seen = append(seen, m) }
		_, err := b.engine.Execute(t.Context(), r)
		if err == nil {
			t.Errorf("no error of %s", fault)
			continue
		}
		text, _ := json.Marshal(core.AsError(err))
		seen = append(seen, err.Error(), string(text))
	}
	kept, _ := json.Marshal(b.inventory)
	seen = append(seen, string(kept))
	for _, s := range seen {
		if strings.Contains(s, secret) || strings.Contains(s, base64.StdEncoding.EncodeToString([]byte(secret))) {
			t.Errorf("a secret shows in: %s", s)
		}
	}
}

func TestDeclaredParameters(t *testing.T) {
	b := newBench(t)
	b.use([]byte(head + maps() + `}`))
	def, params, err := b.engine.Parameters(t.Context(), b.request("Test.X/things", nil).Environment, "Test.X/things", "")
	if err != nil || def.Name != "default" {
		t.Fatal(def, err)
	}
	if len(params) != 1 || !strings.Contains(string(params["size"]), `"allowedValues":["S","M"]`) {
		t.Errorf("parameters: %s", params)
	}
}
