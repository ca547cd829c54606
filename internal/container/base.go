package container

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	atBase = "runtimes.kubernetes.base"
	atPod  = "runtimes.kubernetes.pod"
)

// base are the objects that the rendered ones are laid over. The Deployment is
// there always, the next two may be nil.
type base struct {
	deployment *appsv1.Deployment
	service    *corev1.Service
	account    *corev1.ServiceAccount
	rest       []other
}

// other is a ConfigMap or a Secret.
type other struct {
	kind     string
	metadata metav1.Object
	object   any
}

// readBase reads the manifests of the container.
func (w *work) readBase() error {
	w.base.deployment = &appsv1.Deployment{}
	text := w.p.Runtimes.Kubernetes.Base
	if text == "" {
		return nil
	}
	docs := yamlutil.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	had := map[string]bool{}
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault(atBase, "it is not YAML")
		}
		var head struct {
			metav1.TypeMeta `json:",inline"`
			Metadata        metav1.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal(doc, &head); err != nil {
			return fault(atBase, "it holds what is no manifest of Kubernetes")
		}
		if head.Kind == "" && len(bytes.TrimSpace(doc)) == 0 || head.TypeMeta == (metav1.TypeMeta{}) && head.Metadata.Name == "" {
			continue // a comment, or nothing
		}
		o, err := w.take(head.APIVersion, head.Kind)
		if err != nil {
			return err
		}
		// Strict, so that a field which is misspelt is not lost.
		if err := yaml.UnmarshalStrict(doc, o); err != nil {
			return fault(atBase, "the %s %s does not have the fields of its kind: see that each is spelt and typed as Kubernetes has it", head.Kind, head.Metadata.Name)
		}
		m := o.(metav1.ObjectMetaAccessor).GetObjectMeta()
		if err := w.judgeBase(head.Kind, m, had); err != nil {
			return err
		}
		if head.Kind == "ConfigMap" || head.Kind == symbolSecret {
			w.base.rest = append(w.base.rest, other{head.Kind, m, o})
		}
		keepOwn(m)
	}
}

// take makes room for an object of a kind.
func (w *work) take(apiVersion, kind string) (any, error) {
	switch apiVersion + "/" + kind {
	case "apps/v1/Deployment":
		return w.base.deployment, nil
	case "v1/Service":
		if w.base.service == nil {
			w.base.service = &corev1.Service{}
		}
		return w.base.service, nil
	case "v1/ServiceAccount":
		if w.base.account == nil {
			w.base.account = &corev1.ServiceAccount{}
		}
		return w.base.account, nil
	case "v1/ConfigMap":
		return &corev1.ConfigMap{}, nil
	case "v1/Secret":
		return &corev1.Secret{}, nil
	}
	return nil, fault(atBase, "a %s of %s cannot be part of it: it may have a Deployment, a Service and a ServiceAccount named as the container, ConfigMaps and Secrets. Deploy it by a template of its own", kind, apiVersion)
}

func (w *work) judgeBase(kind string, m metav1.Object, had map[string]bool) error {
	key := kind + "/" + m.GetName()
	switch {
	case m.GetName() == "":
		return fault(atBase, "a %s has no metadata.name: name it", kind)
	case m.GetNamespace() != "":
		return fault(atBase, "the %s %s names a namespace, which is the environment's to say: take it out", kind, m.GetName())
	case len(m.GetFinalizers()) > 0 || len(m.GetOwnerReferences()) > 0:
		return fault(atBase, "the %s %s has finalizers or owners, which decide when it goes: take them out, it goes with the container", kind, m.GetName())
	case had[key]:
		return fault(atBase, "there are two of %s %s: take one out", kind, m.GetName())
	case kind != "ConfigMap" && kind != symbolSecret && !strings.EqualFold(m.GetName(), w.name):
		return fault(atBase, "the %s must be named %s, as the container is, not %s", kind, w.name, m.GetName())
	}
	had[key] = true
	said := []map[string]string{m.GetLabels(), m.GetAnnotations()}
	if kind == symbolDeployment {
		t := w.base.deployment.Spec.Template
		said = append(said, t.Labels, t.Annotations)
	}
	for _, s := range said {
		if key := reserved(s); key != "" {
			return fault(atBase, "%s on the %s is Radial's to write: take it out", key, kind)
		}
	}
	return nil
}

// keepOwn leaves of an object's metadata what a manifest may say.
func keepOwn(m metav1.Object) {
	m.SetUID("")
	m.SetResourceVersion("")
	m.SetManagedFields(nil)
}

// patchPod lays the container's strategic merge patch over its pod: the user's
// last word, but for what binds an identity.
func (w *work) patchPod(spec *corev1.PodSpec) error {
	patch := w.p.Runtimes.Kubernetes.Pod
	if len(patch) == 0 || string(patch) == "null" || string(patch) == "{}" {
		return nil
	}
	before, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.PodSpec{})
	if err != nil {
		return fault(atPod, "it is not a strategic merge patch of a pod's spec: see that lists that are merged by name have one, and that values have the types of Kubernetes")
	}
	var out corev1.PodSpec
	if err := yaml.UnmarshalStrict(after, &out); err != nil {
		return fault(atPod, "what it makes of the pod's spec has fields that Kubernetes does not have: see that each is spelt and typed as there")
	}
	switch {
	case w.asksIdentity() && out.ServiceAccountName != w.name:
		return fault(atPod+".serviceAccountName", "with properties.identity the container runs as a ServiceAccount of its own, to which the identity is bound: take it out")
	case out.RestartPolicy != "" && out.RestartPolicy != corev1.RestartPolicyAlways:
		return fault(atPod+".restartPolicy", "the pods of a Deployment are always started again: take it out")
	}
	*spec = out
	return nil
}
