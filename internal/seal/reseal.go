package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/schema"
	"github.com/radial-project/radial/internal/store"
)

// SecretPath is the path by which a secret that a recipe returned is bound; no
// property has such a name.
func SecretPath(name string) string { return "\x00secrets." + name }

// Stamp sets r.Keyset to the version of the oldest value that is sealed in r.
// Every row that is written carries it: by it the store knows whether a version
// is still needed.
func (s *Sealer) Stamp(r *core.Resource) {
	known := s.ring.Load()
	r.Keyset = 0
	see := func(raw []byte) {
		const mark = `"` + envelope + `":"`
		for {
			_, rest, ok := bytes.Cut(raw, []byte(mark))
			if !ok {
				return
			}
			raw = rest
			if len(rest) < 8 { // of base64: the byte of 1 and the number
				continue
			}
			var head [6]byte
			if _, err := base64.StdEncoding.Decode(head[:], rest[:8]); err != nil {
				continue
			}
			number, ok := keyID(head[:])
			if v := known.byID[number]; ok && v != nil && (r.Keyset == 0 || v.Version < r.Keyset) {
				r.Keyset = v.Version
			}
		}
	}
	see(r.Properties)
	for _, raw := range r.Secrets {
		see(raw)
	}
}

// Renew is for a write that the store refused because its row is sealed with a
// version that was disabled meanwhile: it seals the row again and returns true.
// False says that the refusal had another reason.
func (s *Sealer) Renew(ctx context.Context, r *core.Resource) bool {
	if r.Keyset == 0 {
		return false
	}
	if _, err := s.Load(ctx); err != nil {
		return false
	}
	if v := s.ring.Load().versions[r.Keyset]; v != nil && v.State != store.KeysetDisabled {
		return false
	}
	next, _, err := s.reseal(*r)
	if err != nil {
		return false
	}
	*r = next
	return true
}

// reseal returns a row whose values are all sealed with the primary version,
// and how many look sealed and do not open: whatever they are, nothing that is
// lost by losing a key.
//
// It needs no schema, so that it also reaches what a schema that has changed or
// is gone once called sensitive. A value may be bound to any path that a schema
// can give its place; there are as few as it has members above it.
func (s *Sealer) reseal(r core.Resource) (core.Resource, int, error) {
	w := resealing{ring: s.ring.Load(), id: r.ID}
	if len(r.Properties) > 0 {
		var props map[string]any
		dec := json.NewDecoder(bytes.NewReader(r.Properties))
		dec.UseNumber()
		if err := dec.Decode(&props); err != nil {
			return r, 0, core.Errorf(core.CodeInternal, "the stored properties of %s cannot be read: %w", r.ID, err)
		}
		if _, err := w.walk([]string{""}, props, true); err != nil {
			return r, 0, err
		}
		if w.changed {
			raw, err := json.Marshal(props)
			if err != nil {
				return r, 0, err
			}
			r.Properties = raw
		}
	}
	secrets := make(map[string]json.RawMessage, len(r.Secrets))
	for name, raw := range r.Secrets {
		v, err := w.again([]string{SecretPath(name)}, raw)
		if err != nil {
			return r, 0, err
		}
		secrets[name] = raw
		if sealed, ok := v.(json.RawMessage); ok {
			secrets[name] = sealed
		}
	}
	if len(secrets) > 0 {
		r.Secrets = secrets
	}
	r.Keyset = 0
	if w.sealed > 0 {
		r.Keyset = w.ring.primary.Version
	}
	return r, w.dead, nil
}

// maxPaths bounds the paths that are tried for one value: twelve members deep.
const maxPaths = 1 << 12

type resealing struct {
	ring    *ring
	id      core.ID
	sealed  int
	dead    int
	changed bool
}

// walk replaces the sealed values at and below v. paths are all that a schema
// can give its place.
func (w *resealing) walk(paths []string, v any, root bool) (any, error) {
	if !root && IsSealed(v) {
		return w.again(paths, v)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			if !nests(e) {
				continue
			}
			below := make([]string, 0, 2*len(paths))
			for _, p := range paths {
				below = append(below, schema.Member(p, name))
			}
			if len(below) <= maxPaths/2 {
				for _, p := range paths {
					below = append(below, p+schema.Items)
				}
			}
			next, err := w.walk(below, e, false)
			if err != nil {
				return nil, err
			}
			v[name] = next
		}
	case []any:
		below := make([]string, len(paths))
		for i, p := range paths {
			below[i] = p + schema.Items
		}
		for i, e := range v {
			next, err := w.walk(below, e, false)
			if err != nil {
				return nil, err
			}
			v[i] = next
		}
	}
	return v, nil
}

func nests(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// again seals one value with the primary version.
func (w *resealing) again(paths []string, v any) (any, error) {
	text, _ := content(v)
	cipher, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		w.dead++
		return v, nil
	}
	number, _ := keyID(cipher)
	key := w.ring.byID[number]
	if key == nil {
		w.dead++
		return v, nil
	}
	for _, path := range paths {
		plain, err := key.aead.Decrypt(cipher, binding(w.id, path))
		if err != nil {
			continue
		}
		w.sealed++
		if key.Version == w.ring.primary.Version {
			return v, nil
		}
		w.changed = true
		return encrypt(w.ring.primary.aead, w.id, path, plain)
	}
	w.dead++
	return v, nil
}
