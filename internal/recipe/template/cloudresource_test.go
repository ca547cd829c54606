package template_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/recipe/template"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/scripted"
)

// A recipe holds a request for a bucket, for the Recipe that it runs for. The
// control plane writes it under its own grant, waits for the answer, and reads it.
func TestCloudResourceInATemplate_S50_C143(t *testing.T) {
	w := ankkatest.Start(t)
	t.Parallel()
	ctrl.SetLogger(logr.Discard())
	project := w.Project(t, "media")
	ns := v1alpha1.Namespace(project)
	stands := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "radapp.io/v1alpha3", "kind": "Recipe",
		"metadata": map[string]any{"name": "pictures", "namespace": ns}, "spec": map[string]any{"type": "Applications.Core/extenders"}}}
	if err := w.Admin.Create(t.Context(), stands); err != nil {
		t.Fatal(err)
	}
	account, err := scripted.NewAccount("")
	if err != nil {
		t.Fatal(err)
	}
	settings := provider.Settings{Provider: "scripted-template", Account: "acme", Location: "Nowhere-1", RotationGrace: time.Minute, Installation: "under-test"}
	serve := func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- provider.Run(ctx, provider.Options{Cloud: scripted.Cloud{Account: account}, Settings: settings, Config: w.As(t, ankkatest.Provider), RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond})
		}()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the provider ended: %v", err)
			}
		})
	}

	controlPlane := w.As(t, ankkatest.ControlPlane)
	file := filepath.Join(t.TempDir(), "recipe.json")
	engine := recipe.NewEngine(recipe.Options{Drivers: map[string]recipe.Driver{"template": template.New(template.Options{
		Fetcher: oci.New(oci.Options{AllowFiles: true}),
		Resolver: scope.NewResolver(map[string]scope.Connect{"local": func(context.Context) (*kubernetes.Cluster, error) {
			return kubernetes.New("local", controlPlane, kubernetes.Options{ReadyTimeout: ankkatest.Limit})
		}}),
		Now: time.Now, NewGUID: uuid.NewString,
	})}})
	use := func(location string) {
		t.Helper()
		content := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","version":"1.0.0","config":{"kubeConfig":"","namespace":"[parameters('context').runtime.kubernetes.namespace]"}}},
 "parameters":{"context":{"type":"object"}},
 "resources":{"bucket":{"import":"k","type":"ankka.thinkmorestupidless.com/CloudResource@v1alpha1","properties":{
  "metadata":{"name":"pictures-bucket","ownerReferences":["[parameters('context').runtime.kubernetes.owner]"]},
  "spec":{"provider":"scripted-template","kind":"bucket","subject":{"project":"` + project + `","service":"[parameters('context').runtime.kubernetes.owner.name]"},
   "parameters":{"purpose":"service","location":"` + location + `","versioning":"false","softDeleteDays":"0","corsOrigins":"","kmsKey":"","namePrefix":"acme","noncurrentVersionDays":""}}}}},
 "outputs":{"result":{"type":"object","value":{"values":{"bucket":"[reference('bucket').status.outputs.bucket]","endpoint":"[reference('bucket').status.outputs.endpoint]"}}}}}`
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env, err := json.Marshal(map[string]any{
		"compute": map[string]any{"kind": "kubernetes", "namespace": ns},
		"recipes": map[string]any{"Test.X/things": map[string]any{"default": map[string]any{"templateKind": "template", "templatePath": "file://" + file}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var inventory []core.Output
	request := func() recipe.Request {
		return recipe.Request{
			Resource: core.Resource{ID: core.GroupID("g").Resource("Test.X/things", "pictures"),
				Owner: core.Owner{Cluster: "local", Namespace: ns, Kind: "Recipe", Name: "pictures", UID: string(stands.GetUID())}},
			Environment: core.Resource{ID: core.GroupID("g").Resource("Applications.Core/environments", "dev"), Properties: env},
			Previous:    inventory,
			Record: func(_ context.Context, put []core.Output, _ []core.ID) error {
				inventory = put
				return nil
			},
		}
	}

	// The deployment waits: it has not ended before there is a provider.
	use("Nowhere-1")
	type outcome struct {
		result recipe.Result
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		result, err := engine.Execute(t.Context(), request())
		done <- outcome{result, err}
	}()
	// The garbage collector looks for new kinds twice a minute.
	ctx, cancel := context.WithTimeout(t.Context(), 2*ankkatest.Limit)
	defer cancel()
	watch, err := w.Admin.Watch(ctx, &v1alpha1.CloudResourceList{}, kube.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	select {
	case o := <-done:
		t.Fatalf("it ended before the request was answered: %+v, %v", o.result, o.err)
	case <-watch.ResultChan():
	}
	serve()
	o := <-done
	if o.err != nil {
		t.Fatal(o.err)
	}
	name, err := v1alpha1.BucketName("acme", project, "pictures")
	if err != nil {
		t.Fatal(err)
	}
	if o.result.Values["bucket"] != name || o.result.Values["endpoint"] != scripted.Endpoint {
		t.Errorf("S-50: the outputs are %v", o.result.Values)
	}
	r := &v1alpha1.CloudResource{}
	if err := w.Admin.Get(t.Context(), kube.ObjectKey{Namespace: ns, Name: "pictures-bucket"}, r); err != nil {
		t.Fatal(err)
	}
	if c := metav1.GetControllerOf(r); c == nil || c.Kind != "Recipe" || c.UID != stands.GetUID() {
		t.Errorf("C-143: the request is %+v's", c)
	}

	// A later generation that is refused fails the run, with the provider's
	// words, whatever was answered before.
	use("Elsewhere-2")
	_, err = engine.Execute(t.Context(), request())
	if err == nil || !strings.Contains(err.Error(), v1alpha1.DetailMoved) {
		t.Errorf("S-50: %v", err)
	}

	// Nobody deletes a request: it goes with its owner, which is not gone yet.
	if err := engine.Delete(t.Context(), request()); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := w.Admin.Get(t.Context(), kube.ObjectKeyFromObject(r), r); err != nil || r.DeletionTimestamp != nil {
		t.Errorf("C-50: the request is gone: %v", err)
	}
	if err := w.Admin.Delete(t.Context(), stands); err != nil {
		t.Fatal(err)
	}
	gone := false
	for !gone {
		e, ok := <-watch.ResultChan()
		if !ok {
			break
		}
		gone = e.Type == apiwatch.Deleted
	}
	if !gone || !account.Holds(name) {
		t.Errorf("C-59, C-60: the request is gone: %v, the bucket is held: %v", gone, account.Holds(name))
	}
}
