package provision

import (
	"context"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/connection"
	"github.com/radial-project/radial/internal/core"
)

// ValuesAPI is what Values asks of the control plane; *client.Client is one.
type ValuesAPI interface {
	Get(ctx context.Context, id core.ID, apiVersion string) (*arm.Resource, string, error)
	Action(ctx context.Context, id core.ID, action, apiVersion string, body, out any) error
	Type(ctx context.Context, resourceType string) (client.Type, error)
}

// Values returns what a connection to a resource carries (K-17): its
// properties, what its recipe computed, and its secrets. The values are in the
// clear: keep them out of logs, errors and statuses. With an empty apiVersion
// the type's own is looked up.
func Values(ctx context.Context, api ValuesAPI, id core.ID, apiVersion string) (map[string]any, error) {
	if apiVersion == "" {
		t, err := api.Type(ctx, id.Type())
		if err != nil {
			return nil, err
		}
		apiVersion = t.APIVersion
	}
	live, _, err := api.Get(ctx, id, apiVersion)
	if err != nil {
		return nil, err
	}
	return valuesOf(ctx, api, live, id, apiVersion)
}

func valuesOf(ctx context.Context, api ValuesAPI, live *arm.Resource, id core.ID, apiVersion string) (map[string]any, error) {
	var secrets map[string]any
	err := api.Action(ctx, id, "listSecrets", apiVersion, nil, &secrets)
	if err != nil && !core.IsCode(err, core.CodeNotFound) && !core.IsCode(err, core.CodeMethodNotAllowed) {
		return nil, err
	}
	status, _ := live.Properties["status"].(map[string]any)
	computed, _ := status["computedValues"].(map[string]any)
	return connection.Values(live.Properties, computed, secrets), nil
}
