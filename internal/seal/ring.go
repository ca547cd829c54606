package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// keysetContext binds a wrapped keyset to its purpose.
var keysetContext = []byte("radial data keyset")

// version is one version of the data keyset, opened.
type version struct {
	store.Keyset
	aead tink.AEAD
	// ids are the numbers that its keys write before what they seal.
	ids []uint32
}

// ring is all versions that are not destroyed. It does not change.
//
// A disabled version stays in it until it is destroyed: nothing in the store
// names it any more, but a request under way may have read what did.
type ring struct {
	primary  *version
	versions map[int64]*version
	byID     map[uint32]*version
	upTo     int64
}

// with makes a ring of versions, taking over what is unwrapped already.
func (r *ring) with(ctx context.Context, versions []store.Keyset, kek KEK) (*ring, error) {
	next := &ring{versions: map[int64]*version{}, byID: map[uint32]*version{}}
	for _, k := range versions {
		if destroyed(k) {
			continue
		}
		old := r.versions[k.Version]
		v := &version{Keyset: k}
		if old != nil { // wrapped anew or not, what is in it is the same
			v.aead, v.ids = old.aead, old.ids
		} else if err := v.open(ctx, kek); err != nil {
			if k.State == store.KeysetDisabled {
				continue // of use for a restored backup only
			}
			return nil, err
		}
		next.versions[k.Version] = v
		for _, id := range v.ids {
			next.byID[id] = v
		}
		if k.State == store.KeysetPrimary {
			next.primary = v
		}
		if k.State != store.KeysetDisabled {
			next.upTo = max(next.upTo, k.Version)
		}
	}
	if next.primary == nil {
		return nil, core.Errorf(core.CodeInternal, "the store has no primary data keyset: it was changed by hand, or its restore did not end; restore it from a backup")
	}
	return next, nil
}

// destroyed reports whether the key of a version is gone for good.
func destroyed(k store.Keyset) bool { return len(k.Wrapped) == 0 }

// open unwraps the version.
func (v *version) open(ctx context.Context, kek KEK) error {
	handle, _, err := unwrap(ctx, v.Keyset, kek)
	if err != nil {
		return err
	}
	if v.aead, err = aead.New(handle); err != nil {
		return fmt.Errorf("use version %d of the data keyset: %w", v.Version, err)
	}
	for _, k := range handle.KeysetInfo().GetKeyInfo() {
		v.ids = append(v.ids, k.GetKeyId())
	}
	return nil
}

// unwrap opens a version and says whether it is wrapped with the current key.
func unwrap(ctx context.Context, k store.Keyset, kek KEK) (handle *keyset.Handle, current bool, err error) {
	w := &wrapping{kek: kek}
	handle, err = keyset.ReadWithContext(ctx, keyset.NewBinaryReader(bytes.NewReader(k.Wrapped)), w, keysetContext)
	if err == nil {
		return handle, w.current, nil
	}
	if err = w.failed; err == nil || errors.Is(err, ErrOtherKey) {
		return nil, false, core.Errorf(core.CodeInternal, "version %d of the data keyset in the store does not open with the key in %s: %w; put back the key that belongs to this store, or name it as a former one", k.Version, kek.Source(), ErrOtherKey)
	}
	return nil, false, core.Errorf(core.CodeUnavailable, "version %d of the data keyset cannot be unwrapped by the key in %s: %w", k.Version, kek.Source(), err)
}

// wrapping is a KEK as Tink asks for it.
type wrapping struct {
	kek KEK
	// current and failed are what the last Unwrap said; Tink hands on no error.
	current bool
	failed  error
}

func (w *wrapping) EncryptWithContext(ctx context.Context, plain, binding []byte) ([]byte, error) {
	return w.kek.Wrap(ctx, plain, binding)
}

func (w *wrapping) DecryptWithContext(ctx context.Context, wrapped, binding []byte) (plain []byte, err error) {
	plain, w.current, w.failed = w.kek.Unwrap(ctx, wrapped, binding)
	return plain, w.failed
}

// newKeyset makes a keyset of one key, wrapped. Its number is none that the
// ring knows, so that it tells the version.
func newKeyset(ctx context.Context, kek KEK, known *ring) ([]byte, error) {
	for {
		handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
		if err != nil {
			return nil, fmt.Errorf("make a data keyset: %w", err)
		}
		if known != nil && known.byID[handle.KeysetInfo().GetPrimaryKeyId()] != nil {
			continue
		}
		return wrap(ctx, handle, kek)
	}
}

func wrap(ctx context.Context, handle *keyset.Handle, kek KEK) ([]byte, error) {
	var wrapped bytes.Buffer
	if err := handle.WriteWithContext(ctx, keyset.NewBinaryWriter(&wrapped), &wrapping{kek: kek}, keysetContext); err != nil {
		return nil, core.Errorf(core.CodeUnavailable, "a data keyset cannot be wrapped by the key in %s: %w", kek.Source(), err)
	}
	return wrapped.Bytes(), nil
}

// rewrap returns a version wrapped with the current key, nil when it is.
func rewrap(ctx context.Context, k store.Keyset, kek KEK) ([]byte, error) {
	handle, current, err := unwrap(ctx, k, kek)
	if err != nil || current {
		return nil, err
	}
	return wrap(ctx, handle, kek)
}
