package dynamic

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/core"
)

func object(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The examples of RFC 7396, appendix A, that have objects as patches.
func TestMergePatch_D3(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		got := mergePatch(object(t, c[0]), object(t, c[1]))
		if diff := cmp.Diff(object(t, c[2]), got); diff != "" {
			t.Errorf("D-3: %s with %s (-want +got):\n%s", c[0], c[1], diff)
		}
	}
}

func TestDifference(t *testing.T) {
	out := func(name string, s core.OutputState) core.Output {
		return core.Output{ID: core.KubernetesID("local", "n", "", "Secret", name), State: s, Managed: true}
	}
	put, drop := difference(
		[]core.Output{out("same", core.OutputMade), out("made", core.OutputPlanned), out("gone", core.OutputMade)},
		[]core.Output{out("same", core.OutputMade), out("made", core.OutputMade), out("new", core.OutputMade)},
	)
	if len(put) != 2 || put[0].ID.Name() != "made" || put[1].ID.Name() != "new" {
		t.Errorf("put is %v", put)
	}
	if len(drop) != 1 || drop[0].Name() != "gone" {
		t.Errorf("drop is %v", drop)
	}
}

func TestPlain(t *testing.T) {
	got := plain(map[string]any{"i": json.Number("9007199254740993"), "f": json.Number("1.5"), "l": []any{json.Number("1")}, "s": "7"})
	want := map[string]any{"i": int64(9007199254740993), "f": 1.5, "l": []any{int64(1)}, "s": "7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSource(t *testing.T) {
	for source, want := range map[string]string{
		"/planes/radius/local/resourceGroups/g/providers/A.B/c/d":             "/planes/radius/local/resourceGroups/g/providers/A.B/c/d",
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Cache/redis/r": "",
		"http://backend:8080":              "",
		"postgres://u@db.example/shop":     "",
		"/planes/radius/local":             "error",
		"/planes/radius/local/providers/X": "error",
		"backend":                          "error",
		"":                                 "error",
	} {
		id, err := parseSource(source)
		if (err != nil) != (want == "error") || err == nil && id.String() != want {
			t.Errorf("%q is %s, %v", source, id, err)
		}
	}
}
