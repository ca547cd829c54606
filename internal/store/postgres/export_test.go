package postgres

import (
	"context"
	"net"
)

// WithDial sets what makes connections.
func (o Options) WithDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Options {
	o.dial = dial
	return o
}

// Trace tells f of every statement of the writes that begin after it.
func (s *Store) Trace(f func(string)) { s.trace = f }

// Stalled and InsertChanges are what tests of the feed need.
const (
	Stalled       = stalled
	InsertChanges = insertChanges
)
