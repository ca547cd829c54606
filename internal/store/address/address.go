// Package address reads what names a store, and opens it: a file or
// sqlite:FILE, or postgres://…
package address

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// Address names a store. One of its fields is set.
type Address struct {
	// File is that of SQLite.
	File string
	// URL is that of PostgreSQL; it may hold a password.
	URL string
}

// Parse reads an address.
func Parse(s string) (Address, error) {
	scheme, rest, ok := strings.Cut(s, ":")
	switch {
	case ok && scheme == "sqlite":
		if rest = strings.TrimPrefix(rest, "//"); rest == "" {
			return Address{}, fmt.Errorf("the store %q names no file: write sqlite:radial.db", s)
		}
		return Address{File: rest}, nil
	case ok && (scheme == "postgres" || scheme == "postgresql"):
		return Address{URL: s}, nil
	case ok && strings.HasPrefix(rest, "//"):
		return Address{}, fmt.Errorf("the store begins with %q: it must be a file, sqlite:FILE or postgres://…", scheme+"://")
	case s == "":
		return Address{}, fmt.Errorf("no store is named: write sqlite:FILE or postgres://…")
	}
	return Address{File: s}, nil
}

// String names the store without its password.
func (a Address) String() string {
	if a.URL == "" {
		return a.File
	}
	scheme, rest, _ := strings.Cut(a.URL, "://")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest
}

// Options of an open store, all of which may be missing.
type Options struct {
	// Listener is told of changes.
	Listener store.Listener
	// Hint is [postgres.Options.Hint]; SQLite does not call it.
	Hint func([]store.Change)
	// Committed is [sqlite.Options.Committed]; PostgreSQL does not call it.
	Committed func(writes int, took time.Duration)
}

// Open opens the store. SQLite's file is made when it is missing, and an older
// schema is brought forward.
func (a Address) Open(ctx context.Context, o Options) (store.Store, error) {
	if a.URL != "" {
		return postgres.Open(ctx, a.URL, postgres.Options{Listener: o.Listener, Hint: o.Hint})
	}
	return sqlite.Open(ctx, a.File, sqlite.Options{Listener: o.Listener, Committed: o.Committed})
}
