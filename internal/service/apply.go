package service

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// applier writes apply sets, and remembers what it wrote: a set that has not
// changed onto an object that has not changed is not written again, so that an
// event costs no call. What it remembers can be lost; writing a set twice is
// harmless.
type applier struct {
	client client.Client
	mu     sync.Mutex
	// wrote is by whom it was written for, then by object.
	wrote map[types.NamespacedName]map[string]written
}

type written struct{ set, live [sha256.Size]byte }

// errForeign is the cause where an object that is not ours has a name that it
// would need.
var errForeign = errors.New("is not the service's")

// apply writes set and returns the object as it is then, which is the cached
// one where nothing was to be written. current is the object in the cache, nil
// for none; whose it is has been judged (foreign). force takes over fields that
// others have set.
//
// A new object is never forced: if somebody else has made one under its name in
// the meantime, the conflict says so. One that was there carries its uid, so
// that a set is never applied to another that has taken its place.
func apply[T client.Object](ctx context.Context, a *applier, by types.NamespacedName, set *unstructured.Unstructured, current T, exists, force bool) (T, error) {
	raw, err := json.Marshal(set.Object)
	if err != nil {
		var none T
		return none, err
	}
	key, sum := set.GetKind()+"/"+set.GetName(), sha256.Sum256(raw)
	opts := []client.ApplyOption{client.FieldOwner(v1alpha1.FieldManagerOperator)}
	set = set.DeepCopy()
	if exists {
		if a.knows(by, key, written{sum, fingerprint(current)}) {
			return current, nil
		}
		set.SetUID(current.GetUID())
		if force {
			opts = append(opts, client.ForceOwnership)
		}
	}
	if err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(set), opts...); err != nil {
		var none T
		return none, fmt.Errorf("apply %s %s: %w", set.GetKind(), set.GetName(), err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(set.Object, current); err != nil {
		var none T
		return none, fmt.Errorf("apply %s %s: %w", set.GetKind(), set.GetName(), err)
	}
	if trimmed, err := Trim(any(current)); err == nil {
		current = trimmed.(T)
	}
	a.remember(by, key, written{sum, fingerprint(current)})
	return current, nil
}

func (a *applier) knows(by types.NamespacedName, key string, w written) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wrote[by][key] == w
}

func (a *applier) remember(by types.NamespacedName, key string, w written) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wrote == nil {
		a.wrote = map[types.NamespacedName]map[string]written{}
	}
	if a.wrote[by] == nil {
		a.wrote[by] = map[string]written{}
	}
	a.wrote[by][key] = w
}

// forget drops what was written for an object that is gone.
func (a *applier) forget(by types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wrote, by)
}

// fingerprint covers all of an object that an apply set of ours can change, and
// nothing that others change all the time.
func fingerprint(o client.Object) [sha256.Size]byte {
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, "deployment.kubernetes.io/revision")
	facts := []any{o.GetUID(), o.GetLabels(), annotations, o.GetOwnerReferences()}
	switch o := o.(type) {
	case *appsv1.Deployment, *v1alpha1.CloudResource:
		facts = append(facts, o.GetGeneration())
	case *corev1.Service:
		facts = append(facts, o.Spec)
	case *autoscalingv2.HorizontalPodAutoscaler:
		facts = append(facts, o.Spec)
	case *corev1.ServiceAccount:
		facts = append(facts, o.AutomountServiceAccountToken)
	}
	raw, err := json.Marshal(facts)
	if err != nil {
		panic("service: an object that is no JSON: " + err.Error()) // decoded from JSON
	}
	return sha256.Sum256(raw)
}

// ownership says whose an object is that has a name of ours.
type ownership int

const (
	ours ownership = iota
	// leaving: of a predecessor of the same name; the garbage collector takes
	// it, and its end wakes us.
	leaving
	foreign
)

func whose(o client.Object, owner Owner) ownership {
	c := metav1.GetControllerOf(o)
	switch {
	case c == nil || c.Kind != owner.Kind || c.Name != owner.Name || !sameGroup(c.APIVersion, owner.APIVersion):
		return foreign
	case string(c.UID) != owner.UID || o.GetDeletionTimestamp() != nil:
		return leaving
	}
	return ours
}

func sameGroup(a, b string) bool {
	group := func(s string) string { g, _, _ := strings.Cut(s, "/"); return g }
	return group(a) == group(b)
}

// Trim keeps of the objects in the cache what decisions look at.
func Trim(o any) (any, error) {
	switch o := o.(type) {
	case *v1alpha1.CloudResource:
		// Its managedFields tell since when it asks.
	case *appsv1.Deployment:
		o.ManagedFields = nil
		t := corev1.PodTemplateSpec{Spec: corev1.PodSpec{ServiceAccountName: o.Spec.Template.Spec.ServiceAccountName}}
		o.Spec = appsv1.DeploymentSpec{Replicas: o.Spec.Replicas, Template: t}
		delete(o.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	case client.Object:
		o.SetManagedFields(nil)
	}
	return o, nil
}

// refused says what the API server holds against an object of ours, without
// values of it; "" for any other error.
func refused(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	s := status.Status()
	switch {
	case apierrors.IsInvalid(err) && s.Details != nil:
		var fields []string
		for _, c := range s.Details.Causes {
			fields = append(fields, strings.TrimSpace(c.Field+" ("+string(c.Type)+")"))
		}
		return v1alpha1.Clean(fmt.Sprintf("the cluster refuses %s %s: %s", s.Details.Kind, s.Details.Name, strings.Join(fields, ", ")))
	case apierrors.IsForbidden(err) || apierrors.IsBadRequest(err):
		return v1alpha1.Clean("the cluster refuses it: " + s.Message)
	}
	return ""
}
