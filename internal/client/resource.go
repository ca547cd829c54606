package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

// Answer is what a write answered.
type Answer struct {
	// Resource is the resource as written, nil after a DELETE. Its ID is
	// spelled as the server keeps it, which is another one than asked for when
	// the type is an alias.
	Resource *arm.Resource
	// Token resumes the operation; "" when the write was complete in itself.
	Token string
	// ETag is the new entity tag, "" where the answer had none.
	ETag string
	// Missing says that a DELETE found nothing.
	Missing bool
}

// Precondition is an If-Match or If-None-Match of a write; the zero value asks
// nothing.
type Precondition struct {
	IfMatch, IfNoneMatch string
	// Force registers a schema that stored resources do not fit.
	Force bool
}

// version is the query that carries an api-version.
func version(v string) url.Values {
	if v == "" {
		return nil
	}
	return url.Values{"api-version": {v}}
}

// Get returns one resource, with its ETag. NotFound if there is none.
func (c *Client) Get(ctx context.Context, id core.ID, apiVersion string) (*arm.Resource, string, error) {
	a, err := c.call(ctx, http.MethodGet, id.String(), version(apiVersion), nil, nil)
	if err != nil {
		return nil, "", err
	}
	r, err := decodeResource(a.body)
	return r, a.Header.Get("ETag"), err
}

// Put creates or updates a resource. The body is an arm.Put, an arm.Resource,
// or a json.RawMessage that is sent as it is.
func (c *Client) Put(ctx context.Context, id core.ID, apiVersion string, body any, p ...Precondition) (*Answer, error) {
	h := http.Header{}
	query := version(apiVersion)
	for _, p := range p {
		if p.Force {
			query.Set("force", "true")
		}
		if p.IfMatch != "" {
			h.Set("If-Match", p.IfMatch)
		}
		if p.IfNoneMatch != "" {
			h.Set("If-None-Match", p.IfNoneMatch)
		}
	}
	a, err := c.call(ctx, http.MethodPut, id.String(), query, h, body)
	if err != nil {
		return nil, err
	}
	r, err := decodeResource(a.body)
	if err != nil {
		return nil, err
	}
	token, err := c.token(a.Response)
	return &Answer{Resource: r, Token: token, ETag: a.Header.Get("ETag")}, err
}

// Delete removes a resource. With an ownerUID it removes only what that owner
// has (else NameConflict).
func (c *Client) Delete(ctx context.Context, id core.ID, apiVersion, ownerUID string) (*Answer, error) {
	return c.Remove(ctx, id, apiVersion, Removal{OwnerUID: ownerUID})
}

// Removal says how to delete.
type Removal struct {
	// OwnerUID, when not "", must be the stored owner's (else NameConflict).
	OwnerUID string
	// Cascade deletes first what uses the target, which is refused otherwise.
	Cascade bool
}

// Remove deletes a resource, a scope or a registration.
func (c *Client) Remove(ctx context.Context, id core.ID, apiVersion string, r Removal) (*Answer, error) {
	h := http.Header{}
	if r.OwnerUID != "" {
		h.Set(arm.HeaderOwnerUID, r.OwnerUID)
	}
	query := version(apiVersion)
	if r.Cascade {
		if query == nil {
			query = url.Values{}
		}
		query.Set("cascade", "true")
	}
	a, err := c.call(ctx, http.MethodDelete, id.String(), query, h, nil)
	if err != nil {
		return nil, err
	}
	if a.StatusCode == http.StatusNoContent {
		return &Answer{Missing: true}, nil
	}
	token, err := c.token(a.Response)
	return &Answer{Token: token}, err
}

// List returns every resource of a collection, all pages. The path is a
// collection's id, such as .String() of an ID without a name.
func (c *Client) List(ctx context.Context, path, apiVersion string) ([]arm.Resource, error) {
	return collect[arm.Resource](ctx, c, path, version(apiVersion), 0)
}

// Members lists id, name and type of what stands in a scope, narrowed to what
// belongs to an application and to an environment where those are not zero.
func (c *Client) Members(ctx context.Context, scope, application, environment core.ID) ([]arm.Resource, error) {
	query := version(apiVersionUCP)
	for name, id := range map[string]core.ID{"application": application, "environment": environment} {
		if !id.IsZero() {
			query.Set(name, id.String())
		}
	}
	return collect[arm.Resource](ctx, c, scope.String()+"/resources", query, 0)
}

// collect reads the pages of a list of any items: all of them, or as many as
// limit items take.
func collect[T any](ctx context.Context, c *Client, path string, query url.Values, limit int) ([]T, error) {
	var all []T
	for {
		a, err := c.call(ctx, http.MethodGet, path, query, nil, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Value    []T    `json:"value"`
			NextLink string `json:"nextLink"`
		}
		if err := json.Unmarshal(a.body, &page); err != nil {
			return nil, core.Errorf(core.CodeInternal, "the list at %s is not what a Radial server answers: %w", path, err)
		}
		all = append(all, page.Value...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if page.NextLink == "" {
			return all, nil
		}
		next, err := url.Parse(page.NextLink)
		if err != nil {
			return nil, core.Errorf(core.CodeInternal, "the list at %s names a next page that is no URL: %w", path, err)
		}
		path, query = strings.TrimPrefix(next.Path, c.base.Path), next.Query()
	}
}

// Action calls POST {id}/{action} and decodes the answer into out, which may
// be nil.
func (c *Client) Action(ctx context.Context, id core.ID, action, apiVersion string, body, out any) error {
	if body == nil {
		body = json.RawMessage("{}")
	}
	a, err := c.call(ctx, http.MethodPost, id.String()+"/"+action, version(apiVersion), nil, body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return core.Errorf(core.CodeInternal, "the answer of %s on %s cannot be read: its JSON has another shape than expected", action, id)
	}
	return nil
}

// Raw sends a request to a path below the base URL and returns the answer's
// body: for what has no method of its own here.
func (c *Client) Raw(ctx context.Context, method, path string, query url.Values, body any) (json.RawMessage, error) {
	a, err := c.call(ctx, method, path, query, nil, body)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}

func decodeResource(body []byte) (*arm.Resource, error) {
	var r arm.Resource
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, core.Errorf(core.CodeInternal, "the answer is not a resource of a Radial server: %w", err)
	}
	return &r, nil
}

// State returns the provisioning state of a resource.
func State(r *arm.Resource) core.State {
	s, _ := r.Properties["provisioningState"].(string)
	return core.State(s)
}
