package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// keysets is where the data keysets of the control plane are looked after.
const keysets = "/planes/radius/local/providers/System.Resources/keysets"

// Keysets are the versions of the data keyset; nothing of a key is in them.
type Keysets struct {
	Versions []struct {
		Version int64     `json:"version"`
		State   string    `json:"state"`
		Created time.Time `json:"created"`
		Changed time.Time `json:"changed"`
	} `json:"versions"`
	// Waiting are replicas that have not loaded the version that was added.
	Waiting []string `json:"waiting,omitempty"`
	// Key is where the key lies that wraps them.
	Key string `json:"key"`
}

// Keysets returns the versions of the data keyset, the oldest first.
func (c *Client) Keysets(ctx context.Context) (Keysets, error) {
	return c.keysets(ctx, http.MethodGet, keysets, nil)
}

// RotateKeysets begins a rotation, which goes on by itself. Conflict while one
// is under way.
func (c *Client) RotateKeysets(ctx context.Context) (Keysets, error) {
	return c.keysets(ctx, http.MethodPost, keysets+"/rotate", json.RawMessage("{}"))
}

func (c *Client) keysets(ctx context.Context, method, path string, body any) (k Keysets, err error) {
	a, err := c.call(ctx, method, path, version(apiVersionUCP), nil, body)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(a.body, &k); err != nil {
		return k, core.Errorf(core.CodeInternal, "the keysets cannot be read: their JSON has another shape than expected")
	}
	return k, nil
}
