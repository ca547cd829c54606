// Package seal encrypts sensitive values before they reach the store (D-24).
//
// A data keyset lies in the store, wrapped by a key that lies elsewhere: a
// [KEK], read from a file. Each sealed value is bound to its resource and to
// its place in the schema, so that one copied to another resource or property
// does not open.
package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/radial-project/radial/internal/core"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// envelope is the one member of a sealed value: {"$sealed": "<base64>"}.
const envelope = "$sealed"

// keysetContext binds a wrapped keyset to its purpose.
var keysetContext = []byte("radial data keyset")

// Keysets is the part of store.Registry that keeps the wrapped keyset.
type Keysets interface {
	// Keyset returns the wrapped data keyset; when there is none, it stores
	// and returns initial.
	Keyset(ctx context.Context, initial []byte) ([]byte, error)
}

// Sealer seals and opens values. It is safe for concurrent use.
type Sealer struct {
	// primitive is swapped whole when a keyset changes, so that a rotation
	// needs no lock on the way of a write.
	primitive atomic.Pointer[tink.AEAD]
}

// Open loads the data keyset from the store, making it first if there is none.
// Of several processes that start together all get the same one.
func Open(ctx context.Context, store Keysets, kek KEK) (*Sealer, error) {
	fresh, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make a data keyset: %w", err)
	}
	var wrapped bytes.Buffer
	if err := fresh.WriteWithAssociatedData(keyset.NewBinaryWriter(&wrapped), kek.aead, keysetContext); err != nil {
		return nil, fmt.Errorf("wrap the data keyset: %w", err)
	}
	kept, err := store.Keyset(ctx, wrapped.Bytes())
	if err != nil {
		return nil, fmt.Errorf("load the data keyset: %w", err)
	}
	handle, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(kept)), kek.aead, keysetContext)
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "the data keyset in the store does not open with the key in %s: it was wrapped with another key, or one of the two is damaged; put back the key file that belongs to this store", kek.source)
	}
	p, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("use the data keyset: %w", err)
	}
	s := &Sealer{}
	s.primitive.Store(&p)
	return s, nil
}

// binding is what a sealed value is bound to. Ids compare without case, paths
// with it.
func binding(id core.ID, path string) []byte {
	return []byte(id.Key() + "\x00" + path)
}

// Seal encrypts a JSON value for one place of one resource. path is the
// schema's, as schema.WalkSensitive gives it. Whatever is given is sealed,
// even what looks sealed: a client's value is never taken for our own.
func (s *Sealer) Seal(id core.ID, path string, v any) (json.RawMessage, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "the value of %s of %s is not JSON", path, id)
	}
	cipher, err := (*s.primitive.Load()).Encrypt(plain, binding(id, path))
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "seal %s of %s: %w", path, id, err)
	}
	out := make([]byte, 0, len(envelope)+8+base64.StdEncoding.EncodedLen(len(cipher)))
	out = append(out, `{"`+envelope+`":"`...)
	out = base64.StdEncoding.AppendEncode(out, cipher)
	return append(out, `"}`...), nil
}

// Open decrypts what Seal made for the same place. Numbers come back as
// json.Number, so that none loses digits. sealed is the value as json decodes
// it, or its JSON.
func (s *Sealer) Open(id core.ID, path string, sealed any) (any, error) {
	text, ok := content(sealed)
	if !ok {
		return nil, core.Errorf(core.CodeInternal, "%s of %s is stored unsealed: the store was changed by hand or by another version; write the resource again", path, id)
	}
	cipher, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "%s of %s is stored damaged; write the resource again", path, id)
	}
	plain, err := (*s.primitive.Load()).Decrypt(cipher, binding(id, path))
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "%s of %s does not open: it was sealed for another place or with a key that is gone; write the resource again", path, id)
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, core.Errorf(core.CodeInternal, "%s of %s is stored damaged; write the resource again", path, id)
	}
	return v, nil
}

// IsSealed reports whether v has the shape of a sealed value. It says nothing
// about who made it.
func IsSealed(v any) bool {
	_, ok := content(v)
	return ok
}

func content(v any) (string, bool) {
	switch v := v.(type) {
	case map[string]any:
		s, ok := v[envelope].(string)
		return s, ok && len(v) == 1
	case json.RawMessage:
		var m map[string]string
		if !strings.HasPrefix(strings.TrimSpace(string(v)), "{") || json.Unmarshal(v, &m) != nil {
			return "", false
		}
		s, ok := m[envelope]
		return s, ok && len(m) == 1
	default:
		return "", false
	}
}
