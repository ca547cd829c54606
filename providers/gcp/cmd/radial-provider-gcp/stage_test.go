package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/providers/gcp/fakegoogle"
)

func asProvider(name string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	code := run(ctx, name, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const (
	account  = "acme-test"
	location = "europe-west2"
	wrapKey  = "projects/acme-test/locations/europe-west2/keyRings/radial/cryptoKeys/wrap"
	grace    = 2 * time.Second
)

// stage is the provider's process between a fake Google and an API server that
// are seen from here, call by call.
type stage struct {
	*testing.T
	*ankkatest.Mortal
	in     *ankkatest.World
	name   string
	fake   *fakegoogle.Fake
	google string
	config string
	args   []string

	mu sync.Mutex
	// sent are the calls to the API server.
	sent []string
	// watch looks at each call to Google before it is carried out.
	watch func(fakegoogle.Call)
}

func newStage(t *testing.T, name string, o fakegoogle.Options, args ...string) *stage {
	t.Helper()
	in := ankkatest.Installed(t)
	s := &stage{T: t, Mortal: ankkatest.NewMortal(), in: in, name: name, fake: fakegoogle.New(o), args: args}
	s.fake.AddKey(wrapKey)
	s.fake.Hook(s.call)
	google := httptest.NewServer(s.fake)
	t.Cleanup(google.Close)
	s.google = google.URL
	s.config = in.Behind(t, ankkatest.Provider, s.api)
	return s
}

func (s *stage) start() {
	s.Helper()
	args := append([]string{"--kubeconfig", s.config, "--endpoint", s.google, "--health-listen", "0", "--metrics-listen", "0", "--log-level", "debug",
		"--retry-min", "50ms", "--retry-max", "500ms"}, s.args...)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), runMain+"="+s.name, "GCE_METADATA_HOST="+strings.TrimPrefix(s.google, "http://"),
		"ANKKA_CLOUD_PROVIDER="+s.name, "ANKKA_CLOUD_ACCOUNT="+account, "ANKKA_CLOUD_LOCATION="+location, "ANKKA_CLOUD_KMS_KEY="+wrapKey,
		"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND=2m", "ANKKA_CLOUD_ROTATION_GRACE="+grace.String(), provider.EnvInstallation+"=under-test")
	s.must(s.Start(s.T, cmd))
}

// call is the fake's hook.
func (s *stage) call(c fakegoogle.Call, after bool) bool {
	if after {
		return s.Point("after " + c.Op)
	}
	s.mu.Lock()
	watch := s.watch
	s.mu.Unlock()
	if watch != nil {
		watch(c)
	}
	return s.Point("before " + c.Op)
}

func (s *stage) api(next http.Handler, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.sent = append(s.sent, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	if !ankkatest.WritesCredential(r) {
		next.ServeHTTP(w, r)
		return
	}
	parts := strings.Split(r.URL.Path, "/")
	s.Between(r.Method+" "+parts[len(parts)-1], w, func(w http.ResponseWriter) { next.ServeHTTP(w, r) })
}

// project makes one that no other test has.
func (s *stage) project() string {
	s.Helper()
	id := "g" + strings.ToLower(rand.Text()[:9])
	s.must(s.in.Admin.Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace(id)}}))
	s.must(s.in.Admin.Create(s.Context(), &v1alpha1.AnkkaProject{ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: v1alpha1.Namespace(id)}, Spec: v1alpha1.AnkkaProjectSpec{ProjectID: id}}))
	return id
}

func (s *stage) service(project, name string) v1alpha1.Subject {
	s.Helper()
	s.must(s.in.Admin.Create(s.Context(), &v1alpha1.AnkkaService{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace(project)},
		Spec: v1alpha1.AnkkaServiceSpec{ProjectID: project, ServiceName: name, Generation: 1, Image: "registry.invalid/none"}}))
	return v1alpha1.Subject{Project: project, Service: name}
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// apply writes a request as the operator does, and answers its key.
func (s *stage) apply(sub v1alpha1.Subject, kind, secret string, params map[string]string, generation int64) client.ObjectKey {
	s.Helper()
	name, err := v1alpha1.RequestName(sub, kind, secret)
	s.must(err)
	ns := v1alpha1.Namespace(sub.Project)
	var owner client.Object = &v1alpha1.AnkkaProject{}
	ownerKind, ownerName := v1alpha1.AnkkaProjectKind, sub.Project
	subject := map[string]any{"project": sub.Project}
	if sub.Service != "" {
		owner, ownerKind, ownerName = &v1alpha1.AnkkaService{}, v1alpha1.AnkkaServiceKind, sub.Service
		subject["service"] = sub.Service
	}
	s.must(s.in.Admin.Get(s.Context(), client.ObjectKey{Namespace: ns, Name: ownerName}, owner))
	parameters := map[string]any{}
	for k, v := range params {
		parameters[k] = v
	}
	spec := map[string]any{"provider": s.name, "kind": kind, "subject": subject, "parameters": parameters}
	if generation > 0 {
		spec["credentialGeneration"] = generation
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.CloudResourceKind, "spec": spec,
		"metadata": map[string]any{"name": name, "namespace": ns, "ownerReferences": []any{map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": ownerKind, "name": ownerName, "uid": string(owner.GetUID()), "controller": true, "blockOwnerDeletion": true}}}}}
	s.must(s.in.Admin.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldManagerOperator), client.ForceOwnership))
	return client.ObjectKey{Namespace: ns, Name: name}
}

// await waits until a request is in a state; it watches it.
func (s *stage) await(key client.ObjectKey, what string, in func(*v1alpha1.CloudResource) bool) *v1alpha1.CloudResource {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 90*time.Second)
	defer cancel()
	w, err := s.in.Admin.Watch(ctx, &v1alpha1.CloudResourceList{}, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name})
	s.must(err)
	defer w.Stop()
	var last v1alpha1.CloudResourceStatus
	for e := range w.ResultChan() {
		r, ok := e.Object.(*v1alpha1.CloudResource)
		if !ok {
			continue
		}
		if last = r.Status; r.Status.ObservedGeneration == r.Generation && in(r) {
			return r
		}
	}
	s.Fatalf("request %s is not %s; it is %s: %s\n%s", key.Name, what, last.Phase, last.Detail, tail(s.Output.String()))
	return nil
}

func tail(text string) string {
	if len(text) > 6000 {
		text = text[len(text)-6000:]
	}
	return text
}

func (s *stage) done(key client.ObjectKey) *v1alpha1.CloudResource {
	s.Helper()
	return s.await(key, "done", func(r *v1alpha1.CloudResource) bool { return r.Status.Phase.Done() })
}

func (s *stage) identity(sub v1alpha1.Subject) client.ObjectKey {
	return s.apply(sub, v1alpha1.KindIdentity, "", map[string]string{v1alpha1.ParamServiceAccount: v1alpha1.ServiceAccountName(sub)}, 0)
}

func (s *stage) bucket(sub v1alpha1.Subject, change func(*v1alpha1.BucketAsk)) client.ObjectKey {
	a := v1alpha1.BucketAsk{Purpose: v1alpha1.PurposeService, Location: location, NamePrefix: "acme"}
	if sub.Service == "" {
		a.Purpose = v1alpha1.PurposeBackup
	}
	if change != nil {
		change(&a)
	}
	p, err := a.Parameters()
	s.must(err)
	return s.apply(sub, v1alpha1.KindBucket, "", p, 0)
}

// storage has identity and bucket made, and answers what asks for a credential.
func (s *stage) storage(sub v1alpha1.Subject) map[string]string {
	s.Helper()
	i, b := s.identity(sub), s.bucket(sub, nil)
	return map[string]string{v1alpha1.ParamIdentity: s.done(i).Status.Outputs[v1alpha1.OutputIdentity],
		v1alpha1.ParamBucket: s.done(b).Status.Outputs[v1alpha1.OutputBucket], v1alpha1.ParamSecretName: v1alpha1.StorageSecretName(sub)}
}

// pair is the credential in a subject's Secret, read as a test may and the
// provider may not.
func (s *stage) pair(sub v1alpha1.Subject) (access, secret string) {
	s.Helper()
	sec := &corev1.Secret{}
	err := s.in.Admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.Namespace(sub.Project), Name: v1alpha1.StorageSecretName(sub)}, sec)
	if err != nil && !apierrors.IsNotFound(err) {
		s.Error(err)
	}
	return string(sec.Data[v1alpha1.EntryAccessKey]), string(sec.Data[v1alpha1.EntrySecretKey])
}

// eventually is for what has no watch: the account.
func (s *stage) eventually(what string, in func() bool) {
	s.Helper()
	end := time.Now().Add(60 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !in() {
		if time.Now().After(end) {
			s.Fatalf("it does not come about that %s\n%s", what, tail(s.Output.String()))
		}
		<-tick.C
	}
}

func (s *stage) reaches(access, secret, bucket string) bool {
	return fakegoogle.Reaches(s.google, access, secret, bucket, time.Now())
}

// clean fails the test if a key stands in a status or in what the provider has
// said, or if it has sent what its grant does not hold.
func (s *stage) clean(project string) {
	s.Helper()
	var text strings.Builder
	text.WriteString(s.Output.String())
	var l v1alpha1.CloudResourceList
	s.must(s.in.Admin.List(s.Context(), &l, client.InNamespace(v1alpha1.Namespace(project))))
	for _, r := range l.Items {
		fmt.Fprintf(&text, "%+v\n", r.Status)
	}
	for _, k := range s.fake.AllKeys() {
		if strings.Contains(text.String(), k.Secret) || strings.Contains(text.String(), k.Access) {
			s.Errorf("C-100: a key stands in a status or in the provider's logs")
		}
	}
	if s.fake.BlindWrites() != 0 {
		s.Errorf("a policy was written without its etag")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.sent {
		method, path, _ := strings.Cut(c, " ")
		last := path[strings.LastIndex(path, "/")+1:]
		switch {
		case strings.Contains(path, "/cloudresources") && (method == "GET" || last == "status" && (method == "PUT" || method == "PATCH")):
		case strings.Contains(path, "/secrets") && (method == "POST" && last == "secrets" || method == "PATCH" && last != "secrets"):
		default:
			s.Errorf("the provider sends %s", c)
		}
	}
}
