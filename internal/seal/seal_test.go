package seal

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/schema"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
	"pgregory.net/rapid"
)

var _ KeeperStore = store.Store(nil)

var (
	redis = core.MustParseID("/planes/radius/local/resourceGroups/g/providers/Applications.Datastores/redisCaches/db")
	other = core.MustParseID("/planes/radius/local/resourceGroups/g/providers/Applications.Datastores/redisCaches/db2")
)

// memory keeps the first keyset as the store does.
type memory struct {
	mu      sync.Mutex
	wrapped []byte
}

func (m *memory) Versions(context.Context) ([]store.Keyset, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wrapped == nil {
		return nil, nil
	}
	return []store.Keyset{{Version: 1, State: store.KeysetPrimary, Wrapped: bytes.Clone(m.wrapped)}}, nil
}

func (m *memory) Keyset(_ context.Context, initial []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wrapped == nil {
		m.wrapped = bytes.Clone(initial)
	}
	return bytes.Clone(m.wrapped), nil
}

func testKey(t testing.TB, fill byte) KEK {
	t.Helper()
	kek, err := NewKEK(bytes.Repeat([]byte{fill}, keySize), "the test")
	if err != nil {
		t.Fatal(err)
	}
	return kek
}

func open(t testing.TB, m Keysets, kek KEK) *Sealer {
	t.Helper()
	s, err := Open(t.Context(), m, kek)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealAndOpen_D24(t *testing.T) {
	s := open(t, &memory{}, testKey(t, 1))
	for _, v := range []any{"", "canary", true, nil, json.Number("12345678901234567890.25"), []any{"a", nil}, map[string]any{"k": []any{map[string]any{}}},
		map[string]any{"$sealed": "looks like ours"}} {
		sealed, err := s.Seal(redis, "secrets.password", v)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(sealed, []byte("canary")) {
			t.Errorf("the value shows: %s", sealed)
		}
		var decoded any
		if err := json.Unmarshal(sealed, &decoded); err != nil {
			t.Fatal(err)
		}
		for _, form := range []any{sealed, decoded} {
			if !IsSealed(form) {
				t.Errorf("%T %v is not seen as sealed", form, form)
			}
			got, err := s.Open(core.MustParseID(strings.ToUpper(redis.String())), "secrets.password", form)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
	one, _ := s.Seal(redis, "p", "same")
	two, _ := s.Seal(redis, "p", "same")
	if bytes.Equal(one, two) {
		t.Error("equal values seal to equal text: they could be compared from outside")
	}
	for _, v := range []any{nil, "x", map[string]any{}, map[string]any{"$sealed": 1}, map[string]any{"$sealed": "x", "y": 1}, json.RawMessage(`"x"`), json.RawMessage(`{"a":"b"}`)} {
		if IsSealed(v) {
			t.Errorf("%v is seen as sealed", v)
		}
	}
}

// TestBinding_D24 proves that a sealed value opens in its own place only, and
// that no error tells what it holds.
func TestBinding_D24(t *testing.T) {
	m := &memory{}
	s := open(t, m, testKey(t, 1))
	sealed, err := s.Seal(redis, "data[*].value", "canary")
	if err != nil {
		t.Fatal(err)
	}
	stranger := open(t, &memory{}, testKey(t, 1))
	damaged := bytes.Replace(sealed, sealed[20:21], []byte{sealed[20] ^ 1}, 1)
	for name, try := range map[string]func() (any, error){
		"another resource": func() (any, error) { return s.Open(other, "data[*].value", sealed) },
		"another path":     func() (any, error) { return s.Open(redis, "data[*].Value", sealed) },
		"another keyset":   func() (any, error) { return stranger.Open(redis, "data[*].value", sealed) },
		"damaged":          func() (any, error) { return s.Open(redis, "data[*].value", json.RawMessage(damaged)) },
		"not base64":       func() (any, error) { return s.Open(redis, "data[*].value", map[string]any{"$sealed": "%"}) },
		"plaintext":        func() (any, error) { return s.Open(redis, "data[*].value", "canary") },
	} {
		v, err := try()
		if err == nil || v != nil {
			t.Errorf("%s: opens to %v", name, v)
			continue
		}
		if core.CodeOf(err) != core.CodeInternal || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "write the resource again") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := s.Open(redis, "data[*].value", sealed); err != nil || v != "canary" {
		t.Errorf("its own place: %v, %v", v, err)
	}
}

// TestKeysetInStore_D24 runs against the real store: the keyset survives a
// restart, lies there wrapped, and opens with its key only.
func TestKeysetInStore_D24(t *testing.T) {
	dir := t.TempDir()
	kek, err := LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "radial.db")
	db, err := sqlite.Open(t.Context(), file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, db, kek)
	sealed, err := s.Seal(redis, "p", "canary")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = sqlite.Open(t.Context(), file, sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	again, err := LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := open(t, db, again).Open(redis, "p", sealed); err != nil || v != "canary" {
		t.Errorf("after a restart: %v, %v", v, err)
	}
	_, err = Open(t.Context(), db, testKey(t, 9))
	if err == nil || !strings.Contains(err.Error(), "does not open with the key in the test") || !strings.Contains(err.Error(), "put back the key") {
		t.Errorf("with another key: %v", err)
	}
}

// TestStartTogether_D24 proves that processes that start together seal for one
// another.
func TestStartTogether_D24(t *testing.T) {
	m, path := &memory{}, filepath.Join(t.TempDir(), "key")
	sealers := make([]*Sealer, 8)
	var wg sync.WaitGroup
	for i := range sealers {
		wg.Go(func() {
			kek, err := LoadOrCreateKey(path)
			if err != nil {
				t.Error(err)
				return
			}
			if sealers[i], err = Open(t.Context(), m, kek); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	sealed, err := sealers[0].Seal(redis, "p", "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sealers {
		if v, err := s.Open(redis, "p", sealed); err != nil || v != "x" {
			t.Errorf("%v, %v", v, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("files are left behind: %q", left)
	}
}

func TestKeyFile_D24(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	kek, err := LoadOrCreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadOrCreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	cipher, err := kek.Wrap(t.Context(), []byte("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if plain, current, err := again.Unwrap(t.Context(), cipher, nil); err != nil || !current || string(plain) != "x" {
		t.Errorf("the second start has another key: %v", err)
	}
	for name, tc := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"empty":         {"", 0o600, "is not a key file"},
		"something":     {"hunter2\n", 0o600, "is not a key file"},
		"cut off":       {string(content[:20]), 0o600, "damaged"},
		"short":         {keyPrefix + "aGk=\n", 0o600, "has 2 bytes instead of 32"},
		"open to all":   {string(content), 0o644, "chmod 600"},
		"group readers": {string(content), 0o640, ""},
	} {
		p := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(p, []byte(tc.content), tc.mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadOrCreateKey(p)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), p)):
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: the error shows the content: %v", name, err)
		}
		if left, _ := os.ReadFile(p); string(left) != tc.content {
			t.Errorf("%s: the file was changed", name)
		}
	}
	if _, err := LoadOrCreateKey(filepath.Join(t.TempDir(), "no", "key")); err == nil {
		t.Error("a key is made in a directory that does not exist")
	}
}

// TestKeyFileIsWhole_D24 proves that a start that fails while it makes the key
// leaves no file that a later start would take for one.
func TestKeyFileIsWhole_D24(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if _, err := loadOrCreate(path, bytes.NewReader(make([]byte, keySize-1))); err == nil {
		t.Fatal("a key of too little randomness is made")
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("a file is left: %v", err)
	}
	if _, err := LoadOrCreateKey(path); err != nil {
		t.Errorf("the next start: %v", err)
	}
}

// TestSealBySchema_D24 seals by a schema's walk as a write does, moves an item
// as a PATCH may, and opens again.
func TestSealBySchema_D24(t *testing.T) {
	sch, err := schema.Compile(json.RawMessage(`{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{"v":{"type":"string","x-radius-sensitive":true}}}},"host":{"type":"string"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, &memory{}, testKey(t, 1))
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.StringMatching(`canary-[a-z]{8}`), 1, 4).Draw(t, "values")
		var items []any
		for _, v := range values {
			items = append(items, map[string]any{"v": v})
		}
		props := map[string]any{"host": "h", "l": items}
		if err := sch.WalkSensitive(props, func(path string, v any) (any, error) { return s.Seal(redis, path, v) }); err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(props)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(stored, []byte("canary")) {
			t.Fatalf("stored in the clear: %s", stored)
		}
		var read map[string]any
		if err := json.Unmarshal(stored, &read); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(read["l"].([]any))
		slices.Reverse(values)
		if err := sch.WalkSensitive(read, func(path string, v any) (any, error) { return s.Open(redis, path, v) }); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if got := read["l"].([]any)[i].(map[string]any)["v"]; got != v {
				t.Fatalf("item %d is %v, want %s", i, got, v)
			}
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	s := open(b, &memory{}, testKey(b, 1))
	b.ReportAllocs()
	for b.Loop() {
		sealed, err := s.Seal(redis, "secrets", "a password of some length")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Open(redis, "secrets", sealed); err != nil {
			b.Fatal(err)
		}
	}
}
