package fault

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/test/fault/plane"
)

// counted counts the calls of a store that a request makes.
type counted struct {
	store.Store
	lists, graphs, writes atomic.Int64
}

func (c *counted) List(ctx context.Context, q store.Query) (store.Page, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, q)
}

func (c *counted) Graph(ctx context.Context, root core.ID) (store.Graph, error) {
	c.graphs.Add(1)
	return c.Store.Graph(ctx, root)
}

func (c *counted) Accept(ctx context.Context, w store.Write) (core.Resource, error) {
	c.writes.Add(1)
	return c.Store.Accept(ctx, w)
}

// TestCost counts what the store is asked for: a write is one transaction, and
// a graph is one snapshot without any list.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			ctx := patient(t)
			h := prepared(t, k.fresh(t), "", "")
			c := &counted{}
			p, err := plane.Start(t.Context(), h.config, func(s store.Store) store.Store { c.Store = s; return c })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Stop)
			client := plane.NewClient(p.URL)
			const n = 20
			for i := range n {
				if err := client.Do(ctx, http.MethodPut, fmt.Sprintf("%sr%d%s", plane.Inert, i, plane.Version),
					fmt.Sprintf(`{"properties":{"n":%d,"application":%q,"environment":%q}}`, i, plane.App, plane.Env)); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.writes.Load(); got != n {
				t.Errorf("%d writes made %d transactions", n, got)
			}
			c.lists.Store(0)
			r, err := client.Send(ctx, http.MethodPost, plane.App+"/getGraph"+plane.UCP, `{}`)
			if err != nil || r.Status != http.StatusOK {
				t.Fatalf("getGraph: %v, %d %s", err, r.Status, r.Raw)
			}
			if lists, graphs := c.lists.Load(), c.graphs.Load(); lists != 0 || graphs != 1 {
				t.Errorf("the graph of %d resources made %d lists and %d graphs of the store", n, lists, graphs)
			}
		})
	}
}
