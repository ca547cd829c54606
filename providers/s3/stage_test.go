package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/provider"
)

// stage is the provider's process between a real store and a real API server,
// with every call to either seen before and after.
type stage struct {
	*ankkatest.Mortal
	t      *testing.T
	k      *ankkatest.World
	store  *store
	name   string
	config string
	// s3 and iam are the URLs of what stands before the store.
	s3, iam string
	grace   time.Duration
	// kill is the point at which the process dies.
	kill int

	mu sync.Mutex
	// lose drops the answers of so many calls of an IAM action; calls is how many
	// calls the store got in all.
	lose  map[string]int
	calls int
	// keys are how many keys were made, and ended the users whose were ended.
	keys  int
	ended map[string]time.Time
}

// newStage is a stage for a provider that answers to name.
func newStage(t *testing.T, name string, kill int) *stage {
	t.Helper()
	s := &stage{Mortal: ankkatest.NewMortal(), t: t, store: theStore(t), k: ankkatest.Installed(t), name: name, kill: kill, ended: map[string]time.Time{}, grace: 2 * time.Second}
	s.s3, s.iam = s.before(s.store.s3URL), s.before(s.store.iamURL)
	s.config = s.k.Behind(t, ankkatest.Provider, s.api)
	return s
}

// before stands before one of the store's APIs. Requests keep their host, which
// is signed.
func (s *stage) before(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		s.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: s.store.transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(u)
		r.Out.Host = r.In.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		what := r.Method + " " + r.URL.RawQuery
		form, _ := url.ParseQuery(string(body))
		action := form.Get("Action")
		if action != "" {
			what = action
		}
		s.mu.Lock()
		s.calls++
		s.mu.Unlock()
		if action == "DeleteAccessKey" {
			s.live(form.Get("UserName"))
		}
		s.Between("store "+what, w, func(w http.ResponseWriter) {
			proxy.ServeHTTP(w, r)
			rec := w.(*httptest.ResponseRecorder)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.lose[action] > 0 {
				s.lose[action]--
				defer panic(http.ErrAbortHandler)
			}
			switch {
			case rec.Code != http.StatusOK:
			case action == "CreateAccessKey":
				s.keys++
			case action == "DeleteAccessKey":
				s.ended[form.Get("UserName")] = time.Now()
			}
		})
	}))
	s.t.Cleanup(server.CloseClientConnections)
	return server.URL
}

// live fails the test if what is to be ended is in a Secret.
func (s *stage) live(id string) {
	var all corev1.SecretList
	if err := s.k.Admin.List(context.Background(), &all, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		s.t.Error(err)
	}
	for _, x := range all.Items {
		if x.Annotations[v1alpha1.AnnotationCredentialID] == id {
			s.t.Errorf("C-144: the live credential of Secret %s is ended", x.Name)
		}
	}
}

func (s *stage) api(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if !ankkatest.WritesCredential(r) {
		next.ServeHTTP(w, r)
		return
	}
	s.Between("cluster "+r.Method+" "+path.Base(r.URL.Path), w, func(w http.ResponseWriter) { next.ServeHTTP(w, r) })
}

// start starts a provider's process.
func (s *stage) start(args ...string) {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--kubeconfig", s.config, "--health-listen", "0", "--metrics-listen", "0", "--log-level", "debug",
		"--retry-min", "20ms", "--retry-max", "200ms", "--settle", "300ms", "--endpoint", s.s3, "--iam-endpoint", s.iam, "--region", testRegion, "--credentials-file", s.store.key}, args...)...)
	cmd.Env = append(os.Environ(), runMain+"="+s.name, "ANKKA_CLOUD_PROVIDER="+s.name, "ANKKA_CLOUD_ACCOUNT=cellar", "ANKKA_CLOUD_LOCATION=Rack 4, Cellar",
		"ANKKA_CLOUD_KMS_KEY=", "ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND=2m", "ANKKA_CLOUD_ROTATION_GRACE="+s.grace.String(), provider.EnvInstallation+"="+testInstallation)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.Start(s.t, cmd); err != nil {
		s.t.Error(err)
	}
}

// service is one of a project of its own, with its owner reference.
func (s *stage) service() (v1alpha1.Subject, metav1.OwnerReference) {
	s.t.Helper()
	sub := newRequest("reports").Subject
	ns := v1alpha1.Namespace(sub.Project)
	svc := &v1alpha1.AnkkaService{ObjectMeta: metav1.ObjectMeta{Name: sub.Service, Namespace: ns},
		Spec: v1alpha1.AnkkaServiceSpec{ProjectID: sub.Project, ServiceName: sub.Service, Generation: 1, Image: "registry.invalid/none"}}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, svc} {
		if err := s.k.Admin.Create(s.t.Context(), o); err != nil {
			s.t.Fatal(err)
		}
	}
	yes := true
	return sub, metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.AnkkaServiceKind, Name: svc.Name, UID: svc.UID, Controller: &yes}
}

// apply writes a request as the operator does.
func (s *stage) apply(sub v1alpha1.Subject, by metav1.OwnerReference, kind string, generation int64, annotations map[string]any, parameters map[string]string, err error) string {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	name, err := v1alpha1.RequestName(sub, kind, "")
	if err != nil {
		s.t.Fatal(err)
	}
	owner, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(&by)
	if err != nil {
		s.t.Fatal(err)
	}
	params := map[string]any{}
	for k, v := range parameters {
		params[k] = v
	}
	spec := map[string]any{"provider": s.name, "kind": kind, "subject": map[string]any{"project": sub.Project, "service": sub.Service}, "parameters": params}
	if generation > 0 {
		spec["credentialGeneration"] = generation
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.CloudResourceKind, "spec": spec,
		"metadata": map[string]any{"name": name, "namespace": v1alpha1.Namespace(sub.Project), "ownerReferences": []any{owner}, "annotations": annotations}}}
	if err := s.k.Admin.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldManagerOperator), client.ForceOwnership); err != nil {
		s.t.Fatal(err)
	}
	return name
}

// await waits until a request is as in says.
func (s *stage) await(sub v1alpha1.Subject, name, what string, in func(*v1alpha1.CloudResource) bool) *v1alpha1.CloudResource {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 90*time.Second)
	defer cancel()
	var last *v1alpha1.CloudResource
	for ctx.Err() == nil {
		w, err := s.k.Admin.Watch(ctx, &v1alpha1.CloudResourceList{}, client.InNamespace(v1alpha1.Namespace(sub.Project)))
		if err != nil {
			break
		}
		for e := range w.ResultChan() {
			if o, ok := e.Object.(*v1alpha1.CloudResource); ok && o.Name == name {
				if last = o; in(o) {
					w.Stop()
					return o
				}
			}
		}
	}
	said := ""
	if last != nil {
		said = fmt.Sprintf("%s: %s; %+v", last.Status.Phase, last.Status.Detail, last.Status.Credentials)
	}
	s.t.Fatalf("request %s is not %s: %s\n%s", name, what, said, s.Output.String())
	return nil
}

func done(o *v1alpha1.CloudResource) bool {
	return o.Status.ObservedGeneration == o.Generation && o.Status.Phase.Done()
}

// storage asks for identity and bucket, and answers how a credential is asked
// for.
func (s *stage) storage(sub v1alpha1.Subject, by metav1.OwnerReference) v1alpha1.CredentialAsk {
	s.t.Helper()
	ip, ierr := v1alpha1.IdentityAsk{ServiceAccount: v1alpha1.ServiceAccountName(sub)}.Parameters()
	bp, berr := v1alpha1.BucketAsk{Purpose: v1alpha1.PurposeService, Location: "Rack 4, Cellar", NamePrefix: testPrefix}.Parameters()
	i, b := s.apply(sub, by, v1alpha1.KindIdentity, 0, nil, ip, ierr), s.apply(sub, by, v1alpha1.KindBucket, 0, nil, bp, berr)
	return v1alpha1.CredentialAsk{Identity: s.await(sub, i, "answered", done).Status.Outputs[v1alpha1.OutputIdentity],
		Bucket: s.await(sub, b, "answered", done).Status.Outputs[v1alpha1.OutputBucket], SecretName: v1alpha1.StorageSecretName(sub)}
}

// secret is what instances read.
func (s *stage) secret(sub v1alpha1.Subject) (id, access, key string) {
	s.t.Helper()
	x := &corev1.Secret{}
	if err := s.k.Admin.Get(s.t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(sub.Project), Name: v1alpha1.StorageSecretName(sub)}, x); client.IgnoreNotFound(err) != nil {
		s.t.Error(err)
	}
	return x.Annotations[v1alpha1.AnnotationCredentialID], string(x.Data[v1alpha1.EntryAccessKey]), string(x.Data[v1alpha1.EntrySecretKey])
}
