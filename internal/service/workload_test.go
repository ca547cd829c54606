package service

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/identity"
)

func deploymentOf(namespace, name, account string, annotations map[string]string) *appsv1.Deployment {
	l := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: annotations},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: l},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: corev1.PodSpec{
				ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/app:1"}}}},
		},
	}
}

var asking = map[string]string{"radapp.io/enabled": "true", "radapp.io/identity": "true"}

// reported waits until a Deployment's report has the reason.
func (s *stage) reported(name, reason string) (identity.Report, *appsv1.Deployment) {
	s.t.Helper()
	var r identity.Report
	d := s.deployment(name, "reported "+reason, func(d *appsv1.Deployment) bool {
		r = identity.ParseReport(d.Annotations)
		return len(r.Conditions) == 1 && r.Conditions[0].Reason == reason
	})
	return r, d
}

func (s *stage) create(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		if err := s.admin.Create(s.t.Context(), o); err != nil {
			s.t.Fatal(err)
		}
	}
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
}

func TestAdoptedDeploymentGetsAnIdentity_K34_C66_C89_C143(t *testing.T) {
	s := newStage(t, nil)
	s.provide()()
	s.operate()
	web := deploymentOf(s.ns, "web", "runner", asking)
	s.create(web)
	s.reported("web", ReasonAccountNotFound)
	s.create(account(s.ns, "runner"))
	r, d := s.reported("web", ReasonReady)
	request := s.asked("web-identity")
	if d := cmp.Diff(map[string]string{"serviceAccount": "runner"}, request.Spec.Parameters); d != "" || request.Spec.Subject != (v1alpha1.Subject{Project: s.project, Service: "web"}) {
		t.Errorf("%+v\n%s", request.Spec.Subject, d)
	}
	if o := metav1.GetControllerOf(request); o == nil || o.Kind != "Deployment" || o.UID != d.UID {
		t.Errorf("C-58: the owner is %+v", o)
	}
	if r.Identity != request.Status.Outputs["identity"] || r.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("report is %+v", r)
	}
	if d := cmp.Diff(map[string]string{"scripted.example/identity": "runner"}, get(s, "runner", &corev1.ServiceAccount{}).Annotations); d != "" {
		t.Errorf("C-89: %s", d)
	}
	// Nothing is held, and nothing of what runs is touched.
	if diff := cmp.Diff(web.Spec, d.Spec); diff != "" {
		t.Error(diff)
	}
	// One ServiceAccount, one identity: a second Deployment shares it.
	s.create(deploymentOf(s.ns, "worker", "runner", asking))
	if r, _ := s.reported("worker", ReasonShared); r.Identity == "" || r.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("report is %+v", r)
	}
	s.absent(&v1alpha1.CloudResource{}, "worker-identity")
	// A service under the workload's name is refused.
	s.describe("web", storage)
	s.service("web", "refused", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Lifecycle == v1alpha1.LifecycleFailed })
	if o := metav1.GetControllerOf(s.asked("web-identity")); o.Kind != "Deployment" {
		t.Errorf("C-143: the request is %+v's now", o)
	}
	s.reported("web", ReasonServiceHasName)
	if err := s.admin.Delete(t.Context(), get(s, "web", &v1alpha1.AnkkaService{})); err != nil {
		t.Fatal(err)
	}
	s.reported("web", ReasonReady)
	// Who no longer asks is no longer bound, and hears no more of it.
	if err := s.admin.Delete(t.Context(), get(s, "worker", &appsv1.Deployment{})); err != nil {
		t.Fatal(err)
	}
	no := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"radapp.io/identity":null}}}`))
	if err := s.admin.Patch(t.Context(), d.DeepCopy(), no); err != nil {
		t.Fatal(err)
	}
	s.deployment("web", "not reported", func(d *appsv1.Deployment) bool { return d.Annotations[identity.AnnotationStatus] == "" })
	until(s, &corev1.ServiceAccountList{}, "runner", "not bound", func(a *corev1.ServiceAccount) bool { return len(a.Annotations) == 0 })
}

func TestNoIdentityIsSaidWhy_K34(t *testing.T) {
	s := newStage(t, nil)
	elsewhere := "elsewhere-" + s.project
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}})
	s.others = []string{elsewhere}
	s.operate()
	bound := account(s.ns, "bound")
	bound.Annotations = map[string]string{"bind.example/to": "something else"}
	s.describe("reports", storage)
	until(s, &corev1.ServiceAccountList{}, "reports", "made", func(*corev1.ServiceAccount) bool { return true })
	s.create(bound, deploymentOf(s.ns, "dotted.name", "bound", asking))
	// It asks first, and cannot be given any: it is in nobody's way.
	s.reported("dotted.name", ReasonBadName)
	time.Sleep(time.Second) // the order of asking is by whole seconds
	s.create(
		deploymentOf(s.ns, "plain", "", asking),
		deploymentOf(s.ns, "thief", "reports", asking),
		deploymentOf(s.ns, "unsure", "bound", map[string]string{"radapp.io/identity": "perhaps"}),
		deploymentOf(s.ns, "off", "bound", map[string]string{"radapp.io/identity": "true", "radapp.io/enabled": "false"}),
		deploymentOf(s.ns, "conflict", "bound", asking),
		deploymentOf(elsewhere, "far", "bound", asking))
	s.asked("conflict-identity")
	s.answer("conflict-identity", func(st *v1alpha1.CloudResourceStatus) {
		st.Outputs = map[string]string{"identity": "conflict@cloud", "serviceAccountAnnotations": "bind.example/to=conflict@cloud"}
	})
	for name, reason := range map[string]string{"plain": ReasonDefaultAccount, "thief": ReasonServiceAccountUsed, "unsure": ReasonBadValue, "conflict": ReasonAccountConflict, "dotted.name": ReasonBadName} {
		r, d := s.reported(name, reason)
		if r.Conditions[0].Status != metav1.ConditionFalse || r.Conditions[0].Message == "" || d.Spec.Paused {
			t.Errorf("%s: %+v, paused %v", name, r, d.Spec.Paused)
		}
	}
	if r, _ := s.reported("conflict", ReasonAccountConflict); !strings.Contains(r.Conditions[0].Message, "bind.example/to") {
		t.Errorf("message is %q", r.Conditions[0].Message)
	}
	if got := get(s, "bound", &corev1.ServiceAccount{}).Annotations["bind.example/to"]; got != "something else" {
		t.Errorf("another's annotation became %q", got)
	}
	if got := get(s, "off", &appsv1.Deployment{}).Annotations[identity.AnnotationStatus]; got != "" {
		t.Errorf("one that is not adopted is told %q", got)
	}
	far := &stage{t: t, w: s.w, admin: s.admin, ns: elsewhere}
	far.reported("far", ReasonNoProject)
	for _, name := range []string{"plain-identity", "thief-identity", "unsure-identity"} {
		s.absent(&v1alpha1.CloudResource{}, name)
	}
}

func TestNoIdentityWithoutAProvider_K34_C11(t *testing.T) {
	s := newStage(t, func(c *cloud.Settings) { *c = cloud.Settings{Provider: cloud.None} })
	s.create(account(s.ns, "runner"), deploymentOf(s.ns, "web", "runner", asking))
	s.operate()
	r, d := s.reported("web", ReasonNoProvider)
	if r.Conditions[0].Status != metav1.ConditionFalse || d.Spec.Paused {
		t.Errorf("report is %+v", r)
	}
	s.absent(&v1alpha1.CloudResource{}, "web-identity")
}
