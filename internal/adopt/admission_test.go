package adopt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAdmission_K25 runs the table of TestAdmit against installation/holding.yaml
// on a real API server, with no process of Radial there: the policy and Admit
// must agree in every case.
func TestAdmission_K25(t *testing.T) {
	w := cluster(t)
	ns := w.Namespace(t, "admission")
	controller := w.asController(t)
	// The policy lets this account make any starting point, which the grants of
	// the controller do not.
	anything := w.impersonating(t, controllerUser)
	for i, a := range admissions {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			old, object := a.objects()
			want := Admit(a.byController, old, object)
			paused, marked := expected(want, object)
			written := object.Spec.Paused
			name := "web-" + itoa(i)
			writer := w.user
			if a.byController {
				writer = controller
			}
			object.Namespace, object.Name = ns, name
			if old == nil {
				if a.byController {
					writer = anything
				}
				if err := writer.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			} else {
				old.Namespace, old.Name = ns, name
				if err := anything.Create(t.Context(), old); err != nil {
					t.Fatal(err)
				}
				if a.byController {
					writer = anything
				}
				if err := writer.Update(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			_, gotMarked := object.Annotations[AnnotationHeld]
			if object.Spec.Paused != paused || gotMarked != marked {
				t.Errorf("after the write: paused %v, marked %v; Admit says %s, which is paused %v, marked %v\n%s",
					object.Spec.Paused, gotMarked, want, paused, marked, a.reason)
			}
			for _, m := range object.ManagedFields {
				// K-6: in nobody's hands, or the next apply of a chart would conflict.
				if want == Hold && !written && strings.Contains(string(m.FieldsV1.GetRawBytes()), "f:paused") {
					t.Errorf("K-6 field manager %s owns the pause that admission set", m.Manager)
				}
			}
		})
	}
}

// impersonating is an administrator under another name.
func (w *world) impersonating(t *testing.T, user string) client.WithWatch {
	config := *w.Config
	config.Impersonate.UserName = user
	config.Impersonate.Groups = []string{"system:masters"}
	return connectAs(t, &config)
}

// TestAdmission_K47: a dry run is admitted as the write would be, and changes
// nothing.
func TestAdmission_K47(t *testing.T) {
	w := cluster(t)
	ns := w.Namespace(t, "dryrun")
	d := inNamespace(ns, deployment(free()...))
	if err := w.user.Create(t.Context(), d.DeepCopy(), client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if err := w.user.Get(t.Context(), client.ObjectKeyFromObject(d), d); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("after a dry run: %v, want not found", err)
	}
}

// TestAdmission_scaling_K25: scale, status and delete do not meet the policy:
// they succeed on a held Deployment and move neither pause nor mark.
func TestAdmission_scaling_K25(t *testing.T) {
	w := cluster(t)
	ns := w.Namespace(t, "scale")
	d := inNamespace(ns, deployment(free()...))
	if err := w.user.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.mustKubectl(t, "", "-n", ns, "scale", "deployment/web", "--replicas=3")
	w.mustKubectl(t, "", "-n", ns, "autoscale", "deployment/web", "--min=1", "--max=4", "--cpu=80%")
	d = w.awaitDeployment(t, d, "scaled", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 3 })
	if PauseOf(d) != Held {
		t.Errorf("after scaling the pause is %s, want held", PauseOf(d))
	}
	if err := w.user.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(t, d, &appsv1.DeploymentList{}, limit)
}

type givingWay struct {
	name   string
	reason string
	old    []corev1.Container
	object []corev1.Container
	// init repeats the case with init containers.
	refused bool
}

func container(name, image string, env ...corev1.EnvVar) corev1.Container {
	return corev1.Container{Name: name, Image: image, Env: env}
}

func both(name, secret, value string) corev1.EnvVar {
	v := ref(secret, name)
	v.Value = value
	return v
}

var givingWays = []givingWay{
	{name: "a renamed container leaves a stub", reason: "server-side apply keeps what another manager owns",
		old:    []corev1.Container{container("web", "app:1", ref("web-connections-x", "A"))},
		object: []corev1.Container{container("web", "", ref("web-connections-x", "A"), ref("web-connections-x", "B")), container("site", "app:1")}},
	{name: "two of three containers go", reason: "indexes stay true",
		old:    []corev1.Container{container("a", "app:1"), container("b", "app:1"), container("c", "app:1")},
		object: []corev1.Container{container("a", "", ref("web-connections-x", "A")), container("b", "app:2"), container("c", "", ref("web-connections-x", "A"))}},
	{name: "a variable of the user's in place of ours", reason: "K-17: the user's wins",
		old:    []corev1.Container{container("web", "app:1", ref("web-connections-x", "A"), ref("web-connections-x", "B"))},
		object: []corev1.Container{container("web", "app:1", both("A", "web-connections-x", "mine"), ref("web-connections-x", "B"))}},
	{name: "both at once", reason: "the repairs do not disturb each other",
		old:    []corev1.Container{container("a", "app:1"), container("b", "app:1")},
		object: []corev1.Container{container("a", "", ref("web-connections-x", "A")), container("b", "app:1", both("A", "web-connections-x", "mine"))}},
	{name: "a container without an image by mistake", reason: "it was never there: the user's to correct", refused: true,
		old:    []corev1.Container{container("web", "app:1")},
		object: []corev1.Container{container("web", "app:1"), container("new", "", ref("web-connections-x", "A"))}},
	{name: "an image removed by mistake", reason: "it holds more than our entries", refused: true,
		old:    []corev1.Container{container("web", "app:1")},
		object: []corev1.Container{container("web", "", ref("web-connections-x", "A"), corev1.EnvVar{Name: "OWN", Value: "1"})}},
	{name: "a user's own contradiction", reason: "value and valueFrom of a Secret that is not ours", refused: true,
		old:    []corev1.Container{container("web", "app:1")},
		object: []corev1.Container{container("web", "app:1", both("A", "redis-secret", "mine"))}},
}

// TestGivingWay_K6 runs GiveWay and the policy giving-way.radapp.io over the
// same cases, as containers and as init containers.
func TestGivingWay_K6(t *testing.T) {
	w := cluster(t)
	ns := w.Namespace(t, "giveway")
	for _, initial := range []bool{false, true} {
		for _, c := range givingWays {
			name := c.name
			if initial {
				name += ", as init containers"
			}
			t.Run(name, func(t *testing.T) {
				with := func(cs []corev1.Container) *appsv1.Deployment {
					d := inNamespace(ns, deployment())
					if initial {
						d.Spec.Template.Spec.InitContainers = cs
						d.Spec.Template.Spec.Containers[0].Name = "main"
					} else {
						d.Spec.Template.Spec.Containers = cs
					}
					return d
				}
				old, object := with(c.old), with(c.object)
				want := GiveWay(old, object)
				t.Cleanup(func() { _ = w.user.Delete(t.Context(), old) })
				if err := w.user.Create(t.Context(), old); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := w.user.Delete(t.Context(), old); err != nil {
						t.Error(err)
					}
				}()
				err := w.user.Update(t.Context(), object)
				if c.refused {
					if err == nil {
						t.Errorf("accepted, though: %s", c.reason)
					}
					return
				}
				if err != nil {
					t.Fatalf("refused: %v; %s", err, c.reason)
				}
				names := func(cs []corev1.Container) map[string][]corev1.EnvVar {
					m := map[string][]corev1.EnvVar{}
					for _, c := range cs {
						m[c.Name] = c.Env
					}
					return m
				}
				if diff := cmp.Diff(names(want.Spec.Containers), names(object.Spec.Template.Spec.Containers)); diff != "" {
					t.Errorf("containers (-GiveWay +API server)\n%s", diff)
				}
				if diff := cmp.Diff(names(want.Spec.InitContainers), names(object.Spec.Template.Spec.InitContainers)); diff != "" {
					t.Errorf("init containers (-GiveWay +API server)\n%s", diff)
				}
			})
		}
	}
}

// TestHold_K23_created: with no controller about, a Deployment with a
// connection is accepted and held, and the real Deployment controller makes no
// ReplicaSet for it.
func TestHold_K23_created(t *testing.T) {
	w := cluster(t)
	ns := w.Namespace(t, "held")
	d := inNamespace(ns, deployment(free()...))
	if err := w.user.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	// The Deployment controller has seen the object when it says so.
	d = w.awaitDeployment(t, d, "observed", func(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration == d.Generation })
	if n := len(w.replicaSets(t, d)); n != 0 {
		t.Errorf("%d ReplicaSets of a held Deployment", n)
	}
	// What is written next is held, too: nothing but the controller ends it.
	if err := w.user.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`))); err != nil {
		t.Fatal(err)
	}
	if PauseOf(d) != Held {
		t.Errorf("after a resume by hand the pause is %s, want held", PauseOf(d))
	}
	d = w.awaitDeployment(t, d, "observed", func(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration == d.Generation })
	if n := len(w.replicaSets(t, d)); n != 0 {
		t.Errorf("%d ReplicaSets after a resume by hand", n)
	}
}
