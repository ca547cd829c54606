package postgres

import "strconv"

// scan reads the columns of the current row.
type scan func(into ...any) error

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
