package auth

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
)

const (
	plane  = "/planes/radius/local"
	group  = plane + "/resourceGroups/shop"
	other  = plane + "/resourceGroups/bank"
	app    = group + "/providers/Applications.Core/applications/web"
	redis  = group + "/providers/Applications.Datastores/redisCaches/c"
	assign = group + "/providers/System.Authorization/roleAssignments/a"
)

func id(s string) core.ID {
	if s == "" {
		return core.ID{}
	}
	return core.MustParseID(s)
}

func given(principal string, role Role, scope string) Assignment {
	kind, name, _ := strings.Cut(principal, ":")
	a := Assignment{Principal: Principal{PrincipalKind(kind), name}, Role: role, Scope: id(scope)}
	if role == Controller {
		a.Cluster = "east"
	}
	return a
}

// TestDecide_D46 is the table of roles: a role allows its verbs at and below its
// scope and nothing else.
func TestDecide_D46(t *testing.T) {
	alice := Identity{Name: "alice", Groups: []string{"team", "system:authenticated"}}
	robot := Identity{Name: "system:serviceaccount:radial-system:radial-controller"}
	tests := map[string]struct {
		reason string
		who    Identity
		given  []Assignment
		verb   Verb
		id     string
		want   bool
	}{
		"no role":                    {"nothing is allowed by itself", alice, nil, Read, redis, false},
		"reader reads":               {"", alice, []Assignment{given("user:alice", Reader, group)}, Read, redis, true},
		"reader reads the group":     {"a scope covers itself", alice, []Assignment{given("user:alice", Reader, group)}, Read, group, true},
		"reader has no secrets":      {"listSecrets needs more than Reader", alice, []Assignment{given("user:alice", Reader, plane)}, Secrets, redis, false},
		"reader does not write":      {"", alice, []Assignment{given("user:alice", Reader, plane)}, Write, redis, false},
		"reader elsewhere":           {"a scope is no other scope", alice, []Assignment{given("user:alice", Reader, other)}, Read, redis, false},
		"scope is no prefix of text": {"shop is not above shop2", alice, []Assignment{given("user:alice", Owner, group)}, Read, group + "2", false},
		"scope without case":         {"ids compare without case", alice, []Assignment{given("user:alice", Reader, strings.ToUpper(group[:8])+group[8:])}, Read, strings.ToLower(redis), true},
		"contributor writes":         {"", alice, []Assignment{given("user:alice", Contributor, group)}, Write, redis, true},
		"contributor has secrets":    {"", alice, []Assignment{given("user:alice", Contributor, group)}, Secrets, redis, true},
		"contributor deletes":        {"", alice, []Assignment{given("user:alice", Contributor, group)}, Delete, redis, true},
		"contributor does not rule":  {"roles and environments are Owner's", alice, []Assignment{given("user:alice", Contributor, plane)}, Govern, assign, false},
		"owner rules":                {"", alice, []Assignment{given("user:alice", Owner, group)}, Govern, assign, true},
		"owner not above":            {"", alice, []Assignment{given("user:alice", Owner, group)}, Govern, plane, false},
		"owner is not root":          {"", alice, []Assignment{given("user:alice", Owner, plane)}, Administer, "", false},
		"by group":                   {"groups of the caller count", alice, []Assignment{given("group:team", Contributor, plane)}, Write, redis, true},
		"group is no user":           {"", Identity{Name: "team"}, []Assignment{given("group:team", Contributor, plane)}, Write, redis, false},
		"user is no group":           {"", alice, []Assignment{given("user:team", Contributor, plane)}, Write, redis, false},
		"names keep their case":      {"", alice, []Assignment{given("user:Alice", Reader, plane)}, Read, redis, false},
		"by ServiceAccount":          {"", robot, []Assignment{given("serviceAccount:radial-system/radial-controller", Controller, plane)}, Write, redis, true},
		"ServiceAccount elsewhere":   {"", robot, []Assignment{given("serviceAccount:default/radial-controller", Controller, plane)}, Write, redis, false},
		"controller does not rule":   {"", robot, []Assignment{given("serviceAccount:radial-system/radial-controller", Controller, plane)}, Govern, assign, false},
		"role at a resource":         {"a scope may be a resource", alice, []Assignment{given("user:alice", Contributor, redis)}, Secrets, redis, true},
		"role at another resource":   {"", alice, []Assignment{given("user:alice", Contributor, app)}, Secrets, redis, false},
		"discover from below":        {"who has a role in a group sees the plane", alice, []Assignment{given("user:alice", Reader, group)}, Discover, plane, true},
		"discover planes":            {"", alice, []Assignment{given("user:alice", Reader, group)}, Discover, "", true},
		"discover another group":     {"", alice, []Assignment{given("user:alice", Reader, group)}, Discover, other, false},
		"discover without a role":    {"", alice, nil, Discover, "", false},
		"reading is not discovering": {"", alice, []Assignment{given("user:alice", Reader, group)}, Read, plane, false},
		"unknown role":               {"a role of a newer release gives nothing", alice, []Assignment{given("user:alice", "Emperor", plane)}, Read, redis, false},
	}
	for name, tc := range tests {
		t.Run("D-46 "+name, func(t *testing.T) {
			d := NewGrants(tc.given).Decide(tc.who, Access{tc.verb, id(tc.id)})
			if d.Allowed != tc.want {
				t.Errorf("%s: allowed is %v (%s)", tc.reason, d.Allowed, d.Reason)
			}
			if d.Reason == "" {
				t.Error("no reason")
			}
		})
	}
}

func TestDenialSaysWhatToAskFor_D46(t *testing.T) {
	robot := Identity{Name: "system:serviceaccount:ci:deployer"}
	d := NewGrants(nil).Decide(robot, Access{Write, id(redis)})
	for _, part := range []string{"serviceAccount:ci/deployer", "role Contributor", "scope " + group, redis} {
		if !strings.Contains(d.Reason, part) {
			t.Errorf("D-46: the reason %q does not say %q", d.Reason, part)
		}
	}
}

// TestController_D46: a Controller's writes are bound to its clusters, unless
// another role allows them anyway.
func TestController_D46(t *testing.T) {
	robot := Identity{Name: "r", Groups: []string{"robots"}}
	east, west := given("user:r", Controller, plane), given("user:r", Controller, group)
	west.Cluster = "west"
	d := NewGrants([]Assignment{east, west}).Decide(robot, Access{Write, id(redis)})
	if diff := cmp.Diff([]string{"east", "west"}, d.Clusters); diff != "" || !d.Allowed {
		t.Errorf("D-46: %s", diff)
	}
	if d := NewGrants([]Assignment{east}).Decide(robot, Access{Read, id(redis)}); d.Clusters != nil {
		t.Error("D-46: reading is bound to owners")
	}
	d = NewGrants([]Assignment{east, given("group:robots", Contributor, group)}).Decide(robot, Access{Write, id(redis)})
	if d.Clusters != nil || d.Role != Contributor {
		t.Errorf("D-46: Contributor is bound: %+v", d)
	}
}

func TestParseAssignment_D46(t *testing.T) {
	tests := map[string]struct {
		at, body string
		scope    string
		fault    string
	}{
		"group":           {group, `{"principal":{"kind":"user","name":"a"},"role":"Reader"}`, group, ""},
		"plane":           {plane, `{"principal":{"kind":"group","name":"g"},"role":"Owner"}`, plane, ""},
		"below":           {plane, `{"principal":{"kind":"user","name":"a"},"role":"Owner","scope":"` + group + `"}`, group, ""},
		"above":           {group, `{"principal":{"kind":"user","name":"a"},"role":"Owner","scope":"` + plane + `"}`, "", "scope"},
		"beside":          {group, `{"principal":{"kind":"user","name":"a"},"role":"Owner","scope":"` + other + `"}`, "", "scope"},
		"longer name":     {group, `{"principal":{"kind":"user","name":"a"},"role":"Owner","scope":"` + group + `2"}`, "", "scope"},
		"no id":           {group, `{"principal":{"kind":"user","name":"a"},"role":"Owner","scope":"shop"}`, "", "scope"},
		"role":            {group, `{"principal":{"kind":"user","name":"a"},"role":"Root"}`, "", "role"},
		"anonymous":       {group, `{"principal":{"kind":"user","name":"system:anonymous"},"role":"Reader"}`, "", "principal.name"},
		"unauthenticated": {group, `{"principal":{"kind":"group","name":"system:unauthenticated"},"role":"Reader"}`, "", "principal.name"},
		"account":         {group, `{"principal":{"kind":"serviceAccount","name":"ci/bot"},"role":"Reader"}`, group, ""},
		"half an account": {group, `{"principal":{"kind":"serviceAccount","name":"bot"},"role":"Reader"}`, "", "principal.name"},
		"odd account":     {group, `{"principal":{"kind":"serviceAccount","name":"a/b:c"},"role":"Reader"}`, "", "principal.name"},
		"controller":      {plane, `{"principal":{"kind":"serviceAccount","name":"r/c"},"role":"Controller","cluster":"east"}`, plane, ""},
		"whose cluster":   {plane, `{"principal":{"kind":"serviceAccount","name":"r/c"},"role":"Controller"}`, "", "cluster"},
		"no controller":   {plane, `{"principal":{"kind":"user","name":"c"},"role":"Owner","cluster":"east"}`, "", "cluster"},
	}
	for name, tc := range tests {
		t.Run("D-46 "+name, func(t *testing.T) {
			a, err := ParseAssignment(id(tc.at+"/providers/System.Authorization/roleAssignments/x"), []byte(tc.body))
			switch {
			case tc.fault == "" && (err != nil || !a.Scope.Equal(id(tc.scope))):
				t.Errorf("scope %s, %v", a.Scope, err)
			case tc.fault != "" && (err == nil || core.AsError(err).Target != "properties."+tc.fault):
				t.Errorf("the error is %v, want one about %s", err, tc.fault)
			}
		})
	}
}

// TestWanted_D46 says what every route asks for; what is not known is root's.
func TestWanted_D46(t *testing.T) {
	const rp = plane + "/providers/System.Resources/resourceproviders"
	env := group + "/providers/Applications.Core/environments/e"
	tests := []struct {
		method, path string
		verb         Verb
		id           string
	}{
		{"GET", "/planes", Discover, ""}, {"GET", "/planes/radius", Discover, ""}, {"PUT", "/planes/radius", Administer, ""},
		{"GET", plane, Discover, plane}, {"PUT", plane, Govern, plane}, {"DELETE", plane, Govern, plane},
		{"GET", plane + "/resourceGroups", Discover, plane}, {"GET", plane + "/resources", Discover, plane}, {"GET", group + "/resources", Discover, group},
		{"GET", group, Read, group}, {"PUT", group, Write, group}, {"DELETE", group, Delete, group},
		{"GET", plane + "/providers", Discover, plane}, {"GET", plane + "/providers/Applications.Core", Discover, plane},
		{"GET", rp, Discover, plane}, {"PUT", rp + "/My.Types/manifest", Govern, plane}, {"DELETE", rp + "/My.Types", Govern, plane},
		{"PUT", strings.ToUpper(rp) + "/My.Types/manifest", Govern, plane},
		{"GET", plane + "/providers/System.Resources/auditRecords", Govern, plane}, {"GET", plane + "/providers/system.resources/AUDITRECORDS/x", Govern, plane},
		{"GET", redis, Read, redis}, {"HEAD", redis, Read, redis}, {"PUT", redis, Write, redis}, {"PATCH", redis, Write, redis}, {"DELETE", redis, Delete, redis},
		{"POST", redis + "/listSecrets", Secrets, redis}, {"POST", redis + "/LISTSECRETS", Secrets, redis}, {"POST", app + "/getGraph", Read, app}, {"POST", redis + "/restart", Write, redis},
		{"GET", group + "/providers/Applications.Datastores/redisCaches", Discover, group},
		{"GET", env, Read, env}, {"PUT", env, Govern, env}, {"DELETE", env, Govern, env}, {"PUT", strings.ToLower(env), Govern, env},
		{"PUT", group + "/providers/Radius.Core/recipePacks/p", Govern, group + "/providers/Radius.Core/recipePacks/p"},
		{"GET", assign, Read, assign}, {"PUT", assign, Govern, assign}, {"PATCH", assign, Govern, assign}, {"DELETE", assign, Govern, assign},
		{"PUT", group + "/providers/Old.Core/environments/e", Govern, env},
		{"GET", plane + "/providers/X.Y/locations/global/operationStatuses/1", Read, plane},
		{"POST", plane + "/providers/X.Y/locations/global/operationStatuses/1/cancel", Write, plane},
		{"GET", plane + "/providers/X.Y/locations/global/operationStatuses", Discover, plane},
		{"DELETE", app + "?cascade=true", Delete, plane}, {"DELETE", env + "?Cascade=TRUE", Govern, plane}, {"DELETE", group + "?cascade=true", Delete, plane},
		{"GET", "/watch/changes", Discover, ""}, {"GET", "/debug/pprof/", Administer, ""}, {"GET", "/metrics", Administer, ""}, {"GET", "/something", Administer, ""},
		{"TRACE", redis, Administer, redis}, {"GET", group + "/what/ever", Administer, plane}, {"GET", plane + "/accounts/a", Read, plane + "/accounts/a"},
		{"GET", arm.Prefix + redis, Read, redis}, {"PUT", arm.Prefix + strings.ToLower(env), Govern, env},
	}
	canonical := func(name string) (string, bool) {
		if strings.EqualFold(name, "Old.Core/environments") {
			return "Applications.Core/environments", true
		}
		return "", false
	}
	for _, tc := range tests {
		t.Run("D-46 "+tc.method+" "+tc.path, func(t *testing.T) {
			r, err := arm.Parse(httptest.NewRequest(tc.method, tc.path, nil))
			if err != nil {
				t.Fatal(err)
			}
			w := wanted(r, canonical)
			if w.Verb != tc.verb || !w.ID.Equal(id(tc.id)) {
				t.Errorf("%s at %s, want %s at %s", w.Verb, w.ID, tc.verb, tc.id)
			}
		})
	}
}

func TestLinks_D46(t *testing.T) {
	got := links(map[string]any{
		"environment": group + "/providers/Applications.Core/environments/e",
		"connections": map[string]any{"db": map[string]any{"source": other + "/providers/X.Y/dbs/d"}, "url": map[string]any{"source": "http://web"}},
		"deep":        []any{map[string]any{"x": other + "/providers/X.Y/dbs/e"}},
		"recipePacks": []any{plane + "/providers/Radius.Core/recipePacks/p"},
		"resources":   []any{map[string]any{"id": "/planes/kubernetes/local/namespaces/n/providers/apps/Deployment/d"}},
		"count":       1.0,
	})
	var said []string
	for _, l := range got {
		said = append(said, l.at+" "+string(l.Verb)+" "+l.ID.Name())
	}
	want := []string{"properties.connections secrets d", "properties.deep secrets e", "properties.environment read e", "properties.recipePacks read p"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Error("D-46:", diff)
	}
}
