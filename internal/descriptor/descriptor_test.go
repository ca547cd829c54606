package descriptor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/descriptor"
)

const whole = `
name: reports
service:
  image: registry.example/reports:1.4
  env:
    - {name: LOG_LEVEL, value: info}
    - {name: EMPTY, value: ""}
    - {name: STRIPE_KEY, secretKeyRef: {name: stripe, key: API_KEY}}
  labels: {team: billing}
  annotations: {example.com/note: "a note"}
  http: true
  port: 9000
  database: none
  provisionObjectStorage: true
  exposeObjectStorage: true
  objectStorageOrigins: ["https://app.example", "*"]
  objectStorageVersioning: true
  objectStorageSoftDeleteDays: 7
  objectStorageVersionAgeDays: 30
  resources: {cpu: 500m, memory: 256Mi, autoscaling: {minInstances: 2, maxInstances: 4}}
`

func ref[T any](v T) *T { return &v }

func TestParse(t *testing.T) {
	want := descriptor.Descriptor{Name: "reports", Service: descriptor.Service{
		Image: "registry.example/reports:1.4",
		Env: []descriptor.Variable{{Name: "LOG_LEVEL", Value: "info"}, {Name: "EMPTY"},
			{Name: "STRIPE_KEY", SecretKeyRef: &descriptor.SecretKeyRef{Name: "stripe", Key: "API_KEY"}}},
		Labels: map[string]string{"team": "billing"}, Annotations: map[string]string{"example.com/note": "a note"},
		HTTP: true, Port: ref(int32(9000)), Database: "none", ProvisionObjectStorage: true, ExposeObjectStorage: true,
		ObjectStorageOrigins: []string{"https://app.example", "*"}, ObjectStorageVersioning: true, ObjectStorageSoftDeleteDays: 7, ObjectStorageVersionAgeDays: ref(int64(30)),
		Resources: &descriptor.Resources{CPU: "500m", Memory: "256Mi", Autoscaling: &v1alpha1.Autoscaling{MinInstances: ref(int32(2)), MaxInstances: ref(int32(4))}},
	}}
	got, err := descriptor.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// What it says survives the way through a resource's properties.
	props, err := got.Service.Properties()
	if err != nil {
		t.Fatal(err)
	}
	props["paused"] = true
	back, err := descriptor.FromProperties(props, "paused")
	if d := cmp.Diff(want.Service, back); err != nil || d != "" {
		t.Error(err, d)
	}
	if got, err := descriptor.Parse([]byte(`{"name":"a","service":{"image":"x"}}`)); err != nil || got.Service.Image != "x" {
		t.Errorf("JSON: %+v, %v", got, err)
	}
}

func refused(t *testing.T, text string, want ...string) {
	t.Helper()
	_, err := descriptor.Parse([]byte(text))
	var e *core.Error
	if !errors.As(err, &e) || e.Code != core.CodeInvalidContent {
		t.Errorf("%s is taken: %v", text, err)
		return
	}
	for _, w := range want {
		if !strings.Contains(e.Message, w) {
			t.Errorf("%q does not say %q", e.Message, w)
		}
	}
}

func TestParse_Refused(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{"it is empty"}},
		{"--- \n...\n", []string{"it is empty"}},
		{"a: [", []string{"cannot be read"}},
		{"name: a\nname: b\nservice: {image: x}", []string{"cannot be read", "name"}},
		{"name: a\nservice: {image: x}\n---\nname: b\nservice: {image: x}", []string{"more than one document"}},
		{"[]", []string{"must be an object"}},
		{"{}", []string{"name: is required", "service: is required"}},
		{"name: A.b\nservice: {}", []string{`"A.b"`, "service.image: is required"}},
		{"name: a\nservice: {image: x, prot: 80}", []string{"service.prot: is not known; did you mean port?"}},
		{"name: a\nservice: {image: x, http: yes please, port: 0, env: {}}", []string{"service.http: must be true or false", "service.port: must be a whole number from 1 to 65535", "service.env: must be a list"}},
		{"name: a\nservice: {image: 'x y'}", []string{"service.image: is no reference"}},
		{"name: a\nservice: {image: x, env: [{name: NUM, value: 1}]}", []string{"service.env[0].value: must be a string (write it in quotes)"}},
		{"name: a\nservice: {image: x, env: [{name: TWICE, value: v}, {name: TWICE, value: v}]}", []string{"service.env[1].name: env var 'TWICE' stands twice"}},
		{"name: a\nservice: {image: x, env: [{value: v}, {name: 1A}, 7]}", []string{"service.env[0].name: is required", "service.env[1].name: is no name", "service.env[2]: must be an object"}},
		{"name: a\nservice: {image: x, env: [{name: BOTH, value: v, secretKeyRef: {name: s, key: k}}]}", []string{"takes one of them"}},
		{"name: a\nservice: {image: x, env: [{name: REF, secretKeyRef: {name: s}}]}", []string{"service.env[0].secretKeyRef.key: is required"}},
		{"name: a\nservice: {image: x, objectStorageOrigins: [ftp://x], exposeObjectStorage: true}", []string{"service.objectStorageOrigins[0]", "service.exposeObjectStorage: needs provisionObjectStorage"}},
		{"name: a\nservice: {image: x, resources: {cpu: lots, memory: 1, autoscaling: {minInstances: 3, maxInstances: 2}}}", []string{"resources.cpu", "resources.memory: must be a string", "maxInstances is 2, and minInstances 3"}},
		{"name: a\nservice: {image: x, labels: {ankka.thinkmorestupidless.com/project: other, 'a b': c}}", []string{"set by the platform", "is no key"}},
		{"name: a\nservice: {image: x, account: other}", []string{"service.account: is not known"}},
	} {
		refused(t, c.text, c.want...)
	}
	if _, err := descriptor.Parse([]byte(strings.Repeat("#", descriptor.MaxSize+1))); err == nil {
		t.Error("a document above the bound is read")
	}
}

// Everything that is wrong is said at once, each as a detail of its own.
func TestParse_AllAtOnce_C28_C141(t *testing.T) {
	_, err := descriptor.Parse([]byte(`{"name":"UP","service":{"port":"x","env":[{"name":"ANKKA_CLOUD_PROVIDER","value":"s3cr3t"},{"name":"A","secretKeyRef":{"name":"b-storage","key":"k"}}]}}`))
	var e *core.Error
	if !errors.As(err, &e) || len(e.Details) != 5 {
		t.Fatalf("%v", err)
	}
	if strings.Contains(e.Message, "s3cr3t") {
		t.Errorf("a value is repeated: %s", e.Message)
	}
}

func TestReservedVariables_C28(t *testing.T) {
	for _, name := range []string{"ANKKA_CLOUD_PROVIDER", "ANKKA_CLOUD_ACCOUNT", "ANKKA_CLOUD_LOCATION", "ANKKA_CLOUD_KMS_KEY", "ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND", "ANKKA_CLOUD_ROTATION_GRACE"} {
		for how, rest := range map[string]string{"value": `"value":"x"`, "empty value": `"value":""`, "secretKeyRef": `"secretKeyRef":{"name":"s","key":"k"}`} {
			t.Run("C-28 "+name+" by "+how, func(t *testing.T) {
				refused(t, fmt.Sprintf(`{"name":"a","service":{"image":"x","env":[{"name":%q,%s}]}}`, name, rest),
					"env var '"+name+"' is set by the platform and cannot be declared")
			})
		}
	}
}

func TestReservedSecrets_C141(t *testing.T) {
	for _, name := range []string{"reports-cloud-storage", "x-storage", "stripe-cloud-secret"} {
		refused(t, fmt.Sprintf(`{"name":"a","service":{"image":"x","env":[{"name":"N","secretKeyRef":{"name":%q,"key":"k"}}]}}`, name),
			"service.env[0].secretKeyRef.name: secret '"+name+"' is the platform's")
	}
}

func TestOwnStore(t *testing.T) {
	const own = `{"name":"a","service":{"image":"x","env":[{"name":"ANKKA_S3_BUCKET","value":"mine"}]%s}}`
	if _, err := descriptor.Parse(fmt.Appendf(nil, own, "")); err != nil {
		t.Errorf("a store of one's own: %v", err)
	}
	refused(t, fmt.Sprintf(own, `,"provisionObjectStorage":true`), "names an object store of the service's own")
}

func TestSplit(t *testing.T) {
	docs, err := descriptor.Split([]byte("# two\nname: a\nservice: {image: x}\n---\n---\nname: b\nservice: {image: z}\n"))
	if err != nil || len(docs) != 2 {
		t.Fatal(len(docs), err)
	}
	for i, want := range []string{"a", "b"} {
		if d, err := descriptor.Parse(docs[i]); err != nil || d.Name != want {
			t.Errorf("%+v, %v", d, err)
		}
	}
	for _, bad := range []string{"", "---\n", "a: ["} {
		if _, err := descriptor.Split([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// No document makes it fail otherwise than by an error of its kind, and what it
// takes it takes again from the properties.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"name":"a","service":{"image":"x","env":[null]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := descriptor.Parse(text)
		if err != nil {
			if !core.IsCode(err, core.CodeInvalidContent) {
				t.Fatal(err)
			}
			return
		}
		props, err := d.Service.Properties()
		if err != nil {
			t.Fatal(err)
		}
		back, err := descriptor.FromProperties(props)
		if err != nil {
			t.Fatalf("%v\n%+v", err, props)
		}
		if diff := cmp.Diff(d.Service, back, cmp.Comparer(func(a, b map[string]string) bool { return len(a) == 0 && len(b) == 0 || cmp.Equal(a, b) })); diff != "" {
			t.Fatal(diff)
		}
	})
}
