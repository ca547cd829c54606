package core

import (
	"context"
	"time"
)

// Pause waits for a time to pass. When ctx ends first it returns its cause.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
