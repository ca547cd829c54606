package adopt

import (
	"context"
	"crypto/rand"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/internal/core"
)

// The Secret, in the controller's own namespace, of the key by which connection
// data is hashed. It is made when there is none; while it stays, so do the
// hashes, over restarts and upgrades (K-19). Whoever removes it has every
// connected workload roll once when the controller starts again.
const (
	hashKeySecret = "radial-controller-hash-key"
	hashKeyName   = "key"
	hashKeySize   = 32
)

// hashKey returns the key, read or made once.
func (r *Reconciler) hashKey(ctx context.Context) ([]byte, error) {
	r.mu.Lock()
	key := r.key
	r.mu.Unlock()
	if key != nil {
		return key, nil
	}
	name := types.NamespacedName{Namespace: r.Namespace, Name: hashKeySecret}
	kept := new(corev1.Secret)
	err := r.Reader.Get(ctx, name, kept)
	if apierrors.IsNotFound(err) {
		fresh := make([]byte, hashKeySize)
		_, _ = rand.Read(fresh) // never fails
		kept = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{"app.kubernetes.io/managed-by": FieldManager}},
			Type:       corev1.SecretTypeOpaque, Immutable: ptr.To(true), Data: map[string][]byte{hashKeyName: fresh},
		}
		err = r.Client.Create(ctx, kept, client.FieldOwner(FieldManager))
		if apierrors.IsAlreadyExists(err) { // by another replica
			err = r.Reader.Get(ctx, name, kept)
		}
	}
	if err != nil {
		return nil, core.Errorf(core.CodeUnavailable, "the key by which connection data is hashed cannot be read from Secret %s: %w", name, err)
	}
	if key = kept.Data[hashKeyName]; len(key) < hashKeySize {
		return nil, core.Errorf(core.CodeInternal, "Secret %s holds no key of %d bytes under %q: delete it, and the controller makes its own", name, hashKeySize, hashKeyName)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.key == nil {
		r.key = key
	}
	return r.key, nil
}
