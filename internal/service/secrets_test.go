package service

import (
	"strings"
	"testing"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// A project secret that cannot be synced is Failed and said to be, whatever the
// others wait for; one that is behind is waited for.
func TestFoldSecrets_C69_C107_C110(t *testing.T) {
	at := func(kept string) Verdict {
		return Verdict{Phase: v1alpha1.PhaseReady, Answer: &v1alpha1.CloudResourceStatus{Outputs: map[string]string{v1alpha1.OutputEntryGeneration: kept}}}
	}
	waiting, failed := Verdict{Phase: v1alpha1.PhaseWaiting}, Verdict{Phase: v1alpha1.PhaseFailed, Detail: "the account says no"}
	for name, tc := range map[string]struct {
		verdicts []Verdict
		phase    v1alpha1.Phase
		says     string
	}{
		"Kept":          {[]Verdict{at("2")}, v1alpha1.PhaseReady, ""},
		"Newer":         {[]Verdict{at("3")}, v1alpha1.PhaseReady, ""},
		"Behind":        {[]Verdict{at("1")}, v1alpha1.PhaseWaiting, "project secret 's0'"},
		"NoAnswer":      {[]Verdict{at("two")}, v1alpha1.PhaseFailed, "entryGeneration"},
		"Failed":        {[]Verdict{failed}, v1alpha1.PhaseFailed, "'s0': the account says no"},
		"FailedSecond":  {[]Verdict{waiting, failed}, v1alpha1.PhaseFailed, "'s1': the account says no"},
		"WaitingSecond": {[]Verdict{at("2"), waiting}, v1alpha1.PhaseWaiting, "'s1'"},
	} {
		var in []SecretAnswer
		for i, v := range tc.verdicts {
			in = append(in, SecretAnswer{Verdict: v, Name: "s" + string(rune('0'+i)), EntryGeneration: 2})
		}
		f := Fold(Answers{Secrets: in})
		if s := f.ProjectSecrets; s.Phase != tc.phase || !strings.Contains(s.Detail, tc.says) {
			t.Errorf("%s: %+v; want %s with %q", name, s, tc.phase, tc.says)
		}
		if want := map[v1alpha1.Phase]Gate{v1alpha1.PhaseReady: GateOpen, v1alpha1.PhaseWaiting: GateWaiting, v1alpha1.PhaseFailed: GateFailed}[tc.phase]; f.Gate != want {
			t.Errorf("%s: the gate is %s, not %s", name, f.Gate, want)
		}
	}
}
