package deployment

import (
	"net/http"
	"strings"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
)

// formatIDs is the resultFormat that leaves payloads out.
const formatIDs = "ResourceIdOnly"

// shownChange is one change on the wire.
type shownChange struct {
	ResourceID string `json:"resourceId"`
	ChangeType string `json:"changeType"`
	shownResource
	Symbol     string                  `json:"symbolicName,omitempty"`
	Before     map[string]any          `json:"before,omitempty"`
	After      map[string]any          `json:"after,omitempty"`
	Delta      []deploy.PropertyChange `json:"delta,omitempty"`
	Reason     string                  `json:"unsupportedReason,omitempty"`
	Identity   *deploy.Identity        `json:"identity,omitempty"`
	Unverified bool                    `json:"unverified,omitempty"`
}

// whatIf answers what a deployment would do. It is answered at once: nothing is
// begun that a client could follow.
func (s *Service) whatIf(w http.ResponseWriter, r *arm.Request, id core.ID) error {
	ctx, a, engine, req, err := s.look(w, r, id)
	if err != nil {
		return err
	}
	only := strings.EqualFold(a.format, formatIDs)
	if a.format != "" && !only && !strings.EqualFold(a.format, "FullResourcePayloads") {
		return badContent("properties.whatIfSettings.resultFormat", "is %q: it must be FullResourcePayloads or %s", a.format, formatIDs)
	}
	if req.Previous, err = s.o.Store.Outputs(ctx, id); err != nil && !core.IsCode(err, core.CodeNotFound) {
		return err
	}
	changes, err := engine.WhatIf(ctx, req)
	if err != nil {
		return invalid(ctx, err)
	}
	list := make([]shownChange, len(changes))
	for i, c := range changes {
		resource := showResource(c.Affected, a.facts.radius())
		list[i] = shownChange{ResourceID: resource.ID, ChangeType: c.Kind, shownResource: resource, Symbol: c.Symbol, Reason: c.Reason, Identity: c.Identity, Unverified: c.Unverified}
		if !only {
			list[i].Before, list[i].After, list[i].Delta = c.Before, c.After, c.Properties
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	return arm.WriteJSON(w, http.StatusOK, map[string]any{
		"status":     string(core.StateSucceeded),
		"properties": map[string]any{"correlationId": a.facts.Correlation, "changes": list},
	})
}
