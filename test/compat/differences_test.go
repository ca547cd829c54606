package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// difference is one place where an answer is not the recorded one.
type difference struct {
	pair string // which pair, such as "ucp/resourcegroups/PUT_Create"
	at   string // "status", or the path in the body, such as "$.value[0].tags"
	what string // missing, extra, or differs, with both values where they are short
}

func (d difference) String() string { return d.pair + " " + d.at + ": " + d.what }

// expectation is an entry of differences.yaml: differences of one reason.
// Pairs and At are patterns in which * stands for any text.
type expectation struct {
	Reason string   `json:"reason"`
	Pairs  []string `json:"pairs"`
	At     []string `json:"at"`
	// What limits the entry to missing, extra or differs; "" is any.
	What string `json:"what,omitempty"`
}

// ledger compares the differences of a suite with those that are expected.
type ledger struct {
	expected []expectation
	mu       sync.Mutex
	used     map[string]bool // by entry, pair pattern and at pattern
}

// openLedger reads the expectations of a suite: the first segment of a pair.
func openLedger(t *testing.T, suite string) *ledger {
	t.Helper()
	var all []expectation
	raw, err := os.ReadFile(filepath.Join("testdata", "differences.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &all); err != nil {
		t.Fatalf("differences.yaml: %v", err)
	}
	l := &ledger{used: map[string]bool{}}
	for _, e := range all {
		if slices.ContainsFunc(e.Pairs, func(p string) bool { return strings.HasPrefix(p, suite+"/") }) {
			l.expected = append(l.expected, e)
		}
	}
	return l
}

// judge reports the differences of a pair that no entry expects.
func (l *ledger) judge(t *testing.T, found []difference) {
	t.Helper()
	for _, d := range l.unexpected(found) {
		t.Errorf("not in differences.yaml: %s", d)
	}
}

// unexpected are those of the differences of a pair that no entry expects.
func (l *ledger) unexpected(found []difference) (out []difference) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range found {
		known := false
		for i, e := range l.expected {
			if e.What != "" && !strings.HasPrefix(d.what, e.What) {
				continue
			}
			for _, pair := range e.Pairs {
				for _, at := range e.At {
					if matches(pair, d.pair) && matches(at, d.at) {
						l.used[key(i, pair, at)] = true
						known = true
					}
				}
			}
		}
		if !known {
			out = append(out, d)
		}
	}
	return out
}

// close reports entries that expect what no longer differs. Only a whole run of
// the suite can tell: with -run for one pair, the others' entries seem stale.
func (l *ledger) close(t *testing.T) {
	t.Helper()
	for _, s := range l.stale() {
		t.Errorf("stale entry in differences.yaml: %s: take it out", s)
	}
}

// stale are the patterns that no difference fitted.
func (l *ledger) stale() (out []string) {
	for i, e := range l.expected {
		pairs, ats := map[string]bool{}, map[string]bool{}
		for _, pair := range e.Pairs {
			for _, at := range e.At {
				if l.used[key(i, pair, at)] {
					pairs[pair], ats[at] = true, true
				}
			}
		}
		for _, pair := range e.Pairs {
			if !pairs[pair] {
				out = append(out, "reason "+e.Reason+" no longer concerns "+pair)
			}
		}
		for _, at := range e.At {
			if len(pairs) > 0 && !ats[at] {
				out = append(out, "reason "+e.Reason+" no longer concerns "+at)
			}
		}
	}
	return out
}

func key(entry int, pair, at string) string { return fmt.Sprintf("%d\x00%s\x00%s", entry, pair, at) }

// matches reports whether text fits a pattern in which * is any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(text, p)
		if i < 0 {
			return false
		}
		text = text[i+len(p):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}

// compare walks a recorded body and ours. Ids and the names of types compare
// without case, as they do everywhere on this wire, and nothing else does.
func compare(pair, at string, want, got any, report func(difference)) {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			break
		}
		for _, name := range sorted(want) {
			v, ok := got[name]
			if !ok {
				report(difference{pair, at + "." + name, "missing, recorded is " + short(want[name])})
				continue
			}
			compare(pair, at+"."+name, want[name], v, report)
		}
		for _, name := range sorted(got) {
			if _, ok := want[name]; !ok {
				report(difference{pair, at + "." + name, "extra, ours is " + short(got[name])})
			}
		}
		return
	case []any:
		got, ok := got.([]any)
		if !ok {
			break
		}
		if byName := names(want); byName != nil {
			ours := names(got)
			for _, name := range sorted(byName) {
				here := at + "[" + name + "]"
				if v, ok := ours[name]; ok {
					compare(pair, here, byName[name], v, report)
				} else {
					report(difference{pair, here, "missing, recorded is " + short(byName[name])})
				}
			}
			for _, name := range sorted(ours) {
				if _, ok := byName[name]; !ok {
					report(difference{pair, at + "[" + name + "]", "extra, ours is " + short(ours[name])})
				}
			}
			return
		}
		for i := range want {
			here := fmt.Sprintf("%s[%d]", at, i)
			if i >= len(got) {
				report(difference{pair, here, "missing, recorded is " + short(want[i])})
				continue
			}
			compare(pair, here, want[i], got[i], report)
		}
		for i := len(want); i < len(got); i++ {
			report(difference{pair, fmt.Sprintf("%s[%d]", at, i), "extra, ours is " + short(got[i])})
		}
		return
	case string:
		if got, ok := got.(string); ok {
			caseless := strings.HasPrefix(want, "/") || strings.HasSuffix(at, ".type")
			if want == got || caseless && strings.EqualFold(want, got) {
				return
			}
		}
	default:
		if want == got {
			return
		}
	}
	report(difference{pair, at, "differs, recorded is " + short(want) + ", ours is " + short(got)})
}

// names are the entries of a list of named objects by their names; nil when it
// is no such list. The order of those is nobody's promise.
func names(list []any) map[string]any {
	out := map[string]any{}
	for _, e := range list {
		object, _ := e.(map[string]any)
		name, ok := object["name"].(string)
		if _, twice := out[name]; !ok || twice {
			return nil
		}
		out[name] = e
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func short(v any) string {
	raw, _ := yaml.Marshal(v)
	s := strings.Join(strings.Fields(string(raw)), " ")
	if len(s) > 120 {
		s = s[:120] + "…"
	}
	return s
}

func sorted(m map[string]any) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// TestCompare: the comparison is what every replay stands on.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		reason, want, got string
		found             []string
	}{
		{"equal", `{"a":[1,"x"]}`, `{"a":[1,"x"]}`, nil},
		{"ids compare without case", `{"id":"/planes/Radius/local"}`, `{"id":"/planes/radius/LOCAL"}`, nil},
		{"types compare without case", `{"type":"System.Resources/resourceproviders"}`, `{"type":"System.Resources/resourceProviders"}`, nil},
		{"other text does not", `{"name":"A"}`, `{"name":"a"}`, []string{"$.name: differs, recorded is A, ours is a"}},
		{"missing and extra", `{"a":1}`, `{"b":2}`, []string{"$.a: missing, recorded is 1", "$.b: extra, ours is 2"}},
		{"lists", `[1,2]`, `[1]`, []string{"$[1]: missing, recorded is 2"}},
		{"longer lists", `[1]`, `[1,2]`, []string{"$[1]: extra, ours is 2"}},
		{"lists of named things", `[{"name":"a","x":1},{"name":"b"}]`, `[{"name":"c"},{"name":"a","x":2}]`, []string{"$[a].x: differs, recorded is 1, ours is 2", "$[b]: missing, recorded is name: b", "$[c]: extra, ours is name: c"}},
		{"kinds", `{"a":{}}`, `{"a":"x"}`, []string{"$.a: differs, recorded is {}, ours is x"}},
		{"null is a value", `{"a":null}`, `{}`, []string{"$.a: missing, recorded is null"}},
	} {
		var found []string
		compare("p", "$", mustJSON(t, c.want), mustJSON(t, c.got), func(d difference) { found = append(found, d.at+": "+d.what) })
		if !slices.Equal(found, c.found) {
			t.Errorf("%s: found %q, want %q", c.reason, found, c.found)
		}
	}
	for pattern, text := range map[string]string{"a/*": "a/b/c", "*": "", "$.*.tags": "$.value[0].tags", "a*c*e": "abcde"} {
		if !matches(pattern, text) {
			t.Errorf("%q does not match %q", pattern, text)
		}
	}
	for pattern, text := range map[string]string{"a/*": "b/a/", "$.tags": "$.tagsX", "a*c*e": "abdce!"} {
		if matches(pattern, text) {
			t.Errorf("%q matches %q", pattern, text)
		}
	}
}

// TestLedger: what nobody expects is told, and so is what is expected in vain.
func TestLedger(t *testing.T) {
	l := &ledger{used: map[string]bool{}, expected: []expectation{
		{Reason: "tags", Pairs: []string{"s/a*", "s/gone"}, At: []string{"$.tags", "$.never"}, What: "missing"},
		{Reason: "vain", Pairs: []string{"s/b"}, At: []string{"status"}},
	}}
	got := l.unexpected([]difference{
		{"s/a1", "$.tags", "missing, recorded is {}"}, {"s/a1", "$.tags", "extra, ours is {}"}, {"s/b", "$.tags", "missing, recorded is {}"},
	})
	if len(got) != 2 || got[0].what != "extra, ours is {}" || got[1].pair != "s/b" {
		t.Errorf("unexpected are %v", got)
	}
	want := []string{"reason tags no longer concerns s/gone", "reason tags no longer concerns $.never", "reason vain no longer concerns s/b"}
	if stale := l.stale(); !slices.Equal(stale, want) {
		t.Errorf("stale are %q, want %q", stale, want)
	}
}

// TestDifferencesAreDocumented: a reason without its words helps nobody.
func TestDifferencesAreDocumented(t *testing.T) {
	var all []expectation
	raw, err := os.ReadFile(filepath.Join("testdata", "differences.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &all); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, e := range all {
		used[e.Reason] = true
		for _, pair := range e.Pairs {
			if suite, _, _ := strings.Cut(pair, "/"); !strings.HasPrefix(e.Pairs[0], suite+"/") {
				t.Errorf("reason %s: the pairs of an entry are of one suite: split it", e.Reason)
			}
		}
		if e.Reason == "" || len(e.Pairs) == 0 || len(e.At) == 0 {
			t.Errorf("an entry needs reason, pairs and at: %+v", e)
		}
		if !strings.Contains(string(page), "| `"+e.Reason+"` |") {
			t.Errorf("docs/compatibility.md has no row for reason `%s`", e.Reason)
		}
	}
	_, explained, ok := strings.Cut(string(page), "\n## Where answers differ\n")
	if !ok {
		t.Fatal("docs/compatibility.md has no part \"Where answers differ\"")
	}
	for _, line := range strings.Split(explained, "\n") {
		if reason, ok := strings.CutPrefix(line, "| `"); ok {
			reason, _, _ = strings.Cut(reason, "`")
			if !used[reason] {
				t.Errorf("docs/compatibility.md explains `%s`, which differences.yaml does not use", reason)
			}
		}
	}
}
