package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/postgres"
	"github.com/radial-project/radial/internal/store/sqlite"
	"github.com/radial-project/radial/internal/telemetry"
)

// sqliteFile returns the file of a store that is one: a path, or sqlite: and a
// path.
func sqliteFile(url string) (string, bool) {
	scheme, rest, ok := strings.Cut(url, ":")
	switch {
	case ok && scheme == "sqlite":
		return strings.TrimPrefix(rest, "//"), true
	case ok && strings.HasPrefix(rest, "//"):
		return "", false
	}
	return url, true
}

// openStore opens the store that --store names; its changes go to the broker.
func openStore(ctx context.Context, url string, broker *feed.Broker, m *telemetry.Metrics) (store.Store, error) {
	if file, ok := sqliteFile(url); ok {
		if file == "" {
			return nil, fmt.Errorf("--store is %q: name the file, such as sqlite:radial.db", url)
		}
		return sqlite.Open(ctx, file, sqlite.Options{Listener: broker.Publish, Committed: m.Committed})
	}
	scheme, _, _ := strings.Cut(url, ":")
	if scheme == "postgres" || scheme == "postgresql" {
		return postgres.Open(ctx, url, postgres.Options{Listener: broker.Publish, Hint: broker.Hint})
	}
	return nil, fmt.Errorf("--store begins with %q: it must be a file, sqlite:FILE or postgres://…", scheme+"://")
}

// shownStore is a store's URL without its password.
func shownStore(url string) string {
	if file, ok := sqliteFile(url); ok {
		return file
	}
	scheme, rest, _ := strings.Cut(url, "://")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest
}
