package s3

import (
	"flag"
	"io/fs"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/providers/s3/installation"
)

func manifest(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := installation.Files.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// The provider's install is a Deployment and its own settings, and the key comes
// as a file.
func TestInstallation_C38_C148(t *testing.T) {
	files, err := fs.Glob(installation.Files, "*.yaml")
	if err != nil || !slices.Equal(files, []string{"deployment.yaml", "kustomization.yaml", "settings.yaml"}) {
		t.Fatalf("%v, %v", files, err)
	}
	var k struct {
		APIVersion, Kind string
		Resources        []string
	}
	manifest(t, "kustomization.yaml", &k)
	if slices.Sort(k.Resources); !slices.Equal(k.Resources, []string{"deployment.yaml", "settings.yaml"}) {
		t.Errorf("kustomization has %v", k.Resources)
	}
	var d appsv1.Deployment
	var settings corev1.ConfigMap
	manifest(t, "deployment.yaml", &d)
	manifest(t, "settings.yaml", &settings)
	pod := d.Spec.Template.Spec
	if d.Namespace != v1alpha1.ProviderNamespace || settings.Namespace != d.Namespace || pod.ServiceAccountName != v1alpha1.ProviderAccount {
		t.Errorf("it runs in %s as %s, with settings in %s", d.Namespace, pod.ServiceAccountName, settings.Namespace)
	}
	if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || len(pod.Containers) != 1 {
		t.Errorf("%+v", d.Spec)
	}
	c := pod.Containers[0]
	var from []string
	for _, e := range c.EnvFrom {
		if e.ConfigMapRef == nil {
			t.Fatalf("envFrom %+v: a key must not be in the environment", e)
		}
		from = append(from, e.ConfigMapRef.Name)
	}
	if !slices.Equal(from, []string{v1alpha1.ProviderConfigMap, settings.Name}) || len(c.Env) != 0 {
		t.Errorf("its environment is %v and %v", from, c.Env)
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	new(Config).flags(flags)
	variables := map[string]string{}
	flags.VisitAll(func(f *flag.Flag) {
		variables["RADIAL_PROVIDER_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))] = f.Name
	})
	for key := range settings.Data {
		if _, ok := variables[key]; !ok && key != provider.EnvInstallation {
			t.Errorf("settings.yaml has %s, which is no variable of the provider's", key)
		}
	}
	if _, ok := settings.Data[provider.EnvInstallation]; !ok {
		t.Errorf("settings.yaml does not have %s", provider.EnvInstallation)
	}
	if err := flags.Parse(c.Args); err != nil || flags.Lookup("credentials-file").Value.String() == "" {
		t.Errorf("%v: %v", c.Args, err)
	}
	mount := c.VolumeMounts[0]
	if !strings.HasPrefix(flags.Lookup("credentials-file").Value.String(), mount.MountPath+"/") || !mount.ReadOnly || pod.Volumes[0].Secret == nil || pod.Volumes[0].Name != mount.Name {
		t.Errorf("the key is read from %s, and %s is mounted", flags.Lookup("credentials-file").Value, mount.MountPath)
	}
	sc := c.SecurityContext
	if !*pod.SecurityContext.RunAsNonRoot || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem || !slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Error("it runs with more than it needs")
	}
}

// A real API server takes both, field by field.
func TestInstallationServed_C38(t *testing.T) {
	k := ankkatest.Installed(t)
	for file, o := range map[string]client.Object{"deployment.yaml": &appsv1.Deployment{}, "settings.yaml": &corev1.ConfigMap{}} {
		manifest(t, file, o)
		if err := k.Admin.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
