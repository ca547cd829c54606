package deploy

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkEngine is what the engine itself costs: 1,000 objects in three nested
// deployments, and 1,000 deletions, on a target that costs nothing.
func BenchmarkEngine(b *testing.B) {
	var nested []string
	for i := range 3 {
		nested = append(nested, module(fmt.Sprintf("m%d", i), `{}`, doc(fmt.Sprintf(
			`"resources":{"r":{"copy":{"name":"r","count":333},"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('keep-%d-{0}', copyIndex())]"},"data":{"v":"[string(copyIndex())]"}}}}`, i)), ""))
	}
	var entries []string
	for i := range 1000 {
		entries = append(entries, gone(fmt.Sprintf("drop-%d", i), `,"identity":{"configId":"main","uid":"u"}`))
	}
	text := doc(`"resources":{` + strings.Join(nested, ",") + `},"deletedResources":[` + strings.Join(entries, ",") + `]`)
	b.ReportAllocs()
	for b.Loop() {
		s := newSeat(&testing.T{})
		s.base.Progress, s.base.Record = nil, nil
		res, err := s.e.Deploy(b.Context(), s.request(text))
		if err != nil || len(res.Resources) != 999 || len(res.Deleted) != 1000 {
			b.Fatal(err)
		}
	}
}
