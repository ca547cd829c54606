package rows

import "github.com/radial-project/radial/internal/store"

// KeysetColumns are the columns of a version of the data keyset.
const KeysetColumns = `version, state, wrapped, created, changed`

// Keyset reads KeysetColumns.
func Keyset(sc Scan) (store.Keyset, error) {
	var k store.Keyset
	var created, changed int64
	err := sc(&k.Version, &k.State, &k.Wrapped, &created, &changed)
	k.Created, k.Changed = Moment(created), Moment(changed)
	return k, err
}

// AddKeyset adds rows of KeysetColumns.
func AddKeyset(out *[]store.Keyset) func(Scan) error {
	return func(sc Scan) error {
		k, err := Keyset(sc)
		*out = append(*out, k)
		return err
	}
}

// AddReplica adds rows of a replica's name, start, last sign of life and version.
func AddReplica(out *[]store.Replica) func(Scan) error {
	return func(sc Scan) error {
		var r store.Replica
		var started, seen int64
		err := sc(&r.Name, &started, &seen, &r.Keyset)
		r.Started, r.Seen = Moment(started), Moment(seen)
		*out = append(*out, r)
		return err
	}
}
