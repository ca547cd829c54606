package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/radial-project/radial/internal/core"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema to this release's version. It changes nothing in a
// file that is not ours or that a newer release has migrated (D-44).
func (s *Store) migrate(ctx context.Context, db *sql.DB) error {
	var id, tables int64
	if err := db.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)`).Scan(&id, &tables); err != nil {
		return s.fault("read", err)
	}
	if id != applicationID && (id != 0 || tables > 0) {
		return core.Errorf(core.CodeUnavailable, "%s is a SQLite file of another program: nothing was changed; choose another file for the store", s.path)
	}
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("embedded migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, dir, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("embedded migrations: %w", err)
	}
	if id == applicationID {
		have, know, err := provider.GetVersions(ctx)
		if err != nil {
			return s.fault("read", err)
		}
		if have > know {
			return core.Errorf(core.CodeUnavailable,
				"store %s has schema version %d and this release (%s) knows versions up to %d: a newer release has used it; start that release, or restore the copy made before the upgrade. Nothing was changed",
				s.path, have, core.Version, know)
		}
		if have == know {
			return nil
		}
	}
	// Marked first: a crash between here and the end leaves a file that the
	// next start recognises and goes on with.
	if _, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID)); err != nil {
		return s.fault("migrated", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return s.fault("migrated", err)
	}
	return nil
}
