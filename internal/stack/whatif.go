package stack

import (
	"context"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
)

// Certainties of a change.
const (
	Definite  = "definite"
	Potential = "potential"
)

// Change is one resource of a what-if of a stack.
type Change struct {
	deploy.Change
	// Certainty is definite, or potential where it depends on what only the
	// deployment will know.
	Certainty string `json:"changeCertainty"`
	// Management says how the stack's hold on it changes: managed, unmanaged, or
	// "" for none.
	Management string `json:"managementStatusChange,omitempty"`
	// Deny is the denyStatus that it will have, "" where it does not change.
	Deny string `json:"denyStatusChange,omitempty"`
}

// Kinds of changes that are the stack's own, beside those of deployments.
const (
	ChangeCreate = "create"
	ChangeModify = "modify"
	ChangeNone   = "noChange"
	ChangeDelete = "delete"
	ChangeDetach = "detach"
	ChangeOther  = "unsupported"
)

// WhatIf answers what an update would do, and does nothing (S-19, S-51): the
// changes of the deployment, and what of the managed resources would go.
func (m *Manager) WhatIf(ctx context.Context, record Record, journal []core.Output, u Update) ([]Change, error) {
	if err := u.Deny.Check(); err != nil {
		return nil, err
	}
	q := u.Request
	q.Owner, q.Previous = record.ID, journal
	found, err := m.o.Engine.WhatIf(ctx, q)
	if err != nil {
		return nil, err
	}
	managed := known(record, journal)
	have := setOf(managed, ofManaged)
	deny := string(u.Deny.Mode)
	if !u.Deny.denies() {
		deny = string(DenyNone)
	}
	var out []Change
	asked := set{}
	uncertain := false
	for _, c := range found {
		kind, certainty := kindOf(c.Kind), Definite
		if c.Kind == "Ignore" || kind == ChangeDelete { // what stands beside, which a stack leaves alone
			continue
		}
		if kind == ChangeOther {
			certainty, uncertain = Potential, true
		}
		asked.add(c.Affected, 0)
		change := Change{Change: c, Certainty: certainty}
		change.Kind = kind
		i, was := have.find(c.Affected)
		if !was {
			change.Management = "managed"
		}
		if status := denyOf(c.Affected, deny); !was && u.Deny.denies() || was && managed[i].DenyStatus != "" && managed[i].DenyStatus != status {
			change.Deny = status
		}
		out = append(out, change)
	}
	for _, g := range managed {
		if _, ok := asked.find(g.Affected); ok {
			continue
		}
		change := Change{Change: deploy.Change{Affected: g.Affected, Kind: ChangeDelete}, Certainty: Definite, Management: "unmanaged"}
		if u.Unmanage == Detach {
			change.Kind = ChangeDetach
		}
		if uncertain { // it may be what only the deployment will name
			change.Certainty = Potential
		}
		change.Error = nil
		out = append(out, change)
	}
	slices.SortStableFunc(out, func(a, b Change) int { return compare(a.Affected, b.Affected) })
	return out, nil
}

func denyOf(a deploy.Affected, mode string) string {
	if mode != string(DenyNone) && (a.Scope == nil || !strings.EqualFold(a.Extension, kubernetes)) {
		return "notSupported"
	}
	return mode
}

func kindOf(deployment string) string {
	switch deployment {
	case "Create":
		return ChangeCreate
	case "Modify", "Deploy":
		return ChangeModify
	case "NoChange":
		return ChangeNone
	case "Delete":
		return ChangeDelete
	default:
		return ChangeOther
	}
}
