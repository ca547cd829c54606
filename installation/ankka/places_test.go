package ankka_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
)

func deployment(namespace, name, account string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "registry.test/c"}}}},
		},
	}
}

// The operator cannot take the provider's power by running something as the
// provider: it runs things in projects' namespaces alone.
func TestOperatorPlaces_C1(t *testing.T) {
	w := cluster(t)
	operator := ankkatest.Connect(t, w.As(t, operatorUser))
	at := func(ns string) map[string]client.Object {
		meta := metav1.ObjectMeta{Name: "placed", Namespace: ns}
		return map[string]client.Object{
			"Deployment":     deployment(ns, "placed", v1alpha1.ProviderAccount),
			"ServiceAccount": &corev1.ServiceAccount{ObjectMeta: meta},
			"Service":        &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
			"autoscaler": &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				MaxReplicas: 2, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "placed"}}},
			"request": &v1alpha1.CloudResource{ObjectMeta: metav1.ObjectMeta{Name: "placed-identity", Namespace: ns},
				Spec: v1alpha1.CloudResourceSpec{Provider: "scripted", Kind: v1alpha1.KindIdentity, Subject: v1alpha1.Subject{Project: project, Service: "placed"}}},
		}
	}
	for ns, ok := range map[string]bool{
		v1alpha1.Namespace(project): true, v1alpha1.ProviderNamespace: false, v1alpha1.PlatformNamespace: false, "kube-system": false, "default": false,
	} {
		for kind, o := range at(ns) {
			err := operator.Create(t.Context(), o, client.DryRunAll)
			if ok && err != nil || !ok && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "namespaces of projects alone")) {
				t.Errorf("C-1: a %s in %s: %v", kind, ns, err)
			}
		}
	}
	// Where something is already.
	for _, ns := range []string{v1alpha1.ProviderNamespace, "default"} {
		d := deployment(ns, "there", "default")
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "there", Namespace: ns}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		for _, o := range []client.Object{d, s} {
			if err := w.Admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		patch := func(o client.Object, text string) error {
			return operator.Patch(t.Context(), o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(text)))
		}
		if err := patch(d, `{"metadata":{"annotations":{"example.test/why-not":"no project"}}}`); err != nil {
			t.Errorf("a word on a Deployment in %s: %v", ns, err)
		}
		for what, err := range map[string]error{
			"another image":   patch(d, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"registry.test/evil"}]}}}}`),
			"another account": patch(d, `{"spec":{"template":{"spec":{"serviceAccountName":"ankka-cloud-provider"}}}}`),
			"another port":    patch(s, `{"spec":{"ports":[{"port":81}]}}`),
			"an end":          operator.Delete(t.Context(), s),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("C-1: %s in %s: %v", what, ns, err)
			}
		}
	}
}
