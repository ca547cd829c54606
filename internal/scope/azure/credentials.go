package azure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/radial-project/radial/internal/conceal"
)

// Credentials sign in to Azure.
type Credentials interface {
	// For returns who a run's calls are made by. It reaches out to nobody.
	For(ctx context.Context) (As, error)
}

// As is who calls are made by.
type As struct {
	Credential azcore.TokenCredential
	// Identity tells callers apart: what one was given is not used for another.
	Identity string
}

// Server signs in as the server itself: by AZURE_CLIENT_SECRET or a certificate
// in its environment, by workload identity, or by managed identity, whichever is
// there first. It runs no program: the command lines that a developer has signed
// in with are not asked.
func Server(c cloud.Configuration, transport policy.Transporter) Credentials {
	return &server{cloud: c, transport: transport}
}

type server struct {
	cloud     cloud.Configuration
	transport policy.Transporter
	mu        sync.Mutex
	made      azcore.TokenCredential
}

// For implements [Credentials].
func (s *server) For(context.Context) (As, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != nil {
		return As{Credential: s.made}, nil
	}
	o, private := clientOptions(s.cloud, s.transport)
	var chain []azcore.TokenCredential
	var faults []error
	add := func(c azcore.TokenCredential, err error) {
		if err != nil {
			faults = append(faults, err)
			return
		}
		chain = append(chain, c)
	}
	if os.Getenv("AZURE_CLIENT_SECRET") != "" || os.Getenv("AZURE_CLIENT_CERTIFICATE_PATH") != "" {
		c, err := azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: private})
		add(c, err)
	}
	if os.Getenv("AZURE_FEDERATED_TOKEN_FILE") != "" {
		c, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: private})
		add(c, err)
	}
	if len(chain) == 0 && len(faults) == 0 {
		c, err := azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ClientOptions: o})
		add(c, err)
	}
	if len(chain) == 0 {
		return As{}, errors.Join(faults...)
	}
	c, err := azidentity.NewChainedTokenCredential(chain, nil)
	if err != nil {
		return As{}, err
	}
	s.made = c
	return As{Credential: c}, nil
}

// OnBehalfOf signs in as the user of the request: their token is exchanged for
// one of ARM's, so that a template reaches the clusters that its author may
// reach. The server authenticates by a secret, or by a federated token's file.
type OnBehalfOf struct {
	Tenant, Client string
	Secret         string
	// Federated reads the server's own assertion; it is used when Secret is "".
	Federated func(context.Context) (string, error)
	Cloud     cloud.Configuration
	Transport policy.Transporter
	// Fallback is asked when a run has no user; nil refuses it.
	Fallback Credentials
}

type userKey struct{}

// WithUser returns a context whose runs are on behalf of the user that a token
// of Entra ID was issued to, for this server's application.
func WithUser(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, userKey{}, token)
}

// For implements [Credentials].
func (b OnBehalfOf) For(ctx context.Context) (As, error) {
	token, _ := ctx.Value(userKey{}).(string)
	if token == "" {
		if b.Fallback != nil {
			return b.Fallback.For(ctx)
		}
		return As{}, errors.New("this server reaches Azure on behalf of users, and the run has none: sign in to it with Entra ID")
	}
	conceal.Add(ctx, token)
	o, private := clientOptions(b.Cloud, b.Transport)
	options := &azidentity.OnBehalfOfCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: private}
	var c *azidentity.OnBehalfOfCredential
	var err error
	if b.Secret != "" {
		c, err = azidentity.NewOnBehalfOfCredentialWithSecret(b.Tenant, b.Client, token, b.Secret, options)
	} else {
		c, err = azidentity.NewOnBehalfOfCredentialWithClientAssertions(b.Tenant, b.Client, token, b.Federated, options)
	}
	if err != nil {
		return As{}, err
	}
	sum := sha256.Sum256([]byte(token))
	return As{Credential: c, Identity: hex.EncodeToString(sum[:])}, nil
}

// Fixed signs in with a credential that was made elsewhere.
func Fixed(c azcore.TokenCredential) Credentials { return fixed{c} }

type fixed struct{ c azcore.TokenCredential }

// For implements [Credentials].
func (f fixed) For(context.Context) (As, error) { return As{Credential: f.c}, nil }

// clientOptions are those of signing in; private says that the place to sign in
// is not one of Azure's own, so that nobody is asked whether it is known.
func clientOptions(c cloud.Configuration, t policy.Transporter) (o policy.ClientOptions, private bool) {
	o = policy.ClientOptions{Cloud: c, Transport: t}
	host := c.ActiveDirectoryAuthorityHost
	if host == "" {
		host = os.Getenv("AZURE_AUTHORITY_HOST")
		o.Cloud.ActiveDirectoryAuthorityHost = host
	}
	for _, known := range []cloud.Configuration{cloud.AzurePublic, cloud.AzureGovernment, cloud.AzureChina} {
		if host == "" || host == known.ActiveDirectoryAuthorityHost {
			return o, false
		}
	}
	return o, true
}
