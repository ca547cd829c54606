// Package connection is the one rule by which the data of a resource becomes
// the environment variables of a workload that is connected to it (K-17,
// K-18). The controller, the container renderer and the documentation all use
// it; docs/connections.md shows it by examples that are tested.
//
// The package is pure.
package connection

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// excluded are the properties that say how a resource is managed, not how to
// reach it (K-17). Names compare without case.
var excluded = map[string]bool{
	"application": true, "environment": true, "provisioningstate": true, "resourceprovisioning": true,
	"recipe": true, "resources": true, "connections": true, "codereference": true, "status": true,
}

// Values returns what a connection carries: the top-level properties but those
// of management, over them the values that the recipe computed, over them the
// secrets that listSecrets answers. A null hides nothing and is left out. Any
// argument may be nil; none is changed.
func Values(properties, computed, secrets map[string]any) map[string]any {
	out := make(map[string]any, len(properties)+len(computed)+len(secrets))
	for name, v := range properties {
		if v != nil && !excluded[strings.ToLower(name)] {
			out[name] = v
		}
	}
	for _, over := range []map[string]any{computed, secrets} {
		for name, v := range over {
			if v != nil {
				out[name] = v
			}
		}
	}
	return out
}

// EnvName is the name of the variable that carries a property over a
// connection: CONNECTION_<CONNECTION>_<PROPERTY> in upper case, where every
// character outside A to Z, 0 to 9 and _ becomes _. Only ASCII letters have an
// upper case here, so that the name never depends on a table of Unicode.
func EnvName(connection, property string) string {
	var b strings.Builder
	b.Grow(len("CONNECTION__") + len(connection) + len(property))
	b.WriteString("CONNECTION_")
	sanitise(&b, connection)
	b.WriteByte('_')
	sanitise(&b, property)
	return b.String()
}

func sanitise(b *strings.Builder, name string) {
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z':
			b.WriteByte(byte(r) - 'a' + 'A')
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_':
			b.WriteByte(byte(r))
		default:
			b.WriteByte('_')
		}
	}
}

// Source is one property of one connection.
type Source struct {
	Connection string
	Property   string
}

func (s Source) String() string {
	return fmt.Sprintf("property %q of connection %q", s.Property, s.Connection)
}

// Collision is one variable that several properties claim. None of them gets
// it: a workload with a wrong value is worse off than one with none, and which
// would win would be chance.
type Collision struct {
	Variable string
	Sources  []Source // two or more, sorted
}

func (c Collision) String() string {
	names := make([]string, len(c.Sources))
	for i, s := range c.Sources {
		names[i] = s.String()
	}
	return fmt.Sprintf("%s is claimed by %s: rename one of them", c.Variable, strings.Join(names, " and "))
}

// Variables returns the variables of one connection. See [Merge].
func Variables(connection string, values map[string]any) (map[string]string, []Collision) {
	return Merge(map[string]map[string]any{connection: values})
}

// Merge returns the variables of all connections of a workload, values by
// connection name as [Values] makes them, and the collisions among them in the
// order of their variables. Strings stand as they are; numbers, booleans,
// objects and arrays as JSON; nulls are left out.
func Merge(connections map[string]map[string]any) (map[string]string, []Collision) {
	sources := map[string][]Source{}
	vars := map[string]string{}
	for connection, values := range connections {
		for property, v := range values {
			if v == nil {
				continue
			}
			name := EnvName(connection, property)
			sources[name] = append(sources[name], Source{connection, property})
			vars[name] = Text(v)
		}
	}
	var collisions []Collision
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		from := sources[name]
		if len(from) == 1 {
			continue
		}
		delete(vars, name)
		slices.SortFunc(from, func(a, b Source) int {
			if c := strings.Compare(a.Connection, b.Connection); c != 0 {
				return c
			}
			return strings.Compare(a.Property, b.Property)
		})
		collisions = append(collisions, Collision{name, from})
	}
	return vars, collisions
}

// Text is a value as a variable or a key of a Secret holds it: a string as it
// is, anything else as compact JSON with sorted keys.
func Text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a & in a URL stays one
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// None is the hash of no data at all, whatever the key.
const None = "e3b0c44298fc1c149afbf4c8996fb924"

// Hash identifies the content of data within scope: equal maps give equal
// hashes, whatever the order; different ones differ. It is 32 hex digits (128
// bits of HMAC-SHA-256), fit for the name of a Secret and for the annotation of
// a pod template.
//
// Both are read by people who may not read Secrets, and passwords are short, so
// without the key nobody can try what a hash was made of; nor, as the scope is
// in it, whether two workloads have one password.
func Hash(key []byte, scope string, data map[string]string) string {
	if len(data) == 0 {
		return None
	}
	h := hmac.New(sha256.New, key)
	put := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	put(scope)
	for _, k := range slices.Sorted(maps.Keys(data)) {
		put(k)
		put(data[k])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
