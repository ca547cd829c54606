package deployment_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deployment"
)

// The oldest deployments of a group are forgotten, those of others and what was
// made stay.
func TestSweep(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	const other = "/planes/radius/local/resourceGroups/other"
	p.must(200, "PUT", other+ucp, `{}`)
	for i := range 5 {
		p.deploy(fmt.Sprintf("d%d", 4-i), body(one(app)), core.StateSucceeded)
	}
	a := p.must(201, "PUT", strings.Replace(all, group, other, 1)+"/only"+version, body(`{`+head+`,"resources":{}}`))
	p.await(a.header.Get("Azure-AsyncOperation"))
	gone, err := deployment.New(deployment.Options{Store: p.db}).Sweep(t.Context(), 2)
	if err != nil || gone != 3 {
		t.Fatalf("%d were forgotten, %v", gone, err)
	}
	for name, status := range map[string]int{"d4": 404, "d3": 404, "d2": 404, "d1": 200, "d0": 200} {
		p.must(status, "GET", all+"/"+name+version, "")
	}
	p.must(200, "GET", strings.Replace(all, group, other, 1)+"/only"+version, "")
	p.must(200, "GET", group+"/providers/Applications.Core/applications/a"+ucp, "")
	// A group that holds nothing but their history is not in use.
	p.must(409, "DELETE", group+ucp, "")
	p.must(200, "GET", all+"/d0"+version, "")
	p.must(200, "DELETE", other+ucp, "")
	p.must(404, "GET", other+ucp, "")
}
