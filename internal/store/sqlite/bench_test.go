package sqlite_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
	"github.com/radial-project/radial/internal/store/storetest"
)

// Benchmark measures the embedded default; docs/stores.md has figures.
func Benchmark(b *testing.B) {
	var commits atomic.Int64
	storetest.Bench(b, func(b *testing.B) store.Store {
		s, err := sqlite.Open(context.Background(), filepath.Join(b.TempDir(), "radial.db"), sqlite.Options{
			Committed: func(int, time.Duration) { commits.Add(1) },
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		return s
	}, commits.Load)
}
