package adopt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/connection"
)

// The annotations by which people speak to Radial about a Deployment, and those
// by which Radial answers. docs/spec/deployment.md describes each.
const (
	AnnotationPrefix      = radapp.AnnotationPrefix
	AnnotationEnabled     = radapp.AnnotationEnabled
	AnnotationApplication = "radapp.io/application"
	AnnotationEnvironment = "radapp.io/environment"
	AnnotationContainers  = "radapp.io/containers"
	// AnnotationConnection is followed by the connection's name.
	AnnotationConnection = radapp.AnnotationConnection

	// AnnotationStatus is ours: [Status] as one line of JSON.
	AnnotationStatus = radapp.AnnotationStatus
	// AnnotationHeld is ours: the mark of a pause that admission or the
	// controller set. It says whose a pause is, and nothing else.
	AnnotationHeld = radapp.AnnotationHeld
	// AnnotationHash is ours, on the pod template: the hash of the connection
	// data that the template refers to (K-19).
	AnnotationHash = connection.HashAnnotation

	// Finalizer keeps a Deployment until the control plane has accepted the
	// deletion of its container (K-29).
	Finalizer = "radapp.io/deployment-finalizer"
	// FieldManager owns what the controller applies.
	FieldManager = "radial-controller"
)

// reserved are names of the prefix that other parts of Radial read, or that
// another controller of the same prefix writes: known here, and not read.
var reserved = []string{"radapp.io/identity", "radapp.io/protect", "radapp.io/configuration-hash", radapp.AnnotationOwner, radapp.AnnotationReadyTimeout}

// Connection is one declared connection.
type Connection struct {
	// Name as written after the prefix.
	Name string
	// Recipe is the name of a Recipe in the Deployment's namespace.
	Recipe string
}

// Intent is what the annotations of a Deployment ask for.
type Intent struct {
	// Adopted: part of the catalogue. A connection is enough; 'false' wins
	// (K-2).
	Adopted bool
	// Application and Environment are names or full ids, "" for the defaults.
	Application string
	Environment string
	// Connections in the order of their names.
	Connections []Connection
	// Containers that get the data, nil for all (K-9).
	Containers []string
	// Faults are annotations of our prefix that say nothing, in order.
	Faults []Fault
}

// Fault is an annotation that cannot be understood.
type Fault struct {
	Annotation string
	// Message says what is wrong and what was probably meant.
	Message string
}

// Addressed reports whether any annotation of ours is there: whether people
// speak to Radial about this object at all. Nothing is ever said about, or
// written to, objects that do not.
func Addressed(annotations map[string]string) bool {
	for k := range annotations {
		if strings.HasPrefix(k, AnnotationPrefix) {
			return true
		}
	}
	return false
}

// switchedOff is 'false' in any case, as the admission policy reads it.
func switchedOff(annotations map[string]string) bool {
	return strings.ToLower(annotations[AnnotationEnabled]) == "false"
}

// connects reports whether the annotations declare a connection that counts.
// It is the policy's match condition.
func connects(annotations map[string]string) bool {
	if switchedOff(annotations) {
		return false
	}
	for k := range annotations {
		if strings.HasPrefix(k, AnnotationConnection) {
			return true
		}
	}
	return false
}

// ParseIntent reads the annotations of a Deployment. It fails at nothing: what
// it cannot read becomes a Fault, and the rest holds.
func ParseIntent(annotations map[string]string) Intent {
	in := Intent{Application: strings.TrimSpace(annotations[AnnotationApplication]), Environment: strings.TrimSpace(annotations[AnnotationEnvironment])}
	var enabled bool
	for _, k := range sortedKeys(annotations) {
		v := annotations[k]
		switch {
		case !strings.HasPrefix(k, AnnotationPrefix):
		case k == AnnotationEnabled:
			switch strings.ToLower(v) {
			case "true":
				enabled = true
			case "false":
			default:
				in.fault(k, "%s is %q; it must be 'true' or 'false'", k, v)
			}
		case k == AnnotationApplication, k == AnnotationEnvironment, k == AnnotationStatus, k == AnnotationHeld, slices.Contains(reserved, k):
		case k == AnnotationContainers:
			for name := range strings.SplitSeq(v, ",") {
				if name = strings.TrimSpace(name); name != "" && !slices.Contains(in.Containers, name) {
					in.Containers = append(in.Containers, name)
				}
			}
		case strings.HasPrefix(k, AnnotationConnection) && k != AnnotationConnection:
			name := strings.TrimPrefix(k, AnnotationConnection)
			recipe := strings.TrimSpace(v)
			if recipe == "" || strings.Contains(recipe, "/") {
				in.fault(k, "%s is %q; it must be the name of a Recipe in the Deployment's namespace", k, v)
			}
			in.Connections = append(in.Connections, Connection{Name: name, Recipe: recipe})
		default:
			in.fault(k, "%s is not an annotation that Radial knows; did you mean %s?", k, nearest(k))
		}
	}
	in.Adopted = (enabled || len(in.Connections) > 0) && !switchedOff(annotations)
	if !in.Adopted {
		in.Connections = nil
	}
	return in
}

func (in *Intent) fault(annotation, format string, args ...any) {
	in.Faults = append(in.Faults, Fault{Annotation: annotation, Message: fmt.Sprintf(format, args...)})
}

// nearest is the annotation that was probably meant: the one with the smallest
// edit distance. A connection is compared without its name, which it keeps.
func nearest(key string) string {
	given := strings.TrimPrefix(key, AnnotationPrefix)
	if given == "connection" || given == "connection-" {
		return AnnotationConnection + "<name>"
	}
	best, least := "", -1
	for _, known := range []string{AnnotationEnabled, AnnotationApplication, AnnotationEnvironment, AnnotationContainers} {
		if d := distance(given, strings.TrimPrefix(known, AnnotationPrefix)); least < 0 || d < least {
			best, least = known, d
		}
	}
	if word, name, ok := strings.Cut(given, "-"); ok && name != "" {
		if d := distance(word, "connection"); d < least {
			best = AnnotationConnection + name
		}
	}
	return best
}

// distance counts the insertions, deletions and substitutions of bytes that
// make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
