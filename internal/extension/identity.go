package extension

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Plane is the type of the plane of other extensions' resources in the graph.
const Plane = "extensions"

// ResourceID is the id in the graph of a resource of an extension that is not
// Kubernetes:
//
//	/planes/extensions/<Extension>/places/<place>/providers/<namespace>/<type>/<name>-<hash>
//
// place is "default" where there is no configID, else the first 16 hex digits of
// its SHA-256. A type without a namespace ("File") gets the extension's name for
// one; further slashes of a type are percent-encoded. name is the last short
// text among the identifiers, for people; hash, the first 20 hex digits of
// SHA-256 over extension, configID, type and identifiers, is what tells two
// resources apart, with case where identifiers have it. The version of
// extension and type is no part of it: an upgrade keeps the id.
func ResourceID(extension, configID, typ string, identifiers json.RawMessage) core.ID {
	place := "default"
	if configID != "" {
		place = digest(configID)[:16]
	}
	namespace, rest, ok := strings.Cut(typ, "/")
	if !ok {
		namespace, rest = extension, typ
	}
	id := core.ID{
		Plane:    core.Segment{Type: Plane, Name: segment(extension)},
		Scopes:   []core.Segment{{Type: "places", Name: place}},
		Provider: segment(namespace),
	}
	hash := Mark(extension, configID, typ, identifiers)[:20]
	id.Types = []core.Segment{{Type: segment(rest), Name: label(identifiers) + "-" + hash}}
	return id
}

// Mark is 64 hex digits that tell a resource from every other of all extensions:
// names of extensions and types compare without case, the rest with it.
func Mark(extension, configID, typ string, identifiers json.RawMessage) string {
	return digest(strings.ToLower(extension), configID, strings.ToLower(typ), string(Canonical(identifiers)))
}

// Canonical is a JSON value with sorted keys and no spaces, so that equal values
// are equal texts; what is no JSON stays as it is.
func Canonical(raw json.RawMessage) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return raw
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return raw
	}
	return bytes.TrimSpace(b.Bytes())
}

// digest is the SHA-256 of texts, none of which can pass for part of another.
func digest(parts ...string) string {
	raw, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings always marshal
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// segment is text as one segment of an id.
func segment(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
			b.WriteByte(c)
		default:
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	if b.Len() == 0 {
		return "_"
	}
	return b.String()
}

// label is what people know a resource by: the last text among its identifiers,
// in the order of their names.
func label(identifiers json.RawMessage) string {
	var v any
	if json.Unmarshal(identifiers, &v) != nil {
		return "resource"
	}
	found := ""
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			found = v
		case map[string]any:
			keys := make([]string, 0, len(v))
			for k := range v {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				walk(v[k])
			}
		}
	}
	walk(v)
	var b strings.Builder
	for _, c := range found {
		if b.Len() == 40 {
			break
		}
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	if text := strings.Trim(b.String(), "-"); text != "" {
		return text
	}
	return "resource"
}
