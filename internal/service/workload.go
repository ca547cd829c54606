package service

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/identity"
)

// workloads answers which identity an adopted Deployment runs as (K-34). It
// writes the request, the annotations of the Deployment's ServiceAccount and
// one annotation that reports; it holds nothing up, and forces nothing that
// others have set.
type workloads struct{ *kit }

// Reconcile asks for a Deployment's identity and binds its ServiceAccount.
func (r *workloads) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	d := &appsv1.Deployment{}
	found, err := find(ctx, r.kit, req.Namespace, req.Name, d)
	if err != nil {
		return reconcile.Result{}, err
	}
	key := workloadKey(req.NamespacedName)
	if !found || d.DeletionTimestamp != nil {
		r.applier.forget(key)
		return reconcile.Result{}, nil
	}
	asks, fault := identity.Asks(d.Annotations)
	if !asks && fault == "" {
		if d.Annotations[identity.AnnotationStatus] == "" {
			return reconcile.Result{}, nil
		}
		if err := r.release(ctx, key, d, ""); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, r.say(ctx, key, d, "")
	}
	var next time.Time
	s := said{reason: ReasonBadValue, message: fault}
	if asks {
		if s, next, err = r.serve(ctx, key, d); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.say(ctx, key, d, s.report(identity.ParseReport(d.Annotations), r.now())); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: r.after(next)}, nil
}

// workloadKey keeps these writes apart from a service's of the same name.
func workloadKey(k types.NamespacedName) types.NamespacedName {
	k.Name += ".workload"
	return k
}

func (r *workloads) serve(ctx context.Context, key types.NamespacedName, d *appsv1.Deployment) (said, time.Time, error) {
	w := Workload{Deployment: d, Provider: r.settings.HasProvider()}
	account := &corev1.ServiceAccount{}
	if w.Provider && projectOf(d.Namespace) != "" {
		var err error
		if w.Service, err = find(ctx, r.kit, d.Namespace, d.Name, &v1alpha1.AnkkaService{}); err != nil {
			return said{}, time.Time{}, err
		}
		if w.Account, err = find(ctx, r.kit, d.Namespace, runsAs(d), account); err != nil {
			return said{}, time.Time{}, err
		}
		w.AccountService = account.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy
		if w.First, err = r.first(ctx, d); err != nil {
			return said{}, time.Time{}, err
		}
	}
	if h := w.hindrance(); h != nil {
		return *h, time.Time{}, nil
	}
	subject := v1alpha1.Subject{Project: projectOf(d.Namespace), Service: d.Name}
	if w.First != "" {
		// One identity for each ServiceAccount: two would overwrite each other.
		request := &v1alpha1.CloudResource{}
		found, err := find(ctx, r.kit, d.Namespace, v1alpha1.ServiceRequestName(w.First, v1alpha1.SuffixIdentity), request)
		if err != nil {
			return said{}, time.Time{}, err
		}
		if !found {
			request = nil
		}
		v := Decide(request, r.settings.AcknowledgementBound, r.now())
		s, _ := judgeIdentity(v, account.Name)
		s.message += "; Deployment " + w.First + ", which runs as the same ServiceAccount, asks for it"
		if s.ok {
			s.reason = ReasonShared
		}
		return s, v.Next, nil
	}
	if err := r.release(ctx, key, d, account.Name); err != nil {
		return said{}, time.Time{}, err
	}
	v, err := r.ask(ctx, key, Owner{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: d.Name, UID: string(d.UID)},
		func() (Ask, error) { return AskIdentity(subject, account.Name) })
	if err != nil {
		return said{}, time.Time{}, err
	}
	s, annotations := judgeIdentity(*v, account.Name)
	if s.ok {
		switch err := r.annotate(ctx, key, account, annotations); {
		case apierrors.IsConflict(err) && ctx.Err() == nil:
			s = said{reason: ReasonAccountConflict, identity: s.identity,
				message: "ServiceAccount " + account.Name + " has an annotation that binds it otherwise, set by someone else; take it away: " + conflicting(err)}
		case err != nil:
			return said{}, time.Time{}, err
		}
	}
	return s, v.Next, nil
}

// first finds the Deployment that asked first for the ServiceAccount that d
// runs as, of those whose name a request can have; "" when that is d.
func (r *workloads) first(ctx context.Context, d *appsv1.Deployment) (string, error) {
	asking, err := r.asking(ctx, d.Namespace)
	if err != nil {
		return "", err
	}
	var services v1alpha1.AnkkaServiceList
	if err := r.List(ctx, &services, client.InNamespace(d.Namespace)); err != nil {
		return "", err
	}
	asking = slices.DeleteFunc(asking, func(o appsv1.Deployment) bool {
		return runsAs(&o) != runsAs(d) || o.DeletionTimestamp != nil || v1alpha1.ValidateName("workload", o.Name) != nil ||
			slices.ContainsFunc(services.Items, func(s v1alpha1.AnkkaService) bool { return s.Name == o.Name })
	})
	slices.SortFunc(asking, func(a, b appsv1.Deployment) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	if len(asking) == 0 || asking[0].Name == d.Name {
		return "", nil
	}
	return asking[0].Name, nil
}

// asking are the Deployments of a namespace that ask.
func (r *workloads) asking(ctx context.Context, namespace string) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	if err := r.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(o appsv1.Deployment) bool { asks, _ := identity.Asks(o.Annotations); return !asks }), nil
}

// annotate applies annotations to a ServiceAccount that is somebody else's:
// never forced, and never made.
func (r *workloads) annotate(ctx context.Context, key types.NamespacedName, account *corev1.ServiceAccount, annotations map[string]string) error {
	set := bare("v1", "ServiceAccount", account.Namespace, account.Name, annotations)
	_, err := apply(ctx, r.applier, key, set, account.DeepCopy(), true, false)
	return err
}

func bare(apiVersion, kind, namespace, name string, annotations map[string]string) *unstructured.Unstructured {
	metadata := map[string]any{"name": name, "namespace": namespace}
	if len(annotations) > 0 {
		metadata["annotations"] = texts(annotations)
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}}
}

// release takes our annotations off the ServiceAccount that was asked for
// before, unless it is the one kept. The request itself stays, as every request
// does until its owner goes.
func (r *workloads) release(ctx context.Context, key types.NamespacedName, d *appsv1.Deployment, kept string) error {
	if !r.settings.HasProvider() || projectOf(d.Namespace) == "" {
		return nil
	}
	request := &v1alpha1.CloudResource{}
	found, err := find(ctx, r.kit, d.Namespace, v1alpha1.ServiceRequestName(d.Name, v1alpha1.SuffixIdentity), request)
	before := request.Spec.Parameters[v1alpha1.ParamServiceAccount]
	if err != nil || !found || before == "" || before == kept || !metav1.IsControlledBy(request, d) {
		return err
	}
	asking, err := r.asking(ctx, d.Namespace)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(asking, func(o appsv1.Deployment) bool { return o.Name != d.Name && runsAs(&o) == before }) {
		return nil // another has it now
	}
	account := &corev1.ServiceAccount{}
	if found, err := find(ctx, r.kit, d.Namespace, before, account); err != nil || !found || account.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy {
		return err
	}
	return r.annotate(ctx, key, account, nil)
}

// say writes the report; an empty one takes it away.
func (r *workloads) say(ctx context.Context, key types.NamespacedName, d *appsv1.Deployment, report string) error {
	if d.Annotations[identity.AnnotationStatus] == report {
		return nil
	}
	annotations := map[string]string{}
	if report != "" {
		annotations[identity.AnnotationStatus] = report
	}
	set := bare(appsv1.SchemeGroupVersion.String(), "Deployment", d.Namespace, d.Name, annotations)
	_, err := apply(ctx, r.applier, key, set, d.DeepCopy(), true, true)
	return client.IgnoreNotFound(err)
}

// conflicting names the fields of a conflict, and who set them.
func conflicting(err error) string {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		if u, is := err.(interface{ Unwrap() error }); is {
			return conflicting(u.Unwrap())
		}
		return err.Error()
	}
	var out []string
	if details := status.Status().Details; details != nil {
		for _, c := range details.Causes {
			out = append(out, c.Field+" ("+c.Message+")")
		}
	}
	return strings.Join(out, ", ")
}
