package deployment_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/recipe"
)

// wantNone looks for secrets in bytes, plain and in base64.
func wantNone(t *testing.T, where string, data []byte, secrets ...string) {
	t.Helper()
	for _, s := range secrets {
		for form, needle := range map[string]string{"plain": s, "in base64": base64.StdEncoding.EncodeToString([]byte(s))} {
			if i := bytes.Index(data, []byte(needle)); i >= 0 {
				t.Errorf("S-23 %s: a secret is there, %s: …%q…", where, form, data[max(0, i-80):min(len(data), i+len(needle)+20)])
			}
		}
	}
}

// scan looks for secrets in every file of a directory.
func scan(t *testing.T, dir string, secrets ...string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		wantNone(t, filepath.Base(path), raw, secrets...)
		return nil
	})
	if err != nil || files == 0 {
		t.Fatalf("%d files were scanned: %v", files, err)
	}
}

// blocking is a recipe that runs until it is released or canceled.
func blocking(began chan<- struct{}, release <-chan struct{}) func(ctx context.Context, r recipe.Request) (recipe.Result, error) {
	return func(ctx context.Context, r recipe.Request) (recipe.Result, error) {
		select {
		case began <- struct{}{}:
		default:
		}
		select {
		case <-release:
			return recipe.Result{Values: map[string]any{"host": "h"}}, nil
		case <-ctx.Done():
			return recipe.Result{}, context.Cause(ctx)
		}
	}
}

func hasConfigMap(list []corev1.ConfigMap, name string) bool {
	for _, m := range list {
		if m.Name == name {
			return true
		}
	}
	return false
}

func configMapOf(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}
