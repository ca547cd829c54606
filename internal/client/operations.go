package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

// operationStatuses is where the operations of all types are listed, and where
// each is found by its id alone.
const operationStatuses = "/planes/radius/local/providers/System.Resources/locations/global/operationStatuses"

// operationPath is where an operation is found by its name, or by the id of its
// status, of which the last segment is the name.
func operationPath(name string) string {
	return operationStatuses + "/" + name[strings.LastIndexByte(name, '/')+1:]
}

// OperationQuery narrows a list of operations. Zero fields do not restrict.
type OperationQuery struct {
	// Resource is the id that they work on.
	Resource core.ID
	// Group is the name of a resource group.
	Group string
	// Live leaves out those that ended.
	Live bool
	// Limit ends the list early; 0 is all of them.
	Limit int
}

// Operations lists operations, the one accepted last first.
func (c *Client) Operations(ctx context.Context, q OperationQuery) ([]arm.Operation, error) {
	query := version(apiVersionUCP)
	if !q.Resource.IsZero() {
		query.Set("resource", q.Resource.String())
	}
	if q.Group != "" {
		query.Set("group", q.Group)
	}
	if q.Live {
		query.Set("live", "true")
	}
	if q.Limit > 0 {
		query.Set("top", strconv.Itoa(min(q.Limit, 1000)))
	}
	return collect[arm.Operation](ctx, c, operationStatuses, query, q.Limit)
}

// Operation returns one operation. NotFound if the server does not know it, or
// has forgotten it: ended ones are kept for a time.
func (c *Client) Operation(ctx context.Context, id string) (arm.Operation, error) {
	var op arm.Operation
	a, err := c.call(ctx, http.MethodGet, operationPath(id), version(apiVersionUCP), nil, nil)
	if err != nil {
		return op, err
	}
	if err := json.Unmarshal(a.body, &op); err != nil {
		return op, core.Errorf(core.CodeInternal, "operation %s cannot be read: its JSON has another shape than expected", id)
	}
	return op, nil
}

// Messages returns the log of an operation above after. With wait it is held
// by the server while there is nothing new and the operation has not ended, at
// most 25 s.
func (c *Client) Messages(ctx context.Context, id string, after int64, wait bool) ([]arm.OperationMessage, error) {
	query := version(apiVersionUCP)
	if after > 0 {
		query.Set("after", strconv.FormatInt(after, 10))
	}
	header := http.Header{}
	if wait {
		header.Set("Prefer", "wait=25")
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, longPoll+c.timeout, errTimeout)
		defer cancel()
	}
	a, err := c.call(ctx, http.MethodGet, operationPath(id)+"/messages", query, header, nil)
	if err != nil {
		return nil, err
	}
	var page struct {
		Value []arm.OperationMessage `json:"value"`
	}
	if err := json.Unmarshal(a.body, &page); err != nil {
		return nil, core.Errorf(core.CodeInternal, "the log of operation %s cannot be read: its JSON has another shape than expected", id)
	}
	return page.Value, nil
}

// Cancel asks for the end of an operation. Nobody may wait for it to have
// ended: a worker that is at it finishes what it cannot leave undone.
// Conflict if it has ended.
func (c *Client) Cancel(ctx context.Context, id string) error {
	_, err := c.call(ctx, http.MethodPost, operationPath(id)+"/cancel", version(apiVersionUCP), nil, json.RawMessage("{}"))
	return err
}

// Retry does again what an operation did not bring to its end, with what is
// stored, sensitive values included, and returns the new operation. Conflict
// when it succeeded, still runs, or was followed by another one.
func (c *Client) Retry(ctx context.Context, id string) (op arm.Operation, err error) {
	a, err := c.call(ctx, http.MethodPost, operationPath(id)+"/retry", version(apiVersionUCP), nil, json.RawMessage("{}"))
	if err != nil {
		return op, err
	}
	if err := json.Unmarshal(a.body, &op); err != nil {
		return op, core.Errorf(core.CodeInternal, "the new operation cannot be read: its JSON has another shape than expected")
	}
	return op, nil
}

// AwaitOperation returns an operation once it has ended, by the server's long
// poll; an outage of the server is waited out until the context ends.
func (c *Client) AwaitOperation(ctx context.Context, id string) (op arm.Operation, err error) {
	for attempt := 0; ; attempt++ {
		one, cancel := context.WithTimeoutCause(ctx, longPoll+c.timeout, errTimeout)
		a, err := c.call(one, http.MethodGet, operationPath(id), version(apiVersionUCP), http.Header{"Prefer": {"wait=25"}}, nil)
		cancel()
		switch {
		case err == nil:
			if err := json.Unmarshal(a.body, &op); err != nil {
				return op, core.Errorf(core.CodeInternal, "operation %s cannot be read: its JSON has another shape than expected", id)
			}
			if core.State(op.Status).Terminal() {
				return op, nil
			}
			attempt = 0
			// A server that does not hold its answers is not asked in a hurry.
			if a.Header.Get("Preference-Applied") == "" {
				err = sleep(ctx, max(retryAfter(a.Header), 200*time.Millisecond))
			}
		case ctx.Err() == nil && core.IsCode(err, core.CodeUnavailable):
			err = sleep(ctx, c.backoff(attempt))
		}
		if err != nil {
			return op, err
		}
	}
}

func retryAfter(h http.Header) time.Duration {
	d, _ := time.ParseDuration(h.Get("Retry-After") + "s")
	return d
}
