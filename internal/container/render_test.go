package container

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/internal/connection"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/manifest"
)

var update = flag.Bool("update", false, "write testdata anew")

var (
	group = core.GroupID("default")
	web   = group.Resource(Type, "Web")
	vault = group.Resource(typeStores, "keys")
)

func resource(id core.ID, properties string) core.Resource {
	return core.Resource{ID: id, Properties: json.RawMessage(properties)}
}

// input is a container with properties in YAML, of an application and an
// environment with metadata of their own.
func input(t *testing.T, properties string) Input {
	t.Helper()
	props := map[string]any{}
	if err := yaml.Unmarshal([]byte(properties), &props); err != nil {
		t.Fatal(err)
	}
	if _, ok := props["container"]; !ok {
		props["container"] = map[string]any{"image": "registry.example.com/web:1"}
	}
	props["application"] = group.Resource("Applications.Core/applications", "shop").String()
	// What is rendered is what the type's schema lets through.
	tv, err := manifest.NewRegistry(manifest.Builtin()...).Lookup(Type, "2023-10-01-preview")
	if err != nil {
		t.Fatal(err)
	}
	if err := tv.Schema.Validate(props); err != nil {
		t.Fatalf("the schema refuses it: %v", err)
	}
	app := resource(group.Resource("Applications.Core/applications", "shop"), `{"extensions":[{"kind":"kubernetesMetadata","labels":{"team":"shop","tier":"application"}}]}`)
	return Input{
		ID: web, Properties: props, Application: &app, Namespace: "shop", HashKey: []byte("key of the container"),
		Environment: resource(group.Resource("Applications.Core/environments", "test"), `{"extensions":[{"kind":"kubernetesMetadata","labels":{"tier":"environment"},"annotations":{"example.com/stage":"test"}}]}`),
		Carried:     map[string]map[string]any{"redis": {"host": "cache.example", "port": 6379, "password": "hunter2", "scheme": "redis"}},
		Stores: map[string]core.Resource{vault.Key(): resource(vault, `{"resource":"shop/keys","data":{
			"api":{"value":"sesame"},"packed":{"value":"c2VzYW1l","encoding":"base64"},"kept":{}}}`)},
	}
}

// TestRender_K39 holds each container of testdata to the objects beside it. Run
// with -update to write them anew, and read what changed.
func TestRender_K39(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("testdata/*.container.yaml")
	if err != nil || len(cases) < 8 {
		t.Fatalf("%d cases (%v)", len(cases), err)
	}
	for _, path := range cases {
		name := strings.TrimSuffix(filepath.Base(path), ".container.yaml")
		t.Run("K-39 "+name, func(t *testing.T) {
			t.Parallel()
			properties, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			made, err := Render(input(t, string(properties)))
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			for _, o := range made.Objects {
				raw, err := yaml.Marshal(map[string]any{"symbol": o.Symbol, "type": o.Type, "needs": o.Needs, "body": o.Body})
				if err != nil {
					t.Fatal(err)
				}
				b.WriteString("---\n")
				b.Write(raw)
			}
			for _, text := range made.Warnings {
				b.WriteString("# warning: " + text + "\n")
			}
			for _, id := range made.References {
				b.WriteString("# reference: " + id + "\n")
			}
			golden := filepath.Join("testdata", name+".objects.yaml")
			if *update {
				if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("it renders\n%s\nwant\n%s", b.String(), want)
			}
			again, err := Render(input(t, string(properties)))
			if err != nil {
				t.Fatal(err)
			}
			one, _ := json.Marshal(made)
			other, _ := json.Marshal(again)
			if !bytes.Equal(one, other) {
				t.Error("the same container renders otherwise")
			}
		})
	}
}

// TestUnrenderable_K39: what cannot be rendered is refused by the property's
// name, with what to do.
func TestUnrenderable_K39(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, properties, target, says string }{
		{"restart policy", `restartPolicy: Never`, "restartPolicy", "take it out"},
		{"another platform", `runtimes: {aci: {gatewayID: x}}`, "runtimes.aci", "take it out"},
		{"a recipe", `recipe: {name: mine}`, "recipe", "Radius.Compute/containers"},
		{"roles", `connections: {db: {source: /planes/radius/local/resourceGroups/g/providers/A.B/c/d, iam: {kind: azure, roles: [x]}}}`, "connections.db.iam", "take it out"},
		{"a resource of Azure", `connections: {db: {source: /subscriptions/s/resourceGroups/g}}`, "connections.db.source", "container.env"},
		{"an identity of another kind", `identity: {kind: azure.com.workload}`, "identity.kind", "systemAssigned"},
		{"an identity's issuer", `identity: {kind: systemAssigned, oidcIssuer: https://x}`, "identity.oidcIssuer", "take it out"},
		{"a persistent volume", `container: {image: i, volumes: {v: {kind: persistent, source: s, mountPath: /v}}}`, "container.volumes.v.kind", "PersistentVolumeClaim"},
		{"a volume without a path", `container: {image: i, volumes: {v: {kind: ephemeral, managedStore: disk}}}`, "container.volumes.v.mountPath", "where the volume is mounted"},
		{"a volume's name", `container: {image: i, volumes: {V_1: {kind: ephemeral, managedStore: disk, mountPath: /v}}}`, "container.volumes.V_1", "rename it"},
		{"a fraction", `container: {image: i, readinessProbe: {kind: tcp, containerPort: 1, periodSeconds: 1.5}}`, "container.readinessProbe.periodSeconds", "round it"},
		{"an empty command", `container: {image: i, livenessProbe: {kind: exec, command: ' '}}`, "container.livenessProbe.command", "say what is run"},
		{"a variable with two values", `container: {image: i, env: {A: {value: x, valueFrom: {secretRef: {source: s, key: k}}}}}`, "container.env.A", "take one of them out"},
		{"a variable with none", `container: {image: i, env: {A: {}}}`, "container.env.A", "give it one"},
		{"a variable's name", `container: {image: i, env: {'A=B': {value: x}}}`, "container.env.A=B", "no name of a variable"},
		{"a secret of another type", `container: {image: i, env: {A: {valueFrom: {secretRef: {source: /planes/radius/local/resourceGroups/g/providers/A.B/c/d, key: k}}}}}`, "container.env.A.valueFrom.secretRef.source", "secretStores"},
		{"a secret's name", `container: {image: i, env: {A: {valueFrom: {secretRef: {source: No_Name, key: k}}}}}`, "container.env.A.valueFrom.secretRef.source", "name of a Secret"},
		{"a port twice", `container: {image: i, ports: {a: {containerPort: 80}, b: {containerPort: 81, port: 80}}}`, "container.ports.b.port", "another"},
		{"a port's name", `container: {image: i, ports: {a_b: {containerPort: 80}}}`, "container.ports.a_b", "rename it"},
		{"two of an extension", `extensions: [{kind: manualScaling, replicas: 1}, {kind: manualScaling, replicas: 2}]`, "extensions", "make one"},
		{"an adoption", `extensions: [{kind: kubernetesMetadata, annotations: {radapp.io/enabled: 'true'}}]`, "extensions", "take it out"},
		{"a label of ours", `extensions: [{kind: kubernetesMetadata, labels: {radapp.io/resource: other}}]`, "extensions", "take it out"},
		{"a base that is no YAML", `runtimes: {kubernetes: {base: '{'}}`, "runtimes.kubernetes.base", "no manifest"},
		{"a kind", `runtimes: {kubernetes: {base: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: web}"}}`, "runtimes.kubernetes.base", "ClusterRoleBinding"},
		{"a namespace", `runtimes: {kubernetes: {base: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: kube-system}"}}`, "runtimes.kubernetes.base", "take it out"},
		{"another name", `runtimes: {kubernetes: {base: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: other}"}}`, "runtimes.kubernetes.base", "must be named web"},
		{"two Services", `runtimes: {kubernetes: {base: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}"}}`, "runtimes.kubernetes.base", "two"},
		{"a field that is misspelt", `runtimes: {kubernetes: {base: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replica: 2}"}}`, "runtimes.kubernetes.base", "fields of its kind"},
		{"a base with finalizers", `runtimes: {kubernetes: {base: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, finalizers: [example.com/theirs]}"}}`, "runtimes.kubernetes.base", "take them out"},
		{"an adopted base", `runtimes: {kubernetes: {base: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: {radapp.io/connection-a: b}}"}}`, "runtimes.kubernetes.base", "take it out"},
		{"a patch of nothing", `runtimes: {kubernetes: {pod: {containrs: []}}}`, "runtimes.kubernetes.pod", "does not have"},
		{"a patch of the wrong type", `runtimes: {kubernetes: {pod: {containers: {}}}}`, "runtimes.kubernetes.pod", "typed as there"},
		{"a patch of the account", `{identity: {kind: systemAssigned}, runtimes: {kubernetes: {pod: {serviceAccountName: other}}}}`, "runtimes.kubernetes.pod.serviceAccountName", "take it out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, c.properties)
			in.Draft = true
			_, err := Render(in)
			e := core.AsError(err)
			if err == nil || e.Code != core.CodeInvalidContent || e.Target != "properties."+c.target || !strings.Contains(e.Message, e.Target) || !strings.Contains(e.Message, c.says) {
				t.Errorf("it is refused by %v, at %q", err, e.Target)
			}
		})
	}
	t.Run("no container", func(t *testing.T) {
		t.Parallel()
		in := input(t, "")
		delete(in.Properties, "container")
		if _, err := Render(in); err == nil || !strings.Contains(err.Error(), "properties.container") || !strings.Contains(err.Error(), "manual") {
			t.Errorf("it is refused by %v", err)
		}
	})
	t.Run("a name", func(t *testing.T) {
		t.Parallel()
		in := input(t, "")
		in.ID = group.Resource(Type, "web.site")
		if _, err := Render(in); err == nil || !strings.Contains(err.Error(), "another name") {
			t.Errorf("it is refused by %v", err)
		}
	})
	t.Run("an annotation of the environment", func(t *testing.T) {
		t.Parallel()
		in := input(t, "")
		in.Environment = resource(in.Environment.ID, `{"extensions":[{"kind":"kubernetesMetadata","annotations":{"radapp.io/connection-a":"b"}}]}`)
		if _, err := Render(in); err == nil || !strings.Contains(err.Error(), "environment test") {
			t.Errorf("it is refused by %v", err)
		}
	})
}

// The same functions as the controller's make the variables, their Secret's name
// and their hash.
func TestConnections_K20(t *testing.T) {
	t.Parallel()
	in := input(t, `connections: {redis: {source: /planes/radius/local/resourceGroups/g/providers/A.B/c/d}}`)
	made, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	variables, _ := connection.Variables("redis", in.Carried["redis"])
	hash := connection.Hash(in.HashKey, "shop/web", variables)
	var secret, deployment map[string]any
	for _, o := range made.Objects {
		switch o.Symbol {
		case symbolSecret:
			secret = o.Body
		case symbolDeployment:
			deployment = o.Body
		}
	}
	if name := secret["metadata"].(map[string]any)["name"]; name != connection.SecretName("web", hash) || secret["immutable"] != true {
		t.Errorf("K-20: the Secret is %v, immutable %v", name, secret["immutable"])
	}
	raw, err := json.Marshal(deployment)
	if err != nil || strings.Contains(string(raw), "hunter2") || !strings.Contains(string(raw), `"`+connection.HashAnnotation+`":"`+hash+`"`) {
		t.Errorf("K-17, K-19: the Deployment is %s", raw)
	}
	t.Run("nothing of them is in the template's text or its open parameter", func(t *testing.T) {
		t.Parallel()
		_, parameters, err := made.template()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(parameters[parameterObjects])
		if err != nil || strings.Contains(string(raw), "hunter2") || strings.Contains(string(raw), "aHVudGVyMg") {
			t.Errorf("the open parameter is %s (%v)", raw, err)
		}
	})
	t.Run("another key has another hash", func(t *testing.T) {
		t.Parallel()
		if connection.Hash([]byte("another"), "shop/web", variables) == hash {
			t.Error("the hash can be tried without the key")
		}
	})
}
