package stack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/template"
)

const templateSchema = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"

// document is a template as this package writes it.
type document struct {
	Schema          string                     `json:"$schema"`
	ContentVersion  string                     `json:"contentVersion"`
	LanguageVersion string                     `json:"languageVersion"`
	Imports         map[string]importConfig    `json:"imports,omitempty"`
	Resources       map[string]json.RawMessage `json:"resources"`
	Deleted         []deletion                 `json:"deletedResources,omitempty"`
}

type importConfig struct {
	Provider string         `json:"provider"`
	Version  string         `json:"version,omitempty"`
	Config   map[string]any `json:"config,omitempty"`
}

type deletion struct {
	Import      string          `json:"import,omitempty"`
	ID          string          `json:"id"`
	APIVersion  string          `json:"apiVersion,omitempty"`
	Identity    *identity       `json:"identity,omitempty"`
	Identifiers json.RawMessage `json:"identifiers,omitempty"`
	DependsOn   []string        `json:"dependsOn,omitempty"`
	Unmanage    Action          `json:"unmanage,omitempty"`
}

// identity is what vouches for a deletion: the cluster's mark with the object's
// uid, or with the owner that the object was stamped with, where a killed run did
// not learn the uid.
type identity struct {
	ConfigID string `json:"configId,omitempty"`
	UID      string `json:"uid,omitempty"`
	Owner    string `json:"owner,omitempty"`
}

// Reconstruct makes the template that asks the engine to delete resources, or to
// let them go (S-27): an import for each distinct provider, scope and
// configuration, no resources, and deletedResources. It is a function of the set:
// their order means nothing, and it holds no secret.
func Reconstruct(owner core.ID, gone []Managed, action Action) ([]byte, error) {
	return encode(reconstruct(owner, gone, action))
}

func encode(d document) ([]byte, error) {
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "a template for the stack cannot be written: %w", err)
	}
	return text, nil
}

func reconstruct(owner core.ID, gone []Managed, action Action) document {
	d := newDocument()
	gone = slices.Clone(gone)
	sortManaged(gone)
	aliases := d.imports(gone)
	names := make([]string, len(gone)) // as dependsOn has them
	for i, m := range gone {
		names[i] = aliases[importKey(m.Affected)] + escapeBrackets(m.ID)
	}
	needs := needsOf(gone)
	for i, m := range gone {
		e := deletion{Import: aliases[importKey(m.Affected)], ID: escapeBrackets(m.ID), APIVersion: m.APIVersion, Identity: identityOf(owner, m), Identifiers: m.Identifiers}
		if action == Detach {
			e.Unmanage = Detach
		}
		for _, j := range needs[i] {
			e.DependsOn = append(e.DependsOn, names[j])
		}
		slices.Sort(e.DependsOn)
		d.Deleted = append(d.Deleted, e)
	}
	return d
}

func identityOf(owner core.ID, m Managed) *identity {
	if m.Scope == nil {
		return nil
	}
	var i identity
	if m.Identity != nil {
		i = identity{ConfigID: m.Identity.ConfigID, UID: m.Identity.UID}
	}
	if i.UID == "" && !owner.IsZero() {
		i.Owner = owner.String()
	}
	return &i
}

func newDocument() document {
	return document{Schema: templateSchema, ContentVersion: "1.0.0.0", LanguageVersion: "2.0", Resources: map[string]json.RawMessage{}}
}

// escapeBrackets keeps text that looks like an expression from being one.
func escapeBrackets(text string) string {
	if strings.HasPrefix(text, "[") {
		return "[" + text
	}
	return text
}

// importKey tells imports apart; "" is a resource of the control plane.
func importKey(a deploy.Affected) string {
	if a.Scope == nil {
		return ""
	}
	raw, _ := json.Marshal(a.Config)
	return strings.Join([]string{strings.ToLower(a.Extension), a.Version, strings.ToLower(a.Scope.Type), strings.ToLower(a.Scope.ID), a.Scope.Fingerprint, string(raw)}, "\x00")
}

// imports adds the imports that resources need, and returns their aliases by
// [importKey]: the provider's name, numbered from the second on.
func (d *document) imports(list []Managed) map[string]string {
	first := map[string]deploy.Affected{}
	for _, m := range list {
		if k := importKey(m.Affected); k != "" {
			if have, ok := first[k]; !ok || cmp.Less(m.Scope.ID, have.Scope.ID) { // the same in another case
				first[k] = m.Affected
			}
		}
	}
	keys := make([]string, 0, len(first))
	for k := range first {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	aliases, count := map[string]string{"": ""}, map[string]int{}
	for _, k := range keys {
		a := first[k]
		alias := identifier(a.Extension)
		if count[alias]++; count[alias] > 1 {
			alias += fmt.Sprint(count[alias])
		}
		aliases[k] = alias
		if d.Imports == nil {
			d.Imports = map[string]importConfig{}
		}
		d.Imports[alias] = importConfig{Provider: a.Extension, Version: a.Version, Config: configOf(a)}
	}
	return aliases
}

// configOf is the configuration of an import that leads to where a resource is.
func configOf(a deploy.Affected) map[string]any {
	config := map[string]any{}
	for k, v := range a.Config {
		if text, ok := v.(string); ok {
			v = escapeBrackets(text)
		}
		config[k] = v
	}
	switch s := *a.Scope; s.Type {
	case template.ScopeAzure, template.ScopeRadial:
		config["scope"] = map[string]any{"type": s.Type, "id": escapeBrackets(s.ID)}
	case template.ScopeUserOwned:
		config["scope"] = map[string]any{"type": s.Type, "fingerprint": s.Fingerprint}
	}
	return config
}

func identifier(provider string) string {
	out := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return -1
	}, strings.ToLower(provider))
	if out == "" || out[0] <= '9' {
		out = "extension" + out
	}
	return out
}

// needsOf are the places of what each resource needs, so that it must go before
// them: what it depended on when it was made; the owner whose scope it is inside
// (S-18); the namespace that it is in.
func needsOf(list []Managed) [][]int {
	byKey, byID := map[string]int{}, map[string][]int{}
	owners, namespaces := map[string]int{}, map[string]int{}
	for i, m := range list {
		byKey[m.Key()] = i
		byID[strings.ToLower(m.ID)] = append(byID[strings.ToLower(m.ID)], i)
		if m.Scope == nil {
			owners[strings.ToLower(m.ID)] = i
		} else if id, err := template.ParseExtensionID(m.ID); err == nil && strings.EqualFold(id.Get(template.KeyType), "core/Namespace") {
			namespaces[scopeKey(m.Affected)+"|"+id.Get(template.KeyName)] = i
		}
	}
	needs := make([][]int, len(list))
	add := func(i, j int) {
		if i != j && !slices.Contains(needs[i], j) {
			needs[i] = append(needs[i], j)
		}
	}
	for i, m := range list {
		for _, on := range m.DependsOn {
			if j, ok := byKey[on]; ok {
				add(i, j)
				continue
			}
			for _, j := range byID[strings.ToLower(on)] {
				add(i, j)
			}
		}
		if m.Scope == nil {
			continue
		}
		if j, ok := owners[strings.ToLower(m.Scope.ID)]; ok {
			add(i, j)
		}
		if id, err := template.ParseExtensionID(m.ID); err == nil {
			if j, ok := namespaces[scopeKey(m.Affected)+"|"+id.Get(template.KeyNamespace)]; ok && id.Get(template.KeyNamespace) != "" {
				add(i, j)
			}
		}
	}
	return acyclic(needs)
}

// acyclic drops what would close a circle: records of several updates may
// contradict each other, and a deletion has to end (S-53).
func acyclic(needs [][]int) [][]int {
	const (
		unseen = iota
		open
		done
	)
	state := make([]int, len(needs))
	var visit func(i int)
	visit = func(i int) {
		state[i] = open
		kept := needs[i][:0]
		for _, j := range needs[i] {
			if state[j] == unseen {
				visit(j)
			}
			if state[j] == done {
				kept = append(kept, j)
			}
		}
		needs[i], state[i] = kept, done
	}
	for i := range needs {
		if state[i] == unseen {
			visit(i)
		}
	}
	return needs
}
