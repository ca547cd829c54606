package rows

import (
	"strconv"
	"strings"
)

// Scan reads the columns of the current row.
type Scan func(into ...any) error

// Dialect is in what the statements of the two databases differ.
type Dialect int

// The dialects.
const (
	SQLite Dialect = iota
	Postgres
)

// Where collects the conditions of a statement and the values for its places.
type Where struct {
	Dialect    Dialect
	Args       []any
	conditions []string
}

// Add adds a condition, in which a question mark stands for each value.
func (w *Where) Add(condition string, values ...any) {
	for _, v := range values {
		w.Args = append(w.Args, v)
		if w.Dialect == Postgres {
			condition = strings.Replace(condition, "?", w.place(), 1)
		}
	}
	w.conditions = append(w.conditions, condition)
}

// place is where the last value goes.
func (w *Where) place() string {
	if w.Dialect == Postgres {
		return "$" + strconv.Itoa(len(w.Args))
	}
	return "?"
}

// unindexed is a column whose index is not to be walked, so that the narrowest
// of those that apply is. SQLite's planner, which knows no sizes, is told by a
// plus; PostgreSQL's knows them.
func (w *Where) unindexed(column string) string {
	if w.Dialect == Postgres {
		return column
	}
	return "+" + column
}

// narrowest passes the first column that it is given: its index is the narrowest,
// and those of the others are not to be walked.
func (w *Where) narrowest() func(column string) string {
	first := true
	return func(column string) string {
		if first {
			first = false
			return column
		}
		return w.unindexed(column)
	}
}

// String is the WHERE clause, empty without conditions.
func (w *Where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

// Limit is a LIMIT clause for a page and one row more, which tells whether there
// is a next page; empty for all rows.
func (w *Where) Limit(n int) string {
	if n <= 0 {
		return ""
	}
	w.Args = append(w.Args, n+1)
	return " LIMIT " + w.place()
}
