package stack

import (
	"context"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
)

// Engine is the deployments engine: all that a stack makes, deletes or looks at
// goes through it (S-34). *deploy.Engine is one.
type Engine interface {
	Deploy(ctx context.Context, q deploy.Request) (*deploy.Result, error)
	Validate(ctx context.Context, q deploy.Request) (*deploy.Validation, error)
	WhatIf(ctx context.Context, q deploy.Request) ([]deploy.Change, error)
}

// Records keep the records of stacks.
type Records interface {
	// Read returns a record as it is. NotFound if there is none.
	Read(ctx context.Context, id core.ID) (Record, error)
	// List returns all records, by name.
	List(ctx context.Context) ([]Record, error)
	// Open locks a stack for one update: whoever else opens it meanwhile gets a
	// Conflict that names the holder (S-55). A stack that has no record yet is
	// opened with an empty one.
	Open(ctx context.Context, id core.ID) (Session, error)
}

// Session is a stack under its lock. Every write is fenced: it fails with
// OperationFenced when the lock was lost to another holder.
type Session interface {
	// Context ends when the lock is lost.
	Context() context.Context
	// Record is what was read under the lock.
	Record() Record
	// Journal is the engine's, as far as it has got.
	Journal() []core.Output
	// Note keeps entries of the engine's journal, in one commit.
	Note(ctx context.Context, put []core.Output, drop []core.ID) error
	// Save replaces the record.
	Save(ctx context.Context, r Record) error
	// Remove deletes record and journal.
	Remove(ctx context.Context) error
	// Close gives the lock back.
	Close() error
}
