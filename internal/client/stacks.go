package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/radial-project/radial/internal/core"
)

// APIVersionStacks is the version of deployment stacks that this client speaks.
const APIVersionStacks = "2025-07-01"

// RemoveStack deletes a stack: action is delete or detach, "" what the stack says
// itself. body holds credentials, nil for none.
func (c *Client) RemoveStack(ctx context.Context, id core.ID, action string, body json.RawMessage) (*Answer, error) {
	query := version(APIVersionStacks)
	if action != "" {
		query.Set("unmanageAction.Resources", action)
	}
	var send any
	if body != nil {
		send = body
	}
	a, err := c.call(ctx, http.MethodDelete, id.String(), query, nil, send)
	if err != nil {
		return nil, err
	}
	if a.StatusCode == http.StatusNoContent {
		return &Answer{Missing: true}, nil
	}
	token, err := c.token(a.Response)
	return &Answer{Token: token}, err
}

// Collect reads all pages of a list of items of any shape.
func Collect[T any](ctx context.Context, c *Client, path, apiVersion string) ([]T, error) {
	return collect[T](ctx, c, path, version(apiVersion), 0)
}
