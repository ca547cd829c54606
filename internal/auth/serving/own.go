package serving

import (
	"bytes"
	"context"
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
	"log/slog"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"
)

// How long things live. A new authority is published for overlap before
// anything is signed by it: a client that reads the bundle again at least that
// often is never surprised. Nothing lives for more than 90 days.
const (
	day            = 24 * time.Hour
	authorityLife  = 90 * day
	authorityRenew = 45 * day // age at which its successor is made
	overlap        = 15 * day
	leafLife       = 30 * day
	leafRenew      = 10 * day // left of its life when it is made anew
	// skew is how far clocks of clients may be behind.
	skew = 5 * time.Minute
)

// Check is how often the age of certificates is looked at.
const Check = time.Hour

// The keys under which certificates are kept.
const (
	keyBundle      = "ca.crt"  // authorities, the newest first
	keyAuthorities = "ca.key"  // their keys, in the same order
	keyCert        = "tls.crt" // what is served, with the authority that signed it
	keyKey         = "tls.key"
)

// ErrConflict says that another process kept certificates meanwhile.
var ErrConflict = errors.New("the certificates were changed by another process")

// Keep is where self-made certificates are kept, so that a restart and every
// replica serve by the same authority.
type Keep interface {
	// Load returns what is kept and its version; nothing is no error.
	Load(ctx context.Context) (data map[string][]byte, version string, err error)
	// Save replaces what was loaded as version, or fails with ErrConflict.
	Save(ctx context.Context, data map[string][]byte, version string) error
}

// OwnOptions of self-made certificates. Keep and Names are required.
type OwnOptions struct {
	Keep Keep
	// Names are the DNS names and addresses that clients use.
	Names []string
	// Publish tells clients of the bundle: at the start and when it changes. A
	// failure is tried again at the next check. May be nil.
	Publish func(ctx context.Context, bundle []byte) error
	Log     *slog.Logger
	Now     func() time.Time
	// Tick says when to look again; nil is every [Check].
	Tick <-chan time.Time
}

// Own are certificates made by an authority of the server's own.
type Own struct {
	o OwnOptions

	mu        sync.Mutex
	serving   *tls.Certificate
	bundle    []byte
	published []byte
}

// OpenOwn loads what is kept, and makes what is missing or too old.
func OpenOwn(ctx context.Context, o OwnOptions) (*Own, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Names) == 0 {
		return nil, errors.New("self-made certificates need the names by which clients reach the server (--tls-names)")
	}
	w := &Own{o: o}
	if err := w.Step(ctx); err != nil && w.serving == nil {
		return nil, err
	}
	return w, nil
}

// GetCertificate implements [Certificates].
func (w *Own) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.serving, nil
}

// Bundle are the authorities that clients are to trust, in PEM.
func (w *Own) Bundle() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bundle
}

// Run implements [Certificates].
func (w *Own) Run(ctx context.Context) error {
	tick := w.o.Tick
	if tick == nil {
		t := time.NewTicker(Check)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
			if err := w.Step(ctx); err != nil {
				w.o.Log.Error("the server's certificates could not be looked after; it is tried again", "error", err.Error())
			}
		}
	}
}

// Step looks once: loads what others made, makes what is due, publishes.
func (w *Own) Step(ctx context.Context) error {
	var data map[string][]byte
	for range 5 {
		kept, version, err := w.o.Keep.Load(ctx)
		if err != nil {
			return fmt.Errorf("the kept certificates cannot be read: %w", err)
		}
		changed := false
		if data, changed, err = advance(kept, w.o.Names, w.o.Now()); err != nil {
			return err
		}
		if !changed {
			break
		}
		err = w.o.Keep.Save(ctx, data, version)
		if errors.Is(err, ErrConflict) {
			data = nil
			continue
		}
		if err != nil {
			return fmt.Errorf("new certificates cannot be kept: %w", err)
		}
		w.o.Log.Info("new certificates were made", "names", w.o.Names)
		break
	}
	if data == nil {
		return ErrConflict
	}
	pair, err := tls.X509KeyPair(data[keyCert], data[keyKey])
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.serving, w.bundle = &pair, data[keyBundle]
	due := w.o.Publish != nil && !bytes.Equal(w.bundle, w.published)
	w.mu.Unlock()
	if !due {
		return nil
	}
	if err := w.o.Publish(ctx, data[keyBundle]); err != nil {
		return fmt.Errorf("the bundle of authorities cannot be published: %w", err)
	}
	w.mu.Lock()
	w.published = data[keyBundle]
	w.mu.Unlock()
	return nil
}

// authority is a certificate that signs others.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// advance returns what is to be kept at a time, given what was: a pure function
// but for the keys it makes. What cannot be read is made anew.
func advance(kept map[string][]byte, names []string, now time.Time) (map[string][]byte, bool, error) {
	authorities := slices.DeleteFunc(readAuthorities(kept), func(a authority) bool { return !now.Before(a.cert.NotAfter) })
	changed := false
	if len(authorities) == 0 || now.Sub(authorities[0].cert.NotBefore) >= authorityRenew {
		a, err := newAuthority(now)
		if err != nil {
			return nil, false, err
		}
		authorities = append([]authority{a}, authorities...)
		changed = true
	}
	out := map[string][]byte{keyCert: kept[keyCert], keyKey: kept[keyKey]}
	if !leafGood(kept, authorities, names, now) {
		cert, key, err := newLeaf(signer(authorities, now), names, now)
		if err != nil {
			return nil, false, err
		}
		out[keyCert], out[keyKey] = cert, key
		changed = true
	}
	for _, a := range authorities {
		key, err := x509.MarshalPKCS8PrivateKey(a.key)
		if err != nil {
			return nil, false, err
		}
		out[keyBundle] = append(out[keyBundle], encode("CERTIFICATE", a.cert.Raw)...)
		out[keyAuthorities] = append(out[keyAuthorities], encode("PRIVATE KEY", key)...)
	}
	return out, changed || !bytes.Equal(out[keyBundle], kept[keyBundle]), nil
}

// signer is the newest authority that has been published long enough, or the
// oldest where none has.
func signer(authorities []authority, now time.Time) authority {
	for _, a := range authorities {
		if now.Sub(a.cert.NotBefore) >= overlap {
			return a
		}
	}
	return authorities[len(authorities)-1]
}

func leafGood(kept map[string][]byte, authorities []authority, names []string, now time.Time) bool {
	pair, err := tls.X509KeyPair(kept[keyCert], kept[keyKey])
	if err != nil {
		return false
	}
	pool := x509.NewCertPool()
	for _, a := range authorities {
		pool.AddCert(a.cert)
	}
	for _, n := range names {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: n, CurrentTime: now}); err != nil {
			return false
		}
	}
	return pair.Leaf.NotAfter.Sub(now) > leafRenew
}

func readAuthorities(kept map[string][]byte) (out []authority) {
	certs, keys := kept[keyBundle], kept[keyAuthorities]
	for {
		var c, k *pem.Block
		c, certs = pem.Decode(certs)
		k, keys = pem.Decode(keys)
		if c == nil || k == nil {
			return out
		}
		cert, err := x509.ParseCertificate(c.Bytes)
		key, keyErr := x509.ParsePKCS8PrivateKey(k.Bytes)
		s, ok := key.(crypto.Signer)
		if err != nil || keyErr != nil || !ok {
			continue
		}
		if p, ok := s.Public().(*ecdsa.PublicKey); ok && p.Equal(cert.PublicKey) {
			out = append(out, authority{cert, s})
		}
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func template(name string, from, to time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to, BasicConstraintsValid: true}, key, nil
}

func newAuthority(now time.Time) (authority, error) {
	from := now.Add(-skew)
	// The name tells authorities apart where a client shows them.
	t, key, err := template("radial-server authority "+now.UTC().Format(time.DateOnly), from, from.Add(authorityLife))
	if err != nil {
		return authority{}, err
	}
	t.IsCA, t.MaxPathLenZero = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return authority{cert, key}, err
}

func newLeaf(by authority, names []string, now time.Time) (cert, key []byte, err error) {
	to := now.Add(leafLife)
	if to.After(by.cert.NotAfter) {
		to = by.cert.NotAfter
	}
	t, private, err := template("radial-server", now.Add(-skew), to)
	if err != nil {
		return nil, nil, err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, by.cert, private.Public(), by.key)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return append(encode("CERTIFICATE", der), encode("CERTIFICATE", by.cert.Raw)...), encode("PRIVATE KEY", raw), nil
}
