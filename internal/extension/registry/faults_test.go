package registry

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// bad is the misbehaved extension over one carrier.
type bad struct {
	extension.Target
	registry *Registry
	pauses   *pauses
	log      *output
	http     bool
}

// overBoth runs a test over both carriers, each with a process of its own.
func overBoth(t *testing.T, o Options, config string, secrets extension.Secrets, test func(t *testing.T, b bad)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, carrier := range []string{"HTTP", "gRPC"} {
		t.Run(carrier, func(t *testing.T) {
			t.Parallel()
			r := Registration{Name: "Bad", Version: "1.0.0", Path: self, Env: map[string]string{faulty: "1"}}
			if carrier == "HTTP" {
				r = Registration{Name: "Bad", Version: "1.0.0", URL: serveHTTP(t, self, faulty+"=1")}
			}
			b := bad{pauses: &pauses{}, log: &output{}, http: carrier == "HTTP"}
			o := o
			o.Sleep, o.Log = b.pauses.sleep, logger(b.log)
			b.registry = newRegistry(t, o, r)
			b.Target = target(t, b.registry, extension.Scope{Extension: "Bad", Config: config}, secrets)
			test(t, b)
		})
	}
}

func ask(typ string, more ...string) extension.Resource {
	properties := map[string]any{"name": "x"}
	for i := 0; i < len(more); i += 2 {
		properties[more[i]] = more[i+1]
	}
	return extension.Resource{Type: typ, Properties: properties}
}

func TestLongWays(t *testing.T) {
	overBoth(t, Options{}, "", nil, func(t *testing.T, b bad) {
		ctx := t.Context()
		// Looks that fail say nothing of the resource, up to a number.
		s, err := b.Apply(ctx, ask("OnItsWay"))
		if err != nil || s.Ref.UID == "" {
			t.Fatalf("%+v, %v", s, err)
		}
		if len(b.pauses.list) < 5 || !slices.IsSorted(b.pauses.list) {
			t.Errorf("looked after %v", b.pauses.list)
		}
		s, err = b.Apply(ctx, ask("Vanishes"))
		if !core.IsCode(err, extension.CodeNotReady) || !strings.Contains(err.Error(), "gone again") || s.Ref.UID == "" {
			t.Errorf("one that vanishes: %+v, %v", s.Ref, err)
		}
		s, err = b.Apply(ctx, ask("Breaks"))
		if !core.IsCode(err, extension.CodeNotReady) || !strings.Contains(err.Error(), "the disk is full (DiskFull)") || s.Ref.UID == "" {
			t.Errorf("one that breaks: %+v, %v", s.Ref, err)
		}

		b.pauses.list = nil
		s, err = b.Apply(ctx, ask("Operation"))
		if err != nil || s.Properties["name"] != "x" {
			t.Fatalf("%+v, %v", s, err)
		}
		if want := []time.Duration{time.Second, 0, 0}; b.http && !slices.Equal(b.pauses.list, want) {
			t.Errorf("asked after %v, want %v", b.pauses.list, want)
		}
		if s, err = b.Apply(ctx, ask("Anonymous")); err != nil || string(s.Ref.Identifiers) != `{"name":"x"}` {
			t.Errorf("an operation that does not say what it makes: %+v, %v", s, err)
		}
		_, err = b.Apply(ctx, ask("OperationFails"))
		if err == nil || !strings.Contains(err.Error(), "there is no room for more (QuotaExceeded)") {
			t.Errorf("an operation that fails: %v", err)
		}
		if _, err = b.Apply(ctx, ask("Lost")); err == nil || !strings.Contains(err.Error(), "no such operation") {
			t.Errorf("an operation that is lost: %v", err)
		}
	})
}

func TestDeletions(t *testing.T) {
	overBoth(t, Options{}, `{"url":"x"}`, nil, func(t *testing.T, b bad) {
		ctx := t.Context()
		made := func(typ string) extension.Ref {
			s, err := b.Apply(ctx, ask(typ))
			if err != nil {
				t.Fatal(err)
			}
			return s.Ref
		}
		if ref := made("Missing"); b.Delete(ctx, ref) != nil || ref.ConfigID != "here" {
			t.Errorf("%+v", ref)
		}
		for _, typ := range []string{"Deleting", "Operation"} {
			if err := b.Delete(ctx, made(typ)); err != nil {
				t.Errorf("%s: %v", typ, err)
			}
		}
		if err := b.Delete(ctx, made("Undeletable")); err == nil || !strings.Contains(err.Error(), "it is in use (Locked)") {
			t.Errorf("one that cannot be deleted: %v", err)
		}
		if err := b.Delete(ctx, made("Stays")); err == nil || !strings.Contains(err.Error(), "stands again") {
			t.Errorf("one whose deletion was given up: %v", err)
		}
		// Planned by a run that was killed: whether it was made is not known.
		planned, err := b.Preview(ctx, ask("Plain"))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(ctx, planned.Ref); !core.IsCode(err, core.CodeConflict) || !strings.Contains(err.Error(), "Nothing was deleted") {
			t.Errorf("one that was only planned: %v", err)
		}
		planned.Ref.Unverified = true
		if err := b.Delete(ctx, planned.Ref); err != nil {
			t.Errorf("by its name alone, as was asked: %v", err)
		}
		// Nothing told what it would be called.
		if _, err := b.Preview(ctx, ask("Unseen")); !core.IsCode(err, extension.CodePreviewNotSupported) {
			t.Errorf("%v", err)
		}
		if err := b.Delete(ctx, extension.Ref{Type: "Unseen"}); err != nil {
			t.Errorf("planned, never named: %v", err)
		}
		if err := b.Delete(ctx, extension.Ref{Type: "Unseen", UID: "1"}); err == nil || !strings.Contains(err.Error(), "nothing is recorded") {
			t.Errorf("made, and its name is lost: %v", err)
		}
	})
}

func TestCrash(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := &output{}
	var p pauses
	bad := Registration{Name: "Bad", Path: self, Env: map[string]string{faulty: "1"}}
	x := newRegistry(t, Options{Log: logger(log), Sleep: p.sleep, Alone: true}, bad)
	to := target(t, x, extension.Scope{Extension: "Bad"}, nil)
	process := x.Process("bad")

	// In the middle of a call: started anew, asked again.
	if _, err := to.Apply(t.Context(), ask("CrashOnce", "mark", filepath.Join(t.TempDir(), "mark"))); err != nil {
		t.Fatal(err)
	}
	log.await(t, "panic: out of luck")
	if process.Starts() != 2 || !strings.Contains(log.String(), "exit status 3") {
		t.Errorf("%d starts; log:\n%s", process.Starts(), log)
	}
	// Every time: an error that names it, how it ended and what it said.
	_, err = to.Apply(t.Context(), ask("Crash"))
	if !core.IsCode(err, core.CodeTarget) || !strings.Contains(err.Error(), "exit status 4") || !strings.Contains(err.Error(), "panic: as always") || !strings.Contains(err.Error(), "extension Bad") {
		t.Errorf("%v", err)
	}
	if process.Starts() != 4 {
		t.Errorf("%d starts, want 4: 3 tries, the first on the process that ran", process.Starts())
	}
	// What a shared process says may be about another's resources.
	_, err = target(t, newRegistry(t, Options{Log: logger(log), Sleep: p.sleep}, bad), extension.Scope{Extension: "Bad"}, nil).Apply(t.Context(), ask("Crash"))
	if err == nil || strings.Contains(err.Error(), "panic") || !strings.Contains(err.Error(), "the server's log has what it said") {
		t.Errorf("%v", err)
	}
	// It is no worse for others.
	if _, err := to.Apply(t.Context(), ask("Plain")); err != nil {
		t.Error(err)
	}
}

// An HTTP extension that dies while it is asked is asked again, and named when
// it does not come back.
func TestCrashOverHTTP(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var p pauses
	x := newRegistry(t, Options{Sleep: p.sleep}, Registration{Name: "Bad", Version: "1.0.0", URL: serveHTTP(t, self, faulty+"=1")})
	_, err = target(t, x, extension.Scope{Extension: "Bad"}, nil).Apply(t.Context(), ask("Crash"))
	if !core.IsCode(err, core.CodeTarget) || !strings.Contains(err.Error(), "cannot be reached") || !strings.Contains(err.Error(), "asked 5 times") {
		t.Errorf("%v", err)
	}
	if want := []time.Duration{time.Second / 2, time.Second, 2 * time.Second, 4 * time.Second}; !slices.Equal(p.list, want) {
		t.Errorf("asked again after %v, want %v", p.list, want)
	}
}

func TestTooMuch(t *testing.T) {
	overBoth(t, Options{}, "", nil, func(t *testing.T, b bad) {
		_, err := b.Apply(t.Context(), ask("Huge"))
		if err == nil || !strings.Contains(err.Error(), "20 MB") {
			t.Errorf("an answer of more than 20 MB: %.300v", err)
		}
		_, err = b.Apply(t.Context(), ask("Plain", "content", strings.Repeat("x", 4<<20)))
		if err == nil || !strings.Contains(err.Error(), "4 MB") {
			t.Errorf("a request of more than 4 MB: %.300v", err)
		}
	})
}

func TestTooSlow(t *testing.T) {
	overBoth(t, Options{Timeout: 300 * time.Millisecond, CallTimeout: 300 * time.Millisecond}, "", nil, func(t *testing.T, b bad) {
		_, err := b.Apply(t.Context(), ask("Slow"))
		if !core.IsCode(err, core.CodeTarget) || !strings.Contains(err.Error(), "300ms") {
			t.Errorf("an answer that does not come: %v", err)
		}
		if len(b.pauses.list) != 0 {
			t.Errorf("what used up its time is not asked again: %v", b.pauses.list)
		}
	})
}

// What an extension says of its secrets reaches neither errors nor the log: the
// secure entries of its configuration, those that it does not echo, and what the
// run knows to be secret.
func TestSecretsStayInside(t *testing.T) {
	const password, hidden, parameter = `pa"ss-canary-4711`, "hidden-canary-4712", "parameter-canary-4713"
	secrets := extension.Secrets{"password": password}
	overBoth(t, Options{}, `{"url":"x","hidden":"`+hidden+`"}`, secrets, func(t *testing.T, b bad) {
		ctx, run := conceal.With(t.Context())
		run.Add(parameter)
		preview, err := b.Preview(ctx, ask("Talkative"))
		if err != nil {
			t.Fatal(err)
		}
		canaries := []string{"canary-4711", parameter, base64.StdEncoding.EncodeToString([]byte(password))}
		if b.http {
			if !slices.Equal(preview.Secret, []string{"/hidden"}) {
				t.Errorf("what was not echoed: %v", preview.Secret)
			}
			canaries = append(canaries, hidden)
		}
		_, err = b.Apply(ctx, ask("Talkative", "value", parameter))
		if err == nil || !strings.Contains(err.Error(), conceal.Mark) {
			t.Fatalf("%v", err)
		}
		e := core.AsError(err)
		if len(e.Details) != 1 || e.Details[0].Target != "config.password" || len(e.Info) != 1 {
			t.Errorf("details: %+v, %+v", e.Details, e.Info)
		}
		if !b.http {
			b.log.await(t, "that is all") // comes after the answer, or before
		}
		said := b.log.String() + err.Error() + " " + e.Details[0].Message + " " + text(t, e)
		for _, canary := range canaries {
			if strings.Contains(said, canary) {
				t.Errorf("%q is in:\n%s", canary, said)
			}
		}
	})
}
