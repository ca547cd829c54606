package project_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/core"
)

var coreVersion = core.Version

const version = "?api-version=2026-10-01-preview"

func armService(project, name string) string {
	return "/planes/radius/local/resourceGroups/ankka-" + project + "/providers/Radial.Services/services/" + name + version
}

func TestOrganizations(t *testing.T) {
	t.Parallel()
	h := start(t, settings())
	org := unique("acme")
	at := "/organizations/" + org

	h.want(401, "", "GET", at, "")
	h.want(403, "ann", "POST", at, `{}`, "administrator of the platform")
	h.want(201, "root", "POST", at, `{"displayName":"Acme","owner":"`+h.principal("ann")+`"}`, `"role":"owner"`)
	h.want(409, "root", "POST", at, `{}`, "exists already")
	h.want(200, "ann", "GET", at, "", `"role":"owner"`, "Acme")

	t.Run("to whoever is no member it does not exist", func(t *testing.T) {
		h := *h
		h.t = t
		none := h.want(404, "mallory", "GET", "/organizations/"+unique("never"), "").raw
		if got := h.want(404, "mallory", "GET", at, "").raw; strings.ReplaceAll(got, org, "X") != strings.ReplaceAll(none, strings.Split(none, `\"`)[1], "X") {
			t.Errorf("an organization of others is told from one that is not there: %s, %s", got, none)
		}
		for _, c := range [][2]string{{"DELETE", at}, {"GET", at + "/members"}, {"POST", at + "/members"}, {"DELETE", at + "/members/user:x"}} {
			h.want(404, "mallory", c[0], c[1], "")
		}
		if got := h.want(200, "mallory", "GET", "/organizations", ""); strings.Contains(got.raw, org) {
			t.Errorf("it stands in the list: %s", got.raw)
		}
	})

	bob := at + "/members/" + strings.ReplaceAll(h.principal("bob"), "/", ":")
	ann := at + "/members/" + strings.ReplaceAll(h.principal("ann"), "/", ":")
	h.want(400, "ann", "POST", at+"/members", `{"principal":"bob"}`, "is no principal")
	h.want(400, "ann", "POST", at+"/members", `{"principal":"user:bob","role":"boss"}`, "neither owner nor member")
	h.want(400, "ann", "POST", at+"/members", `{"principle":"user:bob"}`, "principle")
	h.want(201, "ann", "POST", at+"/members", `{"principal":"`+h.principal("bob")+`"}`)
	h.want(409, "ann", "POST", at+"/members", `{"principal":"`+h.principal("bob")+`"}`, "a member already")
	h.want(200, "bob", "GET", at, "", `"role":"member"`)
	h.want(403, "bob", "POST", at+"/members", `{"principal":"user:eve"}`, "takes an owner", h.principal("ann"))
	h.want(403, "bob", "DELETE", at, "")
	h.want(404, "ann", "PUT", at+"/members/user:eve", `{"role":"owner"}`, "no member")
	h.want(400, "ann", "PUT", bob, `{}`, "role is required")

	t.Run("there is always an owner", func(t *testing.T) {
		h := *h
		h.t = t
		h.want(409, "ann", "DELETE", ann, "", "without an owner")
		h.want(409, "ann", "PUT", ann, `{"role":"member"}`, "without an owner")
		h.want(200, "ann", "PUT", bob, `{"role":"owner"}`)
		// Both give up at once: one of them stays.
		var wg sync.WaitGroup
		var got [2]answer
		wg.Go(func() { got[0] = h.send("ann", "DELETE", ann, "") })
		wg.Go(func() { got[1] = h.send("bob", "DELETE", bob, "") })
		wg.Wait()
		codes := []int{got[0].status, got[1].status}
		slices.Sort(codes)
		if codes[0] != 200 || codes[1] == 200 {
			t.Errorf("both gave up: %v %s %s", codes, got[0].raw, got[1].raw)
		}
		a := h.want(200, "root", "GET", at, "")
		if strings.Count(a.raw, `"owner"`) != 1 {
			t.Errorf("owners: %s", a.raw)
		}
		// Nor by the wire of resources.
		h.want(400, "root", "PUT", "/planes/radius/local/providers/Radial.Services/organizations/"+org+version, `{"properties":{"members":[{"principal":{"kind":"user","name":"x"},"role":"member"}]}}`, "at least one owner")
	})

	t.Run("ids are not given out again", func(t *testing.T) {
		h := *h
		h.t = t
		other := unique("gone")
		h.want(201, "root", "POST", "/organizations/"+other, `{}`)
		h.want(204, "root", "DELETE", "/organizations/"+other, "")
		h.want(404, "root", "GET", "/organizations/"+other, "")
		h.want(409, "root", "POST", "/organizations/"+other, `{}`, "not given out again")
	})

	t.Run("every decision is audited", func(t *testing.T) {
		var allowed, refused bool
		for _, r := range h.audit.all() {
			if strings.HasSuffix(r.ID, "/organizations/"+org) {
				allowed = allowed || r.Allowed && r.Reason == "owner of organization "+org
				refused = refused || !r.Allowed && strings.HasSuffix(r.Principal, "/mallory") && r.Verb == "read"
			}
		}
		if !allowed || !refused {
			t.Errorf("%+v", h.audit.all())
		}
	})
}

func TestInstallation_C31_C32(t *testing.T) {
	t.Parallel()
	h := start(t, settings())
	h.organization()
	h.want(401, "", "GET", "/installation", "")
	h.want(403, "mallory", "GET", "/installation", "")
	same := func(who, want string) {
		t.Helper()
		if got := strings.TrimSpace(h.want(200, who, "GET", "/installation", "").raw); got != want {
			t.Errorf("%s: %s, want %s", who, got, want)
		}
	}
	same("bob", `{"platformVersion":"`+coreVersion+`","cloud":{"provider":"gcp","account":"acme-production","location":"Europe-West2"}}`)
	for _, who := range []string{"ann", "root"} {
		same(who, `{"platformVersion":"`+coreVersion+`","cloud":{"provider":"gcp","account":"acme-production","location":"Europe-West2","kmsKey":"ring/key"}}`)
	}
	none := start(t, cloud.Settings{Provider: "none"})
	none.organization()
	if got := strings.TrimSpace(none.want(200, "bob", "GET", "/installation", "").raw); got != `{"platformVersion":"`+coreVersion+`"}` {
		t.Errorf("none: %s", got)
	}
}

func TestProjects_C29(t *testing.T) {
	t.Parallel()
	h := start(t, settings())
	org, name := h.organization()
	at := "/projects/" + name
	namespace := v1alpha1.Namespace(name)

	var p v1alpha1.AnkkaProject
	if err := h.Admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.ProjectID != name || p.Spec.Organization != org || p.Spec.DisplayName != "Shop" || !p.Spec.Backups || p.Labels[v1alpha1.LabelProject] != name {
		t.Errorf("%+v", p)
	}
	h.want(200, "bob", "GET", at, "", `"namespace":"`+namespace+`"`, `"state":"Succeeded"`)
	h.want(404, "mallory", "GET", at, "")
	h.want(200, "bob", "GET", "/projects?organization="+org, "", name)
	h.want(404, "mallory", "GET", "/projects?organization="+org, "")
	if got := h.want(200, "mallory", "GET", "/projects", ""); strings.Contains(got.raw, name) {
		t.Error(got.raw)
	}

	t.Run("C-29 a project names no account and no location", func(t *testing.T) {
		h := *h
		h.t = t
		for _, field := range []string{"account", "location", "cloudAccount"} {
			h.want(400, "bob", "POST", "/projects/"+unique("x"), `{"organization":"`+org+`","`+field+`":"other"}`, field)
			a := h.want(400, "root", "PUT", "/planes/radius/local/resourceGroups/ankka-"+name+"/providers/Radial.Services/projects/"+name+version, `{"properties":{"organization":"`+org+`","`+field+`":"other"}}`)
			if !strings.Contains(a.raw, field) {
				t.Error(a.raw)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		h := *h
		h.t = t
		for id, want := range map[string]string{"platform": "the platform's", "cloud-provider": "the platform's", "Big": "at most 57", strings.Repeat("x", 58): "at most 57"} {
			h.want(400, "bob", "POST", "/projects/"+id, `{"organization":"`+org+`"}`, want)
		}
		h.want(400, "bob", "POST", "/projects/"+unique("x"), `{}`, "organization is required")
		h.want(404, "bob", "POST", "/projects/"+unique("x"), `{"organization":"`+unique("no")+`"}`, "does not exist")
		h.want(404, "mallory", "POST", "/projects/"+unique("x"), `{"organization":"`+org+`"}`)
		h.want(409, "bob", "POST", at, `{"organization":"`+org+`"}`, "is taken")
		// A namespace that stands for somebody else is not taken over.
		id := unique("foreign")
		if err := h.Admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace(id)}}); err != nil {
			t.Fatal(err)
		}
		h.want(409, "bob", "POST", "/projects/"+id, `{"organization":"`+org+`"}`, "is not the project's")
	})
	t.Run("deleted, its id is not given out again", func(t *testing.T) {
		h := *h
		h.t = t
		h.want(409, "ann", "DELETE", "/organizations/"+org, "", name)
		h.want(201, "bob", "PUT", "/services/"+name+"/a", `{"name":"a","service":{"image":"x"}}`)
		h.want(403, "bob", "DELETE", at, "", "takes an owner")
		h.want(409, "ann", "DELETE", at, "", "has services (a)")
		h.remove(name, "a")
		h.want(204, "ann", "DELETE", at, "")
		if err := h.Admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &p); !apierrors.IsNotFound(err) {
			t.Errorf("%v", err)
		}
		h.want(404, "bob", "GET", at, "")
		h.want(409, "bob", "POST", at, `{"organization":"`+org+`"}`, "not given out again")
	})
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	h := start(t, settings())
	_, name := h.organization()
	at := "/projects/" + name + "/secrets/stripe"
	const canary = "c4n4ry-v4lue"
	secret := func() map[string][]byte {
		t.Helper()
		var s corev1.Secret
		if err := h.Admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(name), Name: "stripe"}, &s); err != nil {
			t.Fatal(err)
		}
		return s.Data
	}
	h.want(200, "bob", "PUT", at, `{"entries":{"API_KEY":"`+canary+`","HOOK":"h"}}`, `"entries":["API_KEY","HOOK"]`, `"entryGeneration":1`)
	if d := secret(); string(d["API_KEY"]) != canary || string(d["HOOK"]) != "h" {
		t.Errorf("%v", d)
	}
	// Others' entries stay, null removes one.
	h.want(200, "bob", "PUT", at, `{"entries":{"HOOK":null,"MORE":"m"}}`, `"entries":["API_KEY","MORE"]`, `"entryGeneration":2`)
	if d := secret(); string(d["API_KEY"]) != canary || len(d) != 2 {
		t.Errorf("%v", d)
	}
	var p v1alpha1.AnkkaProject
	if err := h.Admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(name), Name: name}, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Spec.Secrets) != 1 || p.Spec.Secrets[0].EntryGeneration != 2 || !slices.Equal(p.Spec.Secrets[0].Entries, []string{"API_KEY", "MORE"}) {
		t.Errorf("%+v", p.Spec.Secrets)
	}
	for _, c := range []struct{ path, body, want string }{
		{"reports-cloud-storage", `{"entries":{"A":"b"}}`, "is the platform's"},
		{"stripe-cloud-secret", `{"entries":{"A":"b"}}`, "is the platform's"},
		{"Stripe", `{"entries":{"A":"b"}}`, "at most 63"},
		{"stripe", `{"entries":{"A B":"` + canary + `","C":7}}`, "entries.C: must be a string"},
		{"stripe", `{"entries":{}}`, "at least one"},
		{"stripe", `{"entries":{"A":true}}`, "keeps project secrets in its cluster"},
		{"stripe", `{"A":"` + canary + `"}`, "cannot be read"},
		{"stripe", `{"entries":"` + canary + `"}`, "cannot be read"},
	} {
		if a := h.want(400, "bob", "PUT", "/projects/"+name+"/secrets/"+c.path, c.body, c.want); strings.Contains(a.raw, canary) {
			t.Errorf("a value is repeated: %s", a.raw)
		}
	}
	h.want(404, "mallory", "PUT", at, `{"entries":{"A":"b"}}`)
	// What stands there and is not the project's is not written over.
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "database", Namespace: v1alpha1.Namespace(name), Labels: map[string]string{"app": "chart"}}, Data: map[string][]byte{"password": []byte("p")}}
	if err := h.Admin.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	h.want(409, "bob", "PUT", "/projects/"+name+"/secrets/database", `{"entries":{"password":"`+canary+`"}}`, "is not the project's")
	if err := h.Admin.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil || string(theirs.Data["password"]) != "p" || len(theirs.Labels) != 1 {
		t.Errorf("%v: %v %v", err, theirs.Labels, theirs.Data)
	}
	// A secret that a service takes stays.
	h.want(201, "bob", "PUT", "/services/"+name+"/pay", `{"name":"pay","service":{"image":"x","env":[{"name":"K","secretKeyRef":{"name":"stripe","key":"API_KEY"}}]}}`)
	h.want(409, "bob", "DELETE", at, "", "used by services (pay)")
	h.want(200, "bob", "PUT", "/services/"+name+"/pay", `{"name":"pay","service":{"image":"x"}}`)
	h.want(200, "bob", "DELETE", at, "", `"secrets":[]`)
	h.want(404, "bob", "DELETE", at, "", "has no secret")
	if d := secret(); len(d) != 0 {
		t.Errorf("%v", d)
	}
	// No value is anywhere that is kept or said.
	for _, path := range []string{"/projects/" + name, "/projects/" + name + "/graph", "/services/" + name} {
		if a := h.want(200, "ann", "GET", path, ""); strings.Contains(a.raw, canary) {
			t.Errorf("%s: %s", path, a.raw)
		}
	}
	for _, r := range h.audit.all() {
		if raw, _ := json.Marshal(r); strings.Contains(string(raw), canary) {
			t.Errorf("audit: %s", raw)
		}
	}

	files, err := filepath.Glob(filepath.Join(h.dir, "radial.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no store: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte(canary)) {
			t.Errorf("a value is in %s", file)
		}
	}

	in := settings()
	in.ProjectSecrets = true
	h = start(t, in)
	_, name = h.organization()
	at = "/projects/" + name + "/secrets/stripe"
	h.want(400, "bob", "PUT", at, `{"entries":{"API_KEY":"`+canary+`"}}`, "in its cloud account")
	h.want(200, "bob", "PUT", at, `{"entries":{"API_KEY":true}}`, `"entries":["API_KEY"]`)
	err = h.Admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(name), Name: "stripe"}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a Secret was written: %v", err)
	}
}

func TestServices_C28_C141(t *testing.T) {
	t.Parallel()
	h := start(t, settings())
	_, name := h.organization()
	at := "/services/" + name + "/reports"

	t.Run("refused with all that is wrong", func(t *testing.T) {
		h := *h
		h.t = t
		for _, v := range cloud.CloudKeys() {
			for _, rest := range []string{`"value":"x"`, `"secretKeyRef":{"name":"s","key":"k"}`} {
				env := fmt.Sprintf(`[{"name":%q,%s}]`, v.Variable, rest)
				h.want(400, "bob", "PUT", at, `{"name":"reports","service":{"image":"x","env":`+env+`}}`, "env var '"+v.Variable+"' is set by the platform and cannot be declared")
				// The wire of resources is no way round.
				h.want(400, "root", "PUT", armService(name, "reports"), `{"properties":{"image":"x","env":`+env+`}}`, "env var '"+v.Variable+"' is set by the platform")
			}
		}
		for _, s := range []string{"reports-cloud-storage", "x-storage"} {
			env := `[{"name":"N","secretKeyRef":{"name":"` + s + `","key":"k"}}]`
			h.want(400, "bob", "PUT", at, `{"name":"reports","service":{"image":"x","env":`+env+`}}`, "is the platform's")
			h.want(400, "root", "PUT", armService(name, "reports"), `{"properties":{"image":"x","env":`+env+`}}`, "is the platform's")
		}
		a := h.want(400, "bob", "PUT", at, `{"name":"reports","service":{"prot":1,"env":[{"name":"A"},{"name":"A"}]}}`, "service.prot", "service.image", "stands twice")
		if list, _ := a.body["problems"].([]any); len(list) != 3 {
			t.Errorf("%s", a.raw)
		}
		h.want(400, "bob", "PUT", at, `{"name":"other","service":{"image":"x"}}`, `of service \"other\"`)
		h.want(400, "bob", "PUT", "/services/"+name+"/a.b", `{"name":"a.b","service":{"image":"x"}}`)
		h.want(400, "bob", "PUT", at, `{`, "cannot be read")
		h.want(404, "mallory", "PUT", at, `{"name":"reports","service":{"image":"x"}}`)
		h.want(404, "bob", "PUT", "/services/"+unique("no")+"/reports", `{"name":"reports","service":{"image":"x"}}`)
		if a := h.send("bob", "PUT", at, `x`, "Content-Type", "text/plain"); a.status != 415 {
			t.Errorf("%d: %s", a.status, a.raw)
		}
	})

	h.want(404, "bob", "GET", at, "", "does not exist in project")
	if a := h.send("bob", "PUT", at, "name: reports\nservice:\n  image: registry.example/reports:1\n  env: [{name: LOG, value: info}, {name: KEY, secretKeyRef: {name: stripe, key: API}}]\n  port: 9000\n  provisionObjectStorage: true\n",
		"Content-Type", "application/yaml"); a.status != 201 || a.body["generation"] != float64(1) || a.body["state"] != "Succeeded" {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	s := h.service(name, "reports").Spec
	if s.ProjectID != name || s.ServiceName != "reports" || s.Generation != 1 || s.Image != "registry.example/reports:1" || *s.Port != 9000 || !s.ProvisionObjectStorage ||
		s.StorageCredentialGeneration != nil || !slices.Equal(s.Env, []v1alpha1.EnvVar{{Name: "LOG", Value: "info"}, {Name: "KEY", SecretName: "stripe", SecretKey: "API"}}) {
		t.Errorf("%+v", s)
	}
	// The same again is the same generation; another is the next.
	same := `{"name":"reports","service":{"image":"registry.example/reports:1","env":[{"name":"LOG","value":"info"},{"name":"KEY","secretKeyRef":{"name":"stripe","key":"API"}}],"port":9000,"provisionObjectStorage":true}}`
	h.want(200, "bob", "PUT", at, same, `"generation":1`)
	h.want(200, "bob", "POST", at+"/pause", "", `"paused":true`, `"generation":2`)
	h.want(200, "bob", "POST", at+"/restart", "", `"restarts":1`, `"generation":3`)
	// What the descriptor does not say, it does not change.
	h.want(200, "bob", "PUT", at, `{"name":"reports","service":{"image":"registry.example/reports:2"}}`, `"paused":true`, `"restarts":1`, `"generation":4`)
	if s := h.service(name, "reports").Spec; !s.Paused || s.Restarts != 1 || s.Image != "registry.example/reports:2" || s.ProvisionObjectStorage || s.Env != nil || s.Port != nil {
		t.Errorf("what was taken away stayed: %+v", s)
	}
	h.want(200, "bob", "POST", at+"/resume", "", `"paused":false`)
	h.want(200, "bob", "GET", at+"/history", "", `"verb":"PUT"`, `"state":"Succeeded"`)
	h.want(200, "bob", "GET", "/services/"+name, "", `"name":"reports"`)
	// It stands in the catalogue, too.
	h.want(200, "root", "GET", armService(name, "reports"), "", `"generation":5`, "AnkkaService")

	h.remove(name, "reports")
	if err := h.Admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(name), Name: "reports"}, &v1alpha1.AnkkaService{}); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	h.want(404, "bob", "DELETE", at, "")
	// A service's name, unlike a project's, may be used again.
	h.want(201, "bob", "PUT", at, same, `"generation":1`)
}

// The generation is set on the AnkkaService, and no write of the control plane's
// takes it back or owns it.
func TestCredentialGeneration_C130(t *testing.T) {
	t.Parallel()
	h := start(t, settings())
	_, name := h.organization()
	at := "/services/" + name + "/reports"
	h.want(201, "bob", "PUT", at, `{"name":"reports","service":{"image":"x:1","provisionObjectStorage":true}}`)
	a := h.service(name, "reports")
	raise := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"storageCredentialGeneration":2}}`))
	if err := h.Admin.Patch(t.Context(), a, raise, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	h.want(200, "bob", "PUT", at, `{"name":"reports","service":{"image":"x:2","provisionObjectStorage":true}}`)
	h.want(200, "bob", "POST", at+"/restart", "")
	a = h.service(name, "reports")
	if a.Spec.Image != "x:2" || a.Spec.Restarts != 1 || a.Spec.CredentialGeneration() != 2 {
		t.Errorf("C-130: %+v", a.Spec)
	}
	owned := false
	for _, m := range a.ManagedFields {
		if strings.Contains(m.FieldsV1.GetRawString(), "storageCredentialGeneration") {
			if owned = true; m.Manager != "somebody" {
				t.Errorf("C-130: %s owns it", m.Manager)
			}
		}
	}
	if !owned {
		t.Error("nobody owns it")
	}
	// Nor can a descriptor, or the wire of resources, say it.
	h.want(400, "bob", "PUT", at, `{"name":"reports","service":{"image":"x","storageCredentialGeneration":3}}`, "is not known")
	h.want(400, "root", "PUT", armService(name, "reports"), `{"properties":{"image":"x","storageCredentialGeneration":3}}`)

	// The same for a project's.
	var p v1alpha1.AnkkaProject
	key := client.ObjectKey{Namespace: v1alpha1.Namespace(name), Name: name}
	if err := h.Admin.Get(t.Context(), key, &p); err != nil {
		t.Fatal(err)
	}
	if err := h.Admin.Patch(t.Context(), &p, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"backupCredentialGeneration":4}}`)), client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	h.want(200, "bob", "PUT", "/projects/"+name+"/secrets/s", `{"entries":{"A":"b"}}`)
	if err := h.Admin.Get(t.Context(), key, &p); err != nil || p.Spec.CredentialGeneration() != 4 || len(p.Spec.Secrets) != 1 {
		t.Errorf("C-130: %v %+v", err, p.Spec)
	}
}

// What the operator reports stands in the service as soon as it is written, in
// the provider's words, cleaned; and the graph leads from it to its credential.
func TestFold_C109_C154(t *testing.T) {
	t.Parallel()
	h := start(t, settings())
	_, name := h.organization()
	at := "/services/" + name + "/reports"
	h.want(201, "bob", "PUT", at, `{"name":"reports","service":{"image":"x","provisionObjectStorage":true}}`)
	h.report(h.service(name, "reports"), v1alpha1.AnkkaServiceStatus{
		Lifecycle: v1alpha1.LifecycleUpdateInProgress, Detail: "object storage: making the bucket\x1b[31m\nfor you",
		ObjectStorage: &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseWaiting, Detail: "making the bucket"},
	})
	got := h.await(name, "reports", func(b map[string]any) bool { return text(b, "status", "lifecycle") == "UpdateInProgress" })
	if d := text(got, "status", "detail"); d != "object storage: making the bucket [31m for you" {
		t.Errorf("C-109: %q", d)
	}
	raw, _ := json.Marshal(got)
	if strings.Contains(string(raw), "reports-bucket") {
		t.Errorf("C-109: the request is named: %s", raw)
	}
	reported := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	h.report(h.service(name, "reports"), v1alpha1.AnkkaServiceStatus{
		Lifecycle: v1alpha1.LifecycleReady, ReadyInstances: 1, DesiredInstances: 1,
		ObjectStorage:     &v1alpha1.ObjectStorageStatus{Phase: v1alpha1.PhaseProvisioned, Bucket: "acme-bucket", Endpoint: "https://storage.example", Region: "r1", Location: "Europe-West2"},
		StorageCredential: &v1alpha1.StorageCredentialStatus{Phase: v1alpha1.PhaseReady, SecretName: "reports-cloud-storage", Generation: 1, ReportedAt: &reported},
		Conditions:        []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Ready", LastTransitionTime: metav1.Now()}},
	})
	got = h.await(name, "reports", func(b map[string]any) bool { return text(b, "status", "lifecycle") == "Ready" })
	if text(got, "status", "objectStorage", "bucket") != "acme-bucket" {
		t.Errorf("%v", got)
	}

	a := h.want(200, "bob", "GET", "/projects/"+name+"/graph", "")
	var g struct {
		Resources []struct {
			ID          string
			Connections []struct{ ID, Direction, Name string }
		}
	}
	if err := json.Unmarshal([]byte(a.raw), &g); err != nil {
		t.Fatal(err)
	}
	leads := func(from, to string) bool {
		for _, r := range g.Resources {
			for _, c := range r.Connections {
				if strings.HasSuffix(r.ID, from) && strings.HasSuffix(c.ID, to) && c.Direction == "Outbound" {
					return true
				}
			}
		}
		return false
	}
	for _, e := range [][2]string{{"services/reports", "projects/" + name}, {"services/reports", "buckets/reports"}, {"buckets/reports", "credentials/reports"},
		{"buckets/reports", "CloudResource/reports-bucket"}, {"credentials/reports", "Secret/reports-cloud-storage"}} {
		if !leads(e[0], e[1]) {
			t.Errorf("C-154: nothing leads from %s to %s: %s", e[0], e[1], a.raw)
		}
	}
	// The same by the wire of resources, and the bucket is one among all others.
	project := "/planes/radius/local/resourceGroups/ankka-" + name + "/providers/Radial.Services/projects/" + name
	h.want(200, "root", "POST", project+"/getGraph"+version, `{}`, "credentials/reports")
	h.want(200, "root", "GET", "/planes/radius/local/resourceGroups/ankka-"+name+"/resources?api-version=2023-10-01-preview", "", "buckets/reports")
	h.want(403, "root", "PUT", strings.Replace(armService(name, "reports"), "/services/reports", "/buckets/reports", 1), `{"properties":{}}`, "kept by the control plane")

	// Gone from the cluster by somebody's hand: that is said.
	if err := h.Admin.Delete(t.Context(), h.service(name, "reports")); err != nil {
		t.Fatal(err)
	}
	h.await(name, "reports", func(b map[string]any) bool { return text(b, "status", "lifecycle") == "NotDeployed" })
	h.want(200, "bob", "PUT", at, `{"name":"reports","service":{"image":"x"}}`)
	h.service(name, "reports")
	h.remove(name, "reports")
	if a := h.want(200, "bob", "GET", "/projects/"+name+"/graph", ""); strings.Contains(a.raw, "/buckets/reports") {
		t.Errorf("C-154: the bucket of a service that is gone: %s", a.raw)
	}
}

// A second project of another organization: members see none of the first.
func TestMembersOfOthers(t *testing.T) {
	t.Parallel()
	h := start(t, settings())
	_, name := h.organization()
	h.want(201, "bob", "PUT", "/services/"+name+"/a", `{"name":"a","service":{"image":"x"}}`)
	other := unique("evil")
	h.want(201, "root", "POST", "/organizations/"+other, `{"owner":"`+h.principal("mallory")+`"}`)
	for _, c := range [][3]string{{"GET", "/services/" + name}, {"GET", "/services/" + name + "/a"}, {"DELETE", "/services/" + name + "/a"}, {"POST", "/services/" + name + "/a/pause"},
		{"GET", "/services/" + name + "/a/history"}, {"GET", "/projects/" + name + "/graph"}, {"DELETE", "/projects/" + name}, {"DELETE", "/projects/" + name + "/secrets/s"}} {
		h.want(404, "mallory", c[0], c[1], c[2], "no member")
	}
	// Nor by the wire of resources, which goes by roles.
	for _, m := range []string{"GET", "DELETE"} {
		if a := h.send("mallory", m, armService(name, "a"), ""); a.status != 403 {
			t.Errorf("%s: %d %s", m, a.status, a.raw)
		}
	}
	// A member cannot make an organization by it either.
	if a := h.send("bob", "PUT", "/planes/radius/local/providers/Radial.Services/organizations/mine"+version, `{"properties":{"members":[]}}`); a.status != 403 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	a := h.want(200, "mallory", "GET", "/auth/whoami", "", h.principal("mallory"), other, `"administrator":false`)
	if strings.Contains(a.raw, name) {
		t.Error(a.raw)
	}
}

// A template writes a service by the same checks; it is refused by them, too.
func TestTemplate(t *testing.T) {
	h := start(t, settings())
	_, name := h.organization()
	deploy := func(deployment, image, env string) string {
		t.Helper()
		at := "/planes/radius/local/resourceGroups/ankka-" + name + "/providers/Microsoft.Resources/deployments/" + deployment + "?api-version=2022-09-01"
		a := h.send("root", "PUT", at, `{"properties":{"mode":"Incremental","template":{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#","contentVersion":"1.0.0.0","languageVersion":"2.0",
		 "resources":{"s":{"type":"Radial.Services/services","apiVersion":"2026-10-01-preview","name":"templated","properties":{"image":"`+image+`"`+env+`}}}}}}`)
		if a.status/100 != 2 {
			t.Fatalf("%d %s", a.status, a.raw)
		}
		follow := strings.TrimPrefix(a.header.Get("Azure-AsyncOperation"), h.url)
		for deadline := time.Now().Add(ankkatest.Limit); ; {
			a := h.send("root", "GET", follow, "", "Prefer", "wait=20")
			if s := text(a.body, "status"); s == "Succeeded" || s == "Failed" || time.Now().After(deadline) {
				return a.raw
			}
		}
	}
	if got := deploy("one", "x:1", ""); !strings.Contains(got, `"Succeeded"`) {
		t.Fatal(got)
	}
	if s := h.service(name, "templated").Spec; s.Image != "x:1" || s.ProjectID != name {
		t.Errorf("%+v", s)
	}
	h.want(200, "bob", "GET", "/services/"+name+"/templated", "", `"image":"x:1"`)
	if got := deploy("two", "x:2", `,"env":[{"name":"ANKKA_CLOUD_ACCOUNT","value":"mine"}]`); !strings.Contains(got, `"Failed"`) || !strings.Contains(got, "is set by the platform") {
		t.Error(got)
	}
}
