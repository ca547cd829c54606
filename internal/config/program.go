package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/radial-project/radial/internal/conceal"
)

// Environment sets the flags that the command line did not set from the variables
// <prefix><FLAG>, with _ for -, as far as they are not empty: for programs whose
// few flags need no file. The error names each variable that its flag does not
// take.
func Environment(flags *flag.FlagSet, prefix string, lookup func(string) (string, bool)) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var problems []error
	flags.VisitAll(func(f *flag.Flag) {
		name := prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v, _ := lookup(name); v != "" && !given[f.Name] {
			if err := f.Value.Set(v); err != nil {
				problems = append(problems, fmt.Errorf("environment variable %s: %w", name, err))
			}
		}
	})
	return errors.Join(problems...)
}

// Logger writes to w, one line an entry: level is --log-level (debug, info, warn or
// error), format --log-format (json or text).
func Logger(level, format string, w io.Writer) (*slog.Logger, error) {
	l, err := conceal.LogLevel(level)
	if err != nil {
		return nil, err
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q is neither json nor text", format)
}
