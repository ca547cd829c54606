package core

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestImplicitGroup_K5(t *testing.T) {
	cases := []struct{ cluster, env, app, want string }{
		{"local", "default", "demo", "default-demo"},
		{"", "default", "demo", "default-demo"},
		{"east", "default", "demo", "east-default-demo"},
		{"local", "Default", "Demo", "default-demo"},
	}
	for _, c := range cases {
		if got := ImplicitGroup(c.cluster, c.env, c.app); got != c.want {
			t.Errorf("ImplicitGroup(%q, %q, %q) = %q, want %q", c.cluster, c.env, c.app, got, c.want)
		}
	}
	if a, b := ImplicitGroup("local", "a-b", "c"), ImplicitGroup("local", "a", "b-c"); a == b {
		t.Errorf("a-b + c and a + b-c share group %s", a)
	}
	if a, b := ImplicitGroup("a", "b", "c"), ImplicitGroup("local", "a", "b-c"); a == b {
		t.Errorf("cluster a and cluster local share group %s", a)
	}
}

func TestImplicitGroupNeverShared_K5(t *testing.T) {
	name := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		a := [3]string{name.Draw(t, "cluster"), name.Draw(t, "env"), name.Draw(t, "app")}
		b := [3]string{name.Draw(t, "cluster2"), name.Draw(t, "env2"), name.Draw(t, "app2")}
		if rapid.Bool().Draw(t, "shift") { // move a dash over a boundary: the case that must not collide
			b = [3]string{a[0], a[1] + "-" + strings.SplitN(a[2], "-", 2)[0], a[2]}
		}
		ga, gb := ImplicitGroup(a[0], a[1], a[2]), ImplicitGroup(b[0], b[1], b[2])
		if len(ga) > 63 || len(ga) == 0 {
			t.Fatalf("%v → %q has %d bytes", a, ga, len(ga))
		}
		if a != b && ga == gb {
			t.Fatalf("%v and %v share group %s", a, b, ga)
		}
	})
}

// An unhashed name has exactly as many dashes as it has boundaries, so it can
// not equal a hashed one of fewer parts by accident; this pins the form.
func TestImplicitGroupForm_K5(t *testing.T) {
	long := strings.Repeat("x", 60)
	for _, c := range [][3]string{{"local", long, long}, {"local", "a-b", "c"}, {"east", "a", strings.Repeat("y", 80)}} {
		g := ImplicitGroup(c[0], c[1], c[2])
		i := strings.LastIndexByte(g, '-')
		if i < 0 || len(g)-i-1 != 8 || strings.Trim(g[i+1:], "0123456789abcdef") != "" {
			t.Errorf("%v → %q does not end in eight hex digits", c, g)
		}
	}
}
