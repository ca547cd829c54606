package container

import (
	"encoding/json"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/core"
)

// Labels of what is rendered. Clients that follow logs and forward ports find
// the pods by the first two.
const (
	labelApplication = radapp.AnnotationPrefix + "application"
	labelResource    = radapp.AnnotationPrefix + "resource"
	labelManagedBy   = "app.kubernetes.io/managed-by"
	managedBy        = "radial"
)

// maxLabel is the longest value of a label.
const maxLabel = 63

// marks are the labels and annotations of everything that is rendered: those of
// the environment, over them the application's, over them the container's.
type marks struct {
	application         string
	labels, annotations map[string]string
}

// mark puts the marks onto an object, over those of its base, and names it; ""
// leaves the name.
func (m marks) mark(o *metav1.ObjectMeta, name string) {
	if name != "" {
		o.Name = name
	}
	o.Labels = merge(o.Labels, m.labels)
	o.Annotations = merge(o.Annotations, m.annotations)
	if name == "" { // a pod's: what speaks of the object stays on it
		delete(o.Annotations, radapp.AnnotationReadyTimeout)
	}
}

// merge lays maps over each other, nil for nothing.
func merge(layers ...map[string]string) map[string]string {
	var out map[string]string
	for _, l := range layers {
		if len(l) > 0 && out == nil {
			out = map[string]string{}
		}
		maps.Copy(out, l)
	}
	return out
}

// readMarks reads the extensions, of which there is at most one of a kind.
func (w *work) readMarks() error {
	w.meta.application = label(w.in.ID.Name())
	if w.in.Application != nil {
		w.meta.application = label(w.in.Application.ID.Name())
	}
	layers := []struct {
		of    string
		lists []extensionOf
	}{{"environment " + w.in.Environment.ID.Name(), extensionsOf(&w.in.Environment)}, {"", extensionsOf(w.in.Application)}, {"properties", w.p.Extensions}}
	if w.in.Application != nil {
		layers[1].of = "application " + w.in.Application.ID.Name()
	}
	w.meta.labels = map[string]string{"app.kubernetes.io/name": w.name, "app.kubernetes.io/part-of": w.meta.application, labelManagedBy: managedBy}
	for _, l := range layers {
		had := map[string]bool{}
		for _, x := range l.lists {
			if l.of == "properties" && had[x.Kind] {
				return fault("extensions", "there are two of kind %s: make one of them", x.Kind)
			}
			had[x.Kind] = true
			if x.Kind != metadata {
				continue
			}
			for _, said := range []map[string]string{x.Labels, x.Annotations} {
				if key := reserved(said); key != "" {
					return fault("extensions", "%s of the extension %s (%s) is Radial's to write: take it out. A container needs no annotation to be adopted, and is asked after by its properties", key, metadata, l.of)
				}
			}
			w.meta.labels = merge(w.meta.labels, x.Labels)
			w.meta.annotations = merge(w.meta.annotations, x.Annotations)
		}
	}
	w.meta.labels = merge(w.meta.labels, map[string]string{labelApplication: w.meta.application, labelResource: w.name})
	return nil
}

// reserved is a key of Radial's own among labels or annotations, "" for none.
// How long an object may take to become ready is its user's to say.
func reserved(said map[string]string) string {
	for _, k := range sorted(said) {
		if strings.HasPrefix(k, radapp.AnnotationPrefix) && k != radapp.AnnotationReadyTimeout {
			return k
		}
	}
	return ""
}

// extensionsOf reads the extensions of an application or an environment.
func extensionsOf(r *core.Resource) []extensionOf {
	var props struct {
		Extensions []extensionOf `json:"extensions"`
	}
	if r == nil || len(r.Properties) == 0 || json.Unmarshal(r.Properties, &props) != nil {
		return nil
	}
	return props.Extensions
}

// label is a name as the value of a label.
func label(name string) string {
	name = strings.ToLower(name)
	if len(name) > maxLabel {
		name = name[:maxLabel]
	}
	return strings.Trim(name, "-._")
}
