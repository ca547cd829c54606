package ankka_test

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/installation/ankka"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/cloud"
)

// render runs kustomize over the manifests, with files added to them.
func render(t *testing.T, overlay string, add map[string]string) resmap.ResMap {
	t.Helper()
	mem := filesys.MakeFsInMemory()
	err := fs.WalkDir(ankka.Files, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := ankka.Files.ReadFile(p)
		if err != nil {
			return err
		}
		return mem.WriteFile(path.Join("/ankka", p), raw)
	})
	if err != nil {
		t.Fatal(err)
	}
	for p, text := range add {
		if err := mem.WriteFile(path.Join("/ankka", p), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(mem, path.Join("/ankka", overlay))
	if err != nil {
		t.Fatalf("kustomize build %s: %v", overlay, err)
	}
	return m
}

// object reads the one object of a kind and name.
func object[T any](t *testing.T, m resmap.ResMap, kind, name string) T {
	t.Helper()
	var found []T
	for _, r := range m.Resources() {
		if r.GetKind() != kind || r.GetName() != name {
			continue
		}
		raw, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var o T
		if err := yaml.UnmarshalStrict(raw, &o); err != nil {
			t.Fatalf("%s %s: %v", kind, name, err)
		}
		found = append(found, o)
	}
	if len(found) != 1 {
		t.Fatalf("%d objects %s %s", len(found), kind, name)
	}
	return found[0]
}

func ids(m resmap.ResMap) []string {
	var out []string
	for _, r := range m.Resources() {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s/%s/%s", r.GetKind(), r.GetNamespace(), r.GetName()), "/"))
	}
	slices.Sort(out)
	return out
}

func allKeys() []cloud.Key { return slices.Concat(cloud.CloudKeys(), cloud.ChoiceKeys()) }

// An overlay as an installation writes it, with a value for each key that no
// other key has: with the shipped values a lost replacement would not show.
const distinctOverlay = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../base, platform-configmap.yaml]
components: [%s]
`

func distinct(t *testing.T, components string) (resmap.ResMap, map[string]string) {
	t.Helper()
	values := map[string]string{}
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ankka-platform, namespace: ankka-platform}\ndata:\n"
	for i, k := range allKeys() {
		values[k.Variable] = fmt.Sprintf("value-%d-of-%s", i, k.ConfigMap)
		config += fmt.Sprintf("  %s: %s\n", k.ConfigMap, values[k.Variable])
	}
	return render(t, "overlays/acme", map[string]string{
		"overlays/acme/kustomization.yaml":      fmt.Sprintf(distinctOverlay, components),
		"overlays/acme/platform-configmap.yaml": config,
	}), values
}

func TestRender_C15_C16_C36_C155(t *testing.T) {
	for _, components := range []string{
		"../../components/settings, ../../components/cloud-provider",
		"../../components/cloud-provider, ../../components/settings",
	} {
		m, values := distinct(t, components)
		for deployment, container := range map[string]string{"ankka-operator": "operator", "radial-server": "server"} {
			d := object[appsv1.Deployment](t, m, "Deployment", deployment)
			if len(d.Spec.Template.Spec.Containers) != 1 || len(d.Spec.Template.Spec.InitContainers) != 0 {
				t.Fatalf("C-16: %s has containers %v", deployment, d.Spec.Template.Spec.Containers)
			}
			c := d.Spec.Template.Spec.Containers[0]
			if c.Name != container || len(c.EnvFrom) != 0 {
				t.Errorf("C-16: %s: container %s, envFrom %v", deployment, c.Name, c.EnvFrom)
			}
			got := map[string]string{}
			for _, e := range c.Env {
				if !cloud.Reserved(e.Name) {
					continue
				}
				if _, twice := got[e.Name]; twice || e.ValueFrom != nil {
					t.Errorf("C-16: %s has %s twice, or from elsewhere", deployment, e.Name)
				}
				got[e.Name] = e.Value
			}
			if !maps.Equal(got, values) {
				t.Errorf("C-15 C-155: %s has %v, want %v", deployment, got, values)
			}
		}
		want := map[string]string{}
		for _, k := range cloud.CloudKeys() {
			want[k.Variable] = values[k.Variable]
		}
		c := object[corev1.ConfigMap](t, m, "ConfigMap", "ankka-cloud")
		if !maps.Equal(c.Data, want) || c.Namespace != "ankka-cloud-provider" || len(c.BinaryData) != 0 {
			t.Errorf("C-15 C-36: ankka-cloud in %s has %v, want %v", c.Namespace, c.Data, want)
		}
	}
}

// What is shipped: an installation without a provider, whose settings are good
// as they stand and hold each key once.
func TestRender_C13_C21_C22(t *testing.T) {
	m := render(t, "overlays/default", nil)
	c := object[corev1.ConfigMap](t, m, "ConfigMap", "ankka-platform")
	var keys []string
	env := map[string]string{}
	for _, k := range allKeys() {
		keys = append(keys, k.ConfigMap)
		env[k.Variable] = c.Data[k.ConfigMap]
	}
	if got, want := slices.Sorted(maps.Keys(c.Data)), slices.Sorted(slices.Values(keys)); !slices.Equal(got, want) {
		t.Errorf("C-13: keys %v, want %v", got, want)
	}
	if c.Data["cloudAcknowledgementBound"] != "2m" || c.Data["cloudRotationGrace"] != "1h" || c.Data["cloudProvider"] != "none" {
		t.Errorf("C-21 C-22: %v", c.Data)
	}
	s, err := cloud.Load(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil || s.HasProvider() {
		t.Errorf("the shipped settings: %+v, %v", s, err)
	}
	for _, id := range ids(m) {
		if strings.Contains(id, "ankka-cloud") {
			t.Errorf("without the component there is %s", id)
		}
	}
}

// Without component settings nothing says anything, so that the processes stop
// rather than take something for granted.
func TestRender_NothingByDefault_C16(t *testing.T) {
	m, _ := distinct(t, "../../components/cloud-provider")
	for _, deployment := range []string{"ankka-operator", "radial-server"} {
		env := map[string]string{}
		for _, e := range object[appsv1.Deployment](t, m, "Deployment", deployment).Spec.Template.Spec.Containers[0].Env {
			env[e.Name] = e.Value
		}
		if _, err := cloud.Load(func(name string) (string, bool) { v, ok := env[name]; return v, ok }); err == nil {
			t.Errorf("C-16: %s starts without settings", deployment)
		}
	}
}

// The component, and nothing beside it.
func TestRender_C33_C34_C35_C37(t *testing.T) {
	with, _ := distinct(t, "../../components/settings, ../../components/cloud-provider")
	without, _ := distinct(t, "../../components/settings")
	before := ids(without)
	var added []string
	for _, id := range ids(with) {
		if !slices.Contains(before, id) {
			added = append(added, id)
		}
	}
	want := []string{
		"ClusterRole//ankka-cloud-provider",
		"ClusterRoleBinding//ankka-cloud-provider",
		"ConfigMap/ankka-cloud-provider/ankka-cloud",
		"Namespace//ankka-cloud-provider",
		"ServiceAccount/ankka-cloud-provider/ankka-cloud-provider",
		"ValidatingAdmissionPolicy//ankka-cloud-provider-secrets",
		"ValidatingAdmissionPolicyBinding//ankka-cloud-provider-secrets",
	}
	if !slices.Equal(added, want) {
		t.Errorf("C-33 C-34 C-35 C-37: the component adds %v, want %v", added, want)
	}
	b := object[rbacv1.ClusterRoleBinding](t, with, "ClusterRoleBinding", "ankka-cloud-provider")
	if b.RoleRef.Name != "ankka-cloud-provider" || !slices.Equal(b.Subjects, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "ankka-cloud-provider", Namespace: "ankka-cloud-provider"}}) {
		t.Errorf("C-35: %+v", b)
	}
	// Nothing else in the installation grants that account anything.
	for _, r := range with.Resources() {
		raw, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		if k := r.GetKind(); (k == "RoleBinding" || k == "ClusterRoleBinding" && r.GetName() != "ankka-cloud-provider") && strings.Contains(string(raw), "ankka-cloud-provider") {
			t.Errorf("C-35: %s %s grants more", k, r.GetName())
		}
	}
}

// The operator runs as itself, in the platform's namespace, without a cloud's
// mark on its account; the provider's account and namespace are its own.
func TestRender_C1_C2(t *testing.T) {
	m, _ := distinct(t, "../../components/settings, ../../components/cloud-provider")
	d := object[appsv1.Deployment](t, m, "Deployment", "ankka-operator")
	operator := object[corev1.ServiceAccount](t, m, "ServiceAccount", "ankka-operator")
	provider := object[corev1.ServiceAccount](t, m, "ServiceAccount", "ankka-cloud-provider")
	if d.Spec.Template.Spec.ServiceAccountName != operator.Name || d.Namespace != operator.Namespace || len(operator.Annotations) != 0 {
		t.Errorf("C-1: the operator runs as %s, annotated %v", d.Spec.Template.Spec.ServiceAccountName, operator.Annotations)
	}
	if operator.Namespace == provider.Namespace || operator.Name == provider.Name {
		t.Errorf("C-2: %s/%s and %s/%s", operator.Namespace, operator.Name, provider.Namespace, provider.Name)
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.Secret != nil || v.Projected != nil {
			t.Errorf("C-1: the operator mounts %s", v.Name)
		}
	}
}

// warned keeps what the API server warns of: an unknown field, a deprecated
// version, a pod that the namespace's standard would not admit.
type warned struct {
	mu   sync.Mutex
	said []string
}

func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// The API server takes all that kustomize makes, fields and pods and all.
func TestRender_IsTaken(t *testing.T) {
	w := cluster(t)
	var warnings warned
	config := rest.CopyConfig(w.Config)
	config.WarningHandler = &warnings
	k := ankkatest.Connect(t, config)
	m, _ := distinct(t, "../../components/settings, ../../components/cloud-provider")
	taken := 0
	for _, r := range m.Resources() {
		raw, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, &u.Object); err != nil {
			t.Fatal(err)
		}
		err = k.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("installer"), client.ForceOwnership, client.DryRunAll)
		if err != nil {
			t.Errorf("%s %s: %v", r.GetKind(), r.GetName(), err)
		}
		taken++
	}
	if taken < 20 {
		t.Errorf("only %d objects", taken)
	}
	for _, text := range warnings.said {
		t.Errorf("the API server warns: %s", text)
	}
}
