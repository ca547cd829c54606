// Package pki makes the certificates and keys of a development cluster. Authorities and service account keys
// are kept for as long as the state directory lives; everything that they sign is made anew at each start.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/radial-project/radial/devcluster/internal/state"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour // longer than any state directory lives
	leafLife      = 365 * 24 * time.Hour      // longer than any cluster runs without a restart
	clockSkew     = time.Hour
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// Pair is a certificate with its key, both in PEM.
type Pair struct{ Cert, Key []byte }

// Subject says for whom a certificate is. A server certificate is one with addresses or names.
type Subject struct {
	Name   string
	Groups []string
	DNS    []string
	IPs    []net.IP
}

// LoadAuthority returns the authority NAME.crt, NAME.key in dir, and makes it the first time.
func LoadAuthority(dir, name string) (*Authority, error) {
	certPath, keyPath := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err == nil {
		signer, ok := pair.PrivateKey.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("authority %s: its key cannot sign", certPath)
		}
		return &Authority{cert: pair.Leaf, key: signer, pem: certPEM(pair.Certificate[0])}, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("authority %s: %w", certPath, err)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(Subject{Name: "devcluster-" + name}, authorityLife)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &Authority{cert: cert, key: key, pem: certPEM(der)}
	// The key goes first: a certificate without its key would be taken for damage, a key alone is replaced.
	if err := state.WriteFile(keyPath, keyPEM, 0o600); err != nil {
		return nil, err
	}
	return a, state.WriteFile(certPath, a.pem, 0o644)
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return a.pem }

// Issue signs a new certificate for the subject, with a new key.
func (a *Authority) Issue(s Subject) (Pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	template, err := newTemplate(s, leafLife)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(s.DNS)+len(s.IPs) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate for %s: %w", s.Name, err)
	}
	return Pair{Cert: certPEM(der), Key: keyPEM}, nil
}

// IssueFiles issues a certificate into NAME.crt and NAME.key in dir.
func (a *Authority) IssueFiles(dir, name string, s Subject) error {
	pair, err := a.Issue(s)
	if err != nil {
		return err
	}
	return errors.Join(
		state.WriteFile(filepath.Join(dir, name+".key"), pair.Key, 0o600),
		state.WriteFile(filepath.Join(dir, name+".crt"), pair.Cert, 0o644))
}

// EnsureSigningKey makes the key pair NAME.key, NAME.pub in dir unless it is there: service account tokens
// that were issued before a restart stay valid.
func EnsureSigningKey(dir, name string) error {
	pubPath := filepath.Join(dir, name+".pub")
	if _, err := os.Stat(pubPath); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := state.WriteFile(filepath.Join(dir, name+".key"), keyPEM, 0o600); err != nil {
		return err
	}
	return state.WriteFile(pubPath, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644)
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func newTemplate(s Subject, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.Name, Organization: s.Groups},
		DNSNames:     s.DNS,
		IPAddresses:  s.IPs,
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(life),
	}, nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
