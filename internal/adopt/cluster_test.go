package adopt

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/installation"
	"github.com/radial-project/radial/internal/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // what concerns a test goes to its own log
	clustertest.Main(m)
}

// limit bounds the wait for something that happens in milliseconds on an idle
// machine.
const limit = 60 * time.Second

// controllerUser is the name that the admission policy knows the controller by.
const controllerUser = "system:serviceaccount:" + installation.Namespace + ":" + installation.ControllerAccount

func testScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, radapp.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// world is the package's cluster with Radial installed.
type world struct {
	*clustertest.Cluster
	// user writes as an administrator does.
	user client.WithWatch
}

var installed sync.Once

// cluster returns the package's cluster. The first call applies the files of
// installation/ and waits until their policies are in force: the API server
// takes them up through a watch.
func cluster(t *testing.T) *world {
	t.Helper()
	c := clustertest.Start(t)
	w := &world{Cluster: c, user: connectAs(t, c.Config)}
	installed.Do(func() {
		names, err := fs.Glob(installation.Files, "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		// The namespace comes first, since others are in it.
		for _, first := range []bool{true, false} {
			for _, name := range names {
				if (name == "namespace.yaml") == first {
					w.applyFile(t, name)
				}
			}
		}
		ns := c.Namespace(t, "policies")
		for _, probe := range []func(int) bool{
			func(i int) bool { // holding
				d := inNamespace(ns, deployment(free()...))
				d.Name = fmt.Sprintf("held-%d", i)
				if err := w.user.Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				return d.Spec.Paused
			},
			func(i int) bool { // giving way
				d := inNamespace(ns, deployment())
				d.Name = fmt.Sprintf("gave-way-%d", i)
				if err := w.user.Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				v := ref(d.Name+"-connections-x", "A")
				v.Value = "mine"
				d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{v}
				return w.user.Update(t.Context(), d) == nil
			},
		} {
			for i := 0; !probe(i); i++ {
				if i > 600 {
					t.Fatal("the policies are not in force after a minute")
				}
				time.Sleep(100 * time.Millisecond) // the API server tells nobody when a policy is in force
			}
		}
	})
	return w
}

func connectAs(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: testScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// asController writes as the controller's ServiceAccount, with its grants.
func (w *world) asController(t *testing.T) client.WithWatch {
	config := rest.CopyConfig(w.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: controllerUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return connectAs(t, config)
}

func (w *world) applyFile(t *testing.T, name string) {
	t.Helper()
	raw, err := installation.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); err != nil {
			return
		}
		if len(u.Object) == 0 {
			continue
		}
		// A kind that its own file defines is served a moment later.
		deadline := time.Now().Add(limit)
		for {
			err := w.user.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("install"), client.ForceOwnership)
			if err == nil {
				break
			}
			if time.Now().After(deadline) || apierrors.IsInvalid(err) {
				t.Fatalf("%s: %s %s: %v", name, u.GetKind(), u.GetName(), err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func inNamespace(ns string, d *appsv1.Deployment) *appsv1.Deployment {
	d.Namespace = ns
	return d
}

// await watches an object until it is as wanted, and returns it so.
func await[T client.Object, L client.ObjectList](t *testing.T, c client.WithWatch, list L, key client.ObjectKey, what string, want func(T) bool) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var last any
	for ctx.Err() == nil {
		w, err := c.Watch(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name})
		if err != nil {
			t.Fatal(err)
		}
		for e := range w.ResultChan() {
			if e.Type != watch.Added && e.Type != watch.Modified {
				continue
			}
			last = e.Object
			if o, ok := e.Object.(T); ok && want(o) {
				w.Stop()
				return o
			}
		}
	}
	t.Fatalf("%s: not within %s; last seen:\n%s", what, limit, show(last))
	panic("unreachable")
}

func (w *world) awaitDeployment(t *testing.T, d *appsv1.Deployment, what string, want func(*appsv1.Deployment) bool) *appsv1.Deployment {
	t.Helper()
	return await(t, w.user, &appsv1.DeploymentList{}, client.ObjectKeyFromObject(d), what, want)
}

// awaitGone watches until there is no such object.
func (w *world) awaitGone(t *testing.T, o client.Object, list client.ObjectList, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	events, err := w.user.Watch(ctx, list, client.InNamespace(o.GetNamespace()), client.MatchingFields{"metadata.name": o.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if err := w.user.Get(ctx, client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) {
		return
	}
	for e := range events.ResultChan() {
		if e.Type == watch.Deleted {
			return
		}
	}
	_ = w.user.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	t.Fatalf("%T %s is still there after %s:\n%s", o, o.GetName(), within, show(o))
}

func show(o any) string {
	if d, ok := o.(*appsv1.Deployment); ok {
		return fmt.Sprintf("annotations %v\nfinalizers %v\npaused %v\ntemplate %s", d.Annotations, d.Finalizers, d.Spec.Paused, marshal(d.Spec.Template))
	}
	return string(marshal(o))
}

// replicaSets are those of a Deployment.
func (w *world) replicaSets(t *testing.T, d *appsv1.Deployment) []appsv1.ReplicaSet {
	t.Helper()
	var list appsv1.ReplicaSetList
	if err := w.user.List(t.Context(), &list, client.InNamespace(d.Namespace)); err != nil {
		t.Fatal(err)
	}
	var own []appsv1.ReplicaSet
	for _, rs := range list.Items {
		if c := metav1.GetControllerOf(&rs); c != nil && c.Name == d.Name {
			own = append(own, rs)
		}
	}
	return own
}

// kubectl runs the real one against the cluster, with stdin as its -f -.
func (w *world) kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), clustertest.Program(t, "devcluster"), append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig, "HOME="+filepath.Join(w.Dir, "home"))
	cmd.Stdin = bytes.NewBufferString(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *world) mustKubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := w.kubectl(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return out
}

func eventScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := eventsv1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}
