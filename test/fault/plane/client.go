package plane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Client speaks the wire as a client does, without any retry of its own.
type Client struct {
	Base string
	HTTP *http.Client
}

// NewClient returns a client with connections of its own.
func NewClient(base string) *Client {
	return &Client{Base: base, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}}
}

// Reply is an answer.
type Reply struct {
	Status int
	Header http.Header
	Raw    string
	Body   struct {
		Status     string         `json:"status"` // of an operation
		Properties map[string]any `json:"properties"`
		Error      struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
}

// Operation is where to follow the operation of a write, as a path: it may be
// asked of another process. "" when the write was complete in itself.
func (r Reply) Operation() string {
	link := r.Header.Get("Azure-AsyncOperation")
	if i := strings.Index(link, "/planes/"); i >= 0 {
		return link[i:]
	}
	return ""
}

// Send makes one request on a path; header are names and values in turn.
func (c *Client) Send(ctx context.Context, method, path, body string, header ...string) (Reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, strings.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	// A request that is sent again by itself would be two in a history.
	req.GetBody = nil
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return Reply{}, err
	}
	r := Reply{Status: resp.StatusCode, Header: resp.Header, Raw: string(raw)}
	_ = json.Unmarshal(raw, &r.Body) // what is no JSON has no body
	return r, nil
}

// Size makes a request and counts the bytes of its answer, without looking at
// them.
func (c *Client) Size(ctx context.Context, method, path, body string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: status %d", method, path, resp.StatusCode)
	}
	return n, err
}

// Await holds until an operation has ended, and returns its last answer.
func (c *Client) Await(ctx context.Context, operation string) (Reply, error) {
	for {
		r, err := c.Send(ctx, http.MethodGet, operation, "", "Prefer", "wait=20")
		if err != nil {
			return r, err
		}
		if r.Status != http.StatusOK {
			return r, fmt.Errorf("operation %s: status %d: %s", operation, r.Status, r.Raw)
		}
		switch r.Body.Status {
		case "Succeeded", "Failed", "Canceled":
			return r, nil
		}
	}
}

// Do writes and waits for the operation to succeed.
func (c *Client) Do(ctx context.Context, method, path, body string, header ...string) error {
	r, err := c.Send(ctx, method, path, body, header...)
	if err != nil {
		return err
	}
	if r.Status >= 300 {
		return fmt.Errorf("%s %s: status %d: %s", method, path, r.Status, r.Raw)
	}
	if link := r.Operation(); link != "" {
		if r, err = c.Await(ctx, link); err != nil {
			return err
		}
		if r.Body.Status != "Succeeded" {
			return fmt.Errorf("%s %s: %s", method, path, r.Raw)
		}
	}
	return nil
}

// The types that the tests write: Inert runs nothing, Made runs its recipe.
const (
	Group     = "/planes/radius/local/resourceGroups/g"
	Env       = Group + "/providers/Applications.Core/environments/env"
	App       = Group + "/providers/Applications.Core/applications/app"
	Inert     = Group + "/providers/Fault.Tests/inert/"
	Made      = Group + "/providers/Fault.Tests/made/"
	UCP       = "?api-version=2023-10-01-preview"
	Version   = "?api-version=2026-01-01"
	namespace = `{"namespace":"Fault.Tests","types":{` +
		`"inert":{"capabilities":["ManualResourceProvisioning"],"apiVersions":{"2026-01-01":{"schema":` + schema + `}}},` +
		`"made":{"apiVersions":{"2026-01-01":{"schema":` + schema + `}}}}}`
	schema = `{"type":"object","properties":{"n":{"type":"integer"},"text":{"type":"string"},` +
		`"password":{"type":"string","x-radius-sensitive":true},"host":{"type":"string","readOnly":true}}}`
)

// Prepare makes group, types and the environment "env". The recipe of Made is
// the template of that file, run in a namespace of the cluster; both may be ""
// where a [Gate] stands in.
func (c *Client) Prepare(ctx context.Context, template, target string) error {
	if target == "" {
		target = "default"
	}
	recipes := ""
	if template != "" {
		recipes = `,"recipes":{"Fault.Tests/made":{"default":{"templateKind":"template","templatePath":"file://` + template + `"}}}`
	}
	for _, w := range [][2]string{
		{Group + UCP, `{}`},
		{"/planes/radius/local/providers/System.Resources/resourceproviders/Fault.Tests/manifest" + UCP, namespace},
		{Env + UCP, `{"location":"global","properties":{"compute":{"kind":"kubernetes","namespace":"` + target + `"}` + recipes + `}}`},
		{App + UCP, `{"location":"global","properties":{"environment":"` + Env + `"}}`},
	} {
		if err := c.Do(ctx, http.MethodPut, w[0], w[1]); err != nil {
			return err
		}
	}
	return nil
}
