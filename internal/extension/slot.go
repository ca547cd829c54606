package extension

import "context"

type slotKey struct{}

type held struct {
	leave func()
	enter func(context.Context) error
}

// WithSlot returns a context for a call that holds one of the slots that a run
// has for calls at a time.
func WithSlot(ctx context.Context, leave func(), enter func(context.Context) error) context.Context {
	return context.WithValue(ctx, slotKey{}, held{leave, enter})
}

// Idle calls wait, which waits for what another call of the same run brings. The
// slot of ctx's call is free meanwhile: were all of them held by those who wait,
// nobody could bring it. It is held again when Idle returns.
func Idle(ctx context.Context, wait func() error) error {
	slot, ok := ctx.Value(slotKey{}).(held)
	if !ok {
		return wait()
	}
	slot.leave()
	err := wait()
	// Whoever holds the slots ends when ctx does: this takes no longer then.
	if entered := slot.enter(context.WithoutCancel(ctx)); err == nil {
		err = entered
	}
	return err
}
