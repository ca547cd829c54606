package s3

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/provider"
)

// Name is what the provider answers to.
const Name = "s3"

// Version stands in every answer.
func Version() string { return "radial-provider-s3 " + core.Version }

// Config is how the object store is reached: the provider's own affair, which
// the installation's six settings do not know.
type Config struct {
	// Endpoint is the URL of the S3 API, IAMEndpoint that of the IAM API, by
	// default the same.
	Endpoint, IAMEndpoint string
	// InstanceEndpoint is the URL by which instances reach the S3 API, if it is
	// another.
	InstanceEndpoint string
	// Region is what requests of S3 are signed for, IAMRegion those of IAM:
	// us-east-1 unless set, as IAM is of no region.
	Region, IAMRegion string
	// CredentialsFile holds the provider's own key. It is read for each request,
	// so that a key that is replaced is used at once.
	CredentialsFile string
	// CAFile holds the authorities (PEM) that the store's certificate is
	// checked against instead of the machine's.
	CAFile string
	// VirtualHosts addresses buckets as hosts below the endpoint's, not as paths.
	VirtualHosts bool
	// AllowHTTP lets keys go in the clear to other machines.
	AllowHTTP bool
	// Settle is how long the store may take to take a new key everywhere, where
	// only the key's age can tell.
	Settle time.Duration
}

func (c *Config) flags(f *flag.FlagSet) {
	f.StringVar(&c.Endpoint, "endpoint", "", "URL of the object store's S3 API")
	f.StringVar(&c.IAMEndpoint, "iam-endpoint", "", "URL of its IAM API; the same unless set")
	f.StringVar(&c.InstanceEndpoint, "instance-endpoint", "", "URL of its S3 API as instances reach it; the same unless set")
	f.StringVar(&c.Region, "region", "", "region that the object store is set up with")
	f.StringVar(&c.IAMRegion, "iam-region", "us-east-1", "region that requests of its IAM API are signed for")
	f.StringVar(&c.CredentialsFile, "credentials-file", "", "file with the provider's own key: aws_access_key_id = …, aws_secret_access_key = …")
	f.StringVar(&c.CAFile, "ca-file", "", "PEM file of the authorities of the store's certificate; the machine's unless set")
	f.BoolVar(&c.VirtualHosts, "virtual-hosts", false, "address buckets as hosts below the endpoint's instead of as paths")
	f.BoolVar(&c.AllowHTTP, "allow-http", false, "accept an http:// endpoint on another machine, though keys are answered in the clear there")
	f.DurationVar(&c.Settle, "settle", 10*time.Second, "age at which a key is taken everywhere in the store")
}

// keyVariables would put the provider's key into every dump of its environment.
var keyVariables = []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}

// Main is the command, with everything from outside handed in; it answers the
// exit code.
func Main(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	return command(Name, lookup).Run(ctx, args, lookup, stdout, stderr)
}

// command is a provider's that answers to name.
func command(name string, lookup func(string) (string, bool)) provider.Command {
	var c Config
	return provider.Command{
		Name: name, Version: Version(), Flags: c.flags,
		Connect: func(context.Context, provider.Settings) (provider.Cloud, error) {
			for _, v := range keyVariables {
				if _, ok := lookup(v); ok {
					return nil, fmt.Errorf("%s is set: a key is given by a file (--credentials-file), never by the environment", v)
				}
			}
			return New(c)
		},
	}
}

// Cloud serves requests from an object store.
type Cloud struct {
	config  Config
	base    aws.Config
	s3      *s3.Client
	iam     *iam.Client
	own     *keyFile
	now     func() time.Time
	address string
}

// New is the object store's side of a provider. It reads the files that the
// configuration names, and does not call the store.
func New(c Config) (*Cloud, error) {
	if c.IAMEndpoint == "" {
		c.IAMEndpoint = c.Endpoint
	}
	if c.InstanceEndpoint == "" {
		c.InstanceEndpoint = c.Endpoint
	}
	if c.IAMRegion == "" {
		c.IAMRegion = "us-east-1"
	}
	var errs []error
	for _, e := range []struct{ flag, url string }{{"endpoint", c.Endpoint}, {"iam-endpoint", c.IAMEndpoint}, {"instance-endpoint", c.InstanceEndpoint}} {
		if err := checkEndpoint(e.url, c.AllowHTTP); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", e.flag, err))
		}
	}
	if c.Region == "" {
		errs = append(errs, errors.New("--region: is not set; it is the region that the object store is set up with"))
	}
	own := &keyFile{path: c.CredentialsFile}
	if c.CredentialsFile == "" {
		errs = append(errs, errors.New("--credentials-file: is not set"))
	} else if _, err := own.Retrieve(context.Background()); err != nil {
		errs = append(errs, fmt.Errorf("--credentials-file: %w", err))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = errors.New("holds no certificate in PEM")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--ca-file: %w", err))
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cloud := &Cloud{config: c, own: own, now: time.Now}
	u, _ := url.Parse(c.Endpoint)
	cloud.address = u.Host
	cloud.base = aws.Config{
		Region:      c.Region,
		Credentials: own,
		// Nothing is tried again here: an answer that was lost may have been a
		// key's, and the framework knows how to find that out.
		Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		HTTPClient: &http.Client{Transport: &wholeBodies{transport}, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		// Stores of before 2025 do not know the newer checksums.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}
	cloud.s3 = cloud.client(own)
	cloud.iam = iam.NewFromConfig(cloud.base, func(o *iam.Options) { o.BaseEndpoint, o.Region = aws.String(c.IAMEndpoint), c.IAMRegion })
	return cloud, nil
}

// wholeBodies sends bodies of its own. The SDK closes a request's body once there
// is an answer, and a transport that has not come to read the body's end by then
// breaks off, with an answer that may be a key's.
type wholeBodies struct{ next http.RoundTripper }

func (t *wholeBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return t.next.RoundTrip(r)
	}
	raw, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return t.next.RoundTrip(r)
}

// client reaches the S3 API under a key.
func (c *Cloud) client(key aws.CredentialsProvider) *s3.Client {
	return s3.NewFromConfig(c.base, func(o *s3.Options) {
		o.BaseEndpoint, o.UsePathStyle, o.Credentials = aws.String(c.config.Endpoint), !c.config.VirtualHosts, key
	})
}

// Version implements [provider.Cloud].
func (c *Cloud) Version() string { return Version() }

// checkEndpoint wants a URL of a scheme and host alone. Over http a new key goes
// in the clear, which is for one machine.
func checkEndpoint(text string, allowHTTP bool) error {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return errors.New("is not set")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("must be a URL of scheme, host and port alone, such as https://storage.example:9000")
	case u.Scheme == "https" || allowHTTP:
		return nil
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return errors.New("keys would go over http in the clear; use https, or say --allow-http where the network is trusted")
	}
	return nil
}

// keyFile is the provider's own key, in the form of a shared credentials file.
type keyFile struct {
	path string
	last atomic.Pointer[aws.Credentials]
}

// Retrieve implements [aws.CredentialsProvider]. No error repeats what is in the
// file.
func (k *keyFile) Retrieve(context.Context) (aws.Credentials, error) {
	raw, err := os.ReadFile(k.path)
	if err != nil {
		return aws.Credentials{}, err
	}
	c := aws.Credentials{Source: "file"}
	for i, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' || line == "[default]" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		switch value = strings.TrimSpace(value); {
		case ok && strings.TrimSpace(name) == "aws_access_key_id":
			c.AccessKeyID = value
		case ok && strings.TrimSpace(name) == "aws_secret_access_key":
			c.SecretAccessKey = value
		default:
			return aws.Credentials{}, fmt.Errorf("%s: line %d is neither aws_access_key_id = … nor aws_secret_access_key = …", k.path, i+1)
		}
	}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return aws.Credentials{}, fmt.Errorf("%s: holds no aws_access_key_id or no aws_secret_access_key", k.path)
	}
	k.last.Store(&c)
	return c, nil
}

// conceal takes the key out of a text.
func (k *keyFile) conceal(text string) string {
	if c := k.last.Load(); c != nil {
		text = strings.NewReplacer(c.SecretAccessKey, "…", c.AccessKeyID, "…").Replace(text)
	}
	return text
}
