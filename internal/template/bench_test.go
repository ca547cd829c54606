package template

import (
	"fmt"
	"strings"
	"testing"
)

// large is a template of 800 resources and about 5,000 expressions.
func large() []byte {
	var b strings.Builder
	b.WriteString(`{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes"}},
	 "parameters":{"name":{"type":"string","defaultValue":"app"}},"variables":{"labels":{"app":"[toLower(parameters('name'))]"}},"resources":{`)
	for i := range 800 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"r%d":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('{0}-%d', parameters('name'))]","labels":"[variables('labels')]"},
		 "data":{"a":"[concat(parameters('name'), '-', string(%d))]","b":"[if(equals(mod(%d, 2), 0), 'even', 'odd')]","c":"[uniqueString(parameters('name'), '%d')]","d":"[base64('%d')]"}}}`, i, i, i, i, i, i)
	}
	b.WriteString(`}}`)
	return []byte(b.String())
}

// BenchmarkEvaluate is to be profiled; make bench has the figure, beside its yardstick.
func BenchmarkEvaluate(b *testing.B) {
	text := large()
	b.ReportAllocs()
	for b.Loop() {
		t, err := Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		p, err := t.Plan(Options{})
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range p.Resources {
			if _, err := p.Properties(r, live{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
