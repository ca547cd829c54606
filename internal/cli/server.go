package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/address"
	"github.com/radial-project/radial/internal/store/backup"
)

func (s *session) serverCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "server", Short: "Back up, restore and check the store of a control plane",
		Long: `Works on the store itself, not through a control plane: a SQLite file (whose control plane must be stopped,
since one process uses a file at a time) or a PostgreSQL database (whose control planes may run).`,
	}
	c.AddCommand(s.serverBackup(), s.serverRestore(), s.serverCheck())
	return c
}

func storeFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "store", "", "the store: sqlite:FILE or postgres://... (RADIAL_STORE, which keeps a password off the command line)")
}

// storeAddress is the store of --store, else of RADIAL_STORE.
func (s *session) storeAddress(named string) (address.Address, error) {
	a, err := address.Parse(cmp.Or(named, s.Getenv("RADIAL_STORE")))
	if err != nil {
		return a, usageError{err}
	}
	return a, nil
}

// openExisting opens a store that must be there: a mistyped name is not to become an empty store.
func openExisting(ctx context.Context, a address.Address) (store.Store, error) {
	if a.File != "" {
		if _, err := os.Stat(a.File); errors.Is(err, fs.ErrNotExist) {
			return nil, core.Errorf(core.CodeNotFound, "there is no store at %s", a.File)
		}
	}
	return a.Open(ctx, address.Options{})
}

func (s *session) serverBackup() *cobra.Command {
	var named, to string
	c := &cobra.Command{
		Use: "backup --store STORE --to FILE", Short: "Write everything that a store holds to one file", Args: cobra.NoArgs,
		Long: `Writes a snapshot of a store to one file (- is standard output), compressed and with a checksum. Sealed values
stay sealed: what a backup holds can be used only with the key of the server, which is not in it. Keep that
too, and elsewhere.

A store of an older release is brought forward by this: back it up with the release that last used it.`,
		Example: `  radial server backup --store sqlite:/var/lib/radial/radial.db --to radial-2026-03-01.backup
  RADIAL_STORE=postgres://... radial server backup --to - | upload`,
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := s.storeAddress(named)
			if err != nil {
				return err
			}
			from, err := openExisting(c.Context(), a)
			if err != nil {
				return err
			}
			defer from.Close() // it has changed nothing
			var sum backup.Summary
			write := func(w io.Writer) error {
				return s.counting(c.Context(), "backing up", func(ctx context.Context, p backup.Progress) error {
					sum, err = backup.Write(ctx, from, w, time.Now(), p)
					return err
				})
			}
			if to == "-" {
				return write(s.Out)
			}
			if err := newFile(to, write); err != nil {
				return err
			}
			return s.done(stored{Store: a.String(), File: to, Summary: sum}, "Backed up %s to %s: %s, sha256 %s.", a, to, contents(sum.Records), sum.SHA256)
		},
	}
	storeFlag(c, &named)
	c.Flags().StringVar(&to, "to", "", "file to write, which must not exist; - for standard output")
	required(c, "to")
	return c
}

// stored is what a backup or a restoration did.
type stored struct {
	Store string `json:"store,omitempty"`
	File  string `json:"file"`
	backup.Summary
}

// newFile writes a file that must not exist, readable by its user alone. It is there whole, on disk, or not at all.
func newFile(path string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return core.Errorf(core.CodeConflict, "%s exists: choose another name, or remove it", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("cannot write the backup: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("cannot write the backup: %w", err)
	}
	// Link, unlike rename, replaces nothing that came meanwhile.
	if err := os.Link(f.Name(), path); err != nil {
		return fmt.Errorf("cannot write the backup: %w", err)
	}
	return os.Remove(f.Name())
}

func (s *session) serverRestore() *cobra.Command {
	var named, from string
	c := &cobra.Command{
		Use: "restore --from FILE --store STORE", Short: "Fill an empty store from a backup", Args: cobra.NoArgs,
		Long: `Fills an empty store from a backup, all of it or nothing: a SQLite file that does not exist yet, or an empty
PostgreSQL database. The backup may be of the other kind of store. A damaged one changes nothing.

Stop the old control plane before a new one starts on the restored store: both would work on the same
clusters. Operations that were under way when the backup was made are taken up again.`,
		Example: "  radial server restore --from radial-2026-03-01.backup --store sqlite:/var/lib/radial/radial.db",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			a, err := s.storeAddress(named)
			if err != nil {
				return err
			}
			file := s.In
			if from != "-" {
				f, err := os.Open(from)
				if err != nil {
					return usagef("cannot read the backup: %w", err)
				}
				defer f.Close()
				file = f
			}
			if a.File != "" {
				if _, missing := os.Stat(a.File); errors.Is(missing, fs.ErrNotExist) {
					defer func() {
						if err != nil { // leave nothing that looks like a store
							for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
								_ = os.Remove(a.File + suffix)
							}
						}
					}()
				}
			}
			to, err := a.Open(c.Context(), address.Options{})
			if err != nil {
				return err
			}
			var sum backup.Summary
			err = s.counting(c.Context(), "restoring", func(ctx context.Context, p backup.Progress) (err error) {
				sum, err = backup.Restore(ctx, to, file, p)
				return err
			})
			if err := errors.Join(err, to.Close()); err != nil {
				return err
			}
			return s.done(stored{Store: a.String(), File: from, Summary: sum},
				"Restored %s of %s into %s. A control plane that starts on it needs the key of the old one.", contents(sum.Records), sum.Time.Local().Format(time.DateTime), a)
		},
	}
	storeFlag(c, &named)
	c.Flags().StringVar(&from, "from", "", "the backup, - for standard input")
	required(c, "from")
	return c
}

// checked is what a check found.
type checked struct {
	Store string `json:"store,omitempty"`
	File  string `json:"file,omitempty"`
	backup.Report
}

func (s *session) serverCheck() *cobra.Command {
	var named, from string
	c := &cobra.Command{
		Use: "check --store STORE | --from FILE", Short: "Check a store, or a backup, from end to end", Args: cobra.NoArgs,
		Long: `Asks the database whether its own structures are sound, reads every record, and looks whether they fit
together. Of a backup it checks that it is whole and can be read. Nothing is changed; a store of an older
release is brought forward.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if from != "" && named != "" {
				return usagef("check one at a time: --store or --from")
			}
			if from != "" {
				return s.checkFile(c.Context(), from)
			}
			a, err := s.storeAddress(named)
			if err != nil {
				return err
			}
			opened, err := openExisting(c.Context(), a)
			if err != nil {
				return err
			}
			defer opened.Close() // it has changed nothing
			out := checked{Store: a.String()}
			err = s.counting(c.Context(), "checking", func(ctx context.Context, p backup.Progress) (err error) {
				out.Report, err = backup.Check(ctx, opened, p)
				return err
			})
			if err != nil {
				return err
			}
			if n := len(out.Faults); n > 0 {
				if s.output != "table" {
					if err := s.show(view{data: out}); err != nil {
						return err
					}
				}
				e := core.Errorf(core.CodeInternal, "%s is not sound; restore the last good backup, and report this", a)
				for _, f := range out.Faults {
					e.Details = append(e.Details, core.Error{Message: f})
				}
				return e
			}
			return s.done(out, "%s is sound: %s.", a, contents(out.Records))
		},
	}
	storeFlag(c, &named)
	c.Flags().StringVar(&from, "from", "", "a backup to check instead, - for standard input")
	return c
}

func (s *session) checkFile(ctx context.Context, from string) error {
	file := s.In
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return usagef("cannot read the backup: %w", err)
		}
		defer f.Close()
		file = f
	}
	var sum backup.Summary
	err := s.counting(ctx, "checking", func(ctx context.Context, p backup.Progress) (err error) {
		sum, err = backup.Verify(ctx, file, p)
		return err
	})
	if err != nil {
		return err
	}
	return s.done(stored{File: from, Summary: sum}, "%s is whole: %s, of %s, by release %s, sha256 %s.",
		from, contents(sum.Records), sum.Time.Local().Format(time.DateTime), sum.Release, sum.SHA256)
}

// contents says what a store holds.
func contents(records map[store.Kind]int) string {
	return fmt.Sprintf("%s and %s", count(records[store.KindResource], "resource"), count(records[store.KindOperation], "operation"))
}

// counting shows on a terminal how many records are done.
func (s *session) counting(ctx context.Context, what string, f func(context.Context, backup.Progress) error) error {
	if !s.Terminal {
		return f(ctx, nil)
	}
	shown := time.Time{}
	err := f(ctx, func(done, total int) {
		if now := time.Now(); now.Sub(shown) > 100*time.Millisecond || done == total {
			shown = now
			fmt.Fprintf(s.Err, "\r\033[K%s: %d of %d records (%d %%)", what, done, total, 100*done/max(total, 1))
		}
	})
	fmt.Fprint(s.Err, "\r\033[K")
	return err
}
