// Package armtest is a fake of Azure Resource Manager for tests: an HTTPS
// server that records every call, hands out kubeconfigs of real API servers and
// can rotate them, so that what was handed out before is refused by the API
// server itself.
//
//	arm := armtest.Start(t)
//	aks := arm.AddCluster(t, armtest.ClusterID("prod"), clustertest.Start(t).Config)
//	resolver.Type(template.ScopeAzure, azure.New(azure.Options{
//		Credentials: azure.Fixed(arm.Credential()), Cloud: arm.Cloud(), Transport: arm.Client()}))
//
// and then, as the test goes on:
//
//	aks.Rotate(t)                               // a new token; the old one is revoked in the cluster (up to 10 s;
//	                                            // at once for a cluster of AddFront)
//	aks.Replace(t, clustertest.Second(t).Config) // recreated under the same id: another cluster
//	aks.Remove()                                // gone: 404
//	arm.Fail(armtest.Fault{Status: 429, RetryAfter: "1", Times: 1})
//	arm.Calls(), arm.Secrets()                  // what was asked; what must be found nowhere
//
// A process of its own is led to it by [Server.Env], and signs in at the fake of
// Entra ID that is part of it.
package armtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/client-go/rest"
)

// Subscription is the one that the ids of this package are in.
const Subscription = "11111111-2222-3333-4444-555555555555"

// Tenant, Application and Password are what a process signs in with.
const (
	Tenant      = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
	Application = "99999999-8888-7777-6666-555555555555"
	Password    = "password-of-the-application"
)

// ClusterID is the id of a managed cluster.
func ClusterID(name string) string {
	return ResourceID("Microsoft.ContainerService/managedClusters", name)
}

// ResourceID is the id of a resource of a type.
func ResourceID(resourceType, name string) string {
	return "/subscriptions/" + Subscription + "/resourceGroups/group/providers/" + resourceType + "/" + name
}

// Call is one request that the server answered.
type Call struct {
	Method string
	// Path is the request's, as it was sent: the id and the action.
	Path       string
	APIVersion string
	// Subject is whose token the request had: "server" for the application's
	// own, "user:<assertion>" on behalf of a user.
	Subject string
	Status  int
}

// Fault is an answer that the server gives instead of credentials.
type Fault struct {
	// ID limits it to one resource, "" is any.
	ID string
	// Status is the HTTP status; 0 is 200 with Body.
	Status int
	// Code and Message are those of ARM's error; Body replaces the whole.
	Code, Message string
	Body          string
	// RetryAfter is that header: seconds.
	RetryAfter string
	// Times is how often it is played, 0 for ever.
	Times int
}

// The answers that a cluster's credentials can be wrong by.
const (
	EmptyList = `{"kubeconfigs":[]}`
	BadBase64 = `{"kubeconfigs":[{"name":"clusterAdmin","value":"!!! not base64 !!!"}]}`
)

// Server is a running fake.
type Server struct {
	// URL is https://127.0.0.1:port.
	URL string

	server *httptest.Server
	mu     sync.Mutex
	// clusters and resources by id in lower case; a resource is only there.
	clusters  map[string]*Cluster
	resources map[string]bool
	faults    []*Fault
	calls     []Call
	secrets   []string
	tokens    map[string]string // by token, its subject
}

// Start starts a server that ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{clusters: map[string]*Cluster{}, resources: map[string]bool{}, tokens: map[string]string{}}
	s.server = httptest.NewTLSServer(s)
	s.URL = s.server.URL
	tb.Cleanup(s.server.Close)
	return s
}

// Client trusts the server's certificate.
func (s *Server) Client() *http.Client { return s.server.Client() }

// Cloud leads the Azure SDK to the server, for ARM and for signing in.
func (s *Server) Cloud() cloud.Configuration {
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: s.URL + "/",
		Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: s.URL, Audience: s.URL}},
	}
}

// CAFile writes the server's certificate in PEM and returns the file's path.
func (s *Server) CAFile(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "arm.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Env is what a process needs in its environment to trust the server and to
// sign in there. Its ARM endpoint is [Server.URL].
func (s *Server) Env(tb testing.TB) []string {
	tb.Helper()
	return []string{
		"SSL_CERT_FILE=" + s.CAFile(tb), "AZURE_AUTHORITY_HOST=" + s.URL + "/",
		"AZURE_TENANT_ID=" + Tenant, "AZURE_CLIENT_ID=" + Application, "AZURE_CLIENT_SECRET=" + Password,
	}
}

// Credential is the application's own, without signing in.
func (s *Server) Credential() azcore.TokenCredential { return credential{s} }

type credential struct{ s *Server }

func (c credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: c.s.issue("server"), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// AddCluster makes a managed cluster (or a resource of another type that has
// credentials) whose credentials lead to the API server of config, which must be
// an administrator's. The kubeconfigs hold a token of a ServiceAccount with all
// rights.
func (s *Server) AddCluster(tb testing.TB, id string, config *rest.Config) *Cluster {
	tb.Helper()
	c := &Cluster{s: s, id: id}
	c.Replace(tb, config)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters[strings.ToLower(id)] = c
	return c
}

// AddResource makes a resource of a type that has no credentials: it is
// answered to GET.
func (s *Server) AddResource(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources[strings.ToLower(id)] = true
}

// Fail plays a fault from now on.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Heal ends all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Calls are the calls for resources so far; signing in is none.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Secrets are all tokens and kubeconfigs, and what they hold, that were ever
// handed out, plain and in base64: they must be found in no store, log, answer
// or error (S-23).
func (s *Server) Secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []string{Password}
	for _, secret := range s.secrets {
		all = append(all, secret, base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	for token := range s.tokens {
		all = append(all, token)
	}
	return all
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/"+Tenant+"/") || strings.HasPrefix(r.URL.Path, "/common/") {
		s.signIn(w, r)
		return
	}
	call := Call{Method: r.Method, Path: r.URL.Path, APIVersion: r.URL.Query().Get("api-version")}
	status, header, body := s.answer(r, &call)
	call.Status = status
	s.mu.Lock()
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	for k, v := range header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func (s *Server) answer(r *http.Request, call *Call) (status int, header map[string]string, body string) {
	fault := func(status int, code, message string) (int, map[string]string, string) {
		b, _ := json.Marshal(map[string]any{"error": map[string]any{"code": code, "message": message}})
		return status, nil, string(b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if call.Subject = s.tokens[token]; call.Subject == "" {
		return fault(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
	}
	if call.APIVersion == "" {
		return fault(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	id, action := strings.ToLower(r.URL.Path), ""
	if r.Method == http.MethodPost {
		i := strings.LastIndexByte(id, '/')
		id, action = id[:i], id[i+1:]
	}
	for i, f := range s.faults {
		if f.ID != "" && !strings.EqualFold(f.ID, id) {
			continue
		}
		if f.Times == 1 {
			s.faults = slices.Delete(s.faults, i, i+1)
		} else if f.Times > 1 {
			f.Times--
		}
		status, header, body := fault(max(f.Status, http.StatusOK), f.Code, f.Message)
		if f.Body != "" {
			body = f.Body
		}
		if f.RetryAfter != "" {
			header = map[string]string{"Retry-After": f.RetryAfter}
		}
		return status, header, body
	}
	c := s.clusters[id]
	switch {
	case c == nil && !s.resources[id]:
		return fault(http.StatusNotFound, "ResourceNotFound", "The Resource '"+r.URL.Path+"' was not found.")
	case r.Method == http.MethodGet:
		return http.StatusOK, nil, `{"id":` + strconv.Quote(id) + `,"properties":{"provisioningState":"Succeeded"}}`
	case c != nil && r.Method == http.MethodPost && (action == "listclusteradmincredential" || action == "listclusterusercredential" || action == "listcredentials"):
		b, _ := json.Marshal(map[string]any{"kubeconfigs": []any{map[string]any{"name": action, "value": c.kubeconfig}}}) // []byte is base64
		return http.StatusOK, nil, string(b)
	}
	return fault(http.StatusBadRequest, "InvalidAction", "The action is not known for the resource.")
}

// signIn is as much of Entra ID as tokens for an application need.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	base := s.URL + "/" + Tenant
	if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		_ = json.NewEncoder(w).Encode(map[string]string{
			"issuer": base + "/v2.0", "authorization_endpoint": base + "/oauth2/v2.0/authorize", "token_endpoint": base + "/oauth2/v2.0/token"})
		return
	}
	_ = r.ParseForm()
	subject := ""
	switch {
	case !strings.HasSuffix(r.URL.Path, "/oauth2/v2.0/token"):
	case r.Form.Get("client_id") != Application || r.Form.Get("client_secret") != Password && r.Form.Get("client_assertion") == "":
	case r.Form.Get("requested_token_use") == "on_behalf_of":
		subject = "user:" + r.Form.Get("assertion")
	case r.Form.Get("grant_type") == "client_credentials":
		subject = "server"
	}
	if subject == "" {
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"token_type": "Bearer", "expires_in": 3600, "access_token": s.issue(subject)})
}

// issue makes a token for a subject.
func (s *Server) issue(subject string) string {
	token := randomText()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = subject
	return token
}
