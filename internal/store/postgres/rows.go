package postgres

import (
	"strconv"

	"github.com/radial-project/radial/internal/store/rows"
)

type scan = rows.Scan

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
