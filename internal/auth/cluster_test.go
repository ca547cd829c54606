package auth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/auth/aggregation"
	"github.com/radial-project/radial/internal/clustertest"
)

// resign changes the claims of a token and signs it again by the cluster's key.
func resign(t *testing.T, c *clustertest.Cluster, token string, change func(map[string]any)) string {
	t.Helper()
	parts := strings.Split(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	change(claims)
	if raw, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(read(t, filepath.Join(c.Dir, "pki", "service-account.key")))
	var key any
	if key, err = x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
		if key, err = x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
			if key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
				t.Fatal(err)
			}
		}
	}
	input := parts[0] + "." + base64.RawURLEncoding.EncodeToString(raw)
	sum := sha256.Sum256([]byte(input))
	var sig []byte
	switch key := key.(type) {
	case *rsa.PrivateKey:
		sig, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	case *ecdsa.PrivateKey:
		r, s, e := ecdsa.Sign(rand.Reader, key, sum[:])
		err = e
		sig = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// TestTokens_D46: the cluster reviews tokens; what it refuses is a 401 that says
// what to do, and never quotes the token.
func TestTokens_D46(t *testing.T) {
	t.Parallel()
	cluster, client := clusterOf(t)
	ns := cluster.Namespace(t, "auth")
	f := start(t, client, auth.AuthenticatorOptions{TokenTTL: 20 * time.Millisecond})
	root := f.admin(cluster.Config)
	root.want(200, "PUT", shop, `{}`)
	good := account(t, client, ns, "reader", "radial")

	none := f.caller()
	a := none.want(401, "GET", shop, "", "radial login")
	if a.header.Get("WWW-Authenticate") == "" || a.header.Get("x-ms-request-id") == "" {
		t.Errorf("D-46: the headers are %v", a.header)
	}
	none.want(200, "GET", "/healthz", "")

	who := "serviceAccount:" + ns + "/reader"
	f.bearer(good).want(403, "GET", shop, "", who, "role Reader", "scope "+shop)
	root.give(shop, "reader", who, "Reader")
	f.bearer(good).want(200, "GET", shop, "")
	f.bearer(good).want(403, "PUT", shop, `{}`, "role Contributor", "scope "+shop)
	f.bearer(good).want(403, "GET", bank, "", "role Reader", "scope "+bank)

	t.Run("D-46 wrong audience", func(t *testing.T) {
		f.bearer(token(t, client, ns, "reader", "https://elsewhere.example")).want(401, "GET", shop, "", "elsewhere.example", "audience radial")
		f.bearer(token(t, client, ns, "reader")).want(401, "GET", shop, "", "audience radial") // the API server's own
	})
	t.Run("D-46 expired", func(t *testing.T) {
		same := resign(t, cluster, good, func(map[string]any) {})
		f.bearer(same).want(200, "GET", shop, "") // signing again works, so what follows fails for its time alone
		old := resign(t, cluster, good, func(c map[string]any) {
			now := time.Now().Unix()
			c["iat"], c["nbf"], c["exp"] = now-7200, now-7200, now-60
		})
		f.bearer(old).want(401, "GET", shop, "", "expired at", "radial login")
	})
	t.Run("D-46 forged", func(t *testing.T) {
		forged := good[:len(good)-6] + "AAAAAA"
		a := f.bearer(forged).want(401, "GET", shop, "", "not accepted")
		if strings.Contains(a.raw, forged[:40]) {
			t.Error("the answer quotes the token")
		}
		f.bearer("x.y.z").want(401, "GET", shop, "", "not accepted")
		f.bearer("garbage").want(401, "GET", shop, "", "not accepted")
	})
	t.Run("D-46 deleted account", func(t *testing.T) {
		clustertest.Long(t) // the API server believes its own cache for ten seconds
		gone := account(t, client, ns, "gone", "radial")
		root.give(shop, "gone", "serviceAccount:"+ns+"/gone", "Reader")
		f.bearer(gone).want(200, "GET", shop, "")
		if err := client.CoreV1().ServiceAccounts(ns).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(15 * time.Second)
		for {
			a := f.bearer(gone).send("GET", shop, "")
			if a.status == 401 {
				f.check(a, 401, "deleted", "deleted")
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("D-46: the token of a deleted account still gets %d", a.status)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	t.Run("D-46 taken away", func(t *testing.T) {
		root.want(200, "DELETE", shop+roles+"reader", "")
		f.bearer(good).want(403, "GET", shop, "", "role Reader") // at once
	})
	if said := f.log.String(); strings.Contains(said, good[:60]) {
		t.Error("D-46: a token is in the log")
	}
	for _, r := range f.audit.all() {
		if raw, _ := json.Marshal(r); strings.Contains(string(raw), good[:60]) {
			t.Error("D-46: a token is in the audit log")
		}
	}
}

// TestRoot_D46: the cluster says who is root, by one verb of its own.
func TestRoot_D46(t *testing.T) {
	t.Parallel()
	cluster, client := clusterOf(t)
	ns := cluster.Namespace(t, "auth")
	f := start(t, client, auth.AuthenticatorOptions{})
	robot := f.bearer(account(t, client, ns, "boss", "radial"))
	robot.want(403, "PUT", shop, `{}`, "role Contributor")
	robot.want(403, "GET", "/debug/pprof/", "", "only root")

	bind := func(name string, verbs ...string) {
		t.Helper()
		name += "-" + ns
		_, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{auth.RootGroup}, Resources: []string{auth.RootResource}, Verbs: verbs}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "boss"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually := func(status int) {
		t.Helper()
		deadline := time.Now().Add(15 * time.Second) // the cluster's authorizer follows by its own watch
		for {
			a := robot.send("PUT", shop, `{}`)
			if a.status == status {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("D-46: %d, want %d: %s", a.status, status, a.raw)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	// The verbs that get a client through the aggregation layer make nobody root.
	bind("usual", "get", "list", "create", "update", "delete")
	usual := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + ns + ":boss",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: auth.RootGroup, Resource: auth.RootResource, Verb: "create"}}}
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		said, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), usual, metav1.CreateOptions{})
		if err != nil || time.Now().After(deadline) {
			t.Fatal("the binding is not in force", err)
		}
		if said.Status.Allowed {
			break
		}
	}
	robot.want(403, "PUT", shop, `{}`)
	bind("root", auth.RootVerb)
	eventually(200)
	robot.give(plane, "self", "serviceAccount:"+ns+"/boss", "Reader")
	robot.want(404, "GET", "/debug/pprof/", "")
	var last string
	for _, r := range f.audit.all() {
		if r.Allowed {
			last = r.Reason
		}
	}
	if !strings.Contains(last, "root") {
		t.Errorf("D-46: the reason in the audit log is %q", last)
	}
}

// signed makes a client certificate by the authority in files of the cluster.
func signed(t *testing.T, c *clustertest.Cluster, authority, name string, from, to time.Time, groups ...string) tls.Certificate {
	t.Helper()
	ca := pair(t, read(t, filepath.Join(c.Dir, "pki", authority+".crt")), read(t, filepath.Join(c.Dir, "pki", authority+".key")))
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: from, NotAfter: to, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, private.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pair(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// TestCertificatesAndProxies_D46: certificates of the cluster's client
// authority, and headers of nobody but the verified front proxy.
func TestCertificatesAndProxies_D46(t *testing.T) {
	t.Parallel()
	cluster, client := clusterOf(t)
	f := start(t, client, auth.AuthenticatorOptions{})
	root := f.admin(cluster.Config)
	root.want(200, "PUT", shop, `{}`)
	root.give(shop, "alice", "user:alice", "Reader")
	root.give(shop, "team", "group:team", "Contributor")
	now := time.Now()
	by := func(authority, name string, groups ...string) *caller {
		return f.caller(signed(t, cluster, authority, name, now.Add(-time.Hour), now.Add(time.Hour), groups...))
	}
	by("ca", "alice").want(200, "GET", shop, "")
	by("ca", "alice").want(403, "PUT", shop, `{}`)
	by("ca", "bob", "team").want(200, "PUT", shop, `{}`)
	f.caller(signed(t, cluster, "ca", "alice", now.Add(-2*time.Hour), now.Add(-time.Hour))).want(401, "GET", shop, "", "certificate", "expired")

	says := func(c *caller, user string, groups ...string) *caller {
		c.header.Set("X-Remote-User", user)
		for _, g := range groups {
			c.header.Add("X-Remote-Group", g)
		}
		return c
	}
	proxy := pair(t, read(t, filepath.Join(cluster.Dir, "pki", "front-proxy-client.crt")), read(t, filepath.Join(cluster.Dir, "pki", "front-proxy-client.key")))
	says(f.caller(proxy), "alice").want(200, "GET", shop, "")
	says(f.caller(proxy), "carol", "team").want(200, "PUT", shop, `{}`)
	says(f.caller(proxy), "carol").want(403, "GET", shop, "", "user:carol")
	says(f.caller(proxy), "root", "system:masters").want(200, "PUT", bank, `{}`)
	f.caller(proxy).want(401, "GET", shop, "") // the proxy itself is nobody

	// Below the aggregated prefix a held poll is short, and there are no streams.
	const prefix = "/apis/api.ucp.dev/v1alpha3"
	front := says(f.caller(proxy), "root", "system:masters")
	front.want(200, "PUT", prefix+shop+env+"e", envOf)
	made := front.want(201, "PUT", prefix+shop+store+"s", strings.Replace(secret, `"type"`, `"environment":"`+shop+env+`e","type"`, 1))
	status := strings.TrimPrefix(made.header.Get("Azure-AsyncOperation"), f.url)
	if !strings.HasPrefix(status, prefix) {
		t.Errorf("the operation is at %s", status)
	}
	if a := front.send("GET", status, "", "Prefer", "wait=60"); a.status != 200 || a.header.Get("Preference-Applied") != "wait=5" {
		t.Errorf("D-46: a held poll through the proxy: %d, %v", a.status, a.header)
	}
	if a := root.send("GET", status, "", "Prefer", "wait=60"); a.status != 200 || a.header.Get("Preference-Applied") != "wait=60" {
		t.Errorf("D-46: a held poll of the server's own Service: %d, %v", a.status, a.header)
	}
	front.want(400, "GET", prefix+"/watch/changes", "", "Service of radial-server")

	// Headers of others say nothing.
	says(f.caller(), "alice").want(401, "GET", shop, "")
	says(by("ca", "mallory"), "alice").want(403, "GET", shop, "", "user:mallory")
	says(by("front-proxy-ca", "another-name"), "alice").want(401, "GET", shop, "", "certificate")
	says(by("ca", "front-proxy-client"), "alice").want(403, "GET", shop, "", "user:front-proxy-client")
}

// TestAggregated_D46: a client that knows the API server only gets through it;
// held polls are short there and streams are refused.
func TestAggregated_D46(t *testing.T) {
	t.Parallel()
	cluster, client := clusterOf(t)
	ns := cluster.Namespace(t, "aggregated")
	f := startAs(t, []string{"127.0.0.1", "radial-server." + ns + ".svc"}, client, auth.AuthenticatorOptions{})
	// The API server finds this process by a Service without a cluster address.
	_, err := client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "radial-server"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := aggregation.Register(t.Context(), dyn, aggregation.Service{Namespace: ns, Name: "radial-server", Port: int64(f.port)}, f.own.Bundle()); err != nil {
		t.Fatal(err)
	}
	if err := aggregation.Register(t.Context(), dyn, aggregation.Service{Namespace: ns, Name: "another", Port: 1}, nil); err == nil || !strings.Contains(err.Error(), "leads to the Service") {
		t.Errorf("another Service took the APIService over: %v", err)
	}
	admin := through(t, cluster.Config)
	deadline := time.Now().Add(30 * time.Second)
	for {
		status, body := admin("GET", "/planes"+version, "")
		if status == 200 {
			break
		}
		if time.Now().After(deadline) {
			state, _ := dyn.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}).Get(t.Context(), aggregation.Name, metav1.GetOptions{})
			t.Fatalf("D-46: the aggregated API answers %d: %s\n%v", status, body, state.Object["status"])
		}
		time.Sleep(100 * time.Millisecond)
	}
	if status, body := admin("PUT", "/planes/radius/local/resourceGroups/shop"+version, `{}`); status != 200 {
		t.Fatalf("D-46: PUT through the API server: %d %s", status, body)
	}
	if status, body := admin("GET", "", ""); status != 200 || !strings.Contains(body, "APIResourceList") {
		t.Errorf("discovery: %d %s", status, body)
	}
	if status, body := admin("GET", "/watch/changes", ""); status != 400 || !strings.Contains(body, "Service of radial-server") {
		t.Errorf("D-46: the stream through the API server: %d %s", status, body)
	}
	// The identity is the caller's, not the proxy's.
	limited := rest.AnonymousClientConfig(cluster.Config)
	limited.BearerToken = account(t, client, ns, "limited")
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "through-" + ns},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "view-ucp-" + ns},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "limited"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view-ucp-" + ns},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"api.ucp.dev"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	robot := through(t, limited)
	for {
		status, body := robot("GET", "/planes/radius/local/resourceGroups/shop"+version, "")
		if status == 403 && strings.Contains(body, "serviceAccount:"+ns+"/limited has no role") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("D-46: %d: %s", status, body)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// through sends requests to the API server's aggregated path.
func through(t *testing.T, config *rest.Config) func(method, path, body string) (int, string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return func(method, path, body string) (int, string) {
		t.Helper()
		var status int
		r := client.Discovery().RESTClient().Verb(method).RequestURI("/apis/api.ucp.dev/v1alpha3" + path)
		if body != "" {
			r = r.Body([]byte(body)).SetHeader("Content-Type", "application/json")
		}
		result := r.Do(t.Context())
		result.StatusCode(&status)
		raw, err := result.Raw()
		if err != nil && status == 0 {
			return 0, err.Error()
		}
		return status, string(raw) + fmt.Sprint(err)
	}
}
