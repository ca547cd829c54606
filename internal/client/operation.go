package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

// longPoll is how long the server is asked to hold the answer of a Wait.
const longPoll = 25 * time.Second

// token returns the resume token of an asynchronous answer, "" for one that is
// complete.
func (c *Client) token(resp *http.Response) (string, error) {
	if resp.Header.Get("Azure-AsyncOperation") == "" && resp.Header.Get("Location") == "" {
		return "", nil
	}
	p, err := runtime.NewPoller[arm.Resource](resp, c.pipeline, nil)
	if err != nil {
		return "", core.Errorf(core.CodeInternal, "%s %s started an operation that cannot be followed: %w", resp.Request.Method, resp.Request.URL.Path, err)
	}
	if p.Done() {
		return "", nil
	}
	t, err := p.ResumeToken()
	if err != nil {
		return "", core.Errorf(core.CodeInternal, "%s %s started an operation without a resume token: %w", resp.Request.Method, resp.Request.URL.Path, err)
	}
	return t, nil
}

// OperationName is the name of a resume token's operation, "" if it has none.
func OperationName(token string) string {
	const before = "operationstatuses/"
	i := strings.Index(strings.ToLower(token), before)
	if i < 0 {
		return ""
	}
	name := token[i+len(before):]
	if end := strings.IndexAny(name, `/?"\`); end >= 0 {
		name = name[:end]
	}
	return name
}

// Poll asks once how the operation of a resume token stands; it does not wait.
//
//   - done, nil: it succeeded.
//   - done, error: it failed or was canceled; the error is the operation's.
//   - not done, nil: it is still running.
//   - not done, error: no answer. NotFound says that the operation is unknown
//     to the server, BadRequest that the token is none; then the resource
//     itself has to be asked.
func (c *Client) Poll(ctx context.Context, token string) (done bool, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	done, _, err = c.poll(ctx, token)
	return done, err
}

func (c *Client) poll(ctx context.Context, token string) (done bool, retryAfter time.Duration, err error) {
	p, err := runtime.NewPollerFromResumeToken[arm.Resource](token, c.pipeline, nil)
	if err != nil {
		return false, 0, core.Errorf(core.CodeBadRequest, "the resume token cannot be used: %w", err)
	}
	resp, err := p.Poll(ctx)
	if err != nil {
		var re *azcore.ResponseError
		if errors.As(err, &re) {
			body, _ := runtime.Payload(re.RawResponse)
			return false, 0, c.failure(re.RawResponse, body)
		}
		if e := (*core.Error)(nil); errors.As(err, &e) {
			return false, 0, e
		}
		if ctx.Err() != nil {
			return false, 0, c.unreachable(ctx, ctx.Err())
		}
		return false, 0, core.Errorf(core.CodeInternal, "the operation's status cannot be read: %w", err)
	}
	if !p.Done() {
		retryAfter, _ = time.ParseDuration(resp.Header.Get("Retry-After") + "s")
		return false, max(retryAfter, time.Second), nil
	}
	body, err := runtime.Payload(resp)
	if err != nil {
		return false, 0, core.Errorf(core.CodeInternal, "the operation's status cannot be read: %w", err)
	}
	return true, 0, ended(body)
}

// ended returns the error of an operation that has ended, nil for success.
func ended(body []byte) error {
	var s struct {
		Status string `json:"status"`
	}
	if len(body) == 0 || json.Unmarshal(body, &s) != nil || s.Status == "" || core.State(s.Status) == core.StateSucceeded {
		return nil
	}
	if e := decodeError(body); e != nil {
		return e
	}
	code := core.CodeInternal
	if core.State(s.Status) == core.StateCanceled {
		code = core.CodeCanceled
	}
	return core.Errorf(code, "the operation ended as %s and the server said no more; its log has the reason", s.Status)
}

// Wait waits for the end of the operation of a resume token by the server's
// long poll. Its error is the operation's if it failed; an outage of the server
// in between is waited out until the context ends.
func (c *Client) Wait(ctx context.Context, token string) error {
	long := policy.WithHTTPHeader(ctx, http.Header{"Prefer": {"wait=25"}})
	for attempt := 0; ; attempt++ {
		asked := time.Now()
		one, cancel := context.WithTimeoutCause(long, longPoll+c.timeout, errTimeout)
		done, pause, err := c.poll(one, token)
		cancel()
		switch {
		case done:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case core.IsCode(err, core.CodeUnavailable):
			pause = c.backoff(attempt)
		case err != nil:
			return err
		case time.Since(asked) > time.Second:
			attempt, pause = 0, 0 // it held the answer: ask again at once
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// backoff is the pause before the next attempt: 0.2 s doubling to 10 s, of
// which a random half is taken off, so that many clients do not return at once.
func (c *Client) backoff(attempt int) time.Duration {
	d := 10 * time.Second
	if attempt < 6 {
		d = min(d, 200*time.Millisecond<<attempt)
	}
	return d - time.Duration(c.random()*float64(d)/2)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
