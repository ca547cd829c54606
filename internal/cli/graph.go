package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

// graphText draws the graph of an application: containers first, then by type and name.
func graphText(application string, g arm.Graph) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Displaying application: %s\n\n", application)
	if len(g.Resources) == 0 {
		return b.String() + "(empty)\n"
	}
	resources := slices.Clone(g.Resources)
	slices.SortStableFunc(resources, func(a, b arm.GraphResource) int {
		return cmp.Or(cmp.Compare(graphRank(a), graphRank(b)), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	for i, r := range resources {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "Name: %s (%s)%s\n", r.Name, r.Type, unsettled(r.ProvisioningState))
		b.WriteString(section("Connections", connectionLines(r)))
		var outputs []string
		for _, o := range r.OutputResources {
			outputs = append(outputs, fmt.Sprintf("%s (%s)%s", o.Name, o.Type, elsewhereIn(o.ID)))
		}
		slices.Sort(outputs)
		b.WriteString(section("Resources", outputs))
	}
	return b.String()
}

// elsewhereIn names the cluster of a Kubernetes object that is not in cluster local (K-36).
func elsewhereIn(id string) string {
	p, err := core.ParseID(id)
	if err != nil || !strings.EqualFold(p.Plane.Type, "kubernetes") || strings.EqualFold(p.Plane.Name, core.LocalCluster) {
		return ""
	}
	return " in cluster " + p.Plane.Name
}

func graphRank(r arm.GraphResource) int {
	if _, short, _ := strings.Cut(r.Type, "/"); strings.EqualFold(short, "containers") {
		return 0
	}
	return 1
}

// unsettled shows a state that is not the usual one.
func unsettled(s string) string {
	if s == "" || s == string(core.StateSucceeded) {
		return ""
	}
	return " [" + s + "]"
}

// connectionLines are what a resource uses, then what uses it.
func connectionLines(r arm.GraphResource) []string {
	var uses, used []string
	for _, c := range r.Connections {
		other := nameAndType(c.ID)
		if c.Direction == "Inbound" {
			used = append(used, fmt.Sprintf("%s -> %s", other, r.Name))
		} else {
			uses = append(uses, fmt.Sprintf("%s -> %s", r.Name, other))
		}
	}
	slices.Sort(uses)
	slices.Sort(used)
	return append(uses, used...)
}

func nameAndType(id string) string {
	p, err := core.ParseID(id)
	if err != nil {
		return id
	}
	return fmt.Sprintf("%s (%s)", p.Name(), p.Type())
}

func section(name string, lines []string) string {
	if len(lines) == 0 {
		return name + ": (none)\n"
	}
	return name + ":\n  " + strings.Join(lines, "\n  ") + "\n"
}
