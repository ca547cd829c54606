package serving

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// SecretKeep keeps certificates in a Secret, which all replicas share.
type SecretKeep struct {
	Client          kubernetes.Interface
	Namespace, Name string
}

// Load implements [Keep].
func (k SecretKeep) Load(ctx context.Context) (map[string][]byte, string, error) {
	s, err := k.Client.CoreV1().Secrets(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	return s.Data, s.ResourceVersion, nil
}

// Save implements [Keep].
func (k SecretKeep) Save(ctx context.Context, data map[string][]byte, version string) error {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, ResourceVersion: version,
			Labels: map[string]string{"app.kubernetes.io/part-of": "radial"}},
		Type: corev1.SecretTypeTLS, Data: data,
	}
	var err error
	if version == "" {
		_, err = k.Client.CoreV1().Secrets(k.Namespace).Create(ctx, s, metav1.CreateOptions{})
	} else {
		_, err = k.Client.CoreV1().Secrets(k.Namespace).Update(ctx, s, metav1.UpdateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || version != "" && apierrors.IsNotFound(err) {
		return ErrConflict
	}
	return err
}

// DirKeep keeps certificates in a directory of one process: all in one file, so
// that none is without its key, and the bundle beside it for clients.
type DirKeep struct{ Dir string }

const (
	keptFile   = "certificates.json"
	bundleFile = "ca.crt"
)

// Load implements [Keep].
func (k DirKeep) Load(context.Context) (map[string][]byte, string, error) {
	raw, err := os.ReadFile(filepath.Join(k.Dir, keptFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	var data map[string][]byte
	if err := json.Unmarshal(raw, &data); err != nil {
		return nil, "", fmt.Errorf("%s cannot be read; move it away to have new certificates made", filepath.Join(k.Dir, keptFile))
	}
	return data, version(raw), nil
}

func version(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Save implements [Keep].
func (k DirKeep) Save(ctx context.Context, data map[string][]byte, loaded string) error {
	_, now, err := k.Load(ctx)
	if err != nil {
		return err
	}
	if now != loaded {
		return ErrConflict
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return err
	}
	if err := replace(filepath.Join(k.Dir, keptFile), raw, 0o600); err != nil {
		return err
	}
	return replace(filepath.Join(k.Dir, bundleFile), data[keyBundle], 0o644)
}

func replace(path string, content []byte, mode os.FileMode) error {
	if err := os.WriteFile(path+".new", content, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
