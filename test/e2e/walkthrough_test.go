package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/radial-project/radial/test/e2e/walkthrough"
)

// testTeller writes a run into the test's log.
type testTeller struct{ t *testing.T }

func (l testTeller) Do(command string)  { l.t.Log("$ " + command) }
func (l testTeller) Output(text string) { l.t.Log(text) }
func (l testTeller) Saw(fact string)    { l.t.Log("saw: " + fact) }

// TestWalkthrough_K45 plays the seed's walkthrough, file by file, and demands every one of its promises: the same
// steps that the demo tells.
func TestWalkthrough_K45(t *testing.T) {
	i := newInstallation(t)
	charts, err := filepath.Abs("../../examples/demo")
	if err != nil {
		t.Fatal(err)
	}
	w := &walkthrough.Walk{Bin: i.bin, Dir: i.dir, Charts: charts, Namespace: "demo", Tell: testTeller{t}}
	if err := w.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The rules that each step shows on a real API server, from outside.
	rules := [][]string{
		{"K-45", "K-44"},
		{"K-1"},
		{"K-13", "K-14"},
		{"K-17", "K-23"},
		{"K-14"},
		{"K-23"},
	}
	for n, s := range walkthrough.Steps() {
		ok := t.Run(fmt.Sprintf("%d %s (%s)", n+1, s.Title, strings.Join(rules[n], " ")), func(t *testing.T) {
			w.Tell = testTeller{t}
			if err := w.Play(t.Context(), s); err != nil {
				t.Fatalf("%v%s", err, i.logs())
			}
		})
		if !ok {
			t.FailNow() // each step stands on those before it
		}
	}

	t.Run("K-38 the namespace default is as good as any", func(t *testing.T) {
		w := &walkthrough.Walk{Bin: i.bin, Dir: i.dir, Charts: charts, Namespace: "default", Tell: testTeller{t}}
		if err := w.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.PlayFromNothing(t.Context()); err != nil {
			t.Fatalf("%v%s", err, i.logs())
		}
	})
}
