// Package seal encrypts sensitive values before they reach the store (D-24).
//
// Data keysets lie in the store, wrapped by a key that lies elsewhere: a [KEK],
// from a file, a Secret or a key service. Each sealed value is bound to its
// resource and to its place in the schema, so that one copied to another
// resource or property does not open.
//
// A [Sealer] seals with the newest keyset that every replica has, and opens
// with all that are not destroyed. A [Keeper] keeps it up to date and rotates.
package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// envelope is the one member of a sealed value: {"$sealed": "<base64>"}.
const envelope = "$sealed"

// Keysets is the part of store.Store that a Sealer reads.
type Keysets interface {
	// Keyset returns the wrapped primary version; when there is none, it stores
	// and returns initial.
	Keyset(ctx context.Context, initial []byte) ([]byte, error)
	// Versions returns all versions, the oldest first.
	Versions(ctx context.Context) ([]store.Keyset, error)
}

// Sealer seals and opens values. It is safe for concurrent use.
type Sealer struct {
	store Keysets
	kek   KEK
	// ring is swapped whole when keysets change, so that a rotation needs no
	// lock on the way of a write.
	ring atomic.Pointer[ring]

	loading sync.Mutex
	// missed is when a value of an unknown key made the keysets be read anew, by
	// the key's number.
	missed map[uint32]time.Time
	log    *slog.Logger
	// counted is told of each value sealed or opened; see Count.
	counted func(action string, err error)
}

// Count has f told of each value that is sealed ("seal") or opened ("open"), and
// how that went. Call it before the sealer is used.
func (s *Sealer) Count(f func(action string, err error)) { s.counted = f }

func (s *Sealer) count(action string, err error) {
	if s.counted != nil {
		s.counted(action, err)
	}
}

// Open loads the data keysets from the store, making the first if there is
// none. Of several processes that start together all get the same one.
func Open(ctx context.Context, kept Keysets, kek KEK) (*Sealer, error) {
	s := &Sealer{store: kept, kek: kek, log: slog.New(slog.DiscardHandler)}
	s.ring.Store(&ring{})
	versions, err := kept.Versions(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the data keysets: %w", err)
	}
	if len(versions) == 0 {
		wrapped, err := newKeyset(ctx, kek, nil)
		if err != nil {
			return nil, err
		}
		if _, err := kept.Keyset(ctx, wrapped); err != nil {
			return nil, fmt.Errorf("load the data keysets: %w", err)
		}
	}
	if _, err := s.Load(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Load reads the keysets anew and says up to which version all that are not
// disabled are loaded: what a replica acknowledges. After an error those that
// were loaded before stay.
func (s *Sealer) Load(ctx context.Context) (int64, error) {
	s.loading.Lock()
	defer s.loading.Unlock()
	return s.load(ctx)
}

func (s *Sealer) load(ctx context.Context) (int64, error) {
	versions, err := s.store.Versions(ctx)
	if err != nil {
		return s.ring.Load().upTo, err
	}
	next, err := s.ring.Load().with(ctx, versions, s.kek)
	if err != nil {
		return s.ring.Load().upTo, err
	}
	s.ring.Store(next)
	return next.upTo, nil
}

// minMiss is how often at most values of one unknown key make the keysets be
// read anew: those of a key that is lost must not do so each time.
const minMiss = 500 * time.Millisecond

// key finds the key with a number. A replica that was away when a version was
// promoted meets its values before it knows it: it looks again.
func (s *Sealer) key(id uint32) *version {
	if v := s.ring.Load().byID[id]; v != nil {
		return v
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	if v := s.ring.Load().byID[id]; v != nil || time.Since(s.missed[id]) < minMiss {
		return v
	}
	if s.missed == nil || len(s.missed) > 1000 { // nobody loses so many keys
		s.missed = map[uint32]time.Time{}
	}
	s.missed[id] = time.Now()
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	if _, err := s.load(ctx); err != nil {
		s.log.Warn("the data keysets cannot be read anew", "error", err.Error())
	}
	return s.ring.Load().byID[id]
}

// binding is what a sealed value is bound to. Ids compare without case, paths
// with it.
func binding(id core.ID, path string) []byte {
	return []byte(id.Key() + "\x00" + path)
}

// Seal encrypts a JSON value for one place of one resource. path is the
// schema's, as schema.WalkSensitive gives it. Whatever is given is sealed,
// even what looks sealed: a client's value is never taken for our own.
func (s *Sealer) Seal(id core.ID, path string, v any) (_ json.RawMessage, err error) {
	defer func() { s.count("seal", err) }()
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "the value of %s of %s is not JSON", path, id)
	}
	return encrypt(s.ring.Load().primary.aead, id, path, plain)
}

func encrypt(key tink.AEAD, id core.ID, path string, plain []byte) (json.RawMessage, error) {
	cipher, err := key.Encrypt(plain, binding(id, path))
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
func (s *Sealer) Open(id core.ID, path string, sealed any) (_ any, err error) {
	defer func() { s.count("open", err) }()
	text, ok := content(sealed)
	if !ok {
		return nil, core.Errorf(core.CodeInternal, "%s of %s is stored unsealed: the store was changed by hand or by another version; write the resource again", path, id)
	}
	cipher, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "%s of %s is stored damaged; write the resource again", path, id)
	}
	gone := core.Errorf(core.CodeInternal, "%s of %s does not open: it was sealed for another place or with a key that is gone; write the resource again", path, id)
	number, ok := keyID(cipher)
	if !ok {
		return nil, gone
	}
	key := s.key(number)
	if key == nil {
		return nil, gone
	}
	plain, err := key.aead.Decrypt(cipher, binding(id, path))
	if err != nil {
		return nil, gone
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, core.Errorf(core.CodeInternal, "%s of %s is stored damaged; write the resource again", path, id)
	}
	return v, nil
}

// keyID is the number of the key that made a ciphertext: Tink writes it behind
// a byte of 1.
func keyID(cipher []byte) (uint32, bool) {
	if len(cipher) < 5 || cipher[0] != 1 {
		return 0, false
	}
	return binary.BigEndian.Uint32(cipher[1:5]), true
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
