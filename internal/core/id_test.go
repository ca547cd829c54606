package core

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/radial-project/radial/internal/fuzztest"
)

func TestParseID(t *testing.T) {
	cases := map[string]struct {
		reason     string
		in         string
		typ, name  string
		group      string
		scope      string
		collection bool
	}{
		"resource": {
			reason: "a resource in a group",
			in:     "/planes/radius/local/resourceGroups/default/providers/Applications.Core/containers/web",
			typ:    "Applications.Core/containers", name: "web", group: "default",
			scope: "/planes/radius/local/resourceGroups/default",
		},
		"collection": {
			reason: "an id that ends in a type names a collection",
			in:     "/planes/radius/local/providers/Applications.Core/containers",
			typ:    "Applications.Core/containers", scope: "/planes/radius/local", collection: true,
		},
		"group": {
			reason: "a scope has no type",
			in:     "/planes/radius/local/resourcegroups/a-b",
			name:   "a-b", group: "a-b", scope: "/planes/radius/local/resourcegroups/a-b",
		},
		"plane": {
			reason: "a plane is its own scope",
			in:     "/planes/radius/local", name: "local", scope: "/planes/radius/local",
		},
		"nested": {
			reason: "child types join the type",
			in:     "/planes/radius/local/providers/System.Resources/resourceproviders/My.Co/resourcetypes/redis",
			typ:    "System.Resources/resourceproviders/resourcetypes", name: "redis", scope: "/planes/radius/local",
		},
		"kubernetes": {
			reason: "namespaces are scopes of the Kubernetes plane",
			in:     "/planes/kubernetes/east/namespaces/demo/providers/apps/Deployment/web",
			typ:    "apps/Deployment", name: "web", scope: "/planes/kubernetes/east/namespaces/demo",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			id, err := ParseID(tc.in)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if id.String() != tc.in {
				t.Errorf("%s: String() = %q, want %q", tc.reason, id, tc.in)
			}
			if id.Type() != tc.typ || id.Name() != tc.name && !tc.collection || id.Group() != tc.group || id.Scope().String() != tc.scope {
				t.Errorf("%s: type %q name %q group %q scope %q", tc.reason, id.Type(), id.Name(), id.Group(), id.Scope())
			}
			if id.IsCollection() != tc.collection {
				t.Errorf("%s: IsCollection() = %v", tc.reason, id.IsCollection())
			}
			upper, err := ParseID("/PLANES" + strings.ToUpper(tc.in[len("/planes"):]))
			if err != nil || !upper.Equal(id) {
				t.Errorf("%s: %q and %q do not compare equal (%v)", tc.reason, upper, id, err)
			}
		})
	}
}

func TestParseIDRefuses(t *testing.T) {
	for _, in := range []string{"", "/", "planes/radius/local", "/planes", "/planes/radius", "/planes/radius/", "/planes//local",
		"/planes/radius/local/resourceGroups", "/planes/radius/local/providers", "/planes/radius/local/providers/A.B",
		"/planes/radius/local//providers/A.B/c/d", "/subscriptions/1/resourceGroups/x",
		"/planes/radius/\xe0\xe0", "/planes/radius/lo\ncal",
		"/plane\u017f/radius/local", "/planes/radius/local/provider\u017f/A.B/c/d", "/planes/radius/local/resourceGroups/\u212a", "/planes/radius/local/resourceGroups/\u0130"} {
		if id, err := ParseID(in); err == nil {
			t.Errorf("ParseID(%q) = %v, want an error", in, id)
		} else if !IsCode(err, CodeBadRequest) {
			t.Errorf("ParseID(%q): code %s, want BadRequest", in, CodeOf(err))
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("/planes/radius/local/resourceGroups/default/providers/Applications.Core/containers/web")
	f.Add("/planes/kubernetes/local/namespaces/a/providers/core/Secret/x")
	f.Add("/planes/a/b/providers/c/d/e/f")
	f.Fuzz(func(t *testing.T, s string) {
		fuzztest.Bounded(t, len(s), func() {
			id, err := ParseID(s)
			if err != nil {
				return
			}
			again, err := ParseID(id.String())
			if err != nil || !again.Equal(id) {
				t.Fatalf("%q → %q → %v (%v)", s, id, again, err)
			}
			b, err := json.Marshal(id)
			if err != nil {
				t.Fatal(err)
			}
			var back ID
			if err := json.Unmarshal(b, &back); err != nil || back.String() != id.String() {
				t.Fatalf("JSON of %q: %s, %v", id, b, err)
			}
		})
	})
}

// K-36's shape, laid now: the cluster's name is in every Kubernetes id.
func TestKubernetesID(t *testing.T) {
	got := KubernetesID("east", "demo", "", "Secret", "db").String()
	if want := "/planes/kubernetes/east/namespaces/demo/providers/core/Secret/db"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if a, b := KubernetesID("east", "demo", "apps", "Deployment", "web"), KubernetesID("west", "demo", "apps", "Deployment", "web"); a.Equal(b) {
		t.Error("equal objects of two clusters have one id")
	}
	if got := KubernetesID(LocalCluster, "", "", "Namespace", "demo"); got.String() != "/planes/kubernetes/local/providers/core/Namespace/demo" {
		t.Errorf("cluster-scoped: %s", got)
	}
}

func TestIDRenames(t *testing.T) {
	id := MustParseID("/planes/radius/local/resourceGroups/g/providers/Applications.Link/redisCaches/db")
	if got := id.WithType("Applications.Datastores/redisCaches").String(); got != "/planes/radius/local/resourceGroups/g/providers/Applications.Datastores/redisCaches/db" {
		t.Error(got)
	}
	if got := GroupID("g").Resource("A.B/c/d", "n").String(); got != "/planes/radius/local/resourceGroups/g/providers/A.B/c/d/n" {
		t.Log("a child type without its parent's name is the caller's to complete:", got)
	}
}

func TestErrors(t *testing.T) {
	inner := Errorf(CodeNotFound, "resource %q was not found", "x")
	outer := Errorf(CodeRecipeDeployment, "recipe failed: %w", inner)
	if !IsCode(outer, CodeRecipeDeployment) || CodeOf(outer.Unwrap()) != CodeNotFound {
		t.Errorf("codes: %s, %s", CodeOf(outer), CodeOf(outer.Unwrap()))
	}
	if s := CodeNameConflict.Status(); s != 409 {
		t.Errorf("NameConflict is %d", s)
	}
	for code, want := range map[Code]int{CodeWrongTarget: 409, CodeScopeGone: 404, CodeCredentialsNeeded: 400} {
		if s := code.Status(); s != want {
			t.Errorf("%s has status %d, want %d", code, s, want)
		}
	}
	if s := Code("unheard of").Status(); s != 500 {
		t.Errorf("unknown code is %d", s)
	}
	d := outer.WithDetails(*inner)
	if len(outer.Details) != 0 || len(d.Details) != 1 {
		t.Error("WithDetails changed its receiver")
	}
}

// TestPosesAsASCII walks all characters, so that a new version of the tables is
// noticed.
func TestPosesAsASCII(t *testing.T) {
	for c := rune(0x80); c <= unicode.MaxRune; c++ {
		poses := unicode.ToLower(c) < 0x80
		for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
			poses = poses || f < 0x80
		}
		if poses != PosesAsASCII(c) {
			t.Errorf("PosesAsASCII(%U) = %v", c, !poses)
		}
	}
}
