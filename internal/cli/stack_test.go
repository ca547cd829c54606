package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/stack/local"
)

// What a person is asked to agree to is what goes, also where the record is behind.
func TestDeletionQuestion(t *testing.T) {
	one := []stack.WireResource{{ID: "/planes/Files/type/File/symbol/a", Scope: &deploy.Scope{Type: "Cluster"}, Extension: &stack.WireExtension{Name: "Files"}}}
	for name, c := range map[string]struct {
		state     stack.State
		resources []stack.WireResource
		action    stack.Action
		goes, ask string
	}{
		"deleted":                {stack.StateSucceeded, one, stack.Delete, "To be deleted:\n  /planes/Files/type/File/symbol/a  (in Extension Files)\n", "Delete stack s with 1 resource?"},
		"let go":                 {stack.StateSucceeded, one, stack.Detach, "To be managed by nobody any more:\n  /planes/Files/type/File/symbol/a  (in Extension Files)\n", "Delete stack s with 1 resource?"},
		"nothing":                {stack.StateSucceeded, nil, stack.Delete, "", "Delete stack s, which manages nothing?"},
		"nothing known, failed":  {stack.StateFailed, nil, stack.Delete, "", "Delete stack s?"},
		"canceled, none is kept": {stack.StateCanceled, nil, stack.Delete, "Its last update did not come to its end; what that made is the stack's too.\n", "Delete stack s?"},
		"killed, no record":      {"", nil, stack.Delete, "Its last update did not come to its end; what that made is the stack's too.\n", "Delete stack s?"},
	} {
		w := stack.Wire{Name: "s", Properties: stack.WireProperties{ProvisioningState: string(c.state), Resources: c.resources}}
		if got := whatGoes(w, c.action); got != c.goes {
			t.Errorf("%s: %q, want %q", name, got, c.goes)
		}
		if got := deletionQuestion(w); got != c.ask {
			t.Errorf("%s: %q, want %q", name, got, c.ask)
		}
	}
}

// An error that credentials are missing says how a command line gives them, wherever it lies.
func TestSupplied_S37(t *testing.T) {
	missing := core.Errorf(core.CodeCredentialsNeeded, "the kubeConfig is kept nowhere")
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"itself":    {missing, true},
		"a detail":  {core.Errorf(stack.CodeUnmanage, "it stays").WithDetails(*missing), true},
		"another":   {core.Errorf(core.CodeConflict, "it runs"), false},
		"not coded": {errors.New("no"), false},
	} {
		if got := supplied(c.err); strings.Contains(got.Error(), "--credentials-env VARIABLE") != c.want || core.CodeOf(got) != core.CodeOf(c.err) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if supplied(nil) != nil {
		t.Error("nothing is an error")
	}
}

// A stack of this process says what an end before its own means: there is no server that goes on.
func TestInterrupted_S57(t *testing.T) {
	var said strings.Builder
	s := &session{Surroundings: Surroundings{Err: &said}}
	(localStacks{s: s}).watch("shop", new(local.Input))()
	if got := s.goesOn(); !strings.Contains(got, "radial stack apply shop --local goes on") || strings.Contains(got, "server") {
		t.Error(got)
	}
}
