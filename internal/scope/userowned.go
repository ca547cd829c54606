package scope

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
)

// KubeConfigSecret is the entry of the secrets that holds a UserOwned scope's
// kubeconfig.
const KubeConfigSecret = "kubeConfig"

// UserOwned finds clusters by a kubeconfig that comes with the request (S-36).
// Nothing of it is kept but its cluster's mark, the scope's fingerprint, which
// the next kubeconfig must lead to (S-38).
type UserOwned struct {
	Kubernetes kubernetes.Options
	// Tune adds to a configuration what the process has for all; may be nil.
	Tune func(*rest.Config)
}

type userKey struct {
	kubeconfig           [sha256.Size]byte
	context, fingerprint string
}

// Find implements [Finder].
func (u UserOwned) Find(_ context.Context, s extension.Scope, secrets extension.Secrets) (Place, error) {
	text, _ := entry(secrets, KubeConfigSecret).(string)
	of := "a cluster of your own"
	if s.Fingerprint != "" {
		of = "your cluster " + s.Fingerprint
	}
	if text == "" {
		return Place{}, core.Errorf(extension.CodeCredentialsNeeded,
			"the scope of %s needs its kubeConfig: it is never stored, so it comes with each request, in a parameter of type securestring, from a key store or with the request's secrets; nothing was changed", of).WithTarget(s.Fingerprint)
	}
	var more struct {
		Context string `json:"context"`
	}
	if s.Config != "" {
		_ = json.Unmarshal([]byte(s.Config), &more) // other entries are others' to judge
	}
	config, err := ReadKubeconfig([]byte(text), more.Context)
	if err != nil {
		return Place{}, core.Errorf(core.CodeInvalidTemplate, "the kubeConfig of the scope of %s cannot be used: %w", of, err)
	}
	if u.Tune != nil {
		u.Tune(config)
	}
	return Place{
		Key:   userKey{sha256.Sum256([]byte(text)), more.Context, s.Fingerprint},
		Fixed: true,
		Connect: func(ctx context.Context) (*kubernetes.Cluster, error) {
			conceal.Add(ctx, append(credentialsOf(config), text))
			return u.connect(ctx, config, s.Fingerprint)
		},
	}, nil
}

// connect makes the connection, and refuses a cluster that is not the one the
// scope is of. The cluster's name in ids comes of its mark: what was made in it
// keeps its ids whatever its address and credentials are.
func (u UserOwned) connect(ctx context.Context, config *rest.Config, fingerprint string) (*kubernetes.Cluster, error) {
	c, err := kubernetes.New("user", config, u.Kubernetes)
	if err != nil {
		return nil, err
	}
	mark, err := c.ConfigID(ctx)
	if err != nil {
		return nil, err
	}
	if fingerprint != "" && mark != "" && mark != fingerprint {
		return nil, core.Errorf(extension.CodeWrongTarget,
			"the kubeConfig leads to another cluster than the scope's: the uid of its namespace kube-system is %s, that of the scope's is %s; nothing was changed: supply the kubeConfig of that cluster", mark, fingerprint).WithTarget(fingerprint)
	}
	if mark == "" {
		mark = fingerprint
	}
	if mark == "" { // reading it is forbidden
		sum := sha256.Sum256([]byte(config.Host + "\x00" + string(config.CAData)))
		mark = hex.EncodeToString(sum[:])
	}
	return c.Named("user-" + mark[:min(8, len(mark))]), nil
}

// entry reads an entry without case.
func entry(m map[string]any, name string) any {
	for k, v := range m {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return nil
}
