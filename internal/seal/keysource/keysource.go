// Package keysource finds the key that wraps the data keysets by a URI:
//
//	file:///etc/radial/key              a file of keys
//	secret://namespace/name/key         a value of a Kubernetes Secret, read by name
//	kms+unix:///run/kms/plugin.sock     a key service, by a Kubernetes KMS v2 plugin
//
// File and Secret hold keys as text: the first line wraps, all lines unwrap. A
// plugin holds its own. All of them may change while the server runs.
package keysource

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/seal"
)

// Options are what some kinds of URIs need.
type Options struct {
	// Cluster is where Secrets lie; nil makes secret:// fail.
	Cluster func() (*rest.Config, error)
}

// Open returns the key at a URI. former are URIs of keys that it takes the
// place of: what they wrapped is opened, and wrapped anew.
func Open(ctx context.Context, uri string, former []string, o Options) (seal.KEK, error) {
	current, err := open(ctx, uri, o)
	if err != nil {
		return nil, err
	}
	var old []seal.KEK
	for _, f := range former {
		k, err := open(ctx, f, o)
		if err != nil {
			return nil, fmt.Errorf("a former key: %w", err)
		}
		old = append(old, k)
	}
	return seal.WithFormer(current, old...), nil
}

func open(ctx context.Context, uri string, o Options) (seal.KEK, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return nil, fmt.Errorf("the key's URI %q cannot be read: use file:///path, secret://namespace/name/key or kms+unix:///path", uri)
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" || !path.IsAbs(u.Path) {
			return nil, fmt.Errorf("the key's URI %q must name a file by its absolute path: file:///path", uri)
		}
		return seal.LoadKey(u.Path)
	case "secret":
		return openSecret(ctx, u, o)
	case "kms+unix":
		if u.Host != "" || !path.IsAbs(u.Path) {
			return nil, fmt.Errorf("the key's URI %q must name the plugin's socket by its absolute path: kms+unix:///path", uri)
		}
		return openPlugin(ctx, u.Path)
	}
	return nil, fmt.Errorf("the key's URI %q is of no known kind: use file:///path, secret://namespace/name/key or kms+unix:///path", uri)
}

// openSecret reads one Secret by name, now and when it is to be looked at again.
func openSecret(ctx context.Context, u *url.URL, o Options) (seal.KEK, error) {
	name, key, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Host == "" || name == "" || !ok || key == "" || strings.Contains(key, "/") {
		return nil, fmt.Errorf("the key's URI %q must name a value of a Secret: secret://namespace/name/key", u)
	}
	if o.Cluster == nil {
		return nil, fmt.Errorf("the key's URI %q names a Secret and no cluster is known: set --kubeconfig", u)
	}
	config, err := o.Cluster()
	if err != nil {
		return nil, fmt.Errorf("the cluster with the key %s cannot be used: %w", u, err)
	}
	client, err := v1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the cluster with the key %s cannot be used: %w", u, err)
	}
	return seal.NewTextKEK(ctx, "Secret "+u.Host+"/"+name+" (value "+key+")", func(ctx context.Context) (string, error) {
		var s *corev1.Secret
		s, err := client.Secrets(u.Host).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read the key in Secret %s/%s: %w", u.Host, name, err)
		}
		value, ok := s.Data[key]
		if !ok {
			return "", fmt.Errorf("the Secret %s/%s has no value %q: it must hold a key as `radial keyset new-key` prints it", u.Host, name, key)
		}
		return string(value), nil
	})
}
