package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/radial-project/radial/internal/core"
)

// remedies say what to do about PostgreSQL's error codes, or classes of them,
// that mean the database cannot be used now.
var remedies = []struct{ code, remedy string }{
	{"53100", "its disk is full: free space there"},
	{"53200", "it is out of memory"},
	{"53300", "it takes no more connections: raise max_connections there, or lower pool_max_conns in the store's address"},
	{"53", "it is short of resources: look at its log"},
	{"57P", "it is starting, stopping or recovering: try again when it is back"},
	{"25006", "it is read-only: the address must be that of the primary"},
	{"28", "it does not accept who we are: correct user, password or certificate in the store's address"},
	{"3D000", "the database does not exist: create it first"},
	{"42501", "our user may not do that: make it the owner of the database"},
	{"08", "the connection failed: look at the network and at its log"},
	{"58", "its disk failed: look at its log"},
	{"XX001", "it is damaged: restore a backup"},
	{"XX002", "it is damaged: restore a backup"},
}

func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// again reports whether a transaction that failed changed nothing and may pass
// when it is run once more.
func again(err error) bool {
	switch code(err) {
	case "40001", "40P01", "55P03": // serialisation, deadlock, lock not available
		return true
	}
	return false
}

// lost reports whether err is that of a connection which is no more.
func lost(err error) bool {
	var n net.Error
	var connect *pgconn.ConnectError
	c := code(err)
	return errors.As(err, &n) || errors.As(err, &connect) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		strings.HasPrefix(c, "08") || strings.HasPrefix(c, "57P") || strings.Contains(err.Error(), "conn closed")
}

// fault makes the error of the contract out of one of PostgreSQL's, the
// network's or a context's. One that is neither is a defect, and Internal.
func (s *Store) fault(what string, err error) error {
	var own *core.Error
	c := code(err)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return err
	case s.closed.Load():
		return s.closedError()
	case c == "22021", c == "22P05":
		return core.Errorf(core.CodeBadRequest, "a name or a value holds a character that cannot be stored (%w)", err)
	case strings.HasPrefix(c, "23"):
		// The checks come first, so only a defect gets here; the rule held.
		return core.Errorf(core.CodeInternal, "%s refused a write that breaks its rules: %w", s.where, err)
	}
	for _, r := range remedies {
		if c != "" && strings.HasPrefix(c, r.code) {
			return core.Errorf(core.CodeUnavailable, "%s cannot be %s: %s (%w)", s.where, what, r.remedy, err)
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return core.Errorf(core.CodeUnavailable, "%s was not %s in time: it does not answer, or the caller stopped waiting (%w)", s.where, what, err)
	case errors.Is(err, context.Canceled):
		return core.Errorf(core.CodeUnavailable, "the store was not %s: the caller stopped waiting (%w)", what, err)
	case lost(err):
		return core.Errorf(core.CodeUnavailable, "%s cannot be reached: is it running? The server goes on by itself when it is back (%w)", s.where, err)
	}
	return core.Errorf(core.CodeInternal, "%s: %w", s.where, err)
}

func (s *Store) closedError() error {
	return core.Errorf(core.CodeUnavailable, "the store in %s is closed: the server is stopping; try again when it is back", s.where)
}
