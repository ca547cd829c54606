// Package client is what any of Radial's own processes says to the control
// plane: the ARM wire over HTTP with kept connections, asynchronous operations
// by the ARM SDK's pollers and their resume tokens, and the change stream.
//
// # Guarantees
//
//   - Errors are [core.Error]s: the server's own, with code, details and
//     additional information; [core.CodeUnavailable] when no answer came, with
//     the server's URL and what to do; or the context's, unchanged in
//     errors.Is.
//   - Requests go to the base URL and nowhere else. A resume token holds
//     absolute URLs and may lie where users can edit it; its host is replaced,
//     so that an old token finds a moved server and a forged one sends nobody
//     anywhere.
//   - No call waits longer than its context, or than [Options.Timeout] when the
//     context has no end.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/telemetry"
)

// maxAnswer bounds what is read of one answer, in bytes.
const maxAnswer = 64 << 20

// Options are what a Client may be told; the zero value serves.
type Options struct {
	// Transport sends the requests; nil is a transport of the client's own
	// that keeps connections.
	Transport http.RoundTripper
	// UserAgent names the program, such as "radial-controller/1.0".
	UserAgent string
	// Timeout bounds a call whose context has no deadline; 0 is 30 s. Long
	// polls and the change stream are not bounded by it.
	Timeout time.Duration
	// Random scatters the change stream's reconnects, in [0,1); nil is
	// math/rand.
	Random func() float64
}

// Client speaks to one control plane. It is safe for concurrent use.
type Client struct {
	base     *url.URL
	http     *http.Client
	agent    string
	timeout  time.Duration
	random   func() float64
	pipeline runtime.Pipeline
}

// New returns a client of the server at baseURL, with or without the prefix
// /apis/api.ucp.dev/v1alpha3. A URL that cannot be one is reported by every
// call, not here, so that wiring stays plain.
func New(baseURL string, o Options) *Client {
	base, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil || base.Host == "" {
		base = &url.URL{Scheme: "http", Host: "invalid.invalid", Path: "/" + baseURL}
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			ForceAttemptHTTP2:     true,
			MaxIdleConnsPerHost:   16,
			IdleConnTimeout:       90 * time.Second,
			TLSHandshakeTimeout:   5 * time.Second,
			ExpectContinueTimeout: time.Second,
		}
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.UserAgent == "" {
		o.UserAgent = "radial/" + core.Version
	}
	c := &Client{base: base, http: &http.Client{Transport: telemetry.Transport(o.Transport)}, agent: o.UserAgent, timeout: o.Timeout, random: o.Random}
	// The SDK's pipeline only polls. It does not retry, since every caller here
	// has a retry of its own, and it is given no credential: the SDK refuses to
	// send one without TLS, and the server of developer mode has none.
	c.pipeline = runtime.NewPipeline("radial", core.Version, runtime.PipelineOptions{}, &policy.ClientOptions{
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{Disabled: true},
		Transport: transporter{c},
	})
	return c
}

// URL returns the base URL, for messages.
func (c *Client) URL() string { return c.base.String() }

// transporter sends the SDK's requests through the client, whatever host they
// name, and only to what is below a plane: a resume token lies where users may
// edit it, and must not hold a caller to a stream.
type transporter struct{ c *Client }

func (t transporter) Do(r *http.Request) (*http.Response, error) {
	if !strings.Contains(strings.ToLower(r.URL.Path), "/planes/") {
		return nil, core.Errorf(core.CodeBadRequest, "the resume token cannot be used: it names %s, which is no operation", r.URL.Path)
	}
	r.URL.Scheme, r.URL.Host, r.Host = t.c.base.Scheme, t.c.base.Host, ""
	return t.c.send(r)
}

// target is the URL of a path below the base with a query.
func (c *Client) target(path string, query url.Values) string {
	u := *c.base
	u.Path, u.RawPath = c.base.Path+path, ""
	u.RawQuery = query.Encode()
	return u.String()
}

// send sends one request and turns a missing answer into an error.
func (c *Client) send(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", c.agent)
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(r.Context(), err)
	}
	return resp, nil
}

// unreachable says that no answer came.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTimeout) {
		return ctx.Err()
	}
	var unsent *core.Error
	if errors.As(err, &unsent) {
		return unsent // the transport had no token to send it with
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // its text repeats method and URL
	}
	return core.Errorf(core.CodeUnavailable,
		"cannot reach the Radial server at %s: %w; is it running, and is the address right?", c.URL(), err).WithTarget(c.URL())
}

var errTimeout = errors.New("no answer in time")

// bounded gives a context without an end the client's timeout.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.timeout, errTimeout)
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	body []byte
}

// call sends one request and reads the whole answer. A status of 400 and above
// is an error.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, header http.Header, body any) (*answer, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var content io.Reader
	if body != nil {
		raw, ok := body.(json.RawMessage)
		if !ok {
			var err error
			if raw, err = json.Marshal(body); err != nil {
				return nil, fmt.Errorf("encode the body of %s %s: %w", method, path, err)
			}
		}
		content = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.target(path, query), content)
	if err != nil {
		return nil, core.Errorf(core.CodeBadRequest, "%s %s is not a request that can be sent: %w", method, path, err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.send(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.unreachable(ctx, fmt.Errorf("the answer broke off: %w", err))
	case len(read) > maxAnswer:
		return nil, core.Errorf(core.CodeTooLarge, "the answer to %s %s is larger than %d bytes; ask for less at a time", method, path, maxAnswer)
	case resp.StatusCode >= 400:
		return nil, c.failure(resp, read)
	}
	// The SDK reads bodies of its own accord.
	resp.Body = io.NopCloser(bytes.NewReader(read))
	return &answer{Response: resp, body: read}, nil
}

// failure turns an error answer into a core.Error.
func (c *Client) failure(resp *http.Response, body []byte) error {
	if e := decodeError(body); e != nil {
		return e
	}
	if e := decodeFlat(body); e != nil {
		return e
	}
	code := core.CodeInternal
	switch resp.StatusCode {
	case 401:
		code = core.CodeUnauthorized
	case 403:
		code = core.CodeForbidden
	case 404:
		code = core.CodeNotFound
	case 405:
		code = core.CodeMethodNotAllowed
	case 409:
		code = core.CodeConflict
	case 412:
		code = core.CodePrecondition
	case 429, 502, 503, 504:
		code = core.CodeUnavailable
	}
	return core.Errorf(code, "%s %s: the server at %s answered %s without an explanation; is it a Radial server?",
		resp.Request.Method, resp.Request.URL.Path, c.URL(), resp.Status)
}

// decodeError reads the "error" member of an error envelope or of an operation
// status; nil if there is none.
func decodeError(body []byte) *core.Error {
	var e struct {
		Error *core.Error `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil || e.Error == nil || e.Error.Code == "" {
		return nil
	}
	return e.Error
}

// Owner returns the owner that a NameConflict names.
func Owner(err error) (arm.Owner, bool) {
	var e *core.Error
	if !errors.As(err, &e) {
		return arm.Owner{}, false
	}
	for _, info := range e.Info {
		if info.Type != "owner" {
			continue
		}
		var o arm.Owner
		raw, err := json.Marshal(info.Info)
		if err == nil && json.Unmarshal(raw, &o) == nil && o.UID != "" {
			return o, true
		}
	}
	return arm.Owner{}, false
}
