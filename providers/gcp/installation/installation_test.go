package installation

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/installation/ankka"
	"github.com/radial-project/radial/provider"
)

const overlay = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../base, platform-configmap.yaml]
components: [../../components/settings, ../../components/cloud-provider%s]
`

const platform = `
apiVersion: v1
kind: ConfigMap
metadata: {name: ankka-platform, namespace: ankka-platform}
data:
  cloudProvider: gcp
  cloudAccount: acme-production
  cloudLocation: europe-west2
  cloudKmsKey: ""
  cloudAcknowledgementBound: 3m
  cloudRotationGrace: 90m
  objectStorage: cloud
  projectSecrets: cluster
  backups: none
  keyring: local
  objectStorageNamePrefix: acme
`

// render is an installation's objects by kind and name.
func render(t *testing.T, component string) map[string]string {
	t.Helper()
	mem := filesys.MakeFsInMemory()
	add := func(files fs.FS, at string) {
		err := fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := fs.ReadFile(files, p)
			if err != nil {
				return err
			}
			return mem.WriteFile(path.Join(at, p), raw)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(ankka.Files, "/ankka")
	add(Files, "/ankka/components/gcp")
	for p, text := range map[string]string{"kustomization.yaml": strings.Replace(overlay, "%s", component, 1), "platform-configmap.yaml": platform} {
		if err := mem.WriteFile("/ankka/overlays/acme/"+p, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(mem, "/ankka/overlays/acme")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range m.Resources() {
		raw, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		out[r.GetKind()+" "+r.GetNamespace()+"/"+r.GetName()] = string(raw)
	}
	return out
}

func read[T any](t *testing.T, text string) T {
	t.Helper()
	var o T
	if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// The install adds a Deployment and an annotation, and is given no key.
func TestRender_C38_C39_C42_C148(t *testing.T) {
	const (
		deployment = "Deployment ankka-cloud-provider/radial-provider-gcp"
		account    = "ServiceAccount ankka-cloud-provider/ankka-cloud-provider"
		annotation = "iam.gke.io/gcp-service-account"
	)
	without, with := render(t, ""), render(t, ", ../../components/gcp")
	for name, text := range with {
		if name != deployment && name != account && without[name] != text {
			t.Errorf("C-38: the install has or changes %s", name)
		}
	}
	if len(with) != len(without)+1 {
		t.Errorf("C-38: %d objects become %d", len(without), len(with))
	}
	sa := read[corev1.ServiceAccount](t, with[account])
	if !strings.HasSuffix(sa.Annotations[annotation], ".iam.gserviceaccount.com") {
		t.Errorf("C-39: annotations %v", sa.Annotations)
	}
	delete(sa.Annotations, annotation)
	before := read[corev1.ServiceAccount](t, without[account])
	if len(sa.Annotations) != 0 || len(sa.Labels) != len(before.Labels) || len(sa.Secrets)+len(sa.ImagePullSecrets) != 0 {
		t.Errorf("C-39: the ServiceAccount changes by more than an annotation: %+v", sa)
	}
	d := read[appsv1.Deployment](t, with[deployment])
	pod := d.Spec.Template.Spec
	if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || pod.ServiceAccountName != "ankka-cloud-provider" || len(pod.Containers) != 1 {
		t.Fatalf("%+v", d.Spec)
	}
	c := pod.Containers[0]
	if len(c.EnvFrom) != 1 || c.EnvFrom[0].ConfigMapRef == nil || c.EnvFrom[0].ConfigMapRef.Name != "ankka-cloud" {
		t.Errorf("C-38: envFrom %+v", c.EnvFrom)
	}
	if len(pod.Volumes) != 0 || len(c.VolumeMounts) != 0 || strings.Contains(with[deployment], "ecretKeyRef") || strings.Contains(with[deployment], "secretRef") {
		t.Error("C-42: the Deployment has a volume or a Secret")
	}
	// What it reads is all that the provider needs to start.
	env := read[corev1.ConfigMap](t, with["ConfigMap ankka-cloud-provider/ankka-cloud"]).Data
	for _, e := range c.Env {
		if _, ok := env[e.Name]; ok || e.ValueFrom != nil {
			t.Errorf("C-38: %s is set twice or from elsewhere", e.Name)
		}
		env[e.Name] = e.Value
	}
	s, err := provider.LoadSettings("gcp", func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil || s.Account != "acme-production" || s.Installation == "" || s.RotationGrace.Minutes() != 90 {
		t.Errorf("C-148: %+v, %v", s, err)
	}
}

// The operator's program and the platform's have nothing of Google's in them.
func TestOwnModule_C1_C40(t *testing.T) {
	out, err := exec.Command("go", "list", "-C", "../../..", "-deps", "./cmd/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, d := range deps {
		for _, of := range []string{"google.golang.org/api/", "cloud.google.com/", "golang.org/x/oauth2/google", "github.com/radial-project/radial/providers/"} {
			if strings.HasPrefix(d, of) {
				t.Errorf("C-40: a program of the platform holds %s", d)
			}
		}
	}
	if !slices.Contains(deps, "github.com/radial-project/radial/cmd/radial-operator") {
		t.Error("the operator is not among the programs")
	}
}

var permission = regexp.MustCompile(`"((?:storage\.[a-zA-Z]+|iam\.serviceAccounts|resourcemanager\.projects|secretmanager\.[a-zA-Z]+|cloudkms\.[a-zA-Z]+)\.[a-zA-Z]+)`)

// The page names every permission that the provider uses, and says what they
// come to.
func TestRoles_C43(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/cloud/gcp.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	n := 0
	files, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		src, err := os.ReadFile("../" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range permission.FindAllStringSubmatch(string(src), -1) {
			n++
			if !strings.Contains(page, m[1]) {
				t.Errorf("C-43: the page does not name %s", m[1])
			}
		}
	}
	if n < 15 {
		t.Errorf("%d permissions found", n)
	}
	for _, words := range []string{"equal to an owner's", "no key file", "roles/resourcemanager.projectIamAdmin", "roles/iam.serviceAccountAdmin"} {
		if !strings.Contains(page, words) {
			t.Errorf("C-43: the page does not say %q", words)
		}
	}
}
