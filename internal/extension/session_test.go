package extension

import (
	"context"
	"errors"
	"sync"
	"testing"
)

type place struct{ Target }

func TestSession(t *testing.T) {
	made := 0
	ask := func(ctx context.Context, key string, fail error) (Target, error) {
		return Once(ctx, key, func() (Target, error) {
			made++
			return &place{}, fail
		})
	}
	ctx := WithSession(t.Context())
	if _, err := ask(ctx, "a", errors.New("away")); err == nil {
		t.Fatal("a failure was not answered")
	}
	first, err := ask(ctx, "a", nil)
	if err != nil || made != 2 {
		t.Fatalf("after a failure: %v, asked %d times", err, made)
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if again, _ := ask(WithSession(ctx), "a", nil); again != first {
				t.Error("the same session answered another target")
			}
		})
	}
	wait.Wait()
	if made != 2 {
		t.Errorf("one session asked %d times", made)
	}
	if other, _ := ask(WithSession(t.Context()), "a", nil); other == first {
		t.Error("another session answered the target of the first")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	blocked := make(chan struct{})
	go func() {
		_, _ = Once(ctx, "b", func() (Target, error) { close(blocked); <-t.Context().Done(); return nil, t.Context().Err() })
	}()
	<-blocked
	if _, err := ask(ended, "b", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for another call outlived its context: %v", err)
	}
}
