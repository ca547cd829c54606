package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// people is an authority that makes client certificates.
type people struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPeople(t *testing.T, file string) people {
	t.Helper()
	p := people{}
	p.cert, p.key = p.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "people"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p people) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent, by := p.cert, p.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// client is a client of somebody; "" is nobody.
func (p people) client(t *testing.T, roots []byte, name string, groups ...string) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	config := &tls.Config{RootCAs: pool}
	if name != "" {
		cert, key := p.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		config.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestFront_D46 runs the real program: certificates of its own making, callers
// by client certificate, roles, and an audit log that is whole after a shutdown.
func TestFront_D46(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newPeople(t, filepath.Join(dir, "people.crt"))
	ready, db := filepath.Join(dir, "ready"), filepath.Join(dir, "radial.db")
	p := &process{t: t, exited: make(chan struct{})}
	p.cmd = program(context.Background(), nil, "--listen", "127.0.0.1:0", "--store", db, "--key-file", filepath.Join(dir, "key"), "--ready-file", ready,
		"--metrics-listen", "0", "--tls-self-made", filepath.Join(dir, "tls"), "--client-ca-file", filepath.Join(dir, "people.crt"), "--roots", "user:ann", "--controllers", "east=user:east",
		"--audit-file", filepath.Join(dir, "audit.log"))
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.exited) }()
	t.Cleanup(p.kill)
	deadline := time.After(30 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); p.url == ""; {
		select {
		case <-p.exited:
			t.Fatalf("radial-server ended: %v\n%s", p.err, p.log.String())
		case <-deadline:
			t.Fatal("radial-server was not ready within 30 s")
		case <-tick.C:
			if raw, err := os.ReadFile(ready); err == nil {
				p.url = strings.TrimSpace(string(raw))
			}
		}
	}
	if !strings.HasPrefix(p.url, "https://") {
		t.Fatalf("the URL is %s", p.url)
	}
	roots, err := os.ReadFile(filepath.Join(dir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	do := func(c *http.Client, method, path, body string, status int, says string) {
		t.Helper()
		r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		absent, not := strings.CutPrefix(says, "not ")
		if resp.StatusCode != status || strings.Contains(string(raw), absent) == not {
			t.Fatalf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, status, raw)
		}
	}
	nobody, ann, bob := ca.client(t, roots, ""), ca.client(t, roots, "ann"), ca.client(t, roots, "bob", "team")
	do(nobody, "GET", "/healthz", "", 200, "ok")
	do(nobody, "GET", group+ucp, "", 401, "radial login")
	do(ca.client(t, roots, "eve", "system:masters"), "GET", group+ucp, "", 401, "only the cluster's own authority may")
	do(bob, "PUT", group+ucp, `{}`, 403, "role Contributor")
	do(ann, "PUT", group+ucp, `{}`, 200, "")
	do(bob, "GET", "/planes/radius/local/resourcegroups"+ucp, "", 403, "role Reader")
	assignment := "/providers/System.Authorization/roleAssignments/"
	do(ann, "PUT", group+assignment+"team"+ucp, `{"properties":{"principal":{"kind":"group","name":"team"},"role":"Reader"}}`, 200, "")
	do(ann, "PUT", group+assignment+"up"+ucp, `{"properties":{"principal":{"kind":"group","name":"team"},"role":"Owner","scope":"/planes/radius/local"}}`, 400, "there and below only")
	do(bob, "GET", group+ucp, "", 200, "")
	do(ann, "PUT", "/planes/radius/local/resourceGroups/hidden"+ucp, `{}`, 200, "")
	do(bob, "GET", "/planes/radius/local/resourcegroups"+ucp, "", 200, `"value":[{"id":"/planes/radius/local/resourceGroups/g"`)
	do(bob, "GET", "/planes/radius/local/resourcegroups"+ucp, "", 200, "not hidden")
	do(ann, "GET", "/planes/radius/local/resourcegroups"+ucp, "", 200, "hidden")
	owned := func(cluster string) string {
		return `{"owner":{"cluster":"` + cluster + `","namespace":"n","kind":"Recipe","name":"r","uid":"1"},"properties":{"type":"generic","data":{}}}`
	}
	east := ca.client(t, roots, "east")
	do(east, "PUT", group+"/providers/Applications.Core/secretStores/s"+ucp, owned("west"), 403, "role Controller writes only")
	do(east, "GET", group+ucp, "", 200, "")
	if resp, err := nobody.Get("http" + strings.TrimPrefix(p.url, "https") + "/healthz"); err == nil {
		defer resp.Body.Close()
		if resp.StatusCode == 200 {
			t.Error("D-48: plain HTTP is answered")
		}
	}

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	if p.err != nil {
		t.Fatalf("radial-server ended: %v\n%s", p.err, p.log.String())
	}
	s, err := sqlite.Open(t.Context(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	page, err := s.AuditRecords(t.Context(), store.AuditQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Records) != 14 {
		t.Errorf("D-46: %d decisions are recorded, want 14", len(page.Records))
	}
	for _, r := range page.Records {
		if r.Request == "" || r.Source != "127.0.0.1" || r.Reason == "" || r.Time.IsZero() {
			t.Errorf("D-46: a record is %+v", r)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if lines := strings.Count(string(raw), "\n"); err != nil || lines != len(page.Records) {
		t.Errorf("D-46: the audit file has %d lines: %v", lines, err)
	}
}

// TestOperatorListener_D48: metrics and probes that are reached from elsewhere
// have TLS, by the certificate of the API; on loopback they are plain.
func TestOperatorListener_D48(t *testing.T) {
	t.Parallel()
	for listen, scheme := range map[string]string{"0.0.0.0:0": "https", "127.0.0.1:0": "http"} {
		t.Run("D-48 on "+listen, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ca := newPeople(t, filepath.Join(dir, "people.crt"))
			p := &process{t: t, exited: make(chan struct{})}
			p.cmd = program(context.Background(), nil, "--listen", "127.0.0.1:0", "--store", filepath.Join(dir, "radial.db"), "--ready-file", filepath.Join(dir, "ready"),
				"--metrics-listen", listen, "--log-format", "json", "--tls-self-made", filepath.Join(dir, "tls"), "--client-ca-file", filepath.Join(dir, "people.crt"), "--roots", "user:ann")
			p.cmd.Stderr = &p.log
			if err := p.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { p.err = p.cmd.Wait(); close(p.exited) }()
			t.Cleanup(p.kill)
			var port string
			deadline := time.After(30 * time.Second)
			for tick := time.NewTicker(5 * time.Millisecond); port == ""; {
				select {
				case <-p.exited:
					t.Fatalf("radial-server ended: %v\n%s", p.err, p.log.String())
				case <-deadline:
					t.Fatal("metrics were not served within 30 s")
				case <-tick.C:
					_, after, _ := strings.Cut(p.log.String(), `"metrics and probes are served","url":"`+scheme+"://")
					if url, _, whole := strings.Cut(after, `"`); whole {
						port = url[strings.LastIndexByte(url, ':')+1:]
					}
				}
			}
			roots, err := os.ReadFile(filepath.Join(dir, "tls", "ca.crt"))
			if err != nil {
				t.Fatal(err)
			}
			client := ca.client(t, roots, "")
			for _, s := range []string{"http", "https"} {
				resp, err := client.Get(s + "://127.0.0.1:" + port + "/metrics")
				if err == nil {
					defer resp.Body.Close()
				}
				if answered := err == nil && resp.StatusCode == http.StatusOK; answered != (s == scheme) {
					t.Errorf("D-48: by %s /metrics is answered: %t (%v)", s, answered, err)
				}
			}
		})
	}
}
