package v1alpha1

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Every parameter and output is a string (C-61): a list is comma separated, a
// boolean "true" or "false", a number its decimal text. The functions here are
// the only reading and writing of them; what they write, they read back.

// FormatList joins items by commas. No item may be empty or hold a comma: that
// could not be read back.
func FormatList(items []string) (string, error) {
	for _, item := range items {
		if item == "" || strings.Contains(item, ",") {
			return "", fmt.Errorf("%s cannot be an item of a comma-separated list", printable(item))
		}
	}
	return strings.Join(items, ","), nil
}

// ParseList reads a list; empty text is the empty one.
func ParseList(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	items := strings.Split(text, ",")
	if slices.Contains(items, "") {
		return nil, errors.New("must be a comma-separated list without empty items")
	}
	return items, nil
}

// FormatPairs writes a map as the list of key=value, by key. A key may hold
// neither "=" nor a comma, a value no comma.
func FormatPairs(pairs map[string]string) (string, error) {
	items := make([]string, 0, len(pairs))
	for _, k := range slices.Sorted(maps.Keys(pairs)) {
		if k == "" || strings.Contains(k, "=") {
			return "", fmt.Errorf("%s cannot be the key of a pair", printable(k))
		}
		items = append(items, k+"="+pairs[k])
	}
	return FormatList(items)
}

// ParsePairs reads what FormatPairs writes. A value may hold "=".
func ParsePairs(text string) (map[string]string, error) {
	items, err := ParseList(text)
	if err != nil {
		return nil, err
	}
	pairs := make(map[string]string, len(items))
	for _, item := range items {
		k, v, ok := strings.Cut(item, "=")
		if _, twice := pairs[k]; !ok || k == "" || twice {
			return nil, errors.New("must be a comma-separated list of key=value, each key once")
		}
		pairs[k] = v
	}
	return pairs, nil
}

// FormatBool writes "true" or "false".
func FormatBool(b bool) string { return strconv.FormatBool(b) }

// ParseBool reads those two and nothing else.
func ParseBool(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New(`must be "true" or "false"`)
}

// FormatNumber writes decimal text.
func FormatNumber(n int64) string { return strconv.FormatInt(n, 10) }

// ParseNumber reads a number of zero or more as FormatNumber writes it: no
// sign, no space, no leading zero.
func ParseNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || FormatNumber(n) != text {
		return 0, errors.New("must be a whole number in decimal, zero or more")
	}
	return n, nil
}
