package connection

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestValues_K17 proves what a connection carries.
func TestValues_K17(t *testing.T) {
	properties := map[string]any{
		"application": "/a", "environment": "/e", "provisioningState": "Succeeded", "resourceProvisioning": "recipe", "recipe": map[string]any{"name": "default"},
		"resources": []any{}, "connections": map[string]any{}, "codeReference": "https://x", "status": map[string]any{}, "Environment": "/other case",
		"host": "from the user", "port": 6379.0, "password": nil, "database": "0",
	}
	computed := map[string]any{"host": "from the recipe", "size": "S", "database": nil}
	secrets := map[string]any{"password": "secret", "url": "redis://", "size": nil}
	got := Values(properties, computed, secrets)
	want := map[string]any{"host": "from the recipe", "port": 6379.0, "database": "0", "size": "S", "password": "secret", "url": "redis://"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if v := Values(map[string]any{"password": "from the properties"}, map[string]any{"password": "computed"}, map[string]any{"password": "secret"})["password"]; v != "secret" {
		t.Errorf("a secret does not win over a property of its name: %v", v)
	}
	if got := Values(nil, nil, nil); len(got) != 0 {
		t.Errorf("nothing carries %v", got)
	}
	vars, collisions := Variables("redis", got)
	if diff := cmp.Diff(map[string]string{"CONNECTION_REDIS_HOST": "from the recipe", "CONNECTION_REDIS_PORT": "6379", "CONNECTION_REDIS_DATABASE": "0",
		"CONNECTION_REDIS_SIZE": "S", "CONNECTION_REDIS_PASSWORD": "secret", "CONNECTION_REDIS_URL": "redis://"}, vars); diff != "" || collisions != nil {
		t.Errorf("variables (-want +got):\n%s\n%v", diff, collisions)
	}
}

// TestDocumentation_K18 holds the page that users read to the code: every row
// of its tables is an example that must come out.
func TestDocumentation_K18(t *testing.T) {
	page, err := os.ReadFile("../../docs/connections.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string][][]string{} // rows by header
	header := ""
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			header = ""
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i, c := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(c), "`")
		}
		switch {
		case header == "":
			header = strings.Join(cells, "|")
		case !strings.HasPrefix(cells[0], "---"):
			tables[header] = append(tables[header], cells)
		}
	}
	for _, row := range tables["connection|property|variable"] {
		vars, collisions := Variables(row[0], map[string]any{row[1]: "v"})
		if diff := cmp.Diff(map[string]string{row[2]: "v"}, vars); diff != "" || len(collisions) > 0 {
			t.Errorf("K-18 %q: %s %v", row, diff, collisions)
		}
	}
	for _, row := range tables["connection|property|and connection|property|both claim"] {
		values := map[string]map[string]any{row[0]: {row[1]: "one"}}
		if values[row[2]] == nil {
			values[row[2]] = map[string]any{}
		}
		values[row[2]][row[3]] = "two"
		vars, collisions := Merge(values)
		if len(vars) != 0 || len(collisions) != 1 || collisions[0].Variable != row[4] || len(collisions[0].Sources) != 2 {
			t.Errorf("K-18 %q: %v %v", row, vars, collisions)
			continue
		}
		text := collisions[0].String()
		for _, s := range []Source{{row[0], row[1]}, {row[2], row[3]}} {
			if !strings.Contains(text, s.String()) {
				t.Errorf("K-18 %q does not name %s", text, s)
			}
		}
	}
	for _, row := range tables["value|variable holds"] {
		var v any
		if err := json.Unmarshal([]byte(row[0]), &v); err != nil {
			t.Fatalf("%q: %v", row[0], err)
		}
		vars, _ := Variables("c", map[string]any{"p": v})
		want := map[string]string{"CONNECTION_C_P": row[1]}
		if row[1] == "*no variable*" {
			want = map[string]string{}
		}
		if diff := cmp.Diff(want, vars); diff != "" {
			t.Errorf("K-18 %q: %s", row, diff)
		}
	}
	if len(tables) != 3 {
		t.Errorf("the page has tables %q", slices.Collect(maps.Keys(tables)))
	}
	for name := range excluded {
		if !strings.Contains(strings.ToLower(string(page)), "`"+name+"`") {
			t.Errorf("K-17 the page leaves out that %s is not carried", name)
		}
	}
}

func TestText(t *testing.T) {
	for _, tc := range []struct {
		in   any
		want string
	}{
		{json.Number("12345678901234567890"), "12345678901234567890"}, {6379.0, "6379"}, {1e6, "1000000"}, {0.5, "0.5"}, {int64(7), "7"},
		{"<&>", "<&>"}, {[]any{"<"}, `["<"]`}, {json.RawMessage(`{"a": 1}`), `{"a":1}`},
	} {
		if got := Text(tc.in); got != tc.want {
			t.Errorf("%v is %s, want %s", tc.in, got, tc.want)
		}
	}
}

var envName = regexp.MustCompile(`^CONNECTION_[A-Z0-9_]*_[A-Z0-9_]*$`)

// TestMerge_K18 proves for any names: a variable has a name that every shell
// can read, carries the value of exactly one property, and no property is lost
// without a collision that names it.
func TestMerge_K18(t *testing.T) {
	name := rapid.OneOf(rapid.SampledFrom([]string{"a", "A", "a_b", "a-b", "b", "b_c", "c", "", "ß", "ı", "ſ", "K"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		connections := rapid.MapOfN(name, rapid.MapOfN(name, rapid.Just(any("v")), 0, 5), 0, 4).Draw(t, "connections")
		for c, values := range connections {
			for p := range values {
				values[p] = []any{c, p}
			}
		}
		vars, collisions := Merge(connections)
		total := len(vars)
		for v, text := range vars {
			var from []string
			if err := json.Unmarshal([]byte(text), &from); err != nil {
				t.Fatal(err)
			}
			if !envName.MatchString(v) || EnvName(from[0], from[1]) != v {
				t.Fatalf("%q carries %q", v, from)
			}
		}
		for i, c := range collisions {
			total += len(c.Sources)
			if _, set := vars[c.Variable]; set || len(c.Sources) < 2 {
				t.Fatalf("%v", c)
			}
			if i > 0 && collisions[i-1].Variable >= c.Variable {
				t.Fatal("collisions are not sorted")
			}
			for _, s := range c.Sources {
				if EnvName(s.Connection, s.Property) != c.Variable {
					t.Fatalf("%v names %v", c, s)
				}
			}
		}
		want := 0
		for _, values := range connections {
			want += len(values)
		}
		if total != want {
			t.Fatalf("%d properties come out as %d", want, total)
		}
	})
}

// TestHash_K19 proves that the hash changes with the data and with nothing else,
// and that nobody without the key can make it.
func TestHash_K19(t *testing.T) {
	key := []byte("a key of the controller's own, of 32 bytes or so")
	data := map[string]string{"CONNECTION_REDIS_URL": "redis://db", "CONNECTION_REDIS_HOST": "db"}
	const want = "42a44dcabe33c1655866feaff4994320"
	if got := Hash(key, "shop/web", data); got != want {
		t.Errorf("the hash of data has changed to %s: every connected workload of every installation would roll", got)
	}
	for name, other := range map[string]string{"key": Hash([]byte("another"), "shop/web", data), "no key": Hash(nil, "shop/web", data), "scope": Hash(key, "shop/web2", data)} {
		if other == want {
			t.Errorf("another %s gives the same hash", name)
		}
	}
	if Hash(key, "a", nil) != None || Hash(nil, "b", map[string]string{}) != None {
		t.Error("no data has several hashes")
	}
	different := []map[string]string{
		nil, {"a": ""}, {"": "a"}, {"a": "b"}, {"ab": ""}, {"a": "bc"}, {"ab": "c"}, {"a": "b", "c": "d"}, {"a": "bcd"}, {"a": "b\x00c", "d": ""}, {"a": "d", "c": "b"},
	}
	seen := map[string]int{}
	for i, m := range different {
		h := Hash(key, "s", m)
		if j, twice := seen[h]; twice {
			t.Errorf("%v and %v have one hash", different[j], m)
		}
		seen[h] = i
		if len(h) != 32 {
			t.Errorf("%q", h)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "data")
		if Hash(key, "s", m) != Hash(key, "s", maps.Clone(m)) {
			t.Fatal("equal data, different hashes")
		}
	})
}
