package manifest

import "testing"

func TestBuiltinParses(t *testing.T) {
	r := NewRegistry(Builtin()...)
	if len(r.Types()) < 30 {
		t.Fatal(r.Types())
	}
	for alias, want := range r.Aliases() {
		if got, ok := r.Canonical(alias); !ok || got != want {
			t.Errorf("%s is %s, want %s", alias, got, want)
		}
	}
}
