package rules

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// ChangedError says that a row is not as it was read.
func ChangedError(id core.ID) *core.Error {
	return core.Errorf(store.Changed, "%s has changed since it was read: read it again and retry", id).WithTarget(id.String())
}

// ManifestChanged says that the manifest of a namespace is not as it was read.
func ManifestChanged(namespace string) *core.Error {
	return core.Errorf(store.Changed, "The resource provider %s has changed since it was read: read it again and retry.", namespace).WithTarget(namespace)
}

// NotFound says that a resource does not exist.
func NotFound(id core.ID) *core.Error {
	return core.Errorf(core.CodeNotFound, "The resource %s was not found.", id).WithTarget(id.String())
}

// OperationNotFound says that an operation is unknown.
func OperationNotFound(op string) *core.Error {
	return core.Errorf(core.CodeNotFound, "The operation %s was not found.", op).WithTarget(op)
}

// InUse refuses to delete what has users, and carries them for programs.
func InUse(id core.ID, d store.Dependents) *core.Error {
	names := make([]string, len(d.IDs))
	for i, u := range d.IDs {
		names[i] = u.String()
	}
	users := strings.Join(names, ", ")
	if more := d.Count - len(names); more > 0 {
		users += fmt.Sprintf(" and %d more", more)
	}
	verb := "is used by"
	if id.IsScope() {
		verb = "still holds"
	}
	e := core.Errorf(core.CodeConflict, "%s %s %s: delete them first", id, verb, users).WithTarget(id.String())
	e.Info = []core.ErrorInfo{{Type: "dependents", Info: d}}
	return e
}

// NotCancelable says why an operation cannot be canceled: it is unknown (nil)
// or has ended.
func NotCancelable(op string, o *core.Operation) *core.Error {
	if o == nil {
		return OperationNotFound(op)
	}
	return core.Errorf(core.CodeConflict, "operation %s has ended as %s: there is nothing left to cancel", op, o.State).WithTarget(op)
}

// LooksSealed reports whether a row seems to hold sealed values.
func LooksSealed(r core.Resource) bool {
	return len(r.Secrets) > 0 || bytes.Contains(r.Properties, []byte(`"$sealed"`))
}

// SealedWith is the version of the data keyset that a row is to name, 0 for
// none, given the oldest version in use and whether the row's own is in use.
func SealedWith(r core.Resource, oldest int64, open bool) (int64, error) {
	switch {
	case r.Keyset == 0 && LooksSealed(r):
		return oldest, nil
	case r.Keyset != 0 && !open:
		return 0, KeysetGone(r.ID, r.Keyset)
	}
	return r.Keyset, nil
}

// KeysetGone says that a row was sealed with a version that is not in use.
func KeysetGone(id core.ID, version int64) *core.Error {
	return core.Errorf(store.Changed, "%s was sealed with version %d of the data keyset, which is not in use any more: seal it again and retry", id, version).WithTarget(id.String())
}

// KeysetWaits refuses a further version while one is on its way.
func KeysetWaits(version int64) *core.Error {
	return core.Errorf(core.CodeConflict, "version %d of the data keyset is added and not yet promoted: promote or disable it first", version)
}

// KeysetNot says that a version is unknown (nil) or not in the state wanted.
func KeysetNot(version int64, k *store.Keyset, want store.KeysetState) *core.Error {
	if k == nil {
		return core.Errorf(core.CodeNotFound, "the data keyset has no version %d", version)
	}
	return core.Errorf(core.CodeConflict, "version %d of the data keyset is %s, and must be %s for that", version, k.State, want)
}

// KeysetUnacknowledged names the replicas that cannot open a version yet.
func KeysetUnacknowledged(version int64, replicas []string) *core.Error {
	return core.Errorf(core.CodeConflict, "version %d of the data keyset is not yet loaded by %s: wait for them, or stop them", version, strings.Join(replicas, ", "))
}

// KeysetInUse refuses to disable a version that rows are sealed with.
func KeysetInUse(version, rows int64) *core.Error {
	return core.Errorf(core.CodeConflict, "version %d of the data keyset still seals %d resources: seal them again first", version, rows)
}

// NotEmpty refuses to restore over what is there.
func NotEmpty(where string, k store.Kind, n int) *core.Error {
	return core.Errorf(core.CodeConflict, "%s is not empty (it holds %d of kind %s): restore into a new one, so that nothing is mixed", where, n, k)
}
