package apitime

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestClock_C113_C124(t *testing.T) {
	base := time.Date(2026, 5, 1, 12, 0, 0, 300e6, time.UTC)
	for name, tc := range map[string]struct {
		skew, within time.Duration
	}{
		"Agrees": {0, 0}, "Ahead": {time.Hour, time.Second}, "Behind": {-time.Hour, time.Second}, "AheadADay": {24 * time.Hour, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			server := base
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", server.UTC().Format(http.TimeFormat))
			}))
			defer web.Close()
			c := New(func() time.Time { return server.Add(tc.skew) })
			h := &http.Client{Transport: c.Wrap(http.DefaultTransport)}
			if got := c.Now(); !got.Equal(server.Add(tc.skew)) {
				t.Errorf("before any answer it is %s, not the local time", got)
			}
			for range 4 {
				res, err := h.Get(web.URL) //nolint:noctx // a test's
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if off := c.Now().Sub(server); off > 0 || off < -tc.within {
					t.Errorf("the clock is %s off the API server's; it may be behind for less than %s, and never ahead", off, tc.within)
				}
				server = server.Add(17*time.Minute + 333*time.Millisecond)
			}
		})
	}
}

// What says nothing of the time changes nothing.
func TestClock_NoDate(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	c := New(func() time.Time { return now })
	for _, date := range []string{"", "yesterday"} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = []string{date} }))
		res, err := (&http.Client{Transport: c.Wrap(http.DefaultTransport)}).Get(web.URL) //nolint:noctx // a test's
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		web.Close()
		if !c.Now().Equal(now) {
			t.Errorf("Date %q moves the clock to %s", date, c.Now())
		}
	}
	// The local clock was set back an hour while the answer was on its way.
	c.learn(now, now.Add(-time.Hour), now.Add(-10*time.Second))
	if got := c.Now(); got.Sub(now).Abs() > time.Hour {
		t.Errorf("%s", got)
	}
	if time.Until(New(nil).Now()).Abs() > time.Minute {
		t.Error("without a clock it is not the system's")
	}
}
