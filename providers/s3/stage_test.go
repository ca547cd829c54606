package s3

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/installation/ankka"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/provider"
)

// cluster is the package's, with the shipped kinds, grant and policy.
type cluster struct {
	*clustertest.Cluster
	admin client.WithWatch
}

var (
	installOnce sync.Once
	installErr  error
)

func theCluster(t *testing.T) *cluster {
	t.Helper()
	c := clustertest.Start(t)
	scheme := k8sruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(c.Config)
	config.QPS = -1
	admin, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	k := &cluster{c, admin}
	installOnce.Do(func() { installErr = k.install(context.Background()) })
	if installErr != nil {
		t.Fatal(installErr)
	}
	return k
}

func (k *cluster) install(ctx context.Context) error {
	for _, file := range slices.Concat(ankka.CRDs, ankka.ProviderGrant) {
		raw, err := ankka.Files.ReadFile(file)
		if err != nil {
			return err
		}
		docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
		for {
			var u unstructured.Unstructured
			if err := docs.Decode(&u.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if len(u.Object) == 0 {
				continue
			}
			if err := k.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(&u), client.FieldOwner("installer"), client.ForceOwnership); err != nil {
				return err
			}
		}
	}
	const probe = "ankka-probe"
	if err := k.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: probe}}); err != nil {
		return err
	}
	// Kinds, grant and policy come into force through watches whose state
	// nothing shows.
	as := rest.CopyConfig(k.Config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + v1alpha1.ProviderNamespace + ":" + v1alpha1.ProviderAccount,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + v1alpha1.ProviderNamespace, "system:authenticated"}}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, l := range []client.ObjectList{&v1alpha1.CloudResourceList{}, &v1alpha1.AnkkaServiceList{}, &v1alpha1.AnkkaProjectList{}} {
			if err := k.admin.List(ctx, l); err != nil {
				return false, nil //nolint:nilerr // not served yet
			}
		}
		c, err := client.New(as, client.Options{})
		if err != nil {
			return false, err
		}
		allowed := c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x" + v1alpha1.StorageSecretEnding, Namespace: probe}}, client.DryRunAll)
		refused := c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: probe}}, client.DryRunAll)
		return allowed == nil && apierrors.IsForbidden(refused), nil
	})
}

// token is one that the cluster minted for the provider's account.
func (k *cluster) token(t *testing.T) string {
	t.Helper()
	r := &authenticationv1.TokenRequest{}
	if err := k.admin.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProviderAccount, Namespace: v1alpha1.ProviderNamespace}}, r); err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// stage is the provider's process between a real store and a real API server,
// with every call to either seen before and after.
type stage struct {
	t      *testing.T
	k      *cluster
	store  *store
	name   string
	config string
	// s3 and iam are the URLs of what stands before the store.
	s3, iam string
	output  buffer
	grace   time.Duration

	mu      sync.Mutex
	process *process
	// armed counts the points from here on; at point kill the process dies.
	armed  bool
	kill   int
	points []string
	died   chan struct{}
	// lose drops the answers of so many calls of an IAM action; calls is how many
	// calls the store got in all.
	lose  map[string]int
	calls int
	// keys are how many keys were made, and ended the users whose were ended.
	keys  int
	ended map[string]time.Time
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// newStage is a stage for a provider that answers to name.
func newStage(t *testing.T, name string, kill int) *stage {
	t.Helper()
	s := &stage{t: t, store: theStore(t), k: theCluster(t), name: name, kill: kill, died: make(chan struct{}), ended: map[string]time.Time{}, grace: 2 * time.Second}
	s.s3, s.iam = s.before(s.store.s3URL), s.before(s.store.iamURL)
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(s.k.Config))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(s.k.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.api(proxy, w, r) }))
	t.Cleanup(api.CloseClientConnections)
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: api.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: s.k.token(t)}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	s.config = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, s.config); err != nil {
		t.Fatal(err)
	}
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
		s.between("store "+what, w, func(w http.ResponseWriter) {
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
	if err := s.k.admin.List(context.Background(), &all, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		s.t.Error(err)
	}
	for _, x := range all.Items {
		if x.Annotations[v1alpha1.AnnotationCredentialID] == id {
			s.t.Errorf("C-144: the live credential of Secret %s is ended", x.Name)
		}
	}
}

func (s *stage) api(next http.Handler, w http.ResponseWriter, r *http.Request) {
	writes := r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch
	if !writes || !strings.Contains(r.URL.Path, "-storage-credential") && !strings.Contains(r.URL.Path, "/secrets") {
		next.ServeHTTP(w, r)
		return
	}
	s.between("cluster "+r.Method+" "+path.Base(r.URL.Path), w, func(w http.ResponseWriter) { next.ServeHTTP(w, r) })
}

func (s *stage) between(what string, w http.ResponseWriter, do func(http.ResponseWriter)) {
	if s.point("before " + what) {
		panic(http.ErrAbortHandler)
	}
	rec := httptest.NewRecorder()
	do(rec)
	if s.point("after " + what) {
		panic(http.ErrAbortHandler)
	}
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

// point is one moment; it answers whether the process was killed at it.
func (s *stage) point(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.armed {
		return false
	}
	s.points = append(s.points, what)
	if len(s.points)-1 != s.kill {
		return false
	}
	_ = s.process.cmd.Process.Kill()
	<-s.process.ended
	close(s.died)
	return true
}

// start starts a provider's process.
func (s *stage) start(args ...string) {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--kubeconfig", s.config, "--health-listen", "0", "--metrics-listen", "0", "--log-level", "debug",
		"--retry-min", "20ms", "--retry-max", "200ms", "--settle", "300ms", "--endpoint", s.s3, "--iam-endpoint", s.iam, "--region", testRegion, "--credentials-file", s.store.key}, args...)...)
	cmd.Env = append(os.Environ(), runMain+"="+s.name, "ANKKA_CLOUD_PROVIDER="+s.name, "ANKKA_CLOUD_ACCOUNT=cellar", "ANKKA_CLOUD_LOCATION=Rack 4, Cellar",
		"ANKKA_CLOUD_KMS_KEY=", "ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND=2m", "ANKKA_CLOUD_ROTATION_GRACE="+s.grace.String(), provider.EnvInstallation+"="+testInstallation)
	cmd.Stdout, cmd.Stderr = &s.output, &s.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return
	}
	p := &process{cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.ended) }()
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); <-p.ended })
}

// stop ends it gracefully.
func (s *stage) stop() {
	s.t.Helper()
	_ = s.process.cmd.Process.Signal(syscall.SIGTERM)
	<-s.process.ended
	if code := s.process.cmd.ProcessState.ExitCode(); code != 0 {
		s.t.Fatalf("the provider exits %d on SIGTERM:\n%s", code, s.output.String())
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
		if err := s.k.admin.Create(s.t.Context(), o); err != nil {
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
	if err := s.k.admin.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldManagerOperator), client.ForceOwnership); err != nil {
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
		w, err := s.k.admin.Watch(ctx, &v1alpha1.CloudResourceList{}, client.InNamespace(v1alpha1.Namespace(sub.Project)))
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
	s.t.Fatalf("request %s is not %s: %s\n%s", name, what, said, s.output.String())
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
	if err := s.k.admin.Get(s.t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(sub.Project), Name: v1alpha1.StorageSecretName(sub)}, x); client.IgnoreNotFound(err) != nil {
		s.t.Error(err)
	}
	return x.Annotations[v1alpha1.AnnotationCredentialID], string(x.Data[v1alpha1.EntryAccessKey]), string(x.Data[v1alpha1.EntrySecretKey])
}
