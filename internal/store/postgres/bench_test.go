package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/radial-project/radial/internal/pgtest"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/storetest"
)

// Benchmark measures the store on a real PostgreSQL with fsync on;
// docs/stores.md has figures.
func Benchmark(b *testing.B) {
	var watch *pgx.Conn
	storetest.Bench(b, func(b *testing.B) store.Store {
		ctx := context.Background()
		dsn := pgtest.Database(b)
		s, err := postgres.Open(ctx, dsn, postgres.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if watch, err = pgx.Connect(ctx, dsn); err != nil {
			b.Fatal(err)
		}
		conn := watch
		b.Cleanup(func() {
			_ = conn.Close(ctx)
			_ = s.Close()
		})
		return s
	}, func() int64 {
		// How many writes shared a sync of the log; every sync is counted.
		var n int64
		_ = watch.QueryRow(context.Background(), `SELECT wal_sync FROM pg_stat_wal`).Scan(&n)
		return n
	})
}
