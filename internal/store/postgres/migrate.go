package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/radial-project/radial/internal/core"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock of who migrates ("radial").
const migrationLock = 0x72616469616c

// migrate brings the schema to this release's version; of several replicas that
// start together one does it and the others wait. It changes nothing in a
// database that is not ours or that a newer release has migrated (D-44).
func (s *Store) migrate(ctx context.Context, config *pgx.ConnConfig) (err error) {
	lock, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return s.fault("opened", err)
	}
	defer lock.Close(context.WithoutCancel(ctx)) // frees the lock
	if _, err := lock.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(migrationLock)); err != nil {
		return s.fault("opened", err)
	}
	// What an extension of PostgreSQL brings along (managed databases have some) is nobody's data.
	var ours, tables bool
	if err := lock.QueryRow(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL,
		EXISTS (SELECT 1 FROM pg_class c WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
			AND NOT EXISTS (SELECT 1 FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e'))`).Scan(&ours, &tables); err != nil {
		return s.fault("read", err)
	}
	if !ours && tables {
		return core.Errorf(core.CodeUnavailable, "%s holds tables of another program: nothing was changed; choose another database for the store", s.where)
	}
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("embedded migrations: %w", err)
	}
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, dir, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("embedded migrations: %w", err)
	}
	if ours {
		have, know, err := provider.GetVersions(ctx)
		if err != nil {
			return s.fault("read", err)
		}
		if have > know {
			return core.Errorf(core.CodeUnavailable,
				"the store in %s has schema version %d and this release (%s) knows versions up to %d: a newer release has used it; start that release, or restore the backup made before the upgrade. Nothing was changed",
				s.where, have, core.Version, know)
		}
		if have == know {
			return nil
		}
	}
	if _, err := provider.Up(ctx); err != nil {
		return s.fault("migrated", err)
	}
	return nil
}
