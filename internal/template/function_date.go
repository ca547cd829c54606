package template

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func dateFunctions() []function {
	return []function{
		{name: "dateTimeFromEpoch", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			s, err := argInt(args, 0)
			if err != nil {
				return nil, err
			}
			if s < -62135596800 || s > 253402300799 {
				return nil, failf("the time is outside of the years 1 to 9999")
			}
			return time.Unix(s, 0).UTC().Format("2006-01-02T15:04:05Z"), nil
		}},
		{name: "dateTimeToEpoch", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			t, err := argTime(args, 0)
			return t.Unix(), err
		}},
		{name: "dateTimeAdd", min: 2, max: 3, eval: func(_ *evaluator, args []any) (any, error) {
			t, err := argTime(args, 0)
			if err != nil {
				return nil, err
			}
			text, err := argString(args, 1)
			if err != nil {
				return nil, err
			}
			d, ok := parseDuration(text)
			if !ok {
				return nil, failf("argument 2 is not a duration of ISO 8601, such as P1DT2H or -PT30M")
			}
			t = d.after(t)
			if y := t.Year(); y < 1 || y > 9999 {
				return nil, failf("the result is outside of the years 1 to 9999")
			}
			form := ""
			if len(args) == 3 {
				if form, err = argString(args, 2); err != nil {
					return nil, err
				}
			}
			if form == "" {
				form = "yyyy-MM-ddTHH:mm:ssK"
			}
			return formatTime(t, form)
		}},
	}
}

// argTime reads a date and time: ISO 8601, extended or basic, or one of the
// common spellings; without a zone it is UTC.
func argTime(args []any, i int) (time.Time, error) {
	s, err := argString(args, i)
	if err != nil {
		return time.Time{}, err
	}
	s = strings.TrimSpace(s)
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "20060102T150405Z", "20060102T150405", "20060102T150405Z07:00",
		"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 Z07:00", "2006-01-02 15:04:05", "2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02",
		"01/02/2006 15:04:05", "1/2/2006 3:04:05 PM", "01/02/2006", "1/2/2006", time.RFC1123, time.RFC1123Z,
	} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, failf("argument %d is not a date and time of ISO 8601", i+1)
}

// duration is one of ISO 8601; months and years have no fixed length.
type duration struct {
	years, months, days int
	rest                time.Duration
}

func (d duration) after(t time.Time) time.Time {
	// A month's last day stays in its month: January 31 and one month is
	// February 28 or 29.
	if d.years != 0 || d.months != 0 {
		day := t.Day()
		first := time.Date(t.Year(), t.Month(), 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), t.Location()).AddDate(d.years, d.months, 0)
		last := first.AddDate(0, 1, -1).Day()
		t = first.AddDate(0, 0, min(day, last)-1)
	}
	return t.AddDate(0, 0, d.days).Add(d.rest)
}

// parseDuration reads [-]P[nY][nM][nW][nD][T[nH][nM][n.nS]].
func parseDuration(s string) (d duration, ok bool) {
	sign := 1
	switch {
	case strings.HasPrefix(s, "-"):
		sign, s = -1, s[1:]
	case strings.HasPrefix(s, "+"):
		s = s[1:]
	}
	if !strings.HasPrefix(s, "P") || len(s) < 3 {
		return d, false
	}
	date, clock, hasClock := strings.Cut(s[1:], "T")
	if hasClock && clock == "" {
		return d, false
	}
	units := func(s, order string, add func(unit byte, n float64)) bool {
		for s != "" {
			i := strings.IndexFunc(s, func(r rune) bool { return r != '.' && r != ',' && (r < '0' || r > '9') })
			if i <= 0 {
				return false
			}
			at := strings.IndexByte(order, s[i])
			n, err := strconv.ParseFloat(strings.Replace(s[:i], ",", ".", 1), 64)
			if at < 0 || err != nil || n > 1e9 || n != float64(int(n)) && s[i] != 'S' {
				return false
			}
			add(s[i], n*float64(sign))
			order, s = order[at+1:], s[i+1:]
		}
		return true
	}
	return d, units(date, "YMWD", func(unit byte, n float64) {
		switch unit {
		case 'Y':
			d.years += int(n)
		case 'M':
			d.months += int(n)
		case 'W':
			d.days += 7 * int(n)
		case 'D':
			d.days += int(n)
		}
	}) && units(clock, "HMS", func(unit byte, n float64) {
		d.rest += time.Duration(n * float64(map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second}[unit]))
	}) && d.years < 10000 && d.years > -10000 && d.months < 120000 && d.months > -120000 && d.days < 4e6 && d.days > -4e6
}

// standardForms are the one-letter forms of .NET's date formats.
var standardForms = map[string]string{
	"d": "MM/dd/yyyy", "D": "dddd, dd MMMM yyyy", "f": "dddd, dd MMMM yyyy HH:mm", "F": "dddd, dd MMMM yyyy HH:mm:ss",
	"g": "MM/dd/yyyy HH:mm", "G": "MM/dd/yyyy HH:mm:ss", "m": "MMMM dd", "M": "MMMM dd", "o": "yyyy-MM-ddTHH:mm:ss.fffffffK",
	"O": "yyyy-MM-ddTHH:mm:ss.fffffffK", "r": "ddd, dd MMM yyyy HH:mm:ss 'GMT'", "R": "ddd, dd MMM yyyy HH:mm:ss 'GMT'",
	"s": "yyyy-MM-ddTHH:mm:ss", "t": "HH:mm", "T": "HH:mm:ss", "u": "yyyy-MM-dd HH:mm:ss'Z'", "U": "dddd, dd MMMM yyyy HH:mm:ss",
	"y": "yyyy MMMM", "Y": "yyyy MMMM",
}

// formatTime writes a time, in UTC, in one of .NET's standard or custom forms
// of the invariant culture.
func formatTime(t time.Time, form string) (string, error) {
	if len(form) == 1 {
		full, ok := standardForms[form]
		if !ok {
			return "", failf("the form of time %q is not known", form)
		}
		form = full
	}
	if len(form) > 256 {
		return "", failf("the form of time is longer than 256 characters")
	}
	var b strings.Builder
	for i := 0; i < len(form); {
		c := form[i]
		n := 1
		for i+n < len(form) && form[i+n] == c {
			n++
		}
		switch c {
		case '\'', '"':
			end := strings.IndexByte(form[i+1:], c)
			if end < 0 {
				return "", failf("the form of time has a quote without end")
			}
			b.WriteString(form[i+1 : i+1+end])
			i += end + 2
			continue
		case '\\':
			if i+1 >= len(form) {
				return "", failf("the form of time ends in a backslash")
			}
			b.WriteByte(form[i+1])
			i += 2
			continue
		case '%':
			i++
			continue
		case 'y', 'M', 'd', 'H', 'h', 'm', 's', 'f', 'F', 't', 'z', 'K', 'g':
			b.WriteString(timePart(t, c, n))
		default:
			b.WriteString(form[i : i+n])
		}
		i += n
	}
	return b.String(), nil
}

func timePart(t time.Time, c byte, n int) string {
	pad := func(v int) string {
		if n > 1 {
			return fmt.Sprintf("%0*d", n, v)
		}
		return strconv.Itoa(v)
	}
	switch c {
	case 'y':
		if n <= 2 {
			return pad(t.Year() % 100)
		}
		return pad(t.Year())
	case 'M':
		switch {
		case n == 3:
			return t.Month().String()[:3]
		case n > 3:
			return t.Month().String()
		}
		return pad(int(t.Month()))
	case 'd':
		switch {
		case n == 3:
			return t.Weekday().String()[:3]
		case n > 3:
			return t.Weekday().String()
		}
		return pad(t.Day())
	case 'H':
		return pad(t.Hour())
	case 'h':
		return pad((t.Hour()+11)%12 + 1)
	case 'm':
		return pad(t.Minute())
	case 's':
		return pad(t.Second())
	case 'f', 'F':
		digits := fmt.Sprintf("%09d", t.Nanosecond())[:min(n, 7)]
		if c == 'F' {
			digits = strings.TrimRight(digits, "0")
		}
		return digits
	case 't':
		return map[bool]string{true: "AM", false: "PM"}[t.Hour() < 12][:min(n, 2)]
	case 'z':
		switch n {
		case 1:
			return "+0"
		case 2:
			return "+00"
		}
		return "+00:00"
	case 'K':
		return "Z"
	}
	return "A.D."
}
