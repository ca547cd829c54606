package local_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/cli"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/scope/armtest"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/stack/clusterrecords"
	"github.com/radial-project/radial/internal/stack/local"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// laptop is a machine with nothing but the command line and a kubeconfig.
type laptop struct {
	*testing.T
	cluster   *clustertest.Cluster
	client    clientset.Interface
	namespace string
	record    []string
	env       map[string]string
	said      strings.Builder
}

func newLaptop(t *testing.T) *laptop {
	t.Helper()
	c := clustertest.Start(t)
	t.Parallel()
	client, err := clientset.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &laptop{T: t, cluster: c, client: client, namespace: c.Namespace(t, "laptop"), env: map[string]string{"HOME": t.TempDir()}}
}

// radial runs `radial stack …` there, and returns what it says and its exit code.
func (l *laptop) radial(args ...string) (out string, code int) {
	l.Helper()
	var stdout, stderr bytes.Buffer
	line := append([]string{"radial", "stack"}, args...)
	line = append(append(line, "--local", "--kubeconfig", l.cluster.Kubeconfig), l.record...)
	code = cli.Run(context.Background(), cli.Surroundings{
		Args: line, In: strings.NewReader(""), Out: &stdout, Err: &stderr, Getenv: func(name string) string { return l.env[name] },
	})
	l.said.WriteString(stdout.String() + stderr.String())
	return stdout.String() + stderr.String(), code
}

func (l *laptop) must(args ...string) string {
	l.Helper()
	out, code := l.radial(args...)
	if code != 0 {
		l.Fatalf("radial stack %s: exit code %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

func (l *laptop) fails(want string, args ...string) {
	l.Helper()
	out, code := l.radial(args...)
	if code == 0 || !strings.Contains(out, want) {
		l.Fatalf("radial stack %s: exit code %d, want a failure with %q: %s", strings.Join(args, " "), code, want, out)
	}
}

func (l *laptop) file(name, content string) string {
	l.Helper()
	path := filepath.Join(l.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		l.Fatal(err)
	}
	return path
}

// template is one of ConfigMaps in the laptop's namespace, with a scope or none.
func (l *laptop) template(namespace, scope string, names ...string) string {
	config := `"namespace":"` + namespace + `"`
	if scope != "" {
		config += `,"scope":` + scope
	}
	var resources []string
	for _, n := range names {
		resources = append(resources, fmt.Sprintf(`%q:{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":%q},"data":{"a":"b"}}}`, n, n))
	}
	return l.file("t.json", `{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0","languageVersion":"2.0",
	 "parameters":{"config":{"type":"securestring","defaultValue":""}},"imports":{"k":{"provider":"Kubernetes","version":"1.0.0","config":{`+config+`}}},
	 "resources":{`+strings.Join(resources, ",")+`}}`)
}

func there(t *testing.T, client clientset.Interface, namespace string) string {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
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

// S-57: the whole life of a stack with no control plane, its record in the
// cluster or in a file.
func TestLocal_S57(t *testing.T) {
	for name, record := range map[string]func(l *laptop) []string{
		"S-57 record in the cluster": func(l *laptop) []string { return []string{"--record", l.namespace} },
		"S-57 record in a file":      func(l *laptop) []string { return []string{"--record", "file:" + filepath.Join(l.TempDir(), "s.json")} },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLaptop(t)
			l.record = record(l)
			if out := l.must("list"); !strings.Contains(out, "There are no stacks") {
				t.Errorf("at first: %s", out)
			}
			out := l.must("apply", "shop", "-f", l.template(l.namespace, "", "a", "b"))
			if there(t, l.client, l.namespace) != "a b" || !strings.Contains(out, "Action on unmanage: delete") || !strings.Contains(out, "2 resources managed") {
				t.Fatalf("there %q: %s", there(t, l.client, l.namespace), out)
			}
			out = l.must("what-if", "shop", "-f", l.template(l.namespace, "", "b", "c"))
			if !strings.Contains(out, "1 create") || !strings.Contains(out, "1 delete") || there(t, l.client, l.namespace) != "a b" {
				t.Errorf("what-if: %s", out)
			}
			out = l.must("apply", "shop", "-f", l.template(l.namespace, "", "b", "c"), "--deny-settings-mode", "denyDelete")
			if there(t, l.client, l.namespace) != "b c" || !strings.Contains(out, "- deleted") || !strings.Contains(out, "1 deleted") {
				t.Errorf("there %q: %s", there(t, l.client, l.namespace), out)
			}
			var w stack.Wire
			if err := json.Unmarshal([]byte(strings.TrimSpace(l.must("show", "shop", "-o", "json"))), &w); err != nil || len(w.Properties.Resources) != 2 || w.Properties.Resources[0].DenyStatus != "denyDelete" {
				t.Errorf("show: %+v, %v", w, err)
			}
			if out = l.must("list"); !strings.Contains(out, "shop") || !strings.Contains(out, "succeeded") {
				t.Errorf("list: %s", out)
			}
			l.fails("say so with --yes", "delete", "shop")
			l.fails("does not exist", "show", "none")
			out = l.must("apply", "shop", "-f", l.template(l.namespace, "", "b"), "--action-on-unmanage", "detach")
			if there(t, l.client, l.namespace) != "b c" || !strings.Contains(out, "> detached") || !strings.Contains(out, "Action on unmanage: detach") {
				t.Errorf("there %q: %s", there(t, l.client, l.namespace), out)
			}
			// The stack says itself what becomes of its resources.
			l.must("apply", "shop", "-f", l.template(l.namespace, "", "b"))
			if out = l.must("delete", "shop", "--yes"); there(t, l.client, l.namespace) != "c" || !strings.Contains(out, "with 1 resource") {
				t.Errorf("there %q: %s", there(t, l.client, l.namespace), out)
			}
			if out = l.must("list"); !strings.Contains(out, "There are no stacks") {
				t.Errorf("at the end: %s", out)
			}
			if out = l.must("delete", "shop", "--yes"); !strings.Contains(out, "was not there") {
				t.Errorf("once more: %s", out)
			}
		})
	}
}

func TestLocal_locked_S55(t *testing.T) {
	l := newLaptop(t)
	l.record = []string{"--record", l.namespace}
	other, err := clusterrecords.New(clusterrecords.Options{Client: l.client, Namespace: l.namespace, Holder: "Ann's laptop"}).Open(t.Context(), local.ID("default", "shop"))
	if err != nil {
		t.Fatal(err)
	}
	l.fails("Ann's laptop", "apply", "shop", "-f", l.template(l.namespace, "", "a"))
	if there(t, l.client, l.namespace) != "" {
		t.Errorf("S-55: there is %q", there(t, l.client, l.namespace))
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	l.must("apply", "shop", "-f", l.template(l.namespace, "", "a"))
}

// A second cluster by its kubeConfig: a parameter while the template names it, a
// variable of the environment when it does not any more. Neither is kept.
func TestLocal_userOwned_S37(t *testing.T) {
	l := newLaptop(t)
	l.record = []string{"--record", l.namespace}
	far := clustertest.Second(t)
	client, err := clientset.NewForConfig(far.Config)
	if err != nil {
		t.Fatal(err)
	}
	namespace := far.Namespace(t, "laptop")
	config := string(armtest.Kubeconfig(t, far.Config))
	wrong := string(armtest.Kubeconfig(t, l.cluster.Config))
	const mine = `{"type":"UserOwned","kubeConfig":"[parameters('config')]"}`
	l.must("apply", "shop", "-f", l.template(namespace, mine, "a", "b"), "-p", "config=@"+l.file("kc", config))
	if got := there(t, client, namespace); got != "a b" {
		t.Fatalf("S-36: there %q", got)
	}
	here := l.template(l.namespace, "", "here")
	l.fails("kept nowhere", "apply", "shop", "-f", here)
	l.env["WRONG"], l.env["RIGHT"] = wrong, config
	l.fails("another cluster", "apply", "shop", "-f", here, "--credentials-env", "WRONG")
	l.fails("RIGHTLY is not set", "apply", "shop", "-f", here, "--credentials-env", "RIGHTLY")
	if got := there(t, client, namespace); got != "a b" {
		t.Fatalf("S-38: there %q", got)
	}
	l.must("apply", "shop", "-f", here, "--credentials-env", "RIGHT")
	if there(t, client, namespace) != "" || there(t, l.client, l.namespace) != "here" {
		t.Errorf("S-37: there %q, here %q", there(t, client, namespace), there(t, l.client, l.namespace))
	}
	// S-23: the record, unpacked, and all that was said.
	secrets, err := l.client.CoreV1().Secrets(l.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "radapp.io/stack-record"})
	if err != nil || len(secrets.Items) != 1 {
		t.Fatalf("%d records, %v", len(secrets.Items), err)
	}
	z, err := gzip.NewReader(bytes.NewReader(secrets.Items[0].Data["stack"]))
	if err != nil {
		t.Fatal(err)
	}
	record, err := io.ReadAll(z)
	if err != nil || !bytes.Contains(record, []byte(`"here"`)) {
		t.Fatalf("the record: %v", err)
	}
	for line := range strings.SplitSeq(config+"\n"+wrong, "\n") {
		_, token, ok := strings.Cut(line, "token: ")
		if token = strings.TrimSpace(token); ok && (bytes.Contains(record, []byte(token)) || strings.Contains(l.said.String(), token)) {
			t.Error("S-23: a token is in the record, or was said")
		}
	}
}

// An update that fails names the resource and the cause, deletes nothing, and the
// next one succeeds.
func TestLocal_failed_S54(t *testing.T) {
	l := newLaptop(t)
	l.record = []string{"--record", l.namespace}
	l.must("apply", "shop", "-f", l.template(l.namespace, "", "a"))
	l.fails("Not-A-Name", "apply", "shop", "-f", l.template(l.namespace, "", "b", "Not-A-Name"))
	if got := there(t, l.client, l.namespace); !strings.Contains(got, "a") {
		t.Fatalf("S-54: there %q", got)
	}
	if out := l.must("list"); !strings.Contains(out, "failed") {
		t.Errorf("S-54: %s", out)
	}
	l.must("apply", "shop", "-f", l.template(l.namespace, "", "b"))
	if got := there(t, l.client, l.namespace); got != "b" {
		t.Errorf("S-54: there %q", got)
	}
}
