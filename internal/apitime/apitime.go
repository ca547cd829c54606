// Package apitime tells the time as the API server has it, from the Date of its
// answers. What is counted across processes and nodes (an acknowledgement bound
// since a request was written, a grace since a credential was reported) is
// counted by one clock then, however wrong a node's own is.
package apitime

import (
	"net/http"
	"sync"
	"time"
)

// Clock is a local clock, put right by what the API server says. Until it has
// answered once, and while the two agree to the second in which a Date is
// written, it is the local one. It is safe for concurrent use.
type Clock struct {
	local func() time.Time
	mu    sync.Mutex
	ahead time.Duration
}

// New is a clock over local, which may be nil for time.Now.
func New(local func() time.Time) *Clock {
	if local == nil {
		local = time.Now
	}
	return &Clock{local: local}
}

// Now is the time by the API server's clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	ahead := c.ahead
	c.mu.Unlock()
	return c.local().Add(ahead)
}

// Wrap learns from the answers that go through a transport. It fits
// rest.Config.Wrap.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return transport{next, c} }

type transport struct {
	next  http.RoundTripper
	clock *Clock
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := t.clock.local()
	res, err := t.next.RoundTrip(r)
	if err == nil {
		if date, perr := http.ParseTime(res.Header.Get("Date")); perr == nil {
			t.clock.learn(sent, t.clock.local(), date)
		}
	}
	return res, err
}

// WrappedRoundTripper lets client-go look through.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// learn takes in that the API server wrote date between two local moments. A
// Date has whole seconds: the server's clock stood somewhere in that second. So
// each answer bounds how far it is ahead. What is out of the bounds becomes the
// least of them: what is put right is never early.
func (c *Clock) learn(sent, received, date time.Time) {
	// Wall clocks are compared, not this process' own count of time.
	least, most := date.Sub(received.Round(0)), date.Add(time.Second).Sub(sent.Round(0))
	c.mu.Lock()
	defer c.mu.Unlock()
	// A clock that was set meanwhile bounds nothing.
	if least <= most && (c.ahead < least || c.ahead > most) {
		c.ahead = least
	}
}
