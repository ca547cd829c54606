package rules

import (
	"encoding/json"
	"fmt"

	"github.com/radial-project/radial/internal/core"
)

// ParseBelongings reads the edges and outputs of a row that a database has
// aggregated: edges as [[to, kind, name], …], outputs as [[id, local id, state,
// managed, depends on, handle, claimed], …], depends on and handle as JSON within a
// string.
func ParseBelongings(from core.ID, edges, outputs string) ([]core.Edge, []core.Output, error) {
	var es [][3]string
	if err := json.Unmarshal([]byte(edges), &es); err != nil {
		return nil, nil, fmt.Errorf("edges of %s: %w", from, err)
	}
	var out []core.Edge
	for _, e := range es {
		to, err := core.ParseID(e[0])
		if err != nil {
			return nil, nil, fmt.Errorf("edges of %s: %w", from, err)
		}
		out = append(out, core.Edge{From: from, To: to, Kind: core.EdgeKind(e[1]), Name: e[2]})
	}
	inventory, err := ParseOutputs(outputs)
	if err != nil {
		return nil, nil, fmt.Errorf("outputs of %s: %w", from, err)
	}
	return out, inventory, nil
}

// ParseOutputs reads aggregated outputs, see [ParseBelongings].
func ParseOutputs(outputs string) ([]core.Output, error) {
	var rows [][7]json.RawMessage
	if err := json.Unmarshal([]byte(outputs), &rows); err != nil {
		return nil, err
	}
	var out []core.Output
	for _, row := range rows {
		var o core.Output
		var managed, claimed any
		var depends, handle *string
		for i, into := range []any{&o.ID, &o.LocalID, &o.State, &managed, &depends, &handle, &claimed} {
			if err := json.Unmarshal(row[i], into); err != nil {
				return nil, err
			}
		}
		o.Managed, o.Claimed = managed == true || managed == 1.0, claimed == true || claimed == 1.0
		if depends != nil {
			if err := json.Unmarshal([]byte(*depends), &o.DependsOn); err != nil {
				return nil, err
			}
		}
		if handle != nil {
			o.Handle = json.RawMessage(*handle)
		}
		out = append(out, o)
	}
	return out, nil
}
