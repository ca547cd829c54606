package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/radial-project/radial/internal/core"
)

// remedies say what to do about SQLite's primary result codes that mean the
// file cannot be used now. After one of them the whole transaction is gone.
var remedies = map[int]string{
	lib.SQLITE_FULL:     "the disk is full: free space on its file system",
	lib.SQLITE_IOERR:    "the disk failed: look at its file system and at the kernel's log",
	lib.SQLITE_READONLY: "it is read-only: give the server write access to the file and its directory",
	lib.SQLITE_CANTOPEN: "the file or its directory is missing or may not be read: restore it, or correct its permissions",
	lib.SQLITE_CORRUPT:  "the file is damaged: stop the server and restore a copy",
	lib.SQLITE_NOTADB:   "the file is not a SQLite database: choose another file for the store",
	lib.SQLITE_BUSY:     "another program holds the file: end it; only the server may write there",
	lib.SQLITE_LOCKED:   "another program holds the file: end it; only the server may write there",
	lib.SQLITE_NOMEM:    "the process is out of memory",
	lib.SQLITE_PERM:     "it may not be accessed: correct the permissions of the file and its directory",
	lib.SQLITE_PROTOCOL: "another program holds the file: end it; only the server may write there",
}

// unusable reports whether err is SQLite's and of a kind that ends the
// transaction, in contrast to a rule that one statement broke.
func unusable(err error) bool {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return remedies[e.Code()&0xff] != "" || e.Code()&0xff == lib.SQLITE_INTERRUPT
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// fault makes the error of the contract out of one of SQLite, database/sql or a
// context. One that is neither is a defect, and Internal.
func (s *Store) fault(what string, err error) error {
	var own *core.Error
	var e *sqlite.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return err
	case errors.As(err, &e) && remedies[e.Code()&0xff] != "":
		return core.Errorf(core.CodeUnavailable, "store %s cannot be %s: %s (%w)", s.path, what, remedies[e.Code()&0xff], err)
	case errors.As(err, &e) && e.Code()&0xff == lib.SQLITE_CONSTRAINT && what == "written":
		// The checks come first, so only a defect gets here; the rule held.
		return core.Errorf(core.CodeInternal, "store %s refused a write that breaks its rules: %w", s.path, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return core.Errorf(core.CodeUnavailable, "the store was not %s: the caller stopped waiting (%w)", what, err)
	case unusable(err), s.writer != nil && s.writer.closed.Load():
		return s.closedError()
	}
	return core.Errorf(core.CodeInternal, "store %s: %w", s.path, err)
}

func (s *Store) closedError() error {
	return core.Errorf(core.CodeUnavailable, "store %s is closed: the server is stopping; try again when it is back", s.path)
}
