// Package front puts what stands before the control plane together from the
// server's flags: TLS, authentication, roles, the audit log, the aggregation
// layer. In developer mode nothing stands there.
package front

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/auth/aggregation"
	"github.com/radial-project/radial/internal/auth/serving"
	"github.com/radial-project/radial/internal/core"
)

// Flags are the settings.
type Flags struct {
	CertFile, KeyFile string
	// SelfMade is where self-made certificates are kept: "secret:NAMESPACE/NAME"
	// or a directory.
	SelfMade string
	Names    []string

	// ReviewTokens asks the cluster about tokens, certificates and roots.
	ReviewTokens bool
	Audiences    []string
	TokenTTL     time.Duration

	Issuer     auth.IssuerOptions
	issuerCA   string
	IssuerFile string

	ClientCA    string
	ProxyCA     string
	ProxyNames  []string
	Roots       []string
	Controllers []string
	AuditFile   string
	Aggregate   string
	developer   bool
}

// Add declares the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.CertFile, "tls-cert-file", "", "`file` with the certificate to serve by, its chain behind it; read again when it changes")
	flags.StringVar(&f.KeyFile, "tls-key-file", "", "`file` with its key")
	flags.StringVar(&f.SelfMade, "tls-self-made", "", "make certificates, and keep them in a `place`: secret:NAMESPACE/NAME, or a directory; its ca.crt is for clients")
	flags.StringSliceVar(&f.Names, "tls-names", []string{"radial-server.radial-system.svc", "localhost", "127.0.0.1"}, "`names` and addresses that self-made certificates are for")
	flags.BoolVar(&f.ReviewTokens, "authenticate-by-cluster", true, "believe the cluster of --kubeconfig (in a pod: its own) about tokens, its client certificates, its front proxy, and who is root")
	flags.StringSliceVar(&f.Audiences, "token-audiences", []string{auth.DefaultAudience}, "`audiences` of which a token that the cluster reviews must have one")
	flags.DurationVar(&f.TokenTTL, "token-cache", auth.DefaultTokenTTL, "how `long` the review of a token is believed")
	flags.StringVar(&f.Issuer.URL, "oidc-issuer", "", "`URL` of an OIDC issuer whose tokens are accepted")
	flags.StringVar(&f.Issuer.Audience, "oidc-audience", "", "`audience` (client id) that its tokens must have")
	flags.StringVar(&f.Issuer.UsernameClaim, "oidc-username-claim", "sub", "`claim` that names the user")
	flags.StringVar(&f.Issuer.GroupsClaim, "oidc-groups-claim", "groups", "`claim` that names the user's groups")
	flags.StringVar(&f.Issuer.Prefix, "oidc-prefix", "oidc:", "`prefix` of its users and groups here")
	flags.StringVar(&f.issuerCA, "oidc-ca-file", "", "`file` with authorities for the issuer's own certificate, beside the system's")
	flags.StringVar(&f.IssuerFile, "oidc-file", "", "`file` with a list of issuers, in YAML: issuer, audience, usernameClaim, groupsClaim, prefix, ca")
	flags.StringVar(&f.ClientCA, "client-ca-file", "", "`file` with authorities whose client certificates are accepted: common name is the user, organisations are groups")
	flags.StringVar(&f.ProxyCA, "front-proxy-ca-file", "", "`file` with authorities of a front proxy whose X-Remote headers are believed")
	flags.StringSliceVar(&f.ProxyNames, "front-proxy-names", nil, "common `names` that its certificate may have")
	flags.StringSliceVar(&f.Roots, "roots", nil, "`principals` who are root beside those of the cluster: user:NAME, group:NAME or serviceAccount:NAMESPACE/NAME")
	flags.StringSliceVar(&f.Controllers, "controllers", nil, "`accounts` of controllers, each CLUSTER=PRINCIPAL, such as local=serviceAccount:radial-system/radial-controller: the role Controller for that cluster at the whole plane")
	flags.StringVar(&f.AuditFile, "audit-file", "", "`file` to append the audit log to as JSON lines, beside the store")
	flags.StringVar(&f.Aggregate, "aggregate", "", "stand behind the Kubernetes aggregation layer by a `Service`: NAMESPACE/NAME:PORT (an option for clients that need it, such as rad)")
}

// Check refuses what cannot work, by the flag's name. listen is the address of
// the server's listener, cluster says whether there is one to ask.
func (f *Flags) Check(listen string, developerMode, cluster bool) error {
	f.developer = developerMode
	if developerMode {
		return serving.CheckPlain(listen, true)
	}
	files := f.CertFile != "" || f.KeyFile != ""
	switch {
	case files && f.SelfMade != "":
		return errors.New("--tls-cert-file and --tls-self-made are two certificates: give one of them")
	case files && (f.CertFile == "" || f.KeyFile == ""):
		return errors.New("--tls-cert-file and --tls-key-file go together: give both")
	case !files && f.SelfMade == "":
		return serving.CheckPlain(listen, false)
	}
	if strings.HasPrefix(f.SelfMade, "secret:") {
		if _, _, err := objectName(strings.TrimPrefix(f.SelfMade, "secret:")); err != nil {
			return fmt.Errorf("--tls-self-made is %q: %w", f.SelfMade, err)
		}
	}
	for _, r := range f.Roots {
		if _, err := principal(r); err != nil {
			return fmt.Errorf("--roots: %w", err)
		}
	}
	if _, err := f.controllers(); err != nil {
		return err
	}
	if f.Aggregate != "" {
		if _, err := service(f.Aggregate); err != nil {
			return fmt.Errorf("--aggregate is %q: %w", f.Aggregate, err)
		}
		if f.SelfMade == "" {
			return errors.New("--aggregate needs --tls-self-made, whose authority is told to the API server")
		}
	}
	needs := map[string]bool{"--aggregate": f.Aggregate != "", "--tls-self-made " + f.SelfMade: strings.HasPrefix(f.SelfMade, "secret:")}
	for what, needed := range needs {
		if needed && !cluster {
			return fmt.Errorf("%s needs a cluster: give --kubeconfig", what)
		}
	}
	if len(f.Audiences) == 0 {
		return errors.New("--token-audiences is empty: a token for another service must not be good for this one")
	}
	if f.TokenTTL < 0 {
		return fmt.Errorf("--token-cache is %s: it cannot be negative", f.TokenTTL)
	}
	if f.IssuerFile == "" && f.Issuer.URL == "" && f.ClientCA == "" && f.ProxyCA == "" && !(cluster && f.ReviewTokens) {
		return errors.New("nobody could authenticate: give --kubeconfig (with --authenticate-by-cluster), --oidc-issuer, --client-ca-file or --front-proxy-ca-file")
	}
	if !(cluster && f.ReviewTokens) && len(f.Roots) == 0 {
		return errors.New("nobody would be root: without a cluster that says who is, name at least one principal with --roots")
	}
	return nil
}

// Developer reports whether the server stands open.
func (f *Flags) Developer() bool { return f.developer }

func objectName(s string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", errors.New("name it as NAMESPACE/NAME")
	}
	return namespace, name, nil
}

func service(s string) (aggregation.Service, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return aggregation.Service{}, errors.New("name it as NAMESPACE/NAME:PORT")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return aggregation.Service{}, fmt.Errorf("%q is no port", port)
	}
	namespace, name, err := objectName(host)
	return aggregation.Service{Namespace: namespace, Name: name, Port: int64(n)}, err
}

func principal(s string) (auth.Principal, error) {
	kind, name, ok := strings.Cut(s, ":")
	p := auth.Principal{Kind: auth.PrincipalKind(kind), Name: name}
	switch {
	case !ok || name == "":
	case p.Kind == auth.KindUser, p.Kind == auth.KindGroup:
		return p, nil
	case p.Kind == auth.KindServiceAccount:
		if _, _, err := objectName(name); err == nil {
			return p, nil
		}
	}
	return p, fmt.Errorf("%q is no principal: write user:NAME, group:NAME or serviceAccount:NAMESPACE/NAME", s)
}

func (f *Flags) roots() (out []auth.Principal) {
	for _, r := range f.Roots {
		if p, err := principal(r); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// controllers are the assignments of --controllers.
func (f *Flags) controllers() (out []auth.Assignment, err error) {
	for _, c := range f.Controllers {
		cluster, who, ok := strings.Cut(c, "=")
		p, err := principal(who)
		if !ok || cluster == "" || err != nil {
			return nil, fmt.Errorf("--controllers: %q must be CLUSTER=PRINCIPAL, such as local=serviceAccount:radial-system/radial-controller", c)
		}
		out = append(out, auth.Assignment{Principal: p, Role: auth.Controller, Cluster: cluster, Scope: core.MustParseID("/planes/radius/local")})
	}
	return out, nil
}

func (f *Flags) issuers() (out []auth.IssuerOptions, err error) {
	if f.Issuer.URL != "" {
		one := f.Issuer
		if f.issuerCA != "" {
			ca, err := os.ReadFile(f.issuerCA)
			if err != nil {
				return nil, fmt.Errorf("--oidc-ca-file: %w", err)
			}
			one.CA = string(ca)
		}
		out = append(out, one)
	}
	if f.IssuerFile != "" {
		raw, err := os.ReadFile(f.IssuerFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-file: %w", err)
		}
		var list []auth.IssuerOptions
		if err := yaml.UnmarshalStrict(raw, &list); err != nil {
			return nil, fmt.Errorf("--oidc-file %s is no list of issuers: %w", f.IssuerFile, err)
		}
		out = append(out, list...)
	}
	seen := map[string]bool{}
	prefixes := map[string]string{}
	for i, o := range out {
		if o.Prefix == "" {
			out[i].Prefix = "oidc:"
		}
		if seen[o.URL] {
			return nil, fmt.Errorf("the OIDC issuer %s is given twice", o.URL)
		}
		if first, ok := prefixes[out[i].Prefix]; ok {
			return nil, fmt.Errorf("the OIDC issuers %s and %s have the prefix %q, so that users of one would be users of the other: give each its own", first, o.URL, out[i].Prefix)
		}
		seen[o.URL], prefixes[out[i].Prefix] = true, o.URL
	}
	return out, nil
}
