// Package chart tests the Helm chart as people use it: with the real helm, and
// against a real API server.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/clustertest"
)

const chartDir = "../../charts/radial"

func TestMain(m *testing.M) { clustertest.Main(m) }

// helm runs the real program with a configuration of its own.
func helm(ctx context.Context, t *testing.T, args ...string) (out, problems string, err error) {
	t.Helper()
	dir := os.Getenv("RADIAL_BIN")
	if dir == "" {
		dir = "../../bin"
	}
	program := filepath.Join(dir, "helm")
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("RADIAL_REQUIRE_TOOLS") == "1" {
			t.Fatalf("helm is not built: run `make helm` (%v)", err)
		}
		t.Skipf("helm is not built: run `make helm` (%v)", err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// values writes a values file.
func values(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// render returns the objects that the chart makes of values.
func render(t *testing.T, namespace, text string) []*unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, problems, err := helm(ctx, t, "template", "radial", chartDir, "--namespace", namespace, "--kube-version", "1.37.0", "--values", values(t, text))
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, problems)
	}
	return parse(t, out)
}

func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := d.Decode(&o.Object)
		switch {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatalf("%v in\n%s", err, text)
		case len(o.Object) > 0:
			objects = append(objects, o)
		}
	}
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// sets are the ways in which people install the chart.
var sets = map[string]string{
	"defaults": ``,
	"postgres with workers apart": `
store: {kind: postgres, postgres: {existingSecret: database}}
keys: {existingSecret: wrapping-key}
server: {replicas: 3}
workers: {separate: true, replicas: 2}
workerServer: {maxOperationConcurrency: 64}
`,
	"controller alone (K-35)": `
server: {enabled: false}
controller: {server: {url: "https://radial.example.com", caConfigMap: authority, tokenSecret: token}}
cluster: east
`,
	"server alone": `{controller: {enabled: false}, holding: {enabled: false}, crds: {install: false}}`,
	"everything": `
server:
  tls: {names: [radial.example.com]}
  aggregation: {enabled: true}
  service: {type: LoadBalancer, annotations: {a: b}}
  config: {keepAudit: 24h, workerServer: {lease: 20s}}
  env: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://collector:4318"}]
  podAnnotations: {a: b}
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: a, operator: Exists}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {a: b}}}]
  priorityClassName: system-cluster-critical
  serviceAccount: {annotations: {a: b}}
image: {pullSecrets: [registry]}
networkPolicy: {api: [{namespaceSelector: {}}], metrics: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
monitoring: {serviceMonitor: {enabled: true, labels: {release: p}}, rules: {enabled: true}, dashboard: {enabled: true}}
`,
	"services and a cloud provider": `
services: {enabled: true, platform: {cloudProvider: gcp, cloudAccount: acme, cloudLocation: here, objectStorage: cloud}}
`,
	"a certificate of one's own": `server: {tls: {existingSecret: certificate, caConfigMap: authority}}`,
}

// The grants of the chart are those of installation/, which developer mode and
// `radial init` use: nothing more is ever asked for.
func TestGrants_K35(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{"ClusterRole": true, "ClusterRoleBinding": true, "Role": true, "RoleBinding": true,
		"CustomResourceDefinition": true, "MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true,
		"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true}
	index := func(objects []*unstructured.Unstructured) map[string]map[string]any {
		out := map[string]map[string]any{}
		for _, o := range objects {
			if kinds[o.GetKind()] {
				unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
				if len(o.GetAnnotations()) == 0 {
					unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
				}
				out[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
			}
		}
		return out
	}
	files, err := filepath.Glob("../../installation/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("installation: %v, %v", files, err)
	}
	var want []*unstructured.Unstructured
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, parse(t, string(raw))...)
		name := filepath.Base(f)
		if name == "namespace.yaml" {
			continue
		}
		if mine, err := os.ReadFile(filepath.Join(chartDir, "files", name)); err != nil || !bytes.Equal(raw, mine) {
			t.Errorf("charts/radial/files/%s is not installation/%s: run `make chart-files` (%v)", name, name, err)
		}
	}
	if d := cmp.Diff(index(want), index(render(t, installation.Namespace, ""))); d != "" {
		t.Errorf("K-35: the chart's grants differ from installation/ (-installation +chart):\n%s", d)
	}
	// Each half alone asks for its half alone.
	for _, o := range render(t, installation.Namespace, sets["controller alone (K-35)"]) {
		if strings.Contains(o.GetName(), "server") {
			t.Errorf("K-35: the controller alone installs %s %s", o.GetKind(), o.GetName())
		}
	}
	// Another namespace is another account: no grant may lead to the default one.
	for _, o := range render(t, "elsewhere", sets["everything"]) {
		raw, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), installation.Namespace) {
			t.Errorf("in another namespace %s %s names %s", o.GetKind(), o.GetName(), installation.Namespace)
		}
	}
}

// Every pod passes the strictest of the Pod Security Standards, and no more
// than one process opens an SQLite file.
func TestPods(t *testing.T) {
	t.Parallel()
	for name, text := range sets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, o := range render(t, "radial-system", text) {
				if o.GetKind() != "Deployment" {
					continue
				}
				spec, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
				pod, _ := spec["securityContext"].(map[string]any)
				if pod["runAsNonRoot"] != true {
					t.Errorf("%s runs as root: %v", o.GetName(), pod)
				}
				for _, c := range spec["containers"].([]any) {
					c := c.(map[string]any)
					security, _ := c["securityContext"].(map[string]any)
					if security["readOnlyRootFilesystem"] != true || security["allowPrivilegeEscalation"] != false {
						t.Errorf("%s: %v", o.GetName(), security)
					}
					for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe", "resources"} {
						if c[probe] == nil {
							t.Errorf("%s has no %s", o.GetName(), probe)
						}
					}
				}
			}
		})
	}
}

// The values that are spelled in the specification keep their names (D-42).
func TestConcurrency_D42(t *testing.T) {
	t.Parallel()
	config := find(t, render(t, "radial-system", `workerServer: {maxOperationConcurrency: 7}`), "ConfigMap", "radial-server")
	text, _, _ := unstructured.NestedString(config.Object, "data", "config.yaml")
	if got := parse(t, text)[0].Object["workerServer"].(map[string]any)["maxOperationConcurrency"]; fmt.Sprint(got) != "7" {
		t.Errorf("D-42: workerServer.maxOperationConcurrency is %v (%T)", got, got)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values string
		// says is what the refusal names; "" is accepted.
		says string
	}{
		"defaults":                      {``, ""},
		"an unknown value":              {`{servr: {}}`, "servr"},
		"an unknown value deeper":       {`{server: {tls: {secret: x}}}`, "secret"},
		"a number as text":              {`{workerServer: {maxOperationConcurrency: "8"}}`, "maxOperationConcurrency"},
		"no operation at a time":        {`{workerServer: {maxOperationConcurrency: 0}}`, "maxOperationConcurrency"},
		"an extension in clear text":    {`{server: {extensions: [{name: A, url: "http://a.example.com"}]}}`, "url"},
		"sqlite on two replicas":        {`{server: {replicas: 2}}`, "replicas"},
		"sqlite and workers apart":      {`{workers: {separate: true}}`, "separate"},
		"postgres without its Secret":   {`{store: {kind: postgres}, keys: {existingSecret: k}}`, "existingSecret"},
		"postgres without a key":        {`{store: {kind: postgres, postgres: {existingSecret: d}}}`, "existingSecret"},
		"postgres":                      {`{store: {kind: postgres, postgres: {existingSecret: d}}, keys: {existingSecret: k}, server: {replicas: 5}}`, ""},
		"another store":                 {`{store: {kind: mysql}}`, "kind"},
		"a controller without a server": {`{server: {enabled: false}}`, "url"},
		"a controller of another's":     {`{server: {enabled: false}, controller: {server: {url: "https://r.example"}}}`, ""},
		"a control plane without TLS":   {`{controller: {server: {url: "http://r.example"}}}`, "url"},
		"a cluster that names none":     {`{cluster: East_1}`, "cluster"},
		"aggregation of foreign TLS":    {`{server: {aggregation: {enabled: true}, tls: {existingSecret: t}}}`, "existingSecret"},
		"a size without a unit":         {`{store: {sqlite: {size: "8"}}}`, "size"},
		"a budget in percent":           {`{server: {podDisruptionBudget: {maxUnavailable: "30%"}}}`, ""},
		"a variable without a name":     {`{server: {env: [{value: x}]}}`, "env"},
		"an odd log level":              {`{controller: {log: {level: loud}}}`, "level"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, problems, err := helm(ctx, t, "template", "radial", chartDir, "--kube-version", "1.37.0", "--values", values(t, c.values))
			switch {
			case c.says == "" && err != nil:
				t.Errorf("refused: %s", problems)
			case c.says != "" && err == nil:
				t.Error("accepted")
			case c.says != "" && !(strings.Contains(problems, "schema") && strings.Contains(problems, c.says)):
				t.Errorf("the refusal does not name %q: %s", c.says, problems)
			}
		})
	}
}

// TestOperatorListeners_D48: what stands off loopback at the server has TLS, and
// probes, policies and the ServiceMonitor know it.
func TestOperatorListeners_D48(t *testing.T) {
	t.Parallel()
	const all = "monitoring: {serviceMonitor: {enabled: true}}\nworkers: {separate: true}\nstore: {kind: postgres, postgres: {existingSecret: db}}\nkeys: {existingSecret: key}\n"
	own := map[string]any{"configMap": map[string]any{"name": "radial-server-tls-ca", "key": "ca.crt"}}
	theirs := map[string]any{"configMap": map[string]any{"name": "company", "key": "ca.crt"}}
	for name, c := range map[string]struct {
		values string
		ca     any
	}{
		"its own certificate":                  {all, own},
		"a certificate of the system's":        {all + "server: {tls: {existingSecret: cert}}\n", nil},
		"a certificate of another's authority": {all + "server: {tls: {existingSecret: cert, caConfigMap: company}}\n", theirs},
	} {
		t.Run("D-48 "+name, func(t *testing.T) {
			t.Parallel()
			ports := map[string]map[string]bool{} // by workload
			policies, monitors := 0, 0
			objects := render(t, "shop", c.values)
			for _, o := range objects {
				if o.GetKind() != "Deployment" {
					continue
				}
				containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
				container := containers[0].(map[string]any)
				ports[o.GetName()] = map[string]bool{}
				list, _, _ := unstructured.NestedSlice(container, "ports")
				for _, p := range list {
					ports[o.GetName()][p.(map[string]any)["name"].(string)] = true
				}
				want := "HTTPS"
				if o.GetName() == "radial-controller" {
					want = "HTTP"
				}
				for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
					if got, _, _ := unstructured.NestedString(container, probe, "httpGet", "scheme"); got != want {
						t.Errorf("D-48: the %s of %s is by %s, want %s", probe, o.GetName(), got, want)
					}
				}
			}
			if len(ports) != 3 {
				t.Fatalf("the workloads are %v", ports)
			}
			for _, o := range objects {
				switch o.GetKind() {
				case "NetworkPolicy":
					policies++
					rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "ingress")
					for _, r := range rules {
						list, _, _ := unstructured.NestedSlice(r.(map[string]any), "ports")
						for _, p := range list {
							if port := p.(map[string]any)["port"].(string); !ports[o.GetName()][port] {
								t.Errorf("the policy of %s lets through to port %q, which it has not", o.GetName(), port)
							}
						}
					}
				case "ServiceMonitor":
					monitors++
					endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "endpoints")
					server := endpoints[0].(map[string]any)
					tls, _ := server["tlsConfig"].(map[string]any)
					if server["port"] != "server" || server["scheme"] != "https" || tls["serverName"] != "radial-server.shop.svc" || tls["insecureSkipVerify"] != nil {
						t.Errorf("D-48: the server is scraped by %v", server)
					}
					if diff := cmp.Diff(c.ca, tls["ca"]); diff != "" {
						t.Errorf("D-48: its authority: %s", diff)
					}
				case "Service":
					if o.GetName() != "radial-metrics" {
						continue
					}
					list, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
					for i, want := range []string{"radial-server", "radial-controller"} {
						if target := list[i].(map[string]any)["targetPort"].(string); !ports[want][target] {
							t.Errorf("port %q of radial-metrics is none of %s", target, want)
						}
					}
				}
			}
			if policies != 3 || monitors != 1 {
				t.Errorf("%d policies and %d ServiceMonitors were looked at", policies, monitors)
			}
		})
	}
}
