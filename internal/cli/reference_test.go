package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var updateReference = flag.Bool("update", false, "write the reference in docs/cli.md anew")

const (
	referencePage  = "../../docs/cli.md"
	referenceBegin = "<!-- The rest is made from the commands: go test ./internal/cli -run TestReference -update -->\n"
)

// TestReference: the page on the command line has every command and every flag, as they are.
func TestReference(t *testing.T) {
	s := &session{Surroundings: Surroundings{Args: []string{"radial"}, Getenv: func(string) string { return "" }}, cancel: func() {}}
	root := s.root()
	want := reference(root)
	raw, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	head, have, ok := strings.Cut(string(raw), referenceBegin)
	if *updateReference {
		if err := os.WriteFile(referencePage, []byte(strings.TrimRight(head, "\n")+"\n\n"+referenceBegin+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !ok || have != want {
		t.Errorf("docs/cli.md is not as the commands are: go test ./internal/cli -run TestReference -update")
	}
	// What people read first names every group of commands.
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && !strings.Contains(head, "`"+c.Name()) {
			t.Errorf("the table in docs/cli.md has no radial %s", c.Name())
		}
	}
}

// reference describes every command that does something, and its flags.
func reference(root *cobra.Command) string {
	root.InitDefaultHelpCmd()
	var b strings.Builder
	b.WriteString("\n## Every command\n\nFlags of all of them:\n\n```text\n" + flags(root.PersistentFlags()) + "```\n")
	for _, group := range root.Commands() {
		if !group.IsAvailableCommand() || group.Name() == "help" || group.Name() == "completion" {
			continue
		}
		fmt.Fprintf(&b, "\n### radial %s\n\n%s.\n", group.Name(), group.Short)
		describe(&b, group)
	}
	return b.String()
}

func describe(b *strings.Builder, c *cobra.Command) {
	if c.HasSubCommands() {
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				describe(b, sub)
			}
		}
		return
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	root := c.Root().PersistentFlags()
	add := func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" && root.Lookup(f.Name) != f {
			own.AddFlag(f)
		}
	}
	c.NonInheritedFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	fmt.Fprintf(b, "\n`%s`", strings.TrimSuffix(c.UseLine(), " [flags]"))
	if c.Parent() != c.Root() {
		fmt.Fprintf(b, " — %s", c.Short)
	}
	b.WriteString("\n")
	if text := flags(own); text != "" {
		b.WriteString("\n```text\n" + text + "```\n")
	}
}

// flags are laid out as --help does.
func flags(set *pflag.FlagSet) string {
	var b strings.Builder
	for line := range strings.Lines(set.FlagUsages()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// TestDocumentation: every page of the documentation can be found from its first one.
func TestDocumentation(t *testing.T) {
	index, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	more, err := filepath.Glob("../../docs/spec/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, more...) {
		name := strings.TrimPrefix(filepath.ToSlash(page), "../../docs/")
		if name != "README.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("docs/README.md does not link %s", name)
		}
	}
}
