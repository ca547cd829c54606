package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/seal/keysource"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store/address"
)

// keyOptions say where the key lies that wraps the data keysets, and how those
// are rotated.
type keyOptions struct {
	file   string
	uri    string
	former []string
	maxAge time.Duration
	grace  time.Duration
	rate   int
}

func (k *keyOptions) add(f *pflag.FlagSet) {
	f.StringVar(&k.file, "key-file", "", "`file` with the key that protects stored secrets (made where it is missing; default: beside the store, with .key)")
	f.StringVar(&k.uri, "key", "", "`URI` of that key, in place of --key-file: file:///path, secret://namespace/name/key or kms+unix:///path/of/plugin.sock")
	f.StringSliceVar(&k.former, "former-key", nil, "`URI` of a key that --key takes the place of; what it wrapped is wrapped anew")
	f.DurationVar(&k.maxAge, "keyset-max-age", seal.DefaultMaxAge, "how long secrets are sealed with one data keyset; -1s is for ever")
	f.DurationVar(&k.grace, "keyset-grace", seal.DefaultGrace, "how long a data keyset that seals nothing any more is kept before it is destroyed")
	f.IntVar(&k.rate, "keyset-rate", seal.DefaultRate, "how many resources a second are sealed again in a rotation")
}

func (k *keyOptions) check(kept address.Address) error {
	switch {
	case k.uri != "" && k.file != "":
		return fmt.Errorf("--key and --key-file are both set: the key is in one place")
	case k.uri == "" && len(k.former) > 0:
		return fmt.Errorf("--former-key is set without --key: in a key file, further lines are its former keys")
	case k.maxAge == 0:
		return fmt.Errorf("--keyset-max-age is 0: it must be more than nothing, or negative for never")
	case k.grace < time.Minute:
		return fmt.Errorf("--keyset-grace is %s: requests under way need at least 1m", k.grace)
	case k.rate < 1:
		return fmt.Errorf("--keyset-rate is %d: it must be at least 1", k.rate)
	}
	if k.uri == "" && k.file == "" {
		if kept.File == "" {
			return fmt.Errorf("--key-file is missing: with a store that is not a file, say where the key that protects stored secrets lies (--key-file, or --key)")
		}
		k.file = kept.File + ".key"
	}
	return nil
}

// open reads the key. kubeconfig names the cluster of secret://; "" is the one
// that the server runs in.
func (k *keyOptions) open(ctx context.Context, kubeconfig string) (seal.KEK, error) {
	if k.uri == "" {
		return seal.LoadOrCreateKey(k.file)
	}
	return keysource.Open(ctx, k.uri, k.former, keysource.Options{Cluster: func() (*rest.Config, error) {
		if kubeconfig == "" {
			return rest.InClusterConfig()
		}
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err == nil {
			config.UserAgent = "radial-server/" + core.Version
		}
		return config, err
	}})
}

func (k *keyOptions) keep() server.KeyOptions {
	return server.KeyOptions{MaxAge: k.maxAge, Grace: k.grace, Rate: k.rate}
}
