package process

import "time"

// Backoff says how long to wait before a component is started again.
type Backoff struct {
	First time.Duration // after the first death
	Max   time.Duration // the wait doubles up to here
	Reset time.Duration // a run that lasted this long counts as good: the next wait is First again
}

// DefaultBackoff brings a killed component back at once and does not burn a core on a hopeless one.
var DefaultBackoff = Backoff{First: 100 * time.Millisecond, Max: 10 * time.Second, Reset: 20 * time.Second}

// Delay is the wait before the next start after that many failed ones in a row, from 0.
func (b Backoff) Delay(attempt int) time.Duration {
	delay := b.First
	for range attempt {
		if delay >= b.Max/2 {
			return b.Max
		}
		delay *= 2
	}
	return delay
}
