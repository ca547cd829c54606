package extension

import (
	"context"
	"sync"
)

// A session is the time in which a scope's credentials are asked for once: one
// run of a deployment. It lives in the run's context, so that what was resolved
// ends with the run and no cache has to be told when.
type session struct {
	mu    sync.Mutex
	slots map[any]*slot
}

// slot is one thing that was resolved; its one place is held while it is being
// made.
type slot struct {
	held chan struct{}
	made any
}

type sessionKey struct{}

// WithSession returns a context whose calls of [Resolver.Resolve] share what
// they resolve. Within a session it is the same session: nested deployments are
// part of the run that they are in.
func WithSession(ctx context.Context) context.Context {
	if ctx.Value(sessionKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, sessionKey{}, &session{slots: map[any]*slot{}})
}

// Once answers what make answers, and remembers it for the session of ctx by a
// comparable key; a failure is not remembered. Calls for one key wait for each
// other. Outside of a session it only calls make.
func Once[T any](ctx context.Context, key any, make func() (T, error)) (T, error) {
	var none T
	s, ok := ctx.Value(sessionKey{}).(*session)
	if !ok {
		return make()
	}
	s.mu.Lock()
	at := s.slots[key]
	if at == nil {
		at = &slot{held: newHeld()}
		s.slots[key] = at
	}
	s.mu.Unlock()
	select {
	case at.held <- struct{}{}:
		defer func() { <-at.held }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if made, ok := at.made.(T); ok {
		return made, nil
	}
	made, err := make()
	if err != nil {
		return none, err
	}
	at.made = made
	return made, nil
}

func newHeld() chan struct{} { return make(chan struct{}, 1) }
