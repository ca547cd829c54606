package address

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]struct{ file, shown, fails string }{
		"radial.db":            {file: "radial.db", shown: "radial.db"},
		"/var/lib/a:b.db":      {file: "/var/lib/a:b.db", shown: "/var/lib/a:b.db"},
		"sqlite:radial.db":     {file: "radial.db", shown: "radial.db"},
		"sqlite:///var/r.db":   {file: "/var/r.db", shown: "/var/r.db"},
		"sqlite:":              {fails: "names no file"},
		"":                     {fails: "no store is named"},
		"mysql://host/x":       {fails: "mysql://"},
		"postgres://db/radial": {shown: "postgres://db/radial"},
		"postgresql://u@db/r":  {shown: "postgresql://db/r"},
		"postgres://u:p@db:5/r?sslmode=verify-full&password=x": {shown: "postgres://db:5/r"},
		"postgres://u:p%40@w@db/r":                             {shown: "postgres://db/r"},
	} {
		a, err := Parse(in)
		switch {
		case want.fails != "":
			if err == nil || !strings.Contains(err.Error(), want.fails) {
				t.Errorf("%q: %v, want %q", in, err, want.fails)
			}
		case err != nil || a.File != want.file || a.String() != want.shown:
			t.Errorf("%q: %+v shown as %q, %v; want %+v", in, a, a.String(), err, want)
		}
	}
}
