package plane

import (
	"context"
	"strings"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// Postgres reports whether a location is a PostgreSQL URL.
func Postgres(location string) bool {
	return strings.HasPrefix(location, "postgres://") || strings.HasPrefix(location, "postgresql://")
}

// Open opens the store at a location: a PostgreSQL URL or a SQLite file.
func Open(ctx context.Context, location string, listener store.Listener) (store.Store, error) {
	return sqlite.Open(ctx, location, sqlite.Options{Listener: listener})
}
