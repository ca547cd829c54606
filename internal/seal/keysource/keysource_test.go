package keysource

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kms/pkg/service"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/store/sqlite"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// vault is a key service behind a real plugin's socket: AES keys by number.
type vault struct {
	mu      sync.Mutex
	keys    map[string]cipher.AEAD
	current string
	away    bool
}

func (v *vault) turn(t *testing.T, name string) {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.keys == nil {
		v.keys = map[string]cipher.AEAD{}
	}
	v.keys[name], v.current = aead, name
}

func (v *vault) Status(context.Context) (*service.StatusResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.away {
		return nil, errors.New("the key service is away")
	}
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: v.current}, nil
}

func (v *vault) Encrypt(_ context.Context, _ string, plain []byte) (*service.EncryptResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return &service.EncryptResponse{
		Ciphertext: v.keys[v.current].Seal(nil, nil, plain, nil), KeyID: v.current, Annotations: map[string][]byte{"vault.example": []byte("1")},
	}, nil
}

func (v *vault) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := v.keys[r.KeyID]
	if v.away || key == nil || string(r.Annotations["vault.example"]) != "1" {
		return nil, fmt.Errorf("no key %q here", r.KeyID)
	}
	return key.Open(nil, nil, r.Ciphertext, nil)
}

// plug serves a vault and returns its URI.
func plug(t *testing.T, v *vault) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	s := service.NewGRPCService(socket, 5*time.Second, v)
	served := make(chan error, 1)
	go func() { served <- s.ListenAndServe() }()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) { // it does not say when it listens
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		s.Shutdown()
		<-served
	})
	return "kms+unix://" + socket
}

var id = core.MustParseID("/planes/radius/local/resourceGroups/g/providers/Applications.Core/extenders/x")

// sealed opens db with a key, seals a value, and returns the keeper.
func keeper(t *testing.T, db *sqlite.Store, kek seal.KEK) (*seal.Sealer, *seal.Keeper) {
	t.Helper()
	s, err := seal.Open(t.Context(), db, kek)
	if err != nil {
		t.Fatal(err)
	}
	return s, seal.NewKeeper(seal.KeeperOptions{Store: db, Sealer: s, Name: "a"})
}

func openStore(t *testing.T) *sqlite.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "radial.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func open1(t *testing.T, uri string, former ...string) seal.KEK {
	t.Helper()
	k, err := Open(t.Context(), uri, former, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func wrapped(t *testing.T, db *sqlite.Store) string {
	t.Helper()
	versions, err := db.Versions(t.Context())
	if err != nil || len(versions) == 0 {
		t.Fatalf("%v, %v", versions, err)
	}
	return string(versions[0].Wrapped)
}

func TestPlugin_D24(t *testing.T) {
	v := &vault{}
	v.turn(t, "one")
	uri := plug(t, v)
	db := openStore(t)
	s, k := keeper(t, db, open1(t, uri))
	value, err := s.Seal(id, "p", "canary")
	if err != nil {
		t.Fatal(err)
	}
	before := wrapped(t, db)
	if err := k.Rewrap(t.Context()); err != nil || wrapped(t, db) != before {
		t.Errorf("wrapped again for nothing: %v", err)
	}
	v.turn(t, "two")
	if err := k.Rewrap(t.Context()); err != nil || wrapped(t, db) == before {
		t.Errorf("not wrapped with the service's new key: %v", err)
	}
	v.mu.Lock()
	delete(v.keys, "one")
	v.mu.Unlock()
	again, _ := keeper(t, db, open1(t, uri))
	if got, err := again.Open(id, "p", value); err != nil || got != "canary" {
		t.Errorf("%v, %v", got, err)
	}

	v.mu.Lock()
	v.away = true
	v.mu.Unlock()
	if _, err := Open(t.Context(), uri, nil, Options{}); err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("while it is away: %v", err)
	}
	if err := k.Rewrap(t.Context()); err == nil {
		t.Error("it is away, and nobody says so")
	}
	if got, err := s.Open(id, "p", value); err != nil || got != "canary" {
		t.Errorf("what is loaded needs no key service: %v, %v", got, err)
	}
	v.mu.Lock()
	v.away = false
	v.mu.Unlock()

	// Another vault's key, and a file's.
	stranger := &vault{}
	stranger.turn(t, "two")
	if _, err := seal.Open(t.Context(), db, open1(t, plug(t, stranger))); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("another service's key: %v", err)
	}
	path := filepath.Join(t.TempDir(), "key")
	if _, err := seal.LoadOrCreateKey(path); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Open(t.Context(), db, open1(t, "file://"+path)); !errors.Is(err, seal.ErrOtherKey) {
		t.Errorf("a file's key: %v", err)
	}
	moved, k := keeper(t, db, open1(t, "file://"+path, uri))
	if err := k.Rewrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := moved.Open(id, "p", value); err != nil || got != "canary" {
		t.Errorf("from a service to a file: %v, %v", got, err)
	}
	if _, err := seal.Open(t.Context(), db, open1(t, "file://"+path)); err != nil {
		t.Errorf("with the file alone: %v", err)
	}
}

func TestSecret_D24(t *testing.T) {
	cluster := clustertest.Start(t)
	client, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	ns, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "keys-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	line := func() string {
		t.Helper()
		k, err := seal.NewKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	one, two := line(), line()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "radial-key"}, StringData: map[string]string{"key": one}}
	if _, err := client.CoreV1().Secrets(ns.Name).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := Options{Cluster: func() (*rest.Config, error) { return cluster.Config, nil }}
	uri := "secret://" + ns.Name + "/radial-key/key"
	kek, err := Open(ctx, uri, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	db := openStore(t)
	s, k := keeper(t, db, kek)
	value, err := s.Seal(id, "p", "canary")
	if err != nil {
		t.Fatal(err)
	}
	before := wrapped(t, db)
	secret.StringData["key"] = two + one
	if _, err := client.CoreV1().Secrets(ns.Name).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := k.Rewrap(ctx); err != nil || wrapped(t, db) == before {
		t.Errorf("not wrapped with the Secret's new key: %v", err)
	}
	secret.StringData["key"] = two
	if _, err := client.CoreV1().Secrets(ns.Name).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if kek, err = Open(ctx, uri, nil, o); err != nil {
		t.Fatal(err)
	}
	again, _ := keeper(t, db, kek)
	if got, err := again.Open(id, "p", value); err != nil || got != "canary" {
		t.Errorf("%v, %v", got, err)
	}
	for uri, want := range map[string]string{
		"secret://" + ns.Name + "/radial-key/other": `has no value "other"`,
		"secret://" + ns.Name + "/none/key":         "not found",
	} {
		if _, err := Open(ctx, uri, nil, o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), two[:30]) {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

func TestURI_D24(t *testing.T) {
	for uri, want := range map[string]string{
		"":                             "of no known kind",
		"vault://x":                    "of no known kind",
		"file://key":                   "absolute path",
		"file:///does/not/exist":       "no such file",
		"kms+unix://host/path":         "absolute path",
		"kms+unix:///does/not/exist":   "is it running",
		"secret://ns/name":             "secret://namespace/name/key",
		"secret://ns/name/key/further": "secret://namespace/name/key",
		"secret://ns/name/key":         "--kubeconfig",
		"%":                            "cannot be read",
	} {
		if _, err := Open(t.Context(), uri, nil, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", uri, err, want)
		}
	}
}
