package stack

import "encoding/json"

// What follows are the parts of Kubernetes' ValidatingAdmissionPolicy that deny
// settings need, written as a template has them: this package imports no client
// of Kubernetes (S-34).
type policy struct {
	Metadata metadata   `json:"metadata"`
	Spec     policySpec `json:"spec"`
}

type metadata struct {
	Name string `json:"name"`
}

type policySpec struct {
	Failure     string       `json:"failurePolicy"`
	Match       match        `json:"matchConstraints"`
	Conditions  []condition  `json:"matchConditions"`
	Validations []validation `json:"validations"`
}

type match struct {
	Selector *selector `json:"objectSelector,omitempty"`
	Rules    []rule    `json:"resourceRules"`
}

type selector struct {
	Labels map[string]string `json:"matchLabels"`
}

type rule struct {
	Groups     []string `json:"apiGroups"`
	Versions   []string `json:"apiVersions"`
	Operations []string `json:"operations"`
	Resources  []string `json:"resources"`
	Scope      string   `json:"scope"`
}

type condition struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

type validation struct {
	Expression string `json:"expression"`
	Message    string `json:"message"`
}

// item is a resource of a template.
type item struct {
	Import    string   `json:"import"`
	Existing  bool     `json:"existing,omitempty"`
	Type      string   `json:"type"`
	DependsOn []string `json:"dependsOn,omitempty"`
	Body      any      `json:"properties"`
}

// policy adds a policy and its binding, and the question who asks.
func (d *document) policy(alias, n string, p policy) error {
	me := "me" + trimLetters(n)
	for name, r := range map[string]item{
		me:            {Import: alias, Existing: true, Type: typeReview + "@v1", Body: map[string]any{"metadata": metadata{"radial"}}},
		"policy" + n:  {Import: alias, Type: typePolicy + "@v1", Body: p},
		"binding" + n: {Import: alias, Type: typeBinding + "@v1", DependsOn: []string{"policy" + n}, Body: binding(p.Metadata.Name)},
	} {
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		d.Resources[name] = raw
	}
	return nil
}

func binding(policy string) map[string]any {
	return map[string]any{
		"metadata": metadata{policy},
		"spec":     map[string]any{"policyName": policy, "validationActions": []string{"Deny"}},
	}
}

func trimLetters(n string) string {
	for len(n) > 0 && n[len(n)-1] > '9' {
		n = n[:len(n)-1]
	}
	return n
}
