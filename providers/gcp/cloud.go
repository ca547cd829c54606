package gcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	cloudkms "google.golang.org/api/cloudkms/v1"
	cloudresourcemanager "google.golang.org/api/cloudresourcemanager/v3"
	iam "google.golang.org/api/iam/v1"
	"google.golang.org/api/option"
	secretmanager "google.golang.org/api/secretmanager/v1"
	storage "google.golang.org/api/storage/v1"

	"github.com/radial-project/radial/provider"
)

// Google's documentation gives a new HMAC key up to a minute to work.
const keySettles = time.Minute

// Options are what an installation may say beside the settings of the platform.
type Options struct {
	// Endpoint serves all APIs in place of Google's own addresses, Cloud
	// Storage's S3 API too: a private endpoint, or a fake. Empty for Google's.
	Endpoint string
	// WorkloadPool is the workload identity pool of the cluster. Unless set, it
	// is that of the cluster's own project, <project>.svc.id.goog, which need
	// not be the account's.
	WorkloadPool string
	// CreatorRole and KeeperRole are the custom roles by which services make and
	// keep their secrets: a role's full name, or its id in the account.
	CreatorRole, KeeperRole string
	// KeySettles is how old a key must be to be taken for one that works when
	// it cannot be tried any more, since a restart lost it; a minute unless set.
	KeySettles time.Duration
	// Now is time.Now unless set.
	Now func() time.Time
}

// Default ids of the custom roles, as docs/cloud/gcp.md has them made.
const (
	DefaultCreatorRole = "radialSecretCreator"
	DefaultKeeperRole  = "radialSecretKeeper"
)

// Cloud is a project of Google Cloud. It implements provider.Cloud and the
// interfaces of all six kinds.
type Cloud struct {
	version string
	account string
	options Options
	pool    string
	// s3 is where objects are reached.
	s3   string
	http *http.Client

	storage  *storage.Service
	iam      *iam.Service
	projects *cloudresourcemanager.Service
	secrets  *secretmanager.Service
	kms      *cloudkms.Service

	// mu guards number, the account's project number, once it is known.
	mu     sync.Mutex
	number uint64
	// policy has this process change the project's policy one at a time: it is
	// one document for all services.
	policy sync.Mutex
}

var (
	_ provider.Identities   = (*Cloud)(nil)
	_ provider.SecretAccess = (*Cloud)(nil)
	_ provider.SecretValues = (*Cloud)(nil)
	_ provider.Buckets      = (*Cloud)(nil)
	_ provider.Credentials  = (*Cloud)(nil)
	_ provider.WrappingKeys = (*Cloud)(nil)
)

// Connect makes the cloud under Workload Identity: tokens are the metadata
// server's (C-41). It asks that alone: no API is called before a request asks
// for something (C-3).
func Connect(ctx context.Context, s provider.Settings, version string, o Options) (*Cloud, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.KeySettles <= 0 {
		o.KeySettles = keySettles
	}
	if o.CreatorRole == "" {
		o.CreatorRole = DefaultCreatorRole
	}
	if o.KeeperRole == "" {
		o.KeeperRole = DefaultKeeperRole
	}
	for _, r := range []*string{&o.CreatorRole, &o.KeeperRole} {
		if !strings.Contains(*r, "/") {
			*r = "projects/" + s.Account + "/roles/" + *r
		}
	}
	c := &Cloud{version: version, account: s.Account, options: o, pool: o.WorkloadPool, s3: "https://storage.googleapis.com"}
	if err := checkEndpoint(o.Endpoint); err != nil {
		return nil, err
	}
	identity, err := workloadIdentity(ctx)
	if err != nil {
		return nil, err
	}
	if c.pool == "" {
		c.pool = identity.project + ".svc.id.goog"
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32
	c.http = &http.Client{
		Transport: &oauth2.Transport{Base: transport, Source: oauth2.ReuseTokenSourceWithExpiry(nil, identity, tokenEarly)},
		// None of the APIs redirects, and the token goes nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	at := func(path string) []option.ClientOption {
		opts := []option.ClientOption{option.WithHTTPClient(c.http)}
		if o.Endpoint != "" {
			opts = append(opts, option.WithEndpoint(strings.TrimSuffix(o.Endpoint, "/")+path))
		}
		return opts
	}
	if o.Endpoint != "" {
		c.s3 = strings.TrimSuffix(o.Endpoint, "/")
	}
	var errs [5]error
	c.storage, errs[0] = storage.NewService(ctx, at("/storage/v1/")...)
	c.iam, errs[1] = iam.NewService(ctx, at("/")...)
	c.projects, errs[2] = cloudresourcemanager.NewService(ctx, at("/")...)
	c.secrets, errs[3] = secretmanager.NewService(ctx, at("/")...)
	c.kms, errs[4] = cloudkms.NewService(ctx, at("/")...)
	return c, errors.Join(errs[:]...)
}

// checkEndpoint refuses an address to which tokens and keys would go in the
// clear, but for this machine's own.
func checkEndpoint(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return errors.New("--endpoint is no address such as https://google.internal")
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())) {
		return errors.New("--endpoint: the provider's token goes over https alone")
	}
	return nil
}

// Version of the provider.
func (c *Cloud) Version() string { return c.version }

// projectNumber is the account's, by which buckets and conditions name it.
func (c *Cloud) projectNumber(ctx context.Context) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.number != 0 {
		return c.number, nil
	}
	p, err := c.projects.Projects.Get("projects/" + c.account).Context(ctx).Do()
	if err != nil {
		switch code(err) {
		case http.StatusNotFound:
			return 0, provider.Refused("there is no project %s in Google Cloud", c.account)
		case http.StatusForbidden:
			if !passing(err) && !disabled(err) {
				return 0, provider.Refused("Google Cloud has no project %s for the provider: it does not exist, or permission resourcemanager.projects.get is missing", c.account)
			}
		}
		return 0, c.explain(err, resourceManager, "resourcemanager.projects.get")
	}
	var n uint64
	if _, err := fmt.Sscanf(p.Name, "projects/%d", &n); err != nil || n == 0 {
		return 0, errors.New("the project has no number")
	}
	if p.State != "" && p.State != "ACTIVE" {
		return 0, provider.Refused("project %s of Google Cloud is not active", c.account)
	}
	c.number = n
	return n, nil
}
