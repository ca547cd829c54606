package schema

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the candidates that a misspelt name most likely meant, the
// closest first, at most three. Case does not count. It is empty when nothing
// is near: a wrong guess helps nobody.
func Nearest(name string, candidates []string) []string {
	type guess struct {
		name string
		far  int
	}
	lower := strings.ToLower(name)
	limit := max(2, len(lower)/3)
	var guesses []guess
	for _, c := range candidates {
		lc := strings.ToLower(c)
		if d := distance(lower, lc, limit); d <= limit && d < len(lc) {
			guesses = append(guesses, guess{c, d})
		}
	}
	slices.SortFunc(guesses, func(a, b guess) int {
		return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.name, b.name))
	})
	var out []string
	for _, g := range guesses[:min(3, len(guesses))] {
		out = append(out, g.name)
	}
	return out
}

// distance is the number of inserted, dropped, changed or swapped bytes between
// a and b, or limit+1 when it is more than limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > limit {
			return limit + 1
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
