package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/template"
)

// evaluate parses, plans and evaluates a template of 800 resources and about 5,000
// expressions, in turns with a decoding and an encoding of what comes of it.
func (b *bench) evaluate() error {
	text := largeTemplate()
	result, err := evaluated(text)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return err
	}
	const rounds = 30
	var ours, theirs []float64
	for range rounds {
		begun := time.Now()
		if _, err := evaluated(text); err != nil {
			return err
		}
		ours = append(ours, milliseconds(time.Since(begun)))
		begun = time.Now()
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		if _, err := json.Marshal(v); err != nil {
			return err
		}
		theirs = append(theirs, milliseconds(time.Since(begun)))
	}
	b.add(figure{Name: "A template of 800 resources and 5,000 expressions, parsed and evaluated, p50", Value: quantile(ours, 0.5), Unit: "ms",
		Beside: quantile(theirs, 0.5), What: "encoding/json decoding and encoding the result"}.ratioAtMost(5))
	return nil
}

func largeTemplate() []byte {
	var resources []string
	for i := range 800 {
		resources = append(resources, fmt.Sprintf(`"r%d":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"[format('{0}-%d', parameters('name'))]","labels":"[variables('labels')]"},
		"data":{"a":"[concat(parameters('name'), '-', string(%d))]","b":"[if(equals(mod(%d, 2), 0), 'even', 'odd')]","c":"[uniqueString(parameters('name'), '%d')]","d":"[base64('%d')]"}}}`, i, i, i, i, i, i))
	}
	return []byte(`{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes"}},
		"parameters":{"name":{"type":"string","defaultValue":"app"}},"variables":{"labels":{"app":"[toLower(parameters('name'))]"}},
		"resources":{` + strings.Join(resources, ",") + `}}`)
}

// evaluated are the properties of all resources of a template.
func evaluated(text []byte) ([]map[string]any, error) {
	t, err := template.Parse(text)
	if err != nil {
		return nil, err
	}
	p, err := t.Plan(template.Options{})
	if err != nil {
		return nil, err
	}
	var all []map[string]any
	for _, r := range p.Resources {
		properties, err := p.Properties(r, nothingRuns{})
		if err != nil {
			return nil, err
		}
		all = append(all, properties)
	}
	return all, nil
}

// nothingRuns is the state of a deployment of which nothing is read.
type nothingRuns struct{}

func (nothingRuns) Reference(r *template.Resource) (map[string]any, error) {
	return nil, errors.New(r.Symbol + " is not read here")
}
