// Package config sets a program's flags from three places: the command line,
// environment variables and a configuration file, in this order of precedence.
// A program declares its flags once; each is a key of the file and a variable
// of the environment by that alone.
//
// Whatever is not known, or has a value that its flag does not take, is refused
// at the start under its own name, with the nearest known one: a setting that is
// silently ignored is found on the worst day.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/radial-project/radial/internal/schema"
)

// Settings are the flags of a program.
type Settings struct {
	flags  *pflag.FlagSet
	prefix string
	// keys by flag name, where they differ from what [Key] makes of it.
	keys map[string]string
	// never are flags that only the command line sets.
	never map[string]bool
	// ignored are variables under the prefix that are not ours.
	ignored func(name string) bool
}

// New returns the settings behind flags. Environment variables begin with
// prefix, such as "RADIAL_".
func New(flags *pflag.FlagSet, prefix string) *Settings {
	return &Settings{
		flags: flags, prefix: prefix, keys: map[string]string{},
		never: map[string]bool{"help": true, "version": true}, ignored: func(string) bool { return false },
	}
}

// Under puts flags below sections of the file: keys by flag name, such as
// "max-operation-concurrency" → "workerServer.maxOperationConcurrency".
func (s *Settings) Under(keys map[string]string) *Settings {
	for flag, key := range keys {
		if s.flags.Lookup(flag) == nil {
			panic("config: no flag " + flag)
		}
		s.keys[flag] = key
	}
	return s
}

// NotInFile names flags that the file cannot set: the one that names the file.
func (s *Settings) NotInFile(flags ...string) *Settings {
	for _, f := range flags {
		s.never[f] = true
	}
	return s
}

// Ignore says which variables under the prefix belong to others.
func (s *Settings) Ignore(f func(name string) bool) *Settings {
	s.ignored = f
	return s
}

// Key is a flag's name as a key of the file: log-level is logLevel.
func Key(flag string) string {
	var b strings.Builder
	for i, word := range strings.Split(flag, "-") {
		if i > 0 && word != "" {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		b.WriteString(word)
	}
	return b.String()
}

// Variable is a flag's name as an environment variable.
func (s *Settings) Variable(flag string) string {
	return s.prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// byKey are the flags that the file can set.
func (s *Settings) byKey() map[string]*pflag.Flag {
	out := map[string]*pflag.Flag{}
	s.flags.VisitAll(func(f *pflag.Flag) {
		if s.never[f.Name] {
			return
		}
		key, ok := s.keys[f.Name]
		if !ok {
			key = Key(f.Name)
		}
		out[key] = f
	})
	return out
}

// Keys are the keys of the file, sorted.
func (s *Settings) Keys() []string { return slices.Sorted(maps.Keys(s.byKey())) }

// Load sets every flag that the command line did not from environment (as
// os.Environ has it), and what is still unset from the file that the flag
// fileFlag names ("" for no file). All problems are reported at once.
func (s *Settings) Load(environment []string, fileFlag string) error {
	set := map[string]bool{}
	s.flags.Visit(func(f *pflag.Flag) { set[f.Name] = true })
	problems := s.fromEnvironment(environment, set)
	if f := s.flags.Lookup(fileFlag); f != nil && f.Value.String() != "" {
		raw, err := os.ReadFile(f.Value.String())
		if err != nil {
			return errors.Join(append(problems, fmt.Errorf("the configuration file cannot be read: %w", err))...)
		}
		problems = append(problems, s.fromFile(f.Value.String(), raw, set)...)
	}
	return errors.Join(problems...)
}

func (s *Settings) fromEnvironment(environment []string, set map[string]bool) (problems []error) {
	flags := map[string]*pflag.Flag{}
	s.flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			flags[s.Variable(f.Name)] = f
		}
	})
	for _, entry := range slices.Sorted(slices.Values(environment)) {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !strings.HasPrefix(name, s.prefix) {
			continue
		}
		f := flags[name]
		switch {
		case f == nil && s.ignored(name):
		case f == nil:
			problems = append(problems, fmt.Errorf("environment variable %s is no setting%s", name, hint(name, slices.Sorted(maps.Keys(flags)))))
		case set[f.Name]:
		default:
			set[f.Name] = true
			if err := s.flags.Set(f.Name, value); err != nil {
				problems = append(problems, fmt.Errorf("environment variable %s: %w", name, reason(err)))
			}
		}
	}
	return problems
}

// fromFile sets what the file says and nobody before it did. The file is YAML,
// of which JSON is a part.
func (s *Settings) fromFile(path string, raw []byte, set map[string]bool) (problems []error) {
	var document yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(raw))
	switch err := d.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil // empty
	case err != nil:
		return []error{fmt.Errorf("%s is not YAML: %w", path, err)}
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return []error{fmt.Errorf("%s holds more than one document", path)}
	}
	f := &file{path: path, flags: s.byKey(), set: set, settings: s}
	f.mapping("", document.Content[0])
	return f.problems
}

// file walks one configuration file.
type file struct {
	path     string
	flags    map[string]*pflag.Flag
	set      map[string]bool
	settings *Settings
	problems []error
}

func (f *file) problem(n *yaml.Node, format string, args ...any) {
	f.problems = append(f.problems, fmt.Errorf("%s:%d: %w", f.path, n.Line, fmt.Errorf(format, args...)))
}

func (f *file) mapping(section string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		what := "the file"
		if section != "" {
			what = strings.TrimSuffix(section, ".")
		}
		f.problem(n, "%s must be a mapping of settings", what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		key := section + name.Value
		if seen[key] {
			f.problem(name, "%s stands twice", key)
			continue
		}
		seen[key] = true
		if flag := f.flags[key]; flag != nil {
			f.value(key, flag, value)
			continue
		}
		if below := key + "."; slices.ContainsFunc(slices.Collect(maps.Keys(f.flags)), func(k string) bool { return strings.HasPrefix(k, below) }) {
			f.mapping(below, value)
			continue
		}
		f.problem(name, "%s is no setting%s", key, hint(key, slices.Sorted(maps.Keys(f.flags))))
	}
}

func (f *file) value(key string, flag *pflag.Flag, n *yaml.Node) {
	if f.set[flag.Name] {
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	fail := func(err error) {
		if err != nil {
			f.problem(n, "%s: %w", key, reason(err))
		}
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return // as if it did not stand there
		}
		fail(f.settings.flags.Set(flag.Name, n.Value))
	case yaml.SequenceNode:
		if slice, ok := flag.Value.(pflag.SliceValue); ok {
			var values []string
			for _, e := range n.Content {
				if e.Kind != yaml.ScalarNode {
					f.problem(e, "%s must be a list of single values", key)
					return
				}
				values = append(values, e.Value)
			}
			fail(slice.Replace(values))
			flag.Changed = true
			return
		}
		fallthrough
	default:
		if flag.Value.Type() != "json" {
			f.problem(n, "%s must be a single value", key)
			return
		}
		var v any
		if err := n.Decode(&v); err != nil {
			fail(err)
			return
		}
		raw, err := json.Marshal(v)
		if err != nil {
			fail(err)
			return
		}
		fail(f.settings.flags.Set(flag.Name, string(raw)))
	}
}

// hint names the nearest known name, or some of them all.
func hint(name string, known []string) string {
	if near := schema.Nearest(name, known); len(near) > 0 {
		return ": did you mean " + near[0] + "?"
	}
	// A key may stand in the wrong section.
	last := name[strings.LastIndex(name, ".")+1:]
	for _, k := range known {
		if strings.EqualFold(k[strings.LastIndex(k, ".")+1:], last) {
			return ": did you mean " + k + "?"
		}
	}
	return ": known are " + strings.Join(known, ", ")
}

// reason is what pflag found wrong, without the flag's name in front, which the
// reader did not write.
func reason(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		cause := invalid.Unwrap()
		var number *strconv.NumError
		if errors.As(cause, &number) {
			cause = number.Err
		}
		return fmt.Errorf("%q is no %s: %w", invalid.GetValue(), invalid.GetFlag().Value.Type(), cause)
	}
	return err
}

// JSON is a flag whose value is a JSON document; in the file it is written as
// YAML. What it holds is checked against T, unknown fields refused.
type JSON[T any] struct{ Value *T }

// String implements [pflag.Value].
func (j JSON[T]) String() string {
	raw, err := json.Marshal(j.Value)
	if err != nil || j.Value == nil || string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// Set implements [pflag.Value].
func (j JSON[T]) Set(s string) error {
	d := json.NewDecoder(strings.NewReader(s))
	d.DisallowUnknownFields()
	return d.Decode(j.Value)
}

// Type implements [pflag.Value].
func (j JSON[T]) Type() string { return "json" }
