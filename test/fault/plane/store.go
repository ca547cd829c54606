package plane

import (
	"context"
	"strings"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// Postgres reports whether a location names a PostgreSQL database: a URL, or
// the words of libpq.
func Postgres(location string) bool {
	return strings.HasPrefix(location, "postgres://") || strings.HasPrefix(location, "host=")
}

// Open opens the store at a location: a PostgreSQL database or a SQLite file.
func Open(ctx context.Context, location string, listener store.Listener) (store.Store, error) {
	return open(ctx, location, listener, nil)
}

func open(ctx context.Context, location string, listener, hint store.Listener) (store.Store, error) {
	if Postgres(location) {
		return postgres.Open(ctx, location, postgres.Options{Listener: listener, Hint: hint})
	}
	return sqlite.Open(ctx, location, sqlite.Options{Listener: listener})
}
