package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// memory is a Keep; conflicts makes as many saves fail.
type memory struct {
	data      map[string][]byte
	version   string
	conflicts int
	saves     int
}

func (m *memory) Load(context.Context) (map[string][]byte, string, error) {
	return m.data, m.version, nil
}

func (m *memory) Save(_ context.Context, data map[string][]byte, version string) error {
	if m.conflicts > 0 {
		m.conflicts--
		return ErrConflict
	}
	if version != m.version {
		return ErrConflict
	}
	m.saves++
	m.data, m.version = data, version+"x"
	return nil
}

func leaf(t *testing.T, w *Own) *x509.Certificate {
	t.Helper()
	c, err := w.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

// TestRotation_D46 lives through two years, six hours at a time: a client that
// reads the bundle again every 14 days is always served by a certificate that it
// trusts, and nothing is older than 90 days.
func TestRotation_D46(t *testing.T) {
	t.Parallel()
	now := begin
	kept := &memory{}
	w, err := OpenOwn(t.Context(), OwnOptions{Keep: kept, Names: []string{"radial-server.radial-system.svc", "127.0.0.1"}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.Bundle())
	read := now
	leaves := map[string]bool{}
	for ; now.Before(begin.AddDate(2, 0, 0)); now = now.Add(6 * time.Hour) {
		if err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := leaf(t, w)
		leaves[c.SerialNumber.String()] = true
		for _, name := range []string{"radial-server.radial-system.svc", "127.0.0.1"} {
			if _, err := c.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}); err != nil {
				t.Fatalf("on day %d a client with the bundle of day %d: %v", int(now.Sub(begin)/day), int(read.Sub(begin)/day), err)
			}
		}
		for _, a := range readAuthorities(kept.data) {
			if life := a.cert.NotAfter.Sub(a.cert.NotBefore); life > 90*day {
				t.Fatalf("an authority lives %s", life)
			}
		}
		if life := c.NotAfter.Sub(c.NotBefore); life > 90*day || !now.Before(c.NotAfter) {
			t.Fatalf("a certificate lives %s, until %s at %s", life, c.NotAfter, now)
		}
		if now.Sub(read) >= 14*day {
			roots, read = x509.NewCertPool(), now
			roots.AppendCertsFromPEM(w.Bundle())
		}
	}
	if n := len(leaves); n < 24 || n > 50 {
		t.Errorf("%d certificates in two years", n)
	}
	if kept.saves > 80 {
		t.Errorf("%d saves in two years", kept.saves)
	}
}

func TestRestartKeepsTheAuthority_D46(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	open := func(names ...string) *Own {
		t.Helper()
		w, err := OpenOwn(t.Context(), OwnOptions{Keep: DirKeep{dir}, Names: names, Now: func() time.Time { return begin }})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := open("localhost")
	again := open("localhost")
	if string(first.Bundle()) != string(again.Bundle()) || !leaf(t, first).Equal(leaf(t, again)) {
		t.Error("a restart made new certificates")
	}
	renamed := open("localhost", "radial.example.com")
	if string(first.Bundle()) != string(renamed.Bundle()) || leaf(t, renamed).VerifyHostname("radial.example.com") != nil {
		t.Error("a new name is not served under the same authority")
	}
	published, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil || string(published) != string(first.Bundle()) || strings.Contains(string(published), "PRIVATE") {
		t.Errorf("ca.crt: %v", err)
	}
	if info, _ := os.Stat(filepath.Join(dir, "certificates.json")); info.Mode().Perm() != 0o600 {
		t.Errorf("keys are readable: %v", info.Mode())
	}
}

func TestReplicasShareOneAuthority_D46(t *testing.T) {
	t.Parallel()
	kept := &memory{conflicts: 2}
	o := OwnOptions{Keep: kept, Names: []string{"localhost"}, Now: func() time.Time { return begin }}
	one, err := OpenOwn(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	two, err := OpenOwn(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if string(one.Bundle()) != string(two.Bundle()) || kept.saves != 1 {
		t.Errorf("two replicas made %d sets", kept.saves)
	}
	if _, err := OpenOwn(t.Context(), OwnOptions{Keep: &memory{conflicts: 100}, Names: []string{"x"}}); !errors.Is(err, ErrConflict) {
		t.Errorf("an endless conflict is %v", err)
	}
}

func TestPublish_D46(t *testing.T) {
	t.Parallel()
	now, fail, told := begin, true, 0
	w, err := OpenOwn(t.Context(), OwnOptions{Keep: &memory{}, Names: []string{"x"}, Now: func() time.Time { return now },
		Publish: func(context.Context, []byte) error {
			if fail {
				return errors.New("no")
			}
			told++
			return nil
		}})
	if err != nil {
		t.Fatal(err) // serving does not wait for it
	}
	fail = false
	for range 3 {
		if err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if told != 1 {
		t.Errorf("published %d times", told)
	}
	now = now.Add(authorityRenew)
	if err := w.Step(t.Context()); err != nil || told != 2 {
		t.Errorf("after a new authority published %d times: %v", told, err)
	}
}

// TestFiles_D46: a certificate that is replaced on disk is served without a
// restart.
func TestFiles_D46(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func() *x509.Certificate {
		a, err := newAuthority(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		c, k, err := newLeaf(a, []string{"localhost"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for path, content := range map[string][]byte{cert: c, key: k} {
			if err := replace(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		pair, err := tls.X509KeyPair(c, k)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	first := write()
	f, err := Files(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", Config(f))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = c.(*tls.Conn).Handshake(); _ = c.Close() }()
		}
	}()
	served := func() *x509.Certificate {
		c, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0]
	}
	if !served().Equal(first) {
		t.Fatal("another certificate is served")
	}
	second := write()
	deadline := time.Now().Add(30 * time.Second) // the file system tells in moments, the sweep behind it in ten seconds
	for !served().Equal(second) {
		if time.Now().After(deadline) {
			t.Fatal("D-46: the new certificate is not served")
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := Files(cert, filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing key is taken")
	}
}

func TestCheckPlain_D48(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]struct {
		developer bool
		says      string
	}{
		"127.0.0.1:8080": {true, ""}, "[::1]:0": {true, ""}, "localhost:1": {true, ""},
		"0.0.0.0:8080": {true, "loopback only"}, ":8080": {true, "loopback only"}, "10.0.0.1:1": {true, "loopback only"}, "radial:1": {true, "loopback only"},
		"127.0.0.2:8080": {false, "--tls-cert-file"}, "[::]:443": {false, "--tls-cert-file"}, "8080": {false, "host:port"},
	} {
		err := CheckPlain(listen, want.developer)
		if (err == nil) != (want.says == "") || err != nil && !strings.Contains(err.Error(), want.says) {
			t.Errorf("D-48 %s (developer mode %v): %v", listen, want.developer, err)
		}
	}
}
