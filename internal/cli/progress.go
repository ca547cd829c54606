package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/client"
)

// working runs f, and on a terminal shows on standard error that something is under way. Nothing of it stays.
func (s *session) working(ctx context.Context, what string, f func(context.Context) error) error {
	if !s.Terminal {
		return f(ctx)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		began := time.Now()
		tick := time.NewTicker(120 * time.Millisecond)
		defer tick.Stop()
		for frame := 0; ; frame++ {
			select {
			case <-stop:
				fmt.Fprint(s.Err, "\r\033[K")
				return
			case <-tick.C:
				fmt.Fprintf(s.Err, "\r\033[K%c %s (%d s)", []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[frame%10], what, int(time.Since(began).Seconds()))
			}
		}
	}()
	err := f(ctx)
	close(stop)
	<-stopped
	return err
}

// wait waits for the end of an operation; without a token there is nothing to wait for.
func (s *session) wait(ctx context.Context, what, token string) error {
	if token == "" {
		return nil
	}
	c, err := s.client()
	if err != nil {
		return err
	}
	s.waitingFor = pending{client.OperationName(token), what}
	return s.working(ctx, what, func(ctx context.Context) error { return c.Wait(ctx, token) })
}

// confirm asks before something is deleted. Where nobody can answer, it must have been said beforehand.
func (s *session) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !s.Asks {
		return usagef("%s: say so with --yes, since nobody can be asked here", strings.TrimSuffix(question, "?"))
	}
	fmt.Fprintf(s.Err, "%s [y/N] ", question)
	line, err := bufio.NewReader(s.In).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	if err != nil {
		fmt.Fprintln(s.Err)
	}
	return fmt.Errorf("nothing was deleted")
}
