package paired

import (
	"testing"
	"time"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

func testGoal() Goal {
	return Goal{
		ID:         core.GroupID("default-demo").Resource("Applications.Datastores/redisCaches", "db"),
		APIVersion: "2023-10-01-preview", RetryOn: "env-1",
		Body: arm.Put{Resource: arm.Resource{
			Properties: map[string]any{"environment": "/e", "recipe": map[string]any{"name": "small"}},
			Owner:      &arm.Owner{Cluster: "local", Namespace: "demo", Kind: "Recipe", Name: "db", UID: "one"},
		}},
	}
}

func TestDecide_K27_K30(t *testing.T) {
	goal := testGoal()
	hash := goal.Hash()
	live := func(state string, change ...func(*arm.Resource)) *arm.Resource {
		r := &arm.Resource{ID: goal.ID.String(), Owner: goal.Body.Owner, Properties: map[string]any{
			"environment": "/e", "recipe": map[string]any{"name": "small", "recipeStatus": "x"}, "provisioningState": state}}
		for _, f := range change {
			f(r)
		}
		return r
	}
	applied := Memory{AppliedHash: hash}
	settled := Memory{AppliedHash: hash, LiveHash: liveHash(goal.Body.Properties, live("Succeeded").Properties)}
	failure := func(on string) Memory {
		return Memory{AppliedHash: "older", Failure: &Failure{Hash: hash, RetryOn: on, Count: 1}}
	}
	for name, tc := range map[string]struct {
		reason string
		snap   snapshot
		want   action
	}{
		"NothingThere":    {"a first goal is PUT", snapshot{tries: true}, actPut},
		"UpToDate":        {"what was applied and lives is left alone", snapshot{live: live("Succeeded"), mem: applied, tries: true}, actDone},
		"ComputedMembers": {"members that the server adds are no drift", snapshot{live: live("Succeeded"), mem: settled, tries: true}, actDone},
		"MemoryLost":      {"without memory nobody knows what was applied", snapshot{live: live("Succeeded"), tries: true}, actPut},
		"GoalChanged":     {"K-30: up to date compares with what was last applied successfully", snapshot{live: live("Succeeded"), mem: Memory{AppliedHash: "other"}, tries: true}, actPut},
		"DeletedOutside":  {"a resource that is gone is made again whatever was applied", snapshot{mem: settled, tries: true}, actPut},
		"ChangedOutside": {"a property that somebody else changed is put back", snapshot{live: live("Succeeded", func(r *arm.Resource) {
			r.Properties["recipe"] = map[string]any{"name": "large"}
		}), mem: settled, tries: true}, actPut},
		"FailedOutside": {"a resource that failed is not up to date", snapshot{live: live("Failed"), mem: applied, tries: true}, actPut},
		"InFlight":      {"an operation whose token was lost is waited for, not met by another", snapshot{live: live("Updating"), tries: true}, actWait},
		"Deleting":      {"a deletion under way is waited for", snapshot{live: live("Deleting"), mem: applied, tries: true}, actWait},
		"FailedNotDue":  {"K-31: a failed goal waits for its time", snapshot{live: live("Failed"), mem: failure("env-1"), tries: false}, actHold},
		"FailedDue":     {"K-31: and is tried when it has come", snapshot{live: live("Failed"), mem: failure("env-1"), tries: true}, actPut},
		"FailedDueOnSucceeded": {"an update that failed is tried again although the older state lives", snapshot{live: live("Succeeded"),
			mem: Memory{AppliedHash: hash, Failure: &Failure{Hash: hash, RetryOn: "env-1"}}, tries: true}, actPut},
		"FailedElsewhere": {"a failure under another environment's state says nothing", snapshot{live: live("Failed"), mem: failure("env-0"), tries: false}, actPut},
		"Foreign": {"K-49: what another object has is not touched", snapshot{live: live("Succeeded", func(r *arm.Resource) {
			r.Owner = &arm.Owner{Cluster: "local", Namespace: "other", Kind: "Recipe", Name: "db", UID: "two"}
		}), mem: applied, tries: true}, actConflict},
	} {
		t.Run(name, func(t *testing.T) {
			tc.snap.goal, tc.snap.hash = goal, hash
			if got, why := decide(tc.snap); got != tc.want {
				t.Errorf("%s: decide = %s (%s), want %s", tc.reason, got, why, tc.want)
			}
		})
	}
}

func TestHash_K30(t *testing.T) {
	base := testGoal().Hash()
	same := testGoal()
	same.Body.Replaces = "dead"
	same.RetryOn = "env-2"
	if same.Hash() != base {
		t.Error("what only one transaction or one retry needs is part of the hash")
	}
	for name, change := range map[string]func(*Goal){
		"a resolved id":  func(g *Goal) { g.Body.Properties["environment"] = "/other" },
		"the id":         func(g *Goal) { g.ID = core.GroupID("g").Resource("A.B/c", "db") },
		"the version":    func(g *Goal) { g.APIVersion = "2025-01-01" },
		"a nested value": func(g *Goal) { g.Body.Properties["recipe"] = map[string]any{"name": "large"} },
	} {
		g := testGoal()
		change(&g)
		if g.Hash() == base {
			t.Errorf("changing %s does not change the hash", name)
		}
	}
}

func TestIntend(t *testing.T) {
	goal := testGoal()
	other := goal
	other.ID = core.GroupID("default-demo").Resource("Applications.Messaging/rabbitMQQueues", "db")
	other.APIVersion = "v2"

	var m Memory
	if !Intend(goal, &m) || m.Resource != goal.ID.String() {
		t.Fatalf("the first goal is not recorded before its PUT: %+v", m)
	}
	m.AppliedHash = "h"
	if Intend(goal, &m) || m.AppliedHash != "h" {
		t.Errorf("the same goal is taken for another: %+v", m)
	}
	if !Intend(other, &m) || m.AppliedHash != "" || len(m.Previous) != 1 || m.Previous[0] != (Former{goal.ID.String(), goal.APIVersion}) {
		t.Errorf("another id does not remember the first with its version: %+v", m)
	}
	if !Intend(goal, &m) || len(m.Previous) != 1 || m.Previous[0].ID != other.ID.String() {
		t.Errorf("going back leaves the present id among those to delete: %+v", m)
	}
	alias := Memory{Requested: "/planes/radius/local/resourceGroups/g/providers/Applications.Link/redisCaches/db", Resource: goal.ID.String()}
	again := goal
	again.ID = core.MustParseID(alias.Requested)
	if Intend(again, &alias) {
		t.Errorf("an alias that the server spells otherwise is taken for a move: %+v", alias)
	}
}

func TestBackoff_K31(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &Runner{Now: func() time.Time { return now }}
	var m Memory
	last := time.Duration(0)
	for range 12 {
		out := r.fail(&m, "h", "", core.Errorf(core.CodeInternal, "no"))
		if out.RetryAfter < last || out.RetryAfter > maxRetry {
			t.Fatalf("pause %s after %s: it must grow up to %s", out.RetryAfter, last, maxRetry)
		}
		last = out.RetryAfter
	}
	if last != maxRetry {
		t.Errorf("after twelve failures the pause is %s, want the bound %s", last, maxRetry)
	}
	if r.fail(&m, "other goal", "", core.Errorf(core.CodeInternal, "no")).RetryAfter != firstRetry {
		t.Error("another goal inherits the pause of the first")
	}
}

func TestScope_K3_K4_K5(t *testing.T) {
	for name, tc := range map[string]struct {
		ref  Reference
		want string
	}{
		"K-3 the namespace names the application":           {Reference{Namespace: "demo"}, "default-demo"},
		"K-3 an override wins":                              {Reference{Namespace: "demo", Application: "shop"}, "default-shop"},
		"K-4 an environment's override":                     {Reference{Namespace: "demo", Environment: "prod"}, "prod-demo"},
		"K-4 an environment's full id counts by its name":   {Reference{Namespace: "demo", Environment: "/planes/radius/local/resourceGroups/x/providers/Applications.Core/environments/prod"}, "prod-demo"},
		"K-5 another cluster is part of the name":           {Reference{Cluster: "east", Namespace: "demo"}, "east-default-demo"},
		"K-5 an application's full id is taken as it is":    {Reference{Cluster: "east", Namespace: "demo", Application: "/planes/radius/local/resourceGroups/team/providers/Applications.Core/applications/shop"}, "team"},
		"K-5 a dash in a part is told from one between two": {Reference{Namespace: "b-c", Environment: "a"}, core.ImplicitGroup("", "a", "b-c")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.ref.Scope()
			if err != nil || got.Group() != tc.want {
				t.Errorf("Scope = %s, %v; want group %s", got, err, tc.want)
			}
		})
	}
	a, _ := Reference{Environment: "a", Namespace: "b-c"}.Scope()
	b, _ := Reference{Environment: "a-b", Namespace: "c"}.Scope()
	if a.Equal(b) {
		t.Errorf("K-5: environment a with b-c and a-b with c share %s", a)
	}
	if _, err := (Reference{Application: "/nonsense"}).Scope(); err == nil {
		t.Error("an application that is no id is accepted")
	}
}
