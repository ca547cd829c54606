package deployment_test

import (
	"strings"
	"testing"
)

// S-55: of two stacks that make one resource of the control plane at the same
// moment one has it, the other is refused by its name; who is refused deletes
// nothing of it, and gets it once it is free.
func TestStacksClaimOneResource_S55(t *testing.T) {
	t.Parallel()
	const env = group + "/providers/Applications.Core/environments/default"
	const shared = group + "/providers/Applications.Core/extenders/shared"
	forms := map[string]string{
		"of ARM": `"shared":{"type":"Applications.Core/extenders","apiVersion":"2023-10-01-preview","name":"shared","dependsOn":["cache"],
			"properties":{"environment":"` + env + `","resourceProvisioning":"manual"}}`,
		"of the import Radius": `"shared":{"import":"radius","type":"Applications.Core/extenders@2023-10-01-preview","dependsOn":["cache"],
			"properties":{"name":"shared","properties":{"environment":"` + env + `","resourceProvisioning":"manual"}}}`,
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			p.T = t
			release, began := make(chan struct{}), make(chan struct{}, 2)
			p.recipes.execute = blocking(began, release)
			template := func(cache string) string {
				return stackBody(`{`+head+`,"imports":{"radius":{"provider":"Radius","version":"latest"}},"resources":{
				 "cache":{"type":"Applications.Datastores/redisCaches","apiVersion":"2023-10-01-preview","name":"`+cache+`","properties":{"environment":"`+env+`"}},`+form+`}}`, "")
			}
			state := func(s string) string {
				return text(at(p.must(200, "GET", stacks+"/"+s+version, "").body, "properties", "provisioningState"))
			}
			links := map[string]string{}
			for _, s := range []string{"one", "two"} {
				links[s] = p.must(201, "PUT", stacks+"/"+s+version, template(s)).header.Get("Azure-AsyncOperation")
				p.eventually("it has planned the resource and waits for another, or was refused", func() bool {
					return len(began) == len(links) || state(s) == "failed"
				})
			}
			close(release) // none has made it
			winner, loser := "one", "two"
			for _, s := range []string{"one", "two"} {
				p.await(links[s])
			}
			if state(winner) != "succeeded" {
				winner, loser = loser, winner
			}
			if state(winner) != "succeeded" || state(loser) != "failed" {
				t.Fatalf("the stacks are %s and %s: one must have made it, the other not", state("one"), state("two"))
			}
			if raw := p.must(200, "GET", stacks+"/"+loser+version, "").raw; !strings.Contains(strings.ToLower(raw), "belongs to "+strings.ToLower(stacks+"/"+winner)) {
				t.Errorf("the refusal does not name who has it: %s", raw)
			}
			p.remove(loser, "", "")
			p.must(200, "GET", shared+ucp, "") // the other's
			p.apply(loser, template(loser), "failed")
			if end := p.remove(winner, "", ""); end.body["status"] != "Succeeded" {
				t.Errorf("the deletion of %s ended so: %s", winner, end.raw)
			}
			p.must(404, "GET", shared+ucp, "")
			p.apply(loser, template(loser), "succeeded")
			p.must(200, "GET", shared+ucp, "")
			p.remove(loser, "", "")
			p.must(404, "GET", shared+ucp, "")
		})
	}
}
