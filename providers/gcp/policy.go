package gcp

import (
	"encoding/json"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/radial-project/radial/provider"
)

// policyVersion is that of policies with conditions. Whoever reads or writes an
// older one loses them without a word.
const policyVersion = 3

// binding is one of a policy. Four APIs have a type of their own for it, of one
// JSON form.
type binding struct {
	Role      string     `json:"role"`
	Members   []string   `json:"members"`
	Condition *condition `json:"condition,omitempty"`
}

type condition struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Expression  string `json:"expression,omitempty"`
	Location    string `json:"location,omitempty"`
}

func transcode[T any](from any) T {
	var to T
	raw, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(raw, &to)
	}
	if err != nil {
		panic(err) // plain data of one form
	}
	return to
}

func bindings[T any](b []T) []binding {
	out := transcode[[]binding](b)
	if out == nil {
		out = []binding{}
	}
	return out
}

func native[T any](b []binding) []T { return transcode[[]T](b) }

// edits is how often a policy is read again when somebody else has written it
// in between.
const edits = 5

// edit changes a policy by its etag: read answers what stands and the way to
// write it, change what is to stand. What does not change is not written.
func (c *Cloud) edit(read func() ([]binding, func([]binding) error, error), change func([]binding) []binding) error {
	for range edits {
		before, write, err := read()
		if err != nil {
			return err
		}
		after := change(slices.Clone(before))
		if sameBindings(before, after) {
			return nil
		}
		if err = write(after); !clash(err) {
			return err
		}
	}
	return provider.Waiting("others are changing the same access policy; it is tried again")
}

// clash is that the etag is no longer the policy's.
func clash(err error) bool {
	return code(err) == http.StatusConflict || code(err) == http.StatusPreconditionFailed
}

// sameBindings compares without order.
func sameBindings(a, b []binding) bool {
	if len(a) != len(b) {
		return false
	}
	key := func(in []binding) []string {
		var out []string
		for _, x := range in {
			x.Members = slices.Sorted(slices.Values(x.Members))
			raw, err := json.Marshal(x)
			if err != nil {
				panic(err)
			}
			out = append(out, string(raw))
		}
		slices.Sort(out)
		return out
	}
	return equality.Semantic.DeepEqual(key(a), key(b))
}

// grant adds member to the unconditional binding of role.
func grant(b []binding, role, member string) []binding {
	for i := range b {
		if b[i].Role == role && b[i].Condition == nil {
			if !slices.Contains(b[i].Members, member) {
				b[i].Members = append(slices.Clone(b[i].Members), member)
			}
			return b
		}
	}
	return append(b, binding{Role: role, Members: []string{member}})
}

// without takes members out of the bindings that in names, and drops what is
// left empty.
func without(b []binding, in func(binding) bool, member func(string) bool) []binding {
	var out []binding
	for _, x := range b {
		if in(x) {
			x.Members = slices.DeleteFunc(slices.Clone(x.Members), member)
			if len(x.Members) == 0 {
				continue
			}
		}
		out = append(out, x)
	}
	return out
}
