package stack_test

import (
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/stack"
)

func deny(mode stack.Mode) func(*stack.Update) {
	return func(u *stack.Update) { u.Deny.Mode = mode }
}

func TestDeny_S56(t *testing.T) {
	b := newBench(t)
	r := b.must(of("a"), deny(stack.DenyDelete))
	if len(r.Policies) != 4 || managed(r) != "a" || r.Resources[0].DenyStatus != "denyDelete" {
		t.Fatalf("S-56: policies %d, managed %q, %q", len(r.Policies), managed(r), r.Resources[0].DenyStatus)
	}
	for _, p := range r.Policies {
		if p.Identity == nil || p.Identity.UID == "" || p.Identity.ConfigID != "cluster-0" {
			t.Errorf("S-56: %s has the identity %+v", p.ID, p.Identity)
		}
	}
	// Another cluster comes, and the first one goes: so do their policies.
	r = b.must(under("k", scoped, "a"), deny(stack.DenyWriteAndDelete))
	if got := b.objects(); strings.Contains(got, " radial-stack") || strings.Count(got, "cluster-1/radial-stack") != 2 || r.Resources[0].DenyStatus != "denyWriteAndDelete" {
		t.Errorf("S-56: there %q", got) // two names of two kinds each
	}
	r = b.must(under("k", scoped, "a"))
	if b.objects() != "cluster-1/a" || len(r.Policies) != 0 || r.Resources[0].DenyStatus != "none" {
		t.Errorf("S-56: there %q, policies %d, %q", b.objects(), len(r.Policies), r.Resources[0].DenyStatus)
	}
}

// Objects that are deleted are denied to others to their end; those that are let
// go are not denied any more.
func TestDeny_order_S56(t *testing.T) {
	for action, want := range map[stack.Action][2]string{
		stack.Delete: {"delete a", "delete radial-stack"}, stack.Detach: {"delete radial-stack", "release a"},
	} {
		b := newBench(t)
		b.must(of("a"), deny(stack.DenyDelete))
		b.forget()
		out, err := b.m.Remove(t.Context(), b.s, stack.Removal{Request: b.request(""), Unmanage: action})
		if err != nil || !out.Removed {
			t.Fatalf("%+v, %v", out, err)
		}
		first, last := -1, -1
		for i, c := range b.w.calls {
			if strings.HasPrefix(c, want[0]) {
				first = i
			}
			if last < 0 && strings.HasPrefix(c, want[1]) {
				last = i
			}
		}
		if first < 0 || last < 0 || first > last {
			t.Errorf("S-56: %s: %v", action, b.w.calls)
		}
	}
}

// A killed run did not learn the uids of its policies, and perhaps made none.
func TestDeny_unlearned_S56(t *testing.T) {
	b := newBench(t)
	b.s.saveFails = func(r stack.Record) error {
		if len(r.Policies) > 0 && r.Policies[0].Identity.UID != "" {
			return errKilled
		}
		b.s.record = r
		return nil
	}
	if _, err := b.try(of("a"), deny(stack.DenyDelete)); err == nil {
		t.Fatal("it was not killed")
	}
	b.s.saveFails = nil
	out, err := b.m.Remove(t.Context(), b.s, stack.Removal{Request: b.request(""), Unmanage: stack.Delete})
	if err != nil || !out.Removed || b.objects() != "" {
		t.Errorf("S-56: %+v, %v; there %q", out, err, b.objects())
	}
}

func TestDeny_failed_S56(t *testing.T) {
	b := newBench(t)
	b.w.refuse = func(call string) error {
		if strings.HasPrefix(call, "apply radial-stack") {
			return core.Errorf(core.CodeForbidden, "no policies for you")
		}
		return nil
	}
	out := b.update(of("a"), deny(stack.DenyDelete))
	if out.Failure == nil || !strings.Contains(out.Failure.Error(), "may still change") || out.Record.Resources[0].DenyStatus != "none" || b.objects() != "a" {
		t.Errorf("S-56: %v, %+v", out.Failure, out.Record.Resources)
	}
	// It is no dead end: neither to an update without them, nor to the deletion.
	b.w.refuse = func(call string) error {
		if strings.Contains(call, "radial-stack") {
			return core.Errorf(core.CodeForbidden, "no policies for you")
		}
		return nil
	}
	b.s.record = out.Record
	if out = b.update(of("a", "b")); out.Failure != nil || b.objects() != "a b" {
		t.Errorf("S-56 without deny settings: %v; there %q", out.Failure, b.objects())
	}
	if out = b.update(of("a"), deny(stack.DenyDelete)); out.Failure == nil {
		t.Error("S-56: the settings were applied")
	}
	b.s.record = out.Record
	if out, err := b.m.Remove(t.Context(), b.s, stack.Removal{Request: b.request(""), Unmanage: stack.Delete}); err != nil || !out.Removed || b.objects() != "" {
		t.Errorf("S-56 the deletion: %+v, %v; there %q", out.Failure, err, b.objects())
	}
}

func TestDeny_settings(t *testing.T) {
	for name, c := range map[string]struct {
		d    stack.DenySettings
		want string
	}{
		"mode":       {stack.DenySettings{Mode: "all"}, "denyWriteAndDelete"},
		"principals": {stack.DenySettings{Mode: stack.DenyDelete, Principals: make([]string, 6)}, "at most 5"},
		"action":     {stack.DenySettings{Mode: stack.DenyDelete, Actions: []string{"apps/Deployment/read"}}, "write or delete"},
		"actions":    {stack.DenySettings{Mode: stack.DenyDelete, Actions: make([]string, 201)}, "at most 200"},
	} {
		b := newBench(t)
		out := b.update(of("a"), func(u *stack.Update) { u.Deny = c.d })
		if out.Failure == nil || !strings.Contains(out.Failure.Error(), c.want) || b.objects() != "" {
			t.Errorf("%s: %v, there %q", name, out.Failure, b.objects())
		}
	}
}
