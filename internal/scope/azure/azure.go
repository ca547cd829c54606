// Package azure finds the clusters of scopes of the type AzureResourceManager:
// it asks Azure Resource Manager for the credentials of the cluster that the
// scope's id names, each time a run needs them, and keeps none (S-20, S-21).
//
// Two parts can be replaced: [Credentials], by which the server signs in to
// Azure, and a [Source] for a type of ARM resources, which gets a kubeconfig out
// of one.
package azure

import (
	"context"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/scope"
)

// Source gets the kubeconfig of ARM resources of one type.
type Source interface {
	// Kubeconfig asks for the credentials of a type, Admin or User, as who the
	// calls of c are made by. Its errors name the id, the action and the status,
	// and nothing of what was answered beside.
	Kubeconfig(ctx context.Context, c *Client, id *arm.ResourceID, credentialType string) ([]byte, error)
}

// Options say how Azure is asked.
type Options struct {
	// Credentials sign in to Azure; nil is the server's own ([Server]).
	Credentials Credentials
	// Cloud is which Azure; the zero value is the public one. [Endpoint] makes
	// one of an address.
	Cloud cloud.Configuration
	// Transport sends the requests, nil is the SDK's.
	Transport policy.Transporter
	// Retry is how ARM is asked again after 429 and 5xx. The zero value asks
	// three times more and waits up to a minute when ARM says how long.
	Retry policy.RetryOptions
	// Allow are prefixes of the ids that may be used (a subscription, a resource
	// group); none is all that the server's identity may read.
	Allow      []string
	Kubernetes kubernetes.Options
	// Tune adds to a configuration what the process has for all; may be nil.
	Tune func(*rest.Config)
}

// Finder implements [scope.Finder]. It is safe for concurrent use.
type Finder struct {
	o       Options
	mu      sync.Mutex
	sources map[string]named
}

type named struct {
	name string
	Source
}

var _ scope.Finder = (*Finder)(nil)

// New makes a finder of managed clusters (AKS) and of fleets' hubs.
func New(o Options) *Finder {
	if o.Credentials == nil {
		o.Credentials = Server(o.Cloud, o.Transport)
	}
	f := &Finder{o: o, sources: map[string]named{}}
	f.Source("Microsoft.ContainerService/managedClusters", Action{APIVersion: "2025-05-01", Admin: "listClusterAdminCredential", User: "listClusterUserCredential"})
	f.Source("Microsoft.ContainerService/fleets", Action{APIVersion: "2025-03-01", User: "listCredentials"})
	return f
}

// Source registers how the clusters of a type of ARM resources are reached, in
// place of what was registered.
func (f *Finder) Source(resourceType string, s Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sources[strings.ToLower(resourceType)] = named{resourceType, s}
}

// place is what one request for credentials is for.
type place struct{ id, credentialType, identity string }

// Find implements [scope.Finder].
func (f *Finder) Find(ctx context.Context, s extension.Scope, _ extension.Secrets) (scope.Place, error) {
	id, err := f.parse(s.ID)
	if err != nil {
		return scope.Place{}, err
	}
	f.mu.Lock()
	source, ok := f.sources[strings.ToLower(id.ResourceType.String())]
	var known []string
	for _, n := range f.sources {
		known = append(known, n.name)
	}
	f.mu.Unlock()
	if !ok {
		sort.Strings(known)
		return scope.Place{}, core.Errorf(core.CodeInvalidTemplate, "the scope %s is of the type %s, which has no credentials for a cluster: supported are %s", s.ID, id.ResourceType, strings.Join(known, ", ")).WithTarget(s.ID)
	}
	credentialType := s.CredentialType
	if credentialType == "" {
		credentialType = Admin
	}
	as, err := f.o.Credentials.For(ctx)
	if err != nil {
		return scope.Place{}, core.Errorf(core.CodeTarget, "the scope %s cannot be used: %w", s.ID, err).WithTarget(s.ID)
	}
	return scope.Place{
		Key: place{strings.ToLower(s.ID), strings.ToLower(credentialType), as.Identity},
		Connect: func(ctx context.Context) (*kubernetes.Cluster, error) {
			return f.connect(ctx, source, as, id, s.ID, credentialType)
		},
	}, nil
}

func (f *Finder) connect(ctx context.Context, source Source, as As, id *arm.ResourceID, text, credentialType string) (*kubernetes.Cluster, error) {
	client, err := newClient(as, f.o, text)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := source.Kubeconfig(ctx, client, id, credentialType)
	if err != nil {
		return nil, err
	}
	if kubeconfig, err = signIn(ctx, as, kubeconfig, text); err != nil {
		return nil, err
	}
	conceal.Add(ctx, string(kubeconfig))
	config, err := scope.ReadKubeconfig(kubeconfig, "")
	if err != nil {
		return nil, core.Errorf(core.CodeTarget, "the credentials of %s cannot be used: %w (credentialType %s)", text, err, credentialType).WithTarget(text)
	}
	conceal.Add(ctx, []any{config.BearerToken, config.Password, string(config.KeyData)})
	if f.o.Tune != nil {
		f.o.Tune(config)
	}
	return kubernetes.New(scope.ClusterName(text), config, f.o.Kubernetes)
}

// segment is what names in ids of ARM are made of. An id becomes the path of a
// request, so nothing else gets through.
var segment = regexp.MustCompile(`^[A-Za-z0-9_.()-]{1,260}$`)

// parse reads an id and refuses one that is not that of a resource, or not
// allowed here.
func (f *Finder) parse(text string) (*arm.ResourceID, error) {
	fault := func(why string) error {
		return core.Errorf(core.CodeInvalidTemplate, "the scope %q %s: write /subscriptions/<id>/resourceGroups/<name>/providers/Microsoft.ContainerService/managedClusters/<name>", text, why).WithTarget(text)
	}
	parts := strings.Split(strings.TrimPrefix(text, "/"), "/")
	for _, p := range parts {
		if !segment.MatchString(p) || strings.Trim(p, ".") == "" {
			return nil, fault("is not the id of a resource of Azure")
		}
	}
	id, err := arm.ParseResourceID(text)
	if err != nil || id.SubscriptionID == "" || id.ResourceGroupName == "" || id.Name == "" {
		return nil, fault("is not the id of a resource of Azure")
	}
	if len(f.o.Allow) == 0 {
		return id, nil
	}
	for _, prefix := range f.o.Allow {
		prefix = strings.ToLower(strings.TrimSuffix(prefix, "/"))
		if lower := strings.ToLower(text); lower == prefix || strings.HasPrefix(lower, prefix+"/") {
			return id, nil
		}
	}
	return nil, core.Errorf(core.CodeForbidden, "the scope %s may not be used: this server uses its rights in Azure only below %s", text, strings.Join(f.o.Allow, ", ")).WithTarget(text)
}

// Endpoint is the cloud whose ARM is at an address: a sovereign one's, or a
// test's. authority is where to sign in, "" for the public one or what
// AZURE_AUTHORITY_HOST says.
func Endpoint(endpoint, authority string) cloud.Configuration {
	endpoint = strings.TrimSuffix(endpoint, "/")
	for _, c := range []cloud.Configuration{cloud.AzurePublic, cloud.AzureGovernment, cloud.AzureChina} {
		if strings.EqualFold(c.Services[cloud.ResourceManager].Endpoint, endpoint) || endpoint == "" {
			return c
		}
	}
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority,
		Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: endpoint, Audience: endpoint}},
	}
}

// defaultRetry is how ARM is asked again.
func defaultRetry(o policy.RetryOptions) policy.RetryOptions {
	if o.MaxRetries == 0 {
		o.MaxRetries = 3
	}
	if o.MaxRetryDelay == 0 {
		o.MaxRetryDelay = time.Minute
	}
	return o
}
