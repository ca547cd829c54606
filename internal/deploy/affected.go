package deploy

import (
	"encoding/json"

	"github.com/radial-project/radial/internal/core"
)

// JournalAffected reads what a journal's entries are about, as results have it:
// for who kept a journal and lost the result. It has one element for each entry,
// with ID "" for one that cannot be read.
func JournalAffected(journal []core.Output) []Affected {
	list := make([]Affected, len(journal))
	keys := map[string]string{} // of entries, by id
	for i, o := range journal {
		h, err := readHandle(o)
		if err != nil {
			continue
		}
		a := Affected{ID: h.ID, Type: h.Ref.Type, APIVersion: h.Ref.APIVersion, Identifiers: h.Ref.Identifiers, Output: o.ID.String(), Symbol: o.LocalID}
		if !h.Ref.ID.IsZero() {
			a.Output = h.Ref.ID.String()
		}
		if h.own() {
			a.ID, a.Identifiers = h.Ref.ID.String(), nil
		} else {
			a.Scope, a.Extension, a.Version = answeredScope(h.Scope), h.Scope.Extension, h.Scope.Version
			a.Config = configOf(h)
			if h.Ref.UID != "" || h.Ref.ConfigID != "" {
				a.Identity = &Identity{ConfigID: h.Ref.ConfigID, UID: h.Ref.UID}
			}
		}
		if a.ID == "" {
			continue
		}
		list[i] = a
		keys[o.ID.Key()] = a.Key()
	}
	for i, o := range journal {
		for _, id := range o.DependsOn {
			if key := keys[id.Key()]; key != "" {
				list[i].DependsOn = append(list[i].DependsOn, key)
			}
		}
	}
	return list
}

// configOf is the configuration of the import that an entry was made under, as
// far as its scope tells it.
func configOf(h Handle) map[string]any {
	config := map[string]any{}
	if h.Scope.Config != "" {
		_ = json.Unmarshal([]byte(h.Scope.Config), &config) // written by this package
	}
	if h.Scope.Namespace != "" {
		config["namespace"] = h.Scope.Namespace
	}
	if h.Scope.CredentialType != "" {
		config["credentialType"] = h.Scope.CredentialType
	}
	if len(config) == 0 {
		return nil
	}
	return config
}
