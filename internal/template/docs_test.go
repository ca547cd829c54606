package template

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocumented holds the tables of docs/template-language.md against the
// functions that there are.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/template-language.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	_, rest, _ := strings.Cut(string(text), "| logic |")
	table, _, _ := strings.Cut("| logic |"+rest, "\n\n")
	for row := range strings.SplitSeq(table, "\n") {
		for i, cell := range strings.Split(row, "`") {
			if i%2 == 1 {
				listed = append(listed, strings.Fields(cell)...)
			}
		}
	}
	slices.Sort(listed)
	have := Functions()
	slices.Sort(have)
	for _, name := range have {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not documented", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(have, name) {
			t.Errorf("%s is documented and does not exist", name)
		}
	}
}
