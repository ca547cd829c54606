package fault

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/test/fault/plane"
)

// inFlight is how many operations are under way when their server is killed.
const inFlight = 1000

// fly has n operations accepted and returns where to follow them.
func fly(ctx context.Context, client *plane.Client, n int) ([]string, error) {
	links := make([]string, n)
	work := make(chan int)
	failed := make(chan error, 16)
	var running sync.WaitGroup
	for range cap(failed) {
		running.Go(func() {
			for i := range work {
				r, err := client.Send(ctx, http.MethodPut, fmt.Sprintf("%sr%d%s", plane.Made, i, plane.Version), made(i, "round"))
				if err == nil && r.Operation() == "" {
					err = fmt.Errorf("PUT %d answered %d: %s", i, r.Status, r.Raw)
				}
				if err != nil {
					failed <- err
					return
				}
				links[i] = r.Operation()
			}
		})
	}
	for i := range n {
		select {
		case work <- i:
		case err := <-failed:
			close(work)
			return nil, err
		}
	}
	close(work)
	running.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return links, nil
	}
}

// TestInFlight_D18 kills a server with a thousand accepted operations, as many
// of them begun as there are workers, and wants all of them to end well: after a
// restart, or where stores are shared by another replica that runs already.
func TestInFlight_D18(t *testing.T) {
	clustertest.Long(t)
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			ctx := patient(t)
			h := prepared(t, k.fresh(t), "", "")
			h.config.Lease = 3 * time.Second
			doomed, client := launch(t, h.config)
			links, err := fly(ctx, client, inFlight)
			if err != nil {
				t.Fatal(err)
			}
			var next *plane.Process
			if k.replicas {
				next, client = launch(t, h.config)
			}
			doomed.Kill()
			if !k.replicas {
				next, client = launch(t, h.config)
			}
			if err := next.Open(); err != nil {
				t.Fatal(err)
			}
			for i, link := range links {
				got, err := client.Await(ctx, link)
				if err != nil || got.Body.Status != "Succeeded" {
					t.Fatalf("operation %d of %d: %v %s", i, len(links), err, got.Raw)
				}
			}
			next.Kill()
			inspect(t, h, func(s store.Store) {
				n, _, err := s.Pending(t.Context())
				if err != nil || n != 0 {
					t.Errorf("%d operations live still (%v)", n, err)
				}
				page, err := s.List(t.Context(), store.Query{Type: "Fault.Tests/made"})
				if err != nil || len(page.Resources) != inFlight {
					t.Errorf("%d resources of %d (%v)", len(page.Resources), inFlight, err)
				}
			})
		})
	}
}
