package service

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// AnnotationRestarts stands on pod templates with the descriptor's count of
// restarts, so that raising it replaces the instances.
const AnnotationRestarts = v1alpha1.Group + "/restarts"

const (
	container   = "service"
	defaultPort = 8080
)

// Rendering is what a service's objects are made from. Nothing else goes into
// them: without Storage, Secrets and Annotations the objects are those of an
// installation without a cloud (C-12).
type Rendering struct {
	Service *v1alpha1.AnkkaService
	// Storage, once answered.
	Storage *Storage
	// Secrets are project secrets that are synced: a reference to one is to the
	// Secret that it is synced into.
	Secrets []string
	// Live is how many instances the autoscaler has set; 0 for none.
	Live int32
}

// Objects are a service's apply sets apart from its ServiceAccount: the
// Deployment, and where asked for a Service and an autoscaler.
type Objects struct {
	Deployment *unstructured.Unstructured
	// Service and Autoscaler are nil where the descriptor does not ask for
	// them.
	Service, Autoscaler *unstructured.Unstructured
}

func (r Rendering) owner() Owner { return ownerOf(v1alpha1.AnkkaServiceKind, r.Service.ObjectMeta) }

func (r Rendering) object(apiVersion, kind string, content map[string]any) *unstructured.Unstructured {
	return object(apiVersion, kind, r.Service.Namespace, r.Service.Name, labels(subjectOf(&r.Service.Spec)), r.owner(), content)
}

// Account renders the ServiceAccount with what the provider says binds it to
// its identity, as it is (C-89).
func (r Rendering) Account(annotations map[string]string) *unstructured.Unstructured {
	u := r.object("v1", "ServiceAccount", map[string]any{"automountServiceAccountToken": false})
	if len(annotations) > 0 {
		u.Object["metadata"].(map[string]any)["annotations"] = texts(annotations)
	}
	return u
}

// Render renders the rest.
func Render(r Rendering) Objects {
	spec := &r.Service.Spec
	bounds, scaled := autoscaling(spec)
	replicas := bounds.min
	switch {
	case spec.Paused:
		replicas = 0
	case scaled:
		// The autoscaler's to choose. Leaving the field out would give it back
		// its default once, and stop instances that are needed.
		replicas = min(max(r.Live, bounds.min), bounds.max)
	}
	selector := texts(map[string]string{v1alpha1.LabelProject: spec.ProjectID, v1alpha1.LabelService: spec.ServiceName})
	o := Objects{Deployment: r.object(appsv1.SchemeGroupVersion.String(), "Deployment", map[string]any{"spec": map[string]any{
		"replicas":             int64(replicas),
		"revisionHistoryLimit": int64(5),
		"selector":             map[string]any{"matchLabels": selector},
		"strategy":             map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(0)}},
		"template":             map[string]any{"metadata": r.podMetadata(), "spec": r.podSpec()},
	}})}
	if spec.HTTP {
		o.Service = r.object("v1", "Service", map[string]any{"spec": map[string]any{
			"selector": selector,
			"ports":    []any{map[string]any{"name": "http", "port": int64(80), "targetPort": "http", "protocol": "TCP"}},
		}})
	}
	if scaled && !spec.Paused {
		o.Autoscaler = r.object(autoscalingv2.SchemeGroupVersion.String(), "HorizontalPodAutoscaler", map[string]any{"spec": map[string]any{
			"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": r.Service.Name},
			"minReplicas":    int64(bounds.min), "maxReplicas": int64(bounds.max),
			"metrics": []any{map[string]any{"type": "Resource", "resource": map[string]any{
				"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": int64(80)}}}},
		}})
	}
	return o
}

type bounds struct{ min, max int32 }

// autoscaling is how many instances there are. An autoscaler compares with the
// CPU that an instance asks for: without that there are as many as the least.
func autoscaling(spec *v1alpha1.AnkkaServiceSpec) (b bounds, scaled bool) {
	b = bounds{1, 1}
	if spec.Resources == nil || spec.Resources.Autoscaling == nil {
		return b, false
	}
	a := spec.Resources.Autoscaling
	if a.MinInstances != nil {
		b.min = *a.MinInstances
	}
	b.max = b.min
	if a.MaxInstances != nil {
		b.max = max(b.min, *a.MaxInstances)
	}
	return b, b.max > b.min && spec.Resources.CPU != ""
}

// podMetadata has what the descriptor says, and over it what is ours. Neither
// the descriptor's generation nor that of a request stands there: a new one
// alone replaces no instance.
func (r Rendering) podMetadata() map[string]any {
	spec := &r.Service.Spec
	l, a := others(spec.Labels), others(spec.Annotations)
	maps.Copy(l, labels(subjectOf(spec)))
	if spec.Restarts > 0 {
		a[AnnotationRestarts] = strconv.FormatInt(spec.Restarts, 10)
	}
	if r.Storage != nil {
		a[v1alpha1.AnnotationCredentialGeneration] = strconv.FormatInt(r.Storage.CredentialGeneration, 10)
	}
	m := map[string]any{"labels": texts(l)}
	if len(a) > 0 {
		m["annotations"] = texts(a)
	}
	return m
}

// others leaves out what is the platform's to say.
func others(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if !strings.HasPrefix(k, v1alpha1.Group+"/") {
			out[k] = v
		}
	}
	return out
}

func (r Rendering) podSpec() map[string]any {
	spec := &r.Service.Spec
	c := map[string]any{
		"name": container, "image": spec.Image,
		"securityContext": map[string]any{"allowPrivilegeEscalation": false},
	}
	if env := r.env(); len(env) > 0 {
		c["env"] = env
	}
	if spec.HTTP {
		port := int64(defaultPort)
		if spec.Port != nil {
			port = int64(*spec.Port)
		}
		c["ports"] = []any{map[string]any{"name": "http", "containerPort": port, "protocol": "TCP"}}
		c["readinessProbe"] = map[string]any{"tcpSocket": map[string]any{"port": "http"}, "periodSeconds": int64(5)}
	}
	if requests := requests(spec.Resources); len(requests) > 0 {
		c["resources"] = map[string]any{"requests": requests}
	}
	return map[string]any{
		"serviceAccountName": r.Service.Name, "automountServiceAccountToken": false, "enableServiceLinks": false,
		"securityContext": map[string]any{"seccompProfile": map[string]any{"type": string(corev1.SeccompProfileTypeRuntimeDefault)}},
		"containers":      []any{c},
	}
}

func requests(res *v1alpha1.ServiceResources) map[string]any {
	m := map[string]any{}
	if res != nil && res.CPU != "" {
		m["cpu"] = res.CPU
	}
	if res != nil && res.Memory != "" {
		m["memory"] = res.Memory
	}
	return m
}

// env is the descriptor's variables in order, then the platform's. A credential
// is taken by name out of its Secret, so that nothing else that may lie there
// becomes a variable.
func (r Rendering) env() []any {
	var env []any
	reference := func(name, secret, key string) {
		env = append(env, map[string]any{"name": name, "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": secret, "key": key}}})
	}
	for _, e := range r.Service.Spec.Env {
		if e.SecretName == "" {
			env = append(env, map[string]any{"name": e.Name, "value": e.Value})
			continue
		}
		secret := e.SecretName
		if slices.Contains(r.Secrets, secret) {
			secret = v1alpha1.SyncedSecretName(secret)
		}
		reference(e.Name, secret, e.SecretKey)
	}
	if s := r.Storage; s != nil {
		for _, v := range [][2]string{{v1alpha1.VariableEndpoint, s.Endpoint}, {v1alpha1.VariableRegion, s.Region}, {v1alpha1.VariableBucket, s.Bucket}} {
			env = append(env, map[string]any{"name": v[0], "value": verbatim(v[1])})
		}
		reference(v1alpha1.EntryAccessKey, s.SecretName, v1alpha1.EntryAccessKey)
		reference(v1alpha1.EntrySecretKey, s.SecretName, v1alpha1.EntrySecretKey)
	}
	return env
}

// verbatim is an answer as a variable's value: $(NAME) in it would be replaced
// by another variable of the instances, such as a password, which would then go
// to wherever the answer says.
func verbatim(answer string) string { return strings.ReplaceAll(answer, "$", "$$") }
