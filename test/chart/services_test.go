package chart

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/radial-project/radial/installation/ankka"
	"github.com/radial-project/radial/internal/cloud"
)

// platform is services.platform with a value for each key that no other key
// has, as far as the chart lets it be; it answers them by variable.
func platform(t *testing.T, more string) (text string, want map[string]string) {
	t.Helper()
	data := map[string]string{
		"cloudProvider": "a-provider", "cloudAccount": "an-account", "cloudLocation": "A-Location", "cloudKmsKey": "a/key",
		"cloudAcknowledgementBound": "3m", "cloudRotationGrace": "5h",
		"objectStorage": "none", "projectSecrets": "cluster", "backups": "cloud", "keyring": "local", "objectStorageNamePrefix": "a-prefix",
	}
	want = map[string]string{}
	text = "services:\n  enabled: true\n  platform:\n"
	for _, k := range slices.Concat(cloud.CloudKeys(), cloud.ChoiceKeys()) {
		want[k.Variable] = data[k.ConfigMap]
		text += fmt.Sprintf("    %s: %q\n", k.ConfigMap, data[k.ConfigMap])
	}
	return text + more, want
}

// The chart's kinds, grants and policy are those of installation/ankka.
func TestServices_Files_C33_C34_C35_C37(t *testing.T) {
	t.Parallel()
	err := fs.WalkDir(os.DirFS(filepath.Join(chartDir, "files/ankka")), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		mine, err := os.ReadFile(filepath.Join(chartDir, "files/ankka", p))
		if err != nil {
			return err
		}
		if raw, err := ankka.Files.ReadFile(p); err != nil || !bytes.Equal(raw, mine) {
			t.Errorf("charts/radial/files/ankka/%s is not installation/ankka/%s: run `make chart-files` (%v)", p, p, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	keyed := func(objects []*unstructured.Unstructured) map[string]map[string]any {
		out := map[string]map[string]any{}
		for _, o := range objects {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
			if len(o.GetAnnotations()) == 0 {
				unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
			}
			out[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
		}
		return out
	}
	want := map[string]map[string]any{}
	for _, p := range slices.Concat(ankka.CRDs, ankka.OperatorGrant, ankka.ControlPlaneGrant, ankka.ProviderGrant) {
		raw, err := ankka.Files.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(want, keyed(parse(t, string(raw))))
	}
	values, _ := platform(t, "")
	got, without := keyed(render(t, "radial-system", values)), keyed(render(t, "radial-system", ""))
	for id := range without {
		delete(got, id)
	}
	rest := map[string]bool{}
	for id := range got {
		if want[id] == nil {
			rest[id] = true
			delete(got, id)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("C-35: the chart differs from installation/ankka (-installation +chart):\n%s", d)
	}
	// Beside them, the settings and the operator: no workload of a provider.
	if d := cmp.Diff(map[string]bool{
		"ConfigMap ankka-platform/ankka-platform": true, "ConfigMap ankka-cloud-provider/ankka-cloud": true, "Deployment ankka-platform/ankka-operator": true,
		"PodDisruptionBudget ankka-platform/ankka-operator": true, "NetworkPolicy ankka-platform/ankka-operator": true,
	}, rest); d != "" {
		t.Errorf("C-37: what else comes with services (-want +got):\n%s", d)
	}
}

func TestServices_Settings_C13_C15_C16_C36_C155(t *testing.T) {
	t.Parallel()
	values, want := platform(t, "store: {kind: postgres, postgres: {existingSecret: db}}\nkeys: {existingSecret: key}\nworkers: {separate: true}\n")
	objects := render(t, "radial-system", values)
	for _, name := range []string{"ankka-operator", "radial-server", "radial-workers"} {
		containers, _, _ := unstructured.NestedSlice(find(t, objects, "Deployment", name).Object, "spec", "template", "spec", "containers")
		if len(containers) != 1 {
			t.Fatalf("%s has %d containers", name, len(containers))
		}
		env, _, _ := unstructured.NestedSlice(containers[0].(map[string]any), "env")
		got := map[string]string{}
		for _, e := range env {
			v := e.(map[string]any)
			n := v["name"].(string)
			if !cloud.Reserved(n) {
				continue
			}
			if _, twice := got[n]; twice {
				t.Errorf("C-16: %s has %s twice", name, n)
			}
			got[n], _ = v["value"].(string)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("C-15 C-155: %s (-want +got):\n%s", name, d)
		}
	}
	data, _, _ := unstructured.NestedStringMap(find(t, objects, "ConfigMap", "ankka-platform").Object, "data")
	all := map[string]string{}
	for _, k := range slices.Concat(cloud.CloudKeys(), cloud.ChoiceKeys()) {
		all[k.ConfigMap] = want[k.Variable]
	}
	if d := cmp.Diff(all, data); d != "" {
		t.Errorf("C-13: ankka-platform (-want +got):\n%s", d)
	}
	data, _, _ = unstructured.NestedStringMap(find(t, objects, "ConfigMap", "ankka-cloud").Object, "data")
	six := map[string]string{}
	for _, k := range cloud.CloudKeys() {
		six[k.Variable] = want[k.Variable]
	}
	if d := cmp.Diff(six, data); d != "" {
		t.Errorf("C-36: ankka-cloud (-want +got):\n%s", d)
	}
	// The shipped values are good as they are, and are those of the overlay.
	objects = render(t, "radial-system", "services: {enabled: true}")
	data, _, _ = unstructured.NestedStringMap(find(t, objects, "ConfigMap", "ankka-platform").Object, "data")
	raw, err := ankka.Files.ReadFile("overlays/default/platform-configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shipped, _, _ := unstructured.NestedStringMap(parse(t, string(raw))[0].Object, "data")
	if d := cmp.Diff(shipped, data); d != "" {
		t.Errorf("C-13 C-21 C-22: the chart's settings differ from the overlay's (-overlay +chart):\n%s", d)
	}
	for _, o := range objects {
		if strings.Contains(o.GetName(), "ankka-cloud") {
			t.Errorf("C-37: without a provider there is %s %s", o.GetKind(), o.GetName())
		}
	}
	for _, o := range render(t, "radial-system", "") {
		if strings.Contains(o.GetName(), "ankka") {
			t.Errorf("without services there is %s %s", o.GetKind(), o.GetName())
		}
	}
	// A release elsewhere is another control plane account, and the same operator.
	for _, o := range render(t, "elsewhere", values) {
		if raw, err := o.MarshalJSON(); err != nil || strings.Contains(string(raw), "radial-system") {
			t.Errorf("in another namespace %s %s names radial-system (%v)", o.GetKind(), o.GetName(), err)
		}
	}
}

func TestServices_Schema_C25_C26_C149_C155(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ values, says string }{
		"C-25 a provider without an account":   {`{cloudProvider: gcp, cloudLocation: l}`, "cloudAccount"},
		"C-26 a provider without a location":   {`{cloudProvider: gcp, cloudAccount: a}`, "cloudLocation"},
		"C-27 a bound that is none":            {`{cloudAcknowledgementBound: soon}`, "cloudAcknowledgementBound"},
		"C-27 a grace without a unit":          {`{cloudRotationGrace: "60"}`, "cloudRotationGrace"},
		"C-149 a prefix with a leading hyphen": {`{objectStorageNamePrefix: -a}`, "objectStorageNamePrefix"},
		"C-149 a prefix of 51 characters":      {`{objectStorageNamePrefix: ` + strings.Repeat("n", 51) + `}`, "objectStorageNamePrefix"},
		"C-155 buckets without a provider":     {`{objectStorage: cloud}`, "objectStorage"},
		"C-155 backups without a provider":     {`{backups: cloud}`, "backups"},
		"C-155 a keyring without a key":        {`{cloudProvider: gcp, cloudAccount: a, cloudLocation: l, keyring: cloud}`, "cloudKmsKey"},
		"C-155 a store that is none":           {`{objectStorage: gcs}`, "objectStorage"},
		"C-13 a key more":                      {`{cloudRegion: x}`, "cloudRegion"},
		"a provider":                           {`{cloudProvider: gcp, cloudAccount: a, cloudLocation: l, objectStorage: cloud}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems, err := helm(t.Context(), t, "template", "radial", chartDir, "--kube-version", "1.37.0", "--values", values(t, "services: {enabled: true, platform: "+c.values+"}"))
			if (err == nil) != (c.says == "") || !strings.Contains(problems, c.says) {
				t.Errorf("%v, naming %q: %s", err, c.says, problems)
			}
		})
	}
	// A variable of the platform's is said in one place (C-16).
	for _, at := range []string{"server: {env: [%s]}", "services: {operator: {env: [%s]}}"} {
		_, problems, err := helm(t.Context(), t, "template", "radial", chartDir, "--kube-version", "1.37.0", "--values", values(t, fmt.Sprintf(at, `{name: ANKKA_CLOUD_ACCOUNT, value: x}`)))
		if err == nil || !strings.Contains(problems, "env") {
			t.Errorf("C-16: %s is taken: %s", at, problems)
		}
	}
}
