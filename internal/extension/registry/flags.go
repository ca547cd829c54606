package registry

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/radial-project/radial/internal/config"
)

// Flags are the settings by which a program is told of extensions: --extension
// for one, and extensions in a configuration file for lists with all that a
// [Registration] has.
type Flags struct {
	named []string
	list  []Registration
}

// Add declares the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	f.AddOne(flags)
	flags.Var(config.JSON[[]Registration]{Value: &f.list}, "extensions", "further `extensions` as a list: name, version, and url, caFile, tokenFile or path, args, env")
}

// AddOne declares --extension only: for commands, which have no file.
func (f *Flags) AddOne(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.named, "extension", nil, "an extension that templates may import: `NAME[@VERSION]=URL` of one that serves HTTP, or NAME[@VERSION]=PATH of an executable; may stand more than once")
}

// Registrations are what the flags say.
func (f *Flags) Registrations() ([]Registration, error) {
	list := append([]Registration(nil), f.list...)
	for _, text := range f.named {
		r, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("--extension: %w", err)
		}
		list = append(list, r)
	}
	return list, nil
}

// Check refuses what cannot work whatever is on the machine.
func (f *Flags) Check() error {
	list, err := f.Registrations()
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := r.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Open makes the registry of what the flags say.
func (f *Flags) Open(o Options) (*Registry, error) {
	list, err := f.Registrations()
	if err != nil {
		return nil, err
	}
	return New(list, o)
}
