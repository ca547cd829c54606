package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

// silence is how long the change stream may say nothing before it is taken for
// dead: three heartbeats.
const silence = 45 * time.Second

// WatchOptions tune a Watch.
type WatchOptions struct {
	// Down, if set, is told why the stream broke off, before each pause.
	Down func(err error)
}

// Watch follows the change stream until the context ends, and returns the
// context's error. It reconnects by itself after a pause that grows from a
// fraction of a second while nothing answers.
//
// Every connection begins with a Change that has Reset set (the server's first
// line): what was seen before may be stale, so ask again for what is in flight.
// Heartbeats are not passed on. f is called from one goroutine, in order, and
// holds up the stream while it runs.
func (c *Client) Watch(ctx context.Context, f func(arm.Change), o WatchOptions) error {
	for attempt := 0; ; {
		worked, err := c.watchOnce(ctx, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if o.Down != nil {
			o.Down(err)
		}
		if worked {
			attempt = 0
		}
		if err := sleep(ctx, c.backoff(attempt)); err != nil {
			return err
		}
		attempt++
	}
}

// watchOnce follows one connection. worked says that at least one line came.
func (c *Client) watchOnce(ctx context.Context, f func(arm.Change)) (worked bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(silence, func() { cancel(errTimeout) })
	defer alive.Stop()

	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.target("/watch/changes", nil), nil)
	if err != nil {
		return false, err
	}
	resp, err := c.send(r)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return false, c.failure(resp, body)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		alive.Reset(silence)
		var ch arm.Change
		if err := json.Unmarshal(lines.Bytes(), &ch); err != nil {
			return worked, core.Errorf(core.CodeInternal, "the change stream of %s is not one of a Radial server: %w", c.URL(), err)
		}
		if !worked {
			ch.Reset = true // whatever the server thinks: to us it is a new stream
		}
		worked = true
		if ch.Reset || ch.ID != "" {
			f(ch)
		}
	}
	err = lines.Err()
	if err == nil {
		err = io.EOF
	}
	return worked, c.unreachable(ctx, fmt.Errorf("the change stream ended: %w", err))
}
