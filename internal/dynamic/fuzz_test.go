package dynamic

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/fuzztest"
	"github.com/radial-project/radial/internal/schema"
)

// merged is RFC 7396 as its section 2 writes it, without changing anything.
func merged(target, patch any) any {
	change, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if object, ok := target.(map[string]any); ok {
		for name, v := range object {
			out[name] = v
		}
	}
	for name, v := range change {
		if v == nil {
			delete(out, name)
		} else {
			out[name] = merged(out[name], v)
		}
	}
	return out
}

// FuzzPatch takes a stored object and a patch through what PATCH does with them
// before anything is stored.
func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"a":"b","c":{"d":"e","f":"g"}}`), []byte(`{"a":"z","c":{"f":null}}`))
	f.Add([]byte(`{"a":[{"b":"c"}]}`), []byte(`{"a":{"0":null}}`))
	f.Add([]byte(`{"password":"p","text":"t"}`), []byte(`{"password":null,"text":{"x":[null]}}`))
	f.Add([]byte(`{}`), []byte(`{"a":{"bb":{"ccc":null}},"list":[{"token":"t"}],"n":1e999}`))
	f.Add([]byte(`{"$sealed":"x"}`), []byte(`{"tags":{"a":null},"$sealed":{"$sealed":1}}`))
	types, err := schema.Compile(json.RawMessage(`{"type":"object","properties":{
		"password":{"type":"string","minLength":2,"x-radius-sensitive":true},"text":{"type":"string","default":"d"},"n":{"type":"integer"},
		"made":{"type":"string","readOnly":true},"list":{"type":"array","items":{"type":"object","properties":{"token":{"type":"string","x-radius-sensitive":true}}}}}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, stored, patch []byte) {
		fuzztest.Bounded(t, len(stored)+len(patch), func() {
			var target, change map[string]any
			if arm.Decode(stored, &target) != nil || target == nil || arm.Decode(patch, &change) != nil || change == nil {
				return
			}
			want := merged(clone(target), clone(change))
			got := mergePatch(clone(target), clone(change))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s with %s (-want +got):\n%s", stored, patch, diff)
			}
			if again := mergePatch(clone(got), clone(change)); !cmp.Equal(got, again) {
				t.Fatalf("%s with %s twice is something else", stored, patch)
			}
			props := got.(map[string]any)
			dropServers(props)
			types.DropReadOnly(props, target)
			types.ApplyDefaults(props)
			if err := types.Validate(props); err != nil {
				return
			}
			if err := types.WalkSensitive(props, func(string, any) (any, error) { return nil, nil }); err != nil {
				t.Fatal(err)
			}
			_, _ = patchTags(map[string]string{"a": "b"}, change["tags"])
		})
	})
}
