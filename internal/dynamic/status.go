package dynamic

import (
	"encoding/json"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
)

// Status is what the row of a resource keeps under its status: what the server
// found out, beside the properties that the user wrote. Output resources are
// rows of their own.
type Status struct {
	// ComputedValues are the values that the recipe answered (D-30). Those that
	// the schema calls sensitive are kept as secrets instead.
	ComputedValues map[string]any `json:"computedValues,omitempty"`
	// RecipeStatus is how the last run went: one of the RecipeStatus constants.
	RecipeStatus string `json:"recipeStatus,omitempty"`
	// Recipe is the definition as it ran, with its digest: what DELETE uses
	// (D-32).
	Recipe *recipe.Definition `json:"recipe,omitempty"`
}

// How a recipe's run ended.
const (
	RecipeSuccess   = "success"
	RecipeSetup     = "setupError"
	RecipeExecution = "executionError"
)

// ReadStatus reads the status of a resource.
func ReadStatus(r core.Resource) (Status, error) {
	var s Status
	if len(r.Status) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(r.Status, &s); err != nil {
		return s, core.Errorf(core.CodeInternal, "the stored status of %s cannot be read: %w", r.ID, err)
	}
	return s, nil
}

// encodeStatus returns nil for an empty status.
func (s Status) encode() (json.RawMessage, error) {
	raw, err := json.Marshal(s)
	if err != nil || string(raw) == "{}" {
		return nil, err
	}
	return raw, nil
}
