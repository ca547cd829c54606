package azure_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/scope/armtest"
)

// TestNamespaceBetween lists a namespace among more objects of it than there are
// slots: those that wait for it do not keep it from being made.
func TestNamespaceBetween(t *testing.T) {
	b := newBench(t)
	aks := b.arm.AddFront(t, armtest.ClusterID("c"), clustertest.Start(t).Config)
	ns := fmt.Sprintf(`"ns":{"import":"k8s","type":"core/Namespace@v1","properties":{"metadata":{"name":"%s-late"}}}`, b.namespace)
	resources := []string{ns} // whichever end is begun at, it has objects before it
	for i := range 20 {
		resources = append(resources, fmt.Sprintf(`"c%d":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"c%d","namespace":"%s-late"}}}`, i, i, b.namespace))
	}
	slices.Reverse(resources[:10])
	res, err := deploy.New(deploy.EngineOptions{Resolver: b.newResolver(), Parallel: 1}).Deploy(t.Context(), deploy.Request{
		Name: "d", Run: "run", Owner: owner, Started: time.Unix(1, 0), Scope: core.MustParseID("/planes/radius/local/resourceGroups/g"),
		Template: fmt.Appendf(nil, `{"languageVersion":"2.0","contentVersion":"1.0.0.0","imports":{"k8s":{"provider":"Kubernetes","config":{"scope":{"type":"AzureResourceManager","id":"%s"}}}},"resources":{%s}}`,
			aks.ID(), strings.Join(resources, ",")),
	})
	if err != nil || len(res.Resources) != 21 {
		t.Fatalf("%v, %+v", err, res)
	}
}
