// Package remote carries calls to extensions that serve contract v2 of Bicep's
// extensibility over HTTP (S-47). A [Client] is an extension at an address;
// [Client.Version] is a [contract.Carrier] of one of its versions.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	sdk "github.com/radial-project/radial/extensionsdk"
	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/contract"
	"github.com/radial-project/radial/internal/outgoing"
	"github.com/radial-project/radial/internal/telemetry"
)

const (
	// Timeout is how long one request may take.
	Timeout = 60 * time.Second
	// attempts is how often a call is made that does not reach the extension, or
	// that it is too busy for.
	attempts = 5
	// firstPause grows twofold with each attempt.
	firstPause = 500 * time.Millisecond
	// longestPause is what an extension may ask us to wait before it is asked
	// again.
	longestPause = 60 * time.Second
)

// Options say where an extension is and how to talk to it.
type Options struct {
	// Name is the extension's, for errors.
	Name string
	// URL is its address, https but on loopback.
	URL string
	// CAFile holds authorities in PEM beside the system's; "" is none.
	CAFile string
	// TokenFile holds the bearer token, and is read for each call so that the
	// token can be renewed; "" sends none.
	TokenFile string
	// Timeout of one request; 0 is the contract's.
	Timeout time.Duration
	// Sleep waits between attempts; nil is the clock's.
	Sleep func(context.Context, time.Duration) error
}

// Client talks to one extension. It is safe for concurrent use.
type Client struct {
	o      Options
	base   *url.URL
	http   *http.Client
	values conceal.Values // tokens that were sent
}

// New makes a client; it connects to nothing yet.
func New(o Options) (*Client, error) {
	base, err := checkURL(o.URL)
	if err != nil {
		return nil, err
	}
	var ca []byte
	if o.CAFile != "" {
		if ca, err = os.ReadFile(o.CAFile); err != nil {
			return nil, fmt.Errorf("its authorities cannot be read: %w", err)
		}
	}
	client, err := outgoing.Client(ca)
	if err != nil {
		return nil, err
	}
	if o.TokenFile != "" {
		if _, err := os.ReadFile(o.TokenFile); err != nil {
			return nil, fmt.Errorf("its token cannot be read: %w", err)
		}
	}
	if o.Timeout == 0 {
		o.Timeout = Timeout
	}
	if o.Sleep == nil {
		o.Sleep = core.Pause
	}
	client.Timeout = 0 // each request has its own
	// A redirect would take configuration and token to an address that nobody
	// registered.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{o: o, base: base, http: client}, nil
}

// CheckURL refuses an address that a client would not take.
func CheckURL(text string) error {
	_, err := checkURL(text)
	return err
}

// checkURL refuses addresses at which secrets would be read by others.
func checkURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, errors.New("its address is not a URL with a host")
	}
	switch {
	case u.User != nil:
		return nil, errors.New("its URL holds a user or password: put a token into tokenFile")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("its URL has a query or a fragment: it is the base of the contract's paths")
	case u.Scheme == "https":
	case u.Scheme == "http" && loopback(u.Hostname()):
	case u.Scheme == "http":
		return nil, fmt.Errorf("http://%s would send secrets in clear text: only loopback addresses go without TLS, use https", u.Host)
	default:
		return nil, fmt.Errorf("its URL has the scheme %q: it is https, or http on loopback", u.Scheme)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Place is where the extension is, for texts.
func (c *Client) Place() string { return c.base.Redacted() }

// Secrets are the tokens with which the extension is asked, which no text may
// quote.
func (c *Client) Secrets() *conceal.Values { return &c.values }

// Version returns the carrier to one version of the extension.
func (c *Client) Version(version string) contract.Carrier { return carrier{c, version} }

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

type carrier struct {
	c       *Client
	version string
}

func (c carrier) Preview(ctx context.Context, s sdk.Specification) (sdk.Resource, error) {
	var r sdk.Resource
	a, err := c.post(ctx, "resource/preview", s)
	if err != nil {
		return r, err
	}
	return r, c.decode(a, &r)
}

func (c carrier) CreateOrUpdate(ctx context.Context, s sdk.Specification) (sdk.Answer, error) {
	a, err := c.post(ctx, "resource/createOrUpdate", s)
	if err != nil {
		return sdk.Answer{}, err
	}
	return c.answer(a)
}

func (c carrier) Get(ctx context.Context, r sdk.Reference) (sdk.Resource, error) {
	var out sdk.Resource
	a, err := c.post(ctx, "resource/get", r)
	if err != nil {
		return out, absent(err)
	}
	err = c.decode(a, &out)
	out.RetryAfterSeconds = a.retryAfter
	return out, err
}

func (c carrier) Delete(ctx context.Context, r sdk.Reference) (sdk.Answer, error) {
	a, err := c.post(ctx, "resource/delete", r)
	if err != nil {
		return sdk.Answer{}, absent(err)
	}
	if a.status == http.StatusNoContent || a.status == http.StatusOK && len(bytes.TrimSpace(a.body)) == 0 {
		return sdk.Answer{}, nil
	}
	return c.answer(a)
}

func (c carrier) Follow(ctx context.Context, handle map[string]any) (sdk.Operation, error) {
	var o sdk.Operation
	a, err := c.post(ctx, "longRunningOperation/get", handle)
	if err != nil {
		return o, err
	}
	return o, c.decode(a, &o)
}

// absent gives refusals by status 404 the code that says so, whatever the
// extension calls it.
func absent(err error) error {
	var e *sdk.Error
	if errors.As(err, &e) && e.HTTPStatus == http.StatusNotFound {
		e.Code = sdk.CodeNotFound
	}
	return err
}

// answer is a resource (200, 201) or an operation (202).
func (c carrier) answer(a *answer) (sdk.Answer, error) {
	if a.status == http.StatusAccepted {
		var o sdk.Operation
		err := c.decode(a, &o)
		return sdk.Answer{Operation: &o}, err
	}
	var r sdk.Resource
	err := c.decode(a, &r)
	r.RetryAfterSeconds = a.retryAfter
	return sdk.Answer{Resource: &r}, err
}

// answer is what came back of a request that was answered with success.
type answer struct {
	status     int
	body       []byte
	retryAfter *int
}

func (c carrier) decode(a *answer, into any) error {
	if err := sdk.Unmarshal(a.body, into); err != nil {
		return c.c.fault("answered with status %d and a body that is not what the contract says: %v", a.status, err)
	}
	return nil
}

func (c *Client) fault(format string, args ...any) error {
	return core.Errorf(core.CodeTarget, "the extension %s at %s %w", c.o.Name, c.Place(), fmt.Errorf(format, args...))
}

// post asks until there is an answer, the extension refuses, or attempts are
// used up. Every call of the contract may be made twice.
func (c carrier) post(ctx context.Context, path string, body any) (*answer, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, c.c.fault("cannot be asked: %w", err)
	}
	if len(raw) > sdk.MaxRequest {
		return nil, core.Errorf(core.CodeTooLarge, "the extension %s takes requests of at most 4 MB, this one has %d bytes: make the resource smaller", c.c.o.Name, len(raw))
	}
	id := uuid.NewString()
	pause := firstPause
	for attempt := 1; ; attempt++ {
		a, wait, err := c.once(ctx, path, id, raw)
		if err == nil || wait < 0 || ctx.Err() != nil {
			return a, err
		}
		if attempt == attempts {
			return nil, core.Errorf(core.CodeOf(err), "%w (asked %d times)", err, attempts)
		}
		if wait == 0 {
			wait = pause
			pause *= 2
		}
		if wait > longestPause {
			return nil, core.Errorf(core.CodeOf(err), "%w; it wants to be asked again in %s, which is longer than a deployment waits", err, wait)
		}
		if err := c.c.o.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// once asks one time. wait is -1 where asking again is of no use, 0 where the
// extension did not say when.
func (c carrier) once(ctx context.Context, path, id string, raw []byte) (a *answer, wait time.Duration, err error) {
	request, cancel := context.WithTimeout(ctx, c.c.o.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(request, http.MethodPost, c.c.base.JoinPath(c.version, path).String(), bytes.NewReader(raw))
	if err != nil {
		return nil, -1, c.c.fault("cannot be asked: %w", err)
	}
	if err := c.headers(ctx, r, id); err != nil {
		return nil, -1, err
	}
	response, err := c.c.http.Do(r)
	if err != nil {
		return nil, c.again(request), c.unreached(ctx, request, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, sdk.MaxResponse+1))
	switch {
	case err != nil:
		return nil, c.again(request), c.unreached(ctx, request, err)
	case len(body) > sdk.MaxResponse:
		return nil, -1, c.c.fault("answered %s with more than 20 MB, which is dropped", path)
	}
	a = &answer{status: response.StatusCode, body: body, retryAfter: seconds(response.Header.Get("Retry-After"))}
	if a.status >= 200 && a.status < 300 {
		return a, 0, nil
	}
	wait, err = c.refused(response, a)
	return nil, wait, err
}

// again is whether a request that got no answer is made once more: not one that
// used up its time.
func (c carrier) again(request context.Context) time.Duration {
	if request.Err() != nil {
		return -1
	}
	return 0
}

func (c carrier) unreached(ctx, request context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if request.Err() != nil {
		return c.c.fault("did not answer within %s: what takes longer must be answered with a status or an operation to follow", c.c.o.Timeout)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL, which is named already
	}
	return c.c.fault("cannot be reached: %w", err)
}

// refused is the error of a status that is no success.
func (c carrier) refused(response *http.Response, a *answer) (time.Duration, error) {
	var wait time.Duration = -1
	switch a.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		wait = 0
		if a.retryAfter != nil {
			wait = time.Duration(*a.retryAfter) * time.Second
		}
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		wait = 0
	}
	var envelope struct {
		Error *sdk.Error `json:"error"`
	}
	if json.Unmarshal(a.body, &envelope) == nil && envelope.Error != nil && (envelope.Error.Code != "" || envelope.Error.Message != "") {
		e := envelope.Error
		e.HTTPStatus = a.status
		if wait >= 0 {
			return wait, c.c.fault("is too busy (status %d, %s): %s", a.status, e.Code, e.Message)
		}
		return wait, e
	}
	switch {
	case a.status >= 300 && a.status < 400:
		return -1, c.c.fault("answers with a redirect (%d): redirects are not followed, register the address it is at", a.status)
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		return -1, c.c.fault("refuses who asks (status %d): look at its tokenFile", a.status)
	case a.status == http.StatusNotFound:
		return -1, c.c.fault("does not serve version %s of the contract's paths (status 404 for %s)", c.version, response.Request.URL.Path)
	}
	return wait, c.c.fault("answered with status %d and no error of the contract", a.status)
}

// headers are those that the contract wants.
func (c carrier) headers(ctx context.Context, r *http.Request, id string) error {
	h := r.Header
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json")
	h.Set("Accept-Language", "en")
	h.Set("User-Agent", "radial/"+core.Version)
	h.Set("Referer", "https://radial.invalid/")
	h.Set("x-ms-client-request-id", id)
	h.Set("x-ms-correlation-request-id", id)
	if parent := telemetry.Traceparent(ctx); parent != "" {
		h.Set("traceparent", parent)
	}
	if c.c.o.TokenFile != "" {
		raw, err := os.ReadFile(c.c.o.TokenFile)
		if err != nil {
			return c.c.fault("cannot be asked: its token cannot be read: %w", err)
		}
		token := strings.TrimSpace(string(raw))
		c.c.values.Add(token)
		h.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// seconds reads Retry-After, as seconds or as a date; nil where it says neither.
func seconds(text string) *int {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return &n
	}
	if at, err := http.ParseTime(text); err == nil {
		n := max(0, int(time.Until(at).Round(time.Second)/time.Second))
		return &n
	}
	return nil
}
