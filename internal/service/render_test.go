package service

import (
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/identity"
)

var update = flag.Bool("update", false, "write testdata anew")

func sample(change func(*v1alpha1.AnkkaServiceSpec)) *v1alpha1.AnkkaService {
	s := &v1alpha1.AnkkaService{Spec: v1alpha1.AnkkaServiceSpec{ProjectID: "shop", ServiceName: "reports", Generation: 7, Image: "registry.example.com/reports:1"}}
	s.Name, s.Namespace, s.UID = "reports", "ankka-shop", "0a1b2c3d"
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func full(spec *v1alpha1.AnkkaServiceSpec) {
	two, five, port := int32(2), int32(5), int32(9000)
	spec.HTTP, spec.Port, spec.Restarts = true, &port, 3
	spec.Env = []v1alpha1.EnvVar{{Name: "PLAIN", Value: "value"}, {Name: "EMPTY"}, {Name: "STRIPE", SecretName: "checkout", SecretKey: "STRIPE_KEY"}, {Name: "OTHER", SecretName: "mine", SecretKey: "KEY"}}
	spec.Labels = map[string]string{"team": "payments", v1alpha1.LabelService: "another"}
	spec.Annotations = map[string]string{"note": "keep", v1alpha1.AnnotationCredentialGeneration: "99"}
	spec.Resources = &v1alpha1.ServiceResources{CPU: "250m", Memory: "128Mi", Autoscaling: &v1alpha1.Autoscaling{MinInstances: &two, MaxInstances: &five}}
}

func given() *Storage {
	return &Storage{Bucket: "acme-shop-reports-ae7cc739", Endpoint: "https://s3.example", Region: "r1", SecretName: "reports-cloud-storage", CredentialGeneration: 1}
}

func text(t *testing.T, objects ...*unstructured.Unstructured) string {
	t.Helper()
	var b strings.Builder
	for _, o := range objects {
		if o == nil {
			continue
		}
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n" + string(raw))
	}
	return b.String()
}

func rendered(t *testing.T, r Rendering, annotations map[string]string) string {
	o := Render(r)
	return text(t, r.Account(annotations), o.Deployment, o.Service, o.Autoscaler)
}

func TestRender_C12_C89_C127(t *testing.T) {
	for name, tc := range map[string]struct {
		rendering   Rendering
		annotations map[string]string
	}{
		"plain":   {Rendering{Service: sample(nil)}, nil},
		"full":    {Rendering{Service: sample(full), Live: 4}, nil},
		"storage": {Rendering{Service: sample(full), Storage: given(), Secrets: []string{"checkout"}, Live: 9}, map[string]string{"bind.example/to": "reports@cloud=1"}},
		"paused": {Rendering{Service: sample(func(s *v1alpha1.AnkkaServiceSpec) {
			full(s)
			s.Paused = true
		}), Live: 4}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := rendered(t, tc.rendering, tc.annotations)
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Error(d)
			}
			// What is rendered twice is the same to the byte.
			if again := rendered(t, tc.rendering, tc.annotations); again != got {
				t.Error(cmp.Diff(got, again))
			}
		})
	}
}

// C-12: with provider none the objects are those of a platform without the
// cloud part: no answer goes into them, for any service.
func TestRenderWithoutProvider_C11_C12(t *testing.T) {
	for _, settings := range []cloud.Settings{{}, {Provider: cloud.None}} {
		for name, change := range map[string]func(*v1alpha1.AnkkaServiceSpec){"plain": nil, "full": full, "storage": storage} {
			s := sample(change)
			if w := wants(&s.Spec, settings); w != (Wants{}) {
				t.Errorf("%s wants %+v of provider %q", name, w, settings.Provider)
			}
			f := Fold(Answers{})
			withFold := rendered(t, Rendering{Service: s, Storage: f.Storage, Live: 4}, f.Annotations)
			if without := rendered(t, Rendering{Service: s, Live: 4}, nil); without != withFold {
				t.Errorf("%s: %s", name, cmp.Diff(without, withFold))
			}
		}
	}
}

// C-129: on a rotation one annotation changes, and nothing else.
func TestRotationChangesOneAnnotation_C129(t *testing.T) {
	before := rendered(t, Rendering{Service: sample(full), Storage: given()}, nil)
	rotated := given()
	rotated.CredentialGeneration = 2
	// That a new one is asked for changes the descriptor, and nothing here.
	asked := sample(full)
	asked.Spec.StorageCredentialGeneration, asked.Spec.Generation = new(int64(2)), 8
	if got := rendered(t, Rendering{Service: asked, Storage: given()}, nil); got != before {
		t.Errorf("asking changes %s", cmp.Diff(before, got))
	}
	after := rendered(t, Rendering{Service: asked, Storage: rotated}, nil)
	const line = v1alpha1.AnnotationCredentialGeneration + `: "1"`
	if want := strings.Replace(before, line, strings.Replace(line, "1", "2", 1), 1); after != want || strings.Count(before, line) != 1 {
		t.Error(cmp.Diff(want, after))
	}
}

// everyAsk is what every trigger asks for under a provider's name.
func everyAsk(t *testing.T, s cloud.Settings) []*unstructured.Unstructured {
	t.Helper()
	service := sample(func(spec *v1alpha1.AnkkaServiceSpec) {
		full(spec)
		spec.ProvisionObjectStorage, spec.ExposeObjectStorage, spec.ObjectStorageOrigins = true, true, []string{"https://a.example", "https://b.example:8443"}
		spec.ObjectStorageVersioning, spec.ObjectStorageSoftDeleteDays, spec.ObjectStorageVersionAgeDays = true, 7, new(int64(30))
	})
	subject := subjectOf(&service.Spec)
	var out []*unstructured.Unstructured
	add := func(a Ask, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		u, err := Request(a, s.Provider, Owner{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.AnkkaServiceKind, Name: "reports", UID: "u", Blocks: true})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	add(AskIdentity(subject, "reports"))
	add(askBucket(&service.Spec, s))
	add(askCredential(subject, "b", "i", 2))
	add(askAccess(subject, "i"))
	add(askSync("shop", v1alpha1.ProjectSecret{Name: "checkout", Entries: []string{"B", "A"}, EntryGeneration: 3}))
	add(askBackupBucket("shop", s))
	add(askWrappingKey("shop", "i", s))
	return out
}

func TestRequests_C8_C9_C19_C20_C62_C63_C64_C74(t *testing.T) {
	settings := cloud.Settings{Provider: "gcp", Account: "acme", Location: "Europe-West2 (London)", KMSKey: "keys/wrap", NamePrefix: "acme", ObjectStorage: true}
	first := everyAsk(t, settings)
	var kinds []string
	for _, u := range first {
		spec := u.Object["spec"].(map[string]any)
		kind := spec["kind"].(string)
		kinds = append(kinds, kind)
		parameters := map[string]string{}
		for k, v := range spec["parameters"].(map[string]any) {
			parameters[k] = v.(string)
			for _, word := range []string{"google", "gcs", "gcp", "aws", "s3", "azure", "iam", "hmac", "blob"} {
				if strings.Contains(strings.ToLower(k), word) {
					t.Errorf("C-9: parameter %s of %s speaks of %s", k, kind, word)
				}
			}
		}
		if got, want := slices.Sorted(maps.Keys(parameters)), slices.Sorted(slices.Values(v1alpha1.ParameterNames(kind))); !slices.Equal(got, want) {
			t.Errorf("C-74: %s has %v", kind, got)
		}
		if kind == v1alpha1.KindBucket {
			if parameters["location"] != settings.Location {
				t.Errorf("C-19: location is %q", parameters["location"])
			}
		}
	}
	slices.Sort(kinds)
	if got, want := slices.Compact(kinds), slices.Sorted(slices.Values(v1alpha1.Kinds())); !slices.Equal(got, want) {
		t.Errorf("asked: %v of %v", got, want)
	}
	if p := first[1].Object["spec"].(map[string]any)["parameters"]; !cmp.Equal(p, map[string]any{"purpose": "service", "location": settings.Location, "versioning": "true",
		"softDeleteDays": "7", "corsOrigins": "https://a.example,https://b.example:8443", "kmsKey": "keys/wrap", "namePrefix": "acme", "noncurrentVersionDays": "30"}) {
		t.Errorf("C-62, C-63, C-64: %v", p)
	}
	settings.KMSKey = ""
	if p, ok := backupParameters(t, settings)["kmsKey"]; !ok || p != "" {
		t.Errorf("C-20: kmsKey is %q, there: %v", p, ok)
	}
	settings.KMSKey = "keys/wrap"
	// C-8: another provider is another name.
	settings.Provider = "another"
	for i, u := range everyAsk(t, settings) {
		spec := u.Object["spec"].(map[string]any)
		if spec["provider"] != "another" {
			t.Errorf("provider is %v", spec["provider"])
		}
		spec["provider"] = "gcp"
		if d := cmp.Diff(first[i].Object, u.Object); d != "" {
			t.Errorf("C-8: %s", d)
		}
	}
}

func backupParameters(t *testing.T, s cloud.Settings) map[string]string {
	t.Helper()
	a, err := askBackupBucket("shop", s)
	if err != nil {
		t.Fatal(err)
	}
	return a.Parameters
}

// C-1, C-40: nothing that reaches a cloud is built into the operator.
func TestNoCloudInTheOperator_C1_C40(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}", "../../cmd/radial-operator").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, "github.com/radial-project/radial/internal/service") {
		t.Fatalf("%d packages without the operator's own", len(packages))
	}
	for _, p := range packages {
		for _, sdk := range []string{"cloud.google.com/", "google.golang.org/api", "golang.org/x/oauth2/google", "github.com/aws/", "github.com/Azure/", "github.com/minio/", "github.com/googleapis/",
			"github.com/radial-project/radial/provider", "k8s.io/client-go/plugin/pkg/client/auth/gcp", "k8s.io/client-go/plugin/pkg/client/auth/azure"} {
			if strings.HasPrefix(p, sdk) {
				t.Errorf("C-1: the operator depends on %s", p)
			}
		}
	}
}

// C-90: nothing of the operator names a cloud, not even a comment.
func TestNoCloudsWordsInTheOperator_C90(t *testing.T) {
	seen := 0
	for _, dir := range []string{".", "../../cmd/radial-operator", "../../api/ankka/v1alpha1"} {
		err := fs.WalkDir(os.DirFS(dir), ".", func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			path = filepath.Join(dir, path)
			raw, err := os.ReadFile(path)
			seen++
			for _, word := range []string{"google", "gke.io", "gserviceaccount", "amazonaws", "azure"} {
				if strings.Contains(strings.ToLower(string(raw)), word) {
					t.Errorf("%s speaks of %s", path, word)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 10 {
		t.Fatalf("%d files", seen)
	}
}

// A set is JSON through and through: what is applied is what is compared.
func TestSetsAreJSON(t *testing.T) {
	o := Render(Rendering{Service: sample(full), Storage: given()})
	for _, u := range []*unstructured.Unstructured{o.Deployment, o.Service, o.Autoscaler} {
		raw, err := json.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		back := &unstructured.Unstructured{}
		if err := back.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(u.DeepCopy().Object, back.Object); d != "" {
			t.Error(d)
		}
	}
}

// The page about services names what there is: every reason of a report, every
// metric, every variable of instances.
func TestDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/cloud/services.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	names := []string{ReasonReady, ReasonShared, ReasonWaiting, ReasonFailed, ReasonNoProvider, ReasonNoProject, ReasonDefaultAccount, ReasonAccountNotFound,
		ReasonAccountConflict, ReasonServiceHasName, ReasonServiceAccountUsed, ReasonBadName, ReasonBadValue,
		identity.Annotation, identity.AnnotationStatus, v1alpha1.AnnotationCredentialGeneration, v1alpha1.EntryAccessKey, v1alpha1.EntrySecretKey, v1alpha1.VariableBucket, v1alpha1.VariableEndpoint, v1alpha1.VariableRegion}
	descriptions := make(chan *prometheus.Desc, 16)
	collector{}.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		names = append(names, name)
	}
	for _, suffix := range v1alpha1.ServiceSuffixes() {
		names = append(names, v1alpha1.ServiceRequestName("reports", suffix))
	}
	for _, n := range names {
		if n == "" || !strings.Contains(page, n) {
			t.Errorf("docs/cloud/services.md does not speak of %q", n)
		}
	}
}

// The pages of the kinds name every field.
func TestKindsAreDocumented(t *testing.T) {
	for page, of := range map[string][]reflect.Type{
		"service": {reflect.TypeFor[v1alpha1.AnkkaServiceSpec](), reflect.TypeFor[v1alpha1.AnkkaServiceStatus]()},
		"project": {reflect.TypeFor[v1alpha1.AnkkaProjectSpec](), reflect.TypeFor[v1alpha1.AnkkaProjectStatus]()},
	} {
		raw, err := os.ReadFile("../../docs/spec/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		var walk func(reflect.Type)
		walk = func(in reflect.Type) {
			for in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice {
				in = in.Elem()
			}
			if in.Kind() != reflect.Struct || in.PkgPath() != reflect.TypeFor[v1alpha1.AnkkaServiceSpec]().PkgPath() {
				return
			}
			for i := range in.NumField() {
				name, _, _ := strings.Cut(in.Field(i).Tag.Get("json"), ",")
				if !strings.Contains(string(raw), "`"+name+"`") {
					t.Errorf("docs/spec/%s.md does not name %s of %s", page, name, in.Name())
				}
				walk(in.Field(i).Type)
			}
		}
		for _, typ := range of {
			walk(typ)
		}
	}
}
