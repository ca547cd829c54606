package stack_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/stack"
)

var errKilled = core.Errorf(core.CodeFenced, "the process is killed here")

// Killed between the deployment and the record: the next update, another run,
// knows by the engine's journal what was made.
func TestOutOfSync_S55(t *testing.T) {
	b := newBench(t)
	b.must(of("a"))
	b.s.saveFails = func(stack.Record) error { return errKilled }
	if _, err := b.try(of("a", "b")); !errors.Is(err, errKilled) {
		t.Fatalf("it was not killed: %v", err)
	}
	if b.objects() != "a b" || managed(b.s.record) != "a" {
		t.Fatalf("there %q, recorded %q", b.objects(), managed(b.s.record))
	}
	b.s.saveFails = nil
	r := b.must(of("a"))
	if b.objects() != "a" || managed(r) != "a" || affected(r.Deleted) != "b" {
		t.Errorf("S-55: there %q, managed %q, deleted %q", b.objects(), managed(r), affected(r.Deleted))
	}
	// An object that was made anew meanwhile has another uid than the record says.
	b.s.saveFails = func(stack.Record) error { return errKilled }
	delete(b.w.objects, "cluster-0/a")
	if _, err := b.try(of("a")); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	b.s.saveFails = nil
	if b.must(of()); b.objects() != "" {
		t.Errorf("S-55: there %q", b.objects())
	}
}

// An update that is killed at any write ends, taken up again, as an undisturbed
// one does; and so does the next one when it is not taken up.
func TestKilled_S55(t *testing.T) {
	play := func(t *testing.T, kill int, resume bool) (writes int, end string) {
		b := newBench(t)
		b.must(of("a", "b:a", "c:b", "d"))
		die := func() error {
			if writes++; writes == kill {
				return errKilled
			}
			return nil
		}
		b.s.noteFails = die
		b.s.saveFails = func(stack.Record) error { return die() }
		b.run = "the-run"
		_, err := b.try(of("d", "e", "f:e"), deny(stack.DenyDelete))
		if killed := errors.Is(err, errKilled); killed != (kill <= writes && kill > 0) || err != nil && !killed {
			t.Fatalf("killed at %d of %d: %v", kill, writes, err)
		}
		b.s.noteFails, b.s.saveFails = nil, nil
		if err != nil {
			if !resume {
				b.run = "another-run"
			}
			b.must(of("d", "e", "f:e"), deny(stack.DenyDelete))
		}
		raw, err := json.Marshal(b.s.record.Policies)
		if err != nil {
			t.Fatal(err)
		}
		return writes, fmt.Sprint(b.objects(), "; ", managed(b.s.record), "; ", len(b.s.journal), b.s.record.State, strings.Count(string(raw), `"uid"`))
	}
	total, want := play(t, 0, true)
	if total < 5 || !strings.Contains(want, "d e f radial-stack-") {
		t.Fatalf("%d writes, %s", total, want)
	}
	for kill := 1; kill <= total; kill++ {
		for _, resume := range []bool{true, false} {
			if _, got := play(t, kill, resume); got != want {
				t.Errorf("S-55: killed at write %d (taken up: %t): %s, want %s", kill, resume, got, want)
			}
		}
	}
}

// The same for a deletion of the stack.
func TestKilledRemoval_S55(t *testing.T) {
	play := func(t *testing.T, kill int) int {
		b := newBench(t)
		b.must(of("a", "b:a", "c:b"), deny(stack.DenyDelete))
		writes := 0
		die := func() error {
			if writes++; writes == kill {
				return errKilled
			}
			return nil
		}
		b.s.noteFails = die
		b.s.saveFails = func(stack.Record) error { return die() }
		out, err := b.m.Remove(t.Context(), b.s, stack.Removal{Request: b.request(""), Unmanage: stack.Delete})
		if err != nil {
			b.s.noteFails, b.s.saveFails = nil, nil
			out, err = b.m.Remove(t.Context(), b.s, stack.Removal{Request: b.request(""), Unmanage: stack.Delete})
		}
		if err != nil || !out.Removed || b.objects() != "" {
			t.Errorf("S-55: killed at write %d: %+v, %v; there %q", kill, out, err, b.objects())
		}
		return writes
	}
	total := play(t, 0)
	if total < 2 {
		t.Fatalf("%d writes", total)
	}
	for kill := 1; kill <= total; kill++ {
		play(t, kill)
	}
}

func TestTakenUp(t *testing.T) {
	b := newBench(t)
	b.run = "one"
	b.s.saveFails = func(stack.Record) error { return errKilled }
	if _, err := b.try(of("a", "b")); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	b.s.saveFails = nil
	b.must(of("a", "b"))
	if got := b.calls("apply"); len(strings.Fields(got)) != 2 {
		t.Errorf("S-45: applied %q: what the first attempt made was made again", got)
	}
}
