package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
)

func TestAuthorityIsKept(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first.PEM()), string(again.PEM())); diff != "" {
		t.Errorf("old kubeconfigs would not trust the server:\n%s", diff)
	}
	// A start that was cut off between key and certificate is made good.
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadAuthority(dir, "ca"); err != nil {
		t.Errorf("a key without its certificate: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadAuthority(dir, "ca"); err == nil {
		t.Error("a damaged authority was replaced without a word")
	}
}

func TestIssuedCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, err := LoadAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	for name, c := range map[string]struct {
		subject Subject
		usage   x509.ExtKeyUsage
		other   x509.ExtKeyUsage
	}{
		"server": {Subject{Name: "s", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		"client": {Subject{Name: "c", Groups: []string{"g"}}, x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ca.IssueFiles(dir, name, c.subject); err != nil {
				t.Fatal(err)
			}
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{c.usage}}); err != nil {
				t.Error(err)
			}
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{c.other}}); err == nil {
				t.Error("it serves for both directions")
			}
			if info, err := os.Stat(filepath.Join(dir, name+".key")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("key file: %v, %v", info.Mode(), err)
			}
		})
	}
}

func TestKubeconfigStandsAlone(t *testing.T) {
	ca, err := LoadAuthority(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := ca.WriteKubeconfig(path, "https://127.0.0.1:6443", Subject{Name: "someone"}); err != nil {
		t.Fatal(err)
	}
	rc, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if rc.Host != "https://127.0.0.1:6443" || len(rc.CAData) == 0 || len(rc.CertData) == 0 || len(rc.KeyData) == 0 {
		t.Errorf("it lacks something: %s", rc)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestSigningKeyIsKept(t *testing.T) {
	dir := t.TempDir()
	read := func() string {
		if err := EnsureSigningKey(dir, "sa"); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "sa.key"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := read()
	if read() != first {
		t.Error("tokens from before a restart would be refused")
	}
}
