package chart

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/client/contexts"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
)

// process is a program of bin/ that runs as the chart says, on this machine.
type process struct {
	clustertest.Buffer // its log
	ended              chan struct{}
}

func launch(t *testing.T, program string, environment []string, args ...string) *process {
	t.Helper()
	p := &process{ended: make(chan struct{})}
	cmd := exec.Command(program, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, environment...)
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(program), p)
		}
	})
	return p
}

// answers waits until a URL answers 200.
func (p *process) answers(ctx context.Context, t *testing.T, c *http.Client, url string) {
	t.Helper()
	var last string
	for {
		resp, err := c.Get(url)
		if err == nil {
			raw, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
			last = string(raw)
		} else {
			last = err.Error()
		}
		select {
		case <-p.ended:
			t.Fatalf("it ended before %s answered", url)
		case <-ctx.Done():
			t.Fatalf("%s does not answer: %s", url, last)
		case <-time.After(50 * time.Millisecond): // a probe is all there is to ask
		}
	}
}

// kubeconfig is the chart's ServiceAccount on the test's cluster.
func kubeconfig(ctx context.Context, t *testing.T, clients kubernetes.Interface, cluster *rest.Config, namespace, account string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	clustertest.WriteKubeconfig(t, path, clustertest.WithToken(cluster, token(ctx, t, clients, namespace, account)))
	return path
}

func token(ctx context.Context, t *testing.T, clients kubernetes.Interface, namespace, account string, audiences ...string) string {
	t.Helper()
	r, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: ptr.To(int64(3600))}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The real programs run with the configuration that the chart renders, under
// the accounts and the grants that it installs: the server with certificates of
// its own, the controller by its token, as far as following its changes (K-35).
// Only addresses and places of files are this machine's.
func TestProcesses_K35(t *testing.T) {
	server, controller := tool(t, "radial-server"), tool(t, "radial-controller")
	c := clustertest.Start(t)
	clients, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const namespace = "chart-processes"
	run := func(args ...string) {
		t.Helper()
		if out, problems, err := helm(ctx, t, append(args, "--kubeconfig", c.Kubeconfig, "--namespace", namespace)...); err != nil {
			t.Fatalf("helm: %v\n%s\n%s", err, out, problems)
		}
	}
	run("install", "radial", chartDir, "--create-namespace", "--take-ownership", "--set", "server.replicas=0,controller.replicas=0,holding.enabled=false")
	defer run("uninstall", "radial")
	objects := render(t, namespace, "")

	dir := t.TempDir()
	var settings map[string]any
	text, _, _ := unstructured.NestedString(find(t, objects, "ConfigMap", "radial-server").Object, "data", "config.yaml")
	if err := yaml.Unmarshal([]byte(text), &settings); err != nil {
		t.Fatal(err)
	}
	listen, operator := address(t), address(t)
	settings["listen"], settings["metricsListen"] = listen, operator
	settings["store"], settings["keyFile"] = "sqlite:"+filepath.Join(dir, "radial.db"), filepath.Join(dir, "key")
	raw, err := yaml.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	plane := launch(t, server, nil, "--config", file, "--kubeconfig", kubeconfig(ctx, t, clients, c.Config, namespace, "radial-server"))
	plane.answers(ctx, t, http.DefaultClient, "http://"+operator+"/readyz")

	// The certificate is the server's own, and its authority where the
	// controller's pod mounts it.
	var bundle *corev1.ConfigMap
	for bundle == nil {
		if bundle, err = clients.CoreV1().ConfigMaps(namespace).Get(ctx, "radial-server-tls-ca", metav1.GetOptions{}); err != nil {
			t.Fatalf("the authority is not published: %v", err)
		}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(bundle.Data["ca.crt"])) {
		t.Fatal("the published authority is none")
	}
	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	plane.answers(ctx, t, trusting, "https://"+listen+"/readyz")
	if resp, err := trusting.Get("https://" + listen + "/planes?api-version=2023-10-01-preview"); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a caller who does not say who they are gets %v, %v", resp, err)
	}

	authority, identity := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	for path, content := range map[string]string{authority: bundle.Data["ca.crt"], identity: token(ctx, t, clients, namespace, "radial-controller", "radial")} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A cluster administrator is root. The controller's role comes with the
	// configuration.
	people, err := contexts.Load(filepath.Join(dir, "contexts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	me, err := people.Transport(contexts.Context{Name: "x", Server: "https://" + listen, CAFile: authority, Kubeconfig: &contexts.Kubeconfig{Path: c.Kubeconfig}})
	if err != nil {
		t.Fatal(err)
	}
	admin := client.New("https://"+listen, client.Options{Transport: me})
	assignment := core.MustParseID("/planes/radius/local").Resource("System.Authorization/roleAssignments", "ann")
	body := `{"properties":{"role":"Reader","principal":{"kind":"user","name":"ann"}}}`
	if _, err := admin.Put(ctx, assignment, "2023-10-01-preview", jsonBody(body)); err != nil {
		t.Fatalf("the administrator of the cluster cannot assign a role: %v", err)
	}

	health := address(t)
	var args []string
	containers, _, _ := unstructured.NestedSlice(find(t, objects, "Deployment", "radial-controller").Object, "spec", "template", "spec", "containers")
	for _, a := range containers[0].(map[string]any)["args"].([]any) {
		name, _, _ := strings.Cut(a.(string), "=")
		here := map[string]string{
			"--server": "https://" + listen, "--server-ca-file": authority, "--server-token-file": identity,
			"--health-listen": health, "--metrics-listen": "0",
		}
		if v, ok := here[name]; ok {
			a = name + "=" + v
		}
		args = append(args, a.(string))
	}
	adopter := launch(t, controller, nil, append(args, "--kubeconfig", kubeconfig(ctx, t, clients, c.Config, namespace, "radial-controller"))...)
	adopter.answers(ctx, t, http.DefaultClient, "http://"+health+"/readyz")
	lease := func() bool {
		l, err := clients.CoordinationV1().Leases(namespace).Get(ctx, "radial-controller", metav1.GetOptions{})
		return err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != ""
	}
	for !lease() {
		select {
		case <-ctx.Done():
			t.Fatal("K-35: no controller leads")
		case <-time.After(50 * time.Millisecond):
		}
	}
	// Being the leader, ready means that the control plane's changes are followed.
	adopter.answers(ctx, t, http.DefaultClient, "http://"+health+"/readyz")
	for _, said := range []string{"forbidden", "Forbidden"} {
		for who, p := range map[string]*process{"server": plane, "controller": adopter} {
			if strings.Contains(p.String(), said) {
				t.Errorf("K-35: the %s asks for more than it is granted:\n%s", who, p)
			}
		}
	}
}

type jsonBody []byte

// MarshalJSON implements [json.Marshaler].
func (b jsonBody) MarshalJSON() ([]byte, error) { return b, nil }
