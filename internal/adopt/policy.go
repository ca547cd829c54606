package adopt

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/connection"
)

// This file is the pure part: from snapshots to decisions, with no cluster and
// no clock. The first half is the table that installation/holding.yaml follows
// row by row; a test runs both over the same cases.

// Pause says whose the pause of a Deployment is.
type Pause string

// The three of them. A mark decides between Held and Users and proves nothing
// more: objects are copied, restored and rolled back with their marks.
const (
	// Free: not paused. A mark on it is stale.
	Free Pause = "free"
	// Held: paused with our mark.
	Held Pause = "held"
	// Users: paused without it. Never ours to end (K-24).
	Users Pause = "user's"
)

// PauseOf tells whose a Deployment's pause is.
func PauseOf(d *appsv1.Deployment) Pause {
	_, marked := d.Annotations[AnnotationHeld]
	switch {
	case !d.Spec.Paused:
		return Free
	case marked:
		return Held
	default:
		return Users
	}
}

// Verdict is what admission does to a write.
type Verdict string

// Verdicts.
const (
	// Leave the object as it was written.
	Leave Verdict = "leave"
	// Hold: set paused and the mark, or keep them.
	Hold Verdict = "hold"
	// Unmark: take a mark away that stands for no hold of ours.
	Unmark Verdict = "unmark"
)

// Admit decides on the write of a Deployment; old is nil for a create.
func Admit(byController bool, old, object *appsv1.Deployment) Verdict {
	switch {
	case byController, object.DeletionTimestamp != nil, switchedOff(object.Annotations), radapp.Rendered(object.Annotations):
		return Leave
	case !connects(object.Annotations) && (old == nil || !connects(old.Annotations)):
		return Leave
	}
	_, marked := object.Annotations[AnnotationHeld]
	paused := object.Spec.Paused
	if old == nil {
		if paused && !marked {
			return Leave // created paused: the user's
		}
		return Hold
	}
	_, oldMarked := old.Annotations[AnnotationHeld]
	switch PauseOf(old) {
	case Held:
		if paused && marked && declaresPause(old, object) {
			return Unmark // the user's from now on (K-24)
		}
		// Whatever this write says of pause and mark: a resume by hand, an
		// apply that knows neither, a replace with an old file. What it changed
		// is seen before it rolls.
		return Hold
	case Users:
		switch {
		case paused && marked:
			return Unmark // a copied mark does not make the user's pause ours
		case paused:
			return Leave
		default:
			return Hold // resumed: what gathered during the pause rolls now
		}
	}
	switch {
	case paused && !marked:
		return Leave // paused in this very write
	case paused && oldMarked:
		return Unmark // paused by the user under a stale mark
	case paused:
		return Hold // a held object's copy brings both
	case changed(old, object):
		return Hold
	case marked:
		return Unmark
	}
	return Leave
}

// declaresPause reports whether a write is a server-side apply that begins to
// declare the pause. Only an apply says what its user wants of a field that is
// as wanted already; that it declares true follows from the object being
// paused. One that declared it before, such as a chart with paused: false,
// cannot be told apart from one that repeats itself.
func declaresPause(old, object *appsv1.Deployment) bool {
	before := declarers(old)
	return slices.ContainsFunc(declarers(object), func(m string) bool { return !slices.Contains(before, m) })
}

// declarers are the managers that apply spec.paused.
func declarers(d *appsv1.Deployment) []string {
	var managers []string
	for _, m := range d.ManagedFields {
		var f struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if m.Operation != metav1.ManagedFieldsOperationApply || m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &f) != nil {
			continue
		}
		if _, ok := f.Spec["f:paused"]; ok {
			managers = append(managers, m.Manager)
		}
	}
	return managers
}

// settings are the annotations beside the connections whose change is held.
var settings = []string{AnnotationEnabled, AnnotationApplication, AnnotationEnvironment, AnnotationContainers}

// changed reports whether a write touches what a rollout depends on.
func changed(old, object *appsv1.Deployment) bool {
	if !reflect.DeepEqual(old.Spec.Template, object.Spec.Template) {
		return true
	}
	concerns := func(annotations map[string]string) map[string]string {
		c := make(map[string]string)
		for k, v := range annotations {
			if strings.HasPrefix(k, AnnotationConnection) || slices.Contains(settings, k) {
				c[k] = v
			}
		}
		return c
	}
	return !maps.Equal(concerns(old.Annotations), concerns(object.Annotations))
}

// GiveWay repairs, as admission does, what our fields would spoil in a write by
// another: stubs of containers that the write renamed or removed go, and a
// value set beside our valueFrom takes its place. It returns the template as
// admitted.
func GiveWay(old, object *appsv1.Deployment) corev1.PodTemplateSpec {
	template := *object.Spec.Template.DeepCopy()
	had := make(map[string]bool)
	for _, c := range slices.Concat(old.Spec.Template.Spec.Containers, old.Spec.Template.Spec.InitContainers) {
		if c.Image != "" {
			had[c.Name] = true
		}
	}
	repair := func(cs []corev1.Container) []corev1.Container {
		cs = slices.DeleteFunc(cs, func(c corev1.Container) bool {
			return c.Image == "" && had[c.Name] && len(c.Env) > 0 &&
				!slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return !isOurs(object.Name, e) }) &&
				c.Command == nil && c.Args == nil && c.Ports == nil && c.EnvFrom == nil && c.VolumeMounts == nil
		})
		for i := range cs {
			for j, e := range cs[i].Env {
				if e.Value != "" && isOurs(object.Name, e) {
					cs[i].Env[j].ValueFrom = nil
				}
			}
		}
		return cs
	}
	template.Spec.Containers = repair(template.Spec.Containers)
	template.Spec.InitContainers = repair(template.Spec.InitContainers)
	return template
}

// isOurs recognises an env entry that the controller wrote, by what it refers
// to: ownership of fields moves when others copy templates, the reference does
// not.
func isOurs(deployment string, e corev1.EnvVar) bool {
	return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil &&
		strings.HasPrefix(e.ValueFrom.SecretKeyRef.Name, connection.SecretPrefix(deployment))
}

// Injection is what a pod template must hold: for each container by name, the
// names of the variables it takes from the Secret. The zero value is nothing.
type Injection struct {
	// Secret is named by its content; Hash is that content's.
	Secret string
	Hash   string
	// Variables are the sorted names for each container that gets any.
	Variables map[string][]string
	// Overridden are variables that the user set, as "container: NAME" (K-17).
	Overridden []string
	// Unknown are names of radapp.io/containers that no container has.
	Unknown []string
	// Missed says that none of the named containers exists, so that nothing
	// would get the data.
	Missed bool
}

// Plan decides what a template must hold of the given variables.
func Plan(deployment string, in Intent, template *corev1.PodTemplateSpec, data map[string]string, hash string) Injection {
	if len(in.Connections) == 0 {
		return Injection{}
	}
	inj := Injection{Hash: hash, Secret: connection.SecretName(deployment, hash), Variables: map[string][]string{}}
	names := sortedKeys(data)
	all := slices.Concat(template.Spec.InitContainers, template.Spec.Containers)
	for _, want := range in.Containers {
		if !slices.ContainsFunc(all, func(c corev1.Container) bool { return c.Name == want }) {
			inj.Unknown = append(inj.Unknown, want)
		}
	}
	inj.Missed = len(in.Containers) > 0 && len(inj.Unknown) == len(in.Containers)
	for _, c := range all {
		if in.Containers != nil && !slices.Contains(in.Containers, c.Name) {
			continue
		}
		own := make(map[string]bool)
		for _, e := range c.Env {
			if !isOurs(deployment, e) {
				own[e.Name] = true
			}
		}
		taken, overridden := connection.Share(names, func(name string) bool { return own[name] })
		for _, name := range overridden {
			inj.Overridden = append(inj.Overridden, c.Name+": "+name)
		}
		if len(taken) > 0 {
			inj.Variables[c.Name] = taken
		}
	}
	return inj
}

// Holds reports whether a template holds the injection: every entry of it, its
// hash, and no other entry of ours. It is the fact that a release rests on.
func (inj Injection) Holds(deployment string, template *corev1.PodTemplateSpec) bool {
	if template.Annotations[AnnotationHash] != inj.Hash {
		return false
	}
	for _, c := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
		want := inj.Variables[c.Name]
		var have []string
		for _, e := range c.Env {
			if !isOurs(deployment, e) {
				continue
			}
			if ref := e.ValueFrom.SecretKeyRef; ref.Name != inj.Secret || ref.Key != e.Name || ref.Optional != nil {
				return false
			}
			have = append(have, e.Name)
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			return false
		}
	}
	return true
}

// injectedBefore reports whether a template carries a complete injection of
// some earlier time: pods of it run with data, if not the present. It tells a
// rollout that admission missed from one whose data moves on.
func injectedBefore(deployment string, in Intent, template *corev1.PodTemplateSpec) bool {
	hash := template.Annotations[AnnotationHash]
	switch hash {
	case "":
		return false
	case connection.None:
		return true // the connections carried nothing
	}
	for _, c := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
		if in.Containers != nil && !slices.Contains(in.Containers, c.Name) {
			continue
		}
		for _, e := range c.Env {
			if isOurs(deployment, e) && e.ValueFrom.SecretKeyRef.Name == connection.SecretName(deployment, hash) {
				return true
			}
		}
	}
	return false
}

// secretsOf returns the names of the connection Secrets that a template of the
// Deployment refers to, sorted.
func secretsOf(deployment string, template *corev1.PodTemplateSpec) []string {
	var names []string
	for _, c := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
		for _, e := range c.Env {
			if isOurs(deployment, e) && !slices.Contains(names, e.ValueFrom.SecretKeyRef.Name) {
				names = append(names, e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
