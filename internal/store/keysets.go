package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// Keysets keeps the versions of the wrapped data keyset and who can open them
// (D-24). A rotation is: [Keysets.AddKeyset]; every live replica loads it and
// says so by its heartbeat; [Keysets.PromoteKeyset]; rows sealed with an older
// version ([Query.SealedBefore]) are sealed again by [Keysets.Reseal];
// [Keysets.DisableKeyset]. Each step is one transaction and may be repeated
// after a crash.
//
// A row says with which version its oldest sealed value was sealed
// ([core.Resource.Keyset]). While any row names a version, that version cannot
// be disabled, and once it is, no row can come to name it: the database holds
// that, so that no write under way at that moment loses a secret.
type Keysets interface {
	// Versions returns all versions, the oldest first, disabled ones included.
	Versions(ctx context.Context) ([]Keyset, error)
	// AddKeyset stores a further version, which nobody seals with yet.
	// Conflict while another one is Added: promote or disable that first.
	AddKeyset(ctx context.Context, wrapped []byte, now time.Time) (Keyset, error)
	// PromoteKeyset makes an Added version the Primary and the one before
	// Retired. Conflict, naming them, while replicas that were seen since
	// liveSince have not acknowledged it. Promoting the Primary is nil.
	PromoteKeyset(ctx context.Context, version int64, liveSince, now time.Time) error
	// DisableKeyset ends the use of an Added or Retired version: replicas
	// forget it, its wrapped bytes stay for a restored backup. Conflict for
	// the Primary, and while rows still name it.
	DisableKeyset(ctx context.Context, version int64, now time.Time) error
	// Rewrap replaces the wrapped bytes of a version: the key that wraps the
	// keysets has changed. It tells nobody, because what a replica has loaded
	// stays right.
	Rewrap(ctx context.Context, version int64, wrapped []byte) error
	// Reseal replaces the sealed values of a row in the background, without
	// changing its entity tag or telling anyone: to readers nothing happened.
	// The error matches [Changed] when the row is not as it was read (Expect,
	// or it is sealed with r.Keyset or a newer version already).
	Reseal(ctx context.Context, r Resealing) error

	// Heartbeat says that a replica lives, and what it can open.
	Heartbeat(ctx context.Context, r Replica) error
	// Replicas returns those that were seen since, by name; the zero time is
	// all of them.
	Replicas(ctx context.Context, since time.Time) ([]Replica, error)
	// RemoveReplica takes out one that stopped in order. No error if unknown.
	RemoveReplica(ctx context.Context, name string) error
}

// Purger is a store that can take what was overwritten out of its files.
type Purger interface {
	// Purge makes what no row holds any more unreadable in the files too, as
	// far as the database can. It may fail while readers are at work.
	Purge(ctx context.Context) error
}

// KeysetState says what a version of the data keyset is for.
type KeysetState string

// A version goes Added → Primary → Retired → Disabled, or Added → Disabled.
const (
	// KeysetAdded is loaded by all replicas and used by none.
	KeysetAdded KeysetState = "Added"
	// KeysetPrimary seals. There is one, once there is any.
	KeysetPrimary KeysetState = "Primary"
	// KeysetRetired opens what is not sealed again yet.
	KeysetRetired KeysetState = "Retired"
	// KeysetDisabled is used by nothing.
	KeysetDisabled KeysetState = "Disabled"
)

// Keyset is one version of the data keyset.
type Keyset struct {
	Version int64       `json:"version"`
	State   KeysetState `json:"state"`
	// Wrapped is encrypted under a key that the store does not have.
	Wrapped []byte    `json:"wrapped"`
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
}

// Replica is one running server process.
type Replica struct {
	// Name is unique to the process: a restart is another replica.
	Name    string
	Started time.Time
	Seen    time.Time
	// Keyset is the version up to which it has loaded all that are not
	// disabled.
	Keyset int64
}

// Resealing is what Reseal writes.
type Resealing struct {
	ID core.ID
	// Expect is the entity tag of the row that was read; "*" is none.
	Expect     string
	Properties json.RawMessage
	Secrets    map[string]json.RawMessage
	// Keyset is the version that all of it is sealed with now; 0 when nothing
	// in the row turned out to be sealed.
	Keyset int64
}
