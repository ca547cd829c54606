package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/template"
)

// stackFlags are what the commands about stacks are told.
type stackFlags struct {
	file        string
	deploy      deployFlags
	unmanage    string
	deny        string
	principals  []string
	actions     []string
	description string
	credentials []string
	yes         bool
	local       localFlags
}

// stackInput is an update of a stack, read from the command line.
type stackInput struct {
	text        []byte
	given       given
	unmanage    stack.Action
	deny        stack.DenySettings
	description string
	// credentials are by fingerprint, "" for any: never shown.
	credentials map[string]extension.Secrets
}

// stackPlace is where stacks are kept: by a control plane, or by this process.
type stackPlace interface {
	id(name string) core.ID
	apply(ctx context.Context, name string, in stackInput) (stack.Wire, error)
	show(ctx context.Context, name string) (stack.Wire, error)
	list(ctx context.Context) ([]stack.Wire, error)
	// remove deletes a stack; found is false when there was none.
	remove(ctx context.Context, name string, in stackInput) (found bool, err error)
	whatIf(ctx context.Context, name string, in stackInput) ([]stack.WireChange, error)
	export(ctx context.Context, name string) (json.RawMessage, error)
}

func (s *session) stackCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "stack", Aliases: []string{"stacks"}, Short: "Stacks: what a template made, kept as one thing",
		Long: `A stack is a template with the memory of what it made. Applying it again deletes what the template no longer
names; deleting it takes all of it away. Credentials are kept nowhere: they are found, or supplied, anew.

With --local no control plane is needed: the templates run in this process, against the cluster of a
kubeconfig, and the records of stacks lie in that cluster (namespace radial-stacks) or in a file.`,
	}
	c.AddCommand(s.stackApply(), s.stackShow(), s.stackList(), s.stackDelete(), s.stackWhatIf(), s.stackExport())
	return c
}

func (f *stackFlags) place(s *session, c *cobra.Command) {
	c.Flags().StringVarP(&s.group, "group", "g", "", "resource group (default unless set)")
	f.local.add(c)
}

func (f *stackFlags) input(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "the template, - for standard input")
	flags.StringArrayVarP(&f.deploy.parameters, "parameters", "p", nil, "name=value, name=@file or @file; may be repeated")
	flags.StringArrayVar(&f.deploy.files, "parameters-file", nil, "file of parameters, as -p @file; may be repeated")
	f.unmanageFlag(c, "delete")
	flags.StringVar(&f.deny, "deny-settings-mode", "none", "what others may not do to managed objects of Kubernetes: none, denyDelete or denyWriteAndDelete")
	flags.StringSliceVar(&f.principals, "deny-settings-excluded-principals", nil, "users and groups that may all the same")
	flags.StringSliceVar(&f.actions, "deny-settings-excluded-actions", nil, "what everybody may, as <group>/<Kind>/<write or delete>; each part may be *")
	flags.StringVar(&f.description, "description", "", "what the stack is for")
	f.credentialsFlag(c)
	required(c, "file")
}

func (f *stackFlags) unmanageFlag(c *cobra.Command, value string) {
	what := "what becomes of resources that are no longer managed: delete or detach"
	if value == "" {
		what += " (what the stack says itself)"
	}
	c.Flags().StringVar(&f.unmanage, "action-on-unmanage", value, what)
}

func (f *stackFlags) credentialsFlag(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.credentials, "credentials-env", nil, "`variable` of the environment with the kubeConfig of a cluster (UserOwned) that the template does not name any more; as FINGERPRINT=VARIABLE where there are several; as EXTENSION.ENTRY=VARIABLE with a secret entry of an extension's configuration")
}

// readCredentials reads what reaches clusters from the environment: on a command line it could be seen.
func (s *session) readCredentials(f stackFlags) (map[string]extension.Secrets, error) {
	out := map[string]extension.Secrets{}
	for _, arg := range f.credentials {
		fingerprint, variable, ok := strings.Cut(arg, "=")
		if !ok {
			fingerprint, variable = "", arg
		}
		text := s.Getenv(variable)
		if text == "" {
			return nil, usagef("--credentials-env: the environment variable %s is not set", variable)
		}
		// No fingerprint has a dot: this is a secret entry of an extension's
		// configuration.
		if i := strings.LastIndexByte(fingerprint, '.'); i > 0 {
			name, entry := fingerprint[:i], fingerprint[i+1:]
			if out[name] == nil {
				out[name] = extension.Secrets{}
			}
			out[name][entry] = text
			continue
		}
		out[fingerprint] = extension.Secrets{"kubeConfig": text}
	}
	return out, nil
}

func (f stackFlags) action() (stack.Action, error) {
	switch a := stack.Action(strings.ToLower(f.unmanage)); a {
	case "", stack.Delete, stack.Detach:
		return a, nil
	}
	return "", usagef("--action-on-unmanage %q is not one of delete, detach", f.unmanage)
}

func (s *session) readStack(ctx context.Context, f stackFlags) (in stackInput, err error) {
	if in.unmanage, err = f.action(); err != nil {
		return in, err
	}
	in.deny = stack.DenySettings{Mode: stack.Mode(f.deny), Principals: f.principals, Actions: f.actions}
	if err := in.deny.Check(); err != nil {
		return in, usagef("%w", err)
	}
	if in.credentials, err = s.readCredentials(f); err != nil {
		return in, err
	}
	in.description = f.description
	if in.text, err = s.readTemplate(f.file); err != nil {
		return in, err
	}
	t, err := template.Parse(in.text)
	if err != nil {
		return in, fmt.Errorf("%s: %w", f.file, err)
	}
	f.deploy.local = f.local.local
	in.given, err = s.deployParameters(ctx, t, f.deploy)
	return in, err
}

// stacks is where the commands find stacks.
func (s *session) stacks(f stackFlags) (stackPlace, error) {
	if f.local.local {
		return f.local.open(s)
	}
	if err := f.local.unused(); err != nil {
		return nil, err
	}
	return planeStacks{s}, nil
}

// sayAction says on every run what becomes of what is not asked for any more.
func (s *session) sayAction(a stack.Action) {
	if a == stack.Detach {
		fmt.Fprintln(s.Err, "Action on unmanage: detach. What the template no longer names is let go, and stays.")
		return
	}
	fmt.Fprintln(s.Err, "Action on unmanage: delete. What the template no longer names is deleted (--action-on-unmanage detach lets it go).")
}

// beginStack reads what a run is asked for and where, and says the action.
func (s *session) beginStack(ctx context.Context, f stackFlags) (stackInput, stackPlace, error) {
	in, err := s.readStack(ctx, f)
	if err != nil {
		return in, nil, err
	}
	at, err := s.stacks(f)
	if err != nil {
		return in, nil, err
	}
	s.sayAction(in.unmanage)
	return in, at, nil
}

func (s *session) stackApply() *cobra.Command {
	var f stackFlags
	c := &cobra.Command{
		Use: "apply NAME -f TEMPLATE", Aliases: []string{"create", "update"}, Short: "Make a stack what a template says", Args: cobra.ExactArgs(1),
		Long: `Deploys a template as a stack, and then deletes what the stack manages and the template no longer names:
dependants first, with the identity that each object had when it was made. When the deployment fails nothing
is deleted. What cannot be deleted stays managed, and the next run tries again.`,
		Example: `  radial stack apply shop -f shop.json -p replicas=3
  radial stack apply shop -f shop.json --deny-settings-mode denyDelete --action-on-unmanage detach
  radial stack apply shop -f shop.json --local --kube-context kind-dev`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			in, at, err := s.beginStack(ctx, f)
			if err != nil {
				return err
			}
			w, err := at.apply(ctx, args[0], in)
			if err != nil && w.ID == "" {
				return err
			}
			if s.output != "table" {
				if shown := s.show(view{data: w}); shown != nil {
					return shown
				}
				return stackError(w, err)
			}
			if err := s.show(view{data: w, text: appliedText(w)}); err != nil {
				return err
			}
			return stackError(w, err)
		},
	}
	f.input(c)
	f.place(s, c)
	return c
}

// stackError is why a stack did not become what was asked.
func stackError(w stack.Wire, err error) error {
	if err == nil && w.Properties.ProvisioningState != string(stack.StateSucceeded) {
		err = core.Errorf(core.CodeInternal, "it ended as %s, without a reason", w.Properties.ProvisioningState)
		if w.Properties.Error != nil {
			err = w.Properties.Error
		}
	}
	if err == nil {
		return nil
	}
	e := *core.AsError(supplied(err))
	e.Message = fmt.Sprintf("stack %s %s: %s", w.Name, endedAsState(cmp.Or(w.Properties.ProvisioningState, string(stack.StateFailed))), e.Message)
	return &e
}

// supplied says of an error that credentials are missing how a command line is given them.
func supplied(err error) error {
	var needs func(e core.Error) bool
	needs = func(e core.Error) bool {
		return e.Code == core.CodeCredentialsNeeded || slices.ContainsFunc(e.Details, needs)
	}
	if err == nil || !needs(*core.AsError(err)) {
		return err
	}
	out := *core.AsError(err)
	out.Message += ". --credentials-env VARIABLE supplies what a variable of the environment holds"
	return &out
}

// endedAsState is a state as a verb.
func endedAsState(state string) string {
	switch stack.State(state) {
	case stack.StateSucceeded, stack.StateFailed:
		return state
	case stack.StateCanceled:
		return "was canceled"
	}
	return "is " + state
}

// appliedText sums an update up.
func appliedText(w stack.Wire) string {
	var b strings.Builder
	p := w.Properties
	sum := func(what string, list []stack.WireResource) {
		for _, r := range list {
			fmt.Fprintf(&b, "%s %s%s\n", what, r.ID, inScope(r))
			if r.Note != "" {
				fmt.Fprintf(&b, "    %s\n", r.Note)
			}
			if r.Unverified {
				b.WriteString("    by its name alone: nothing told it from another of that name\n")
			}
			if r.Error != nil {
				fmt.Fprintf(&b, "    %s\n", r.Error.Message)
			}
		}
	}
	sum("- deleted ", p.Deleted)
	sum("> detached", p.Detached)
	sum("! failed  ", p.Failed)
	fmt.Fprintf(&b, "Stack %s %s: %s managed, %d deleted, %d detached, %d failed.", w.Name, endedAsState(p.ProvisioningState),
		count(len(p.Resources), "resource"), len(p.Deleted), len(p.Detached), len(p.Failed))
	for _, name := range sortedKeys(p.Outputs) {
		o := p.Outputs[name]
		value := "(secure)"
		if o.Value != nil {
			value = compact(o.Value)
		}
		fmt.Fprintf(&b, "\n%s = %s", name, value)
	}
	return b.String()
}

// scopeOf says where a resource is: its scope, the extension of one that lives in none, "" for the control plane's.
func scopeOf(r stack.WireResource) string {
	if r.Scope == nil {
		return ""
	}
	at := scopeText(&client.DeploymentScope{Type: r.Scope.Type, ID: r.Scope.ID, Fingerprint: r.Scope.Fingerprint})
	if at == "" && r.Extension != nil {
		return "Extension " + r.Extension.Name
	}
	return at
}

// inScope is scopeOf beside an id, where it is not what everybody expects.
func inScope(r stack.WireResource) string {
	at := scopeOf(r)
	if at == "" || at == "Cluster "+core.LocalCluster {
		return ""
	}
	return "  (in " + at + ")"
}

func (s *session) stackShow() *cobra.Command {
	var f stackFlags
	c := &cobra.Command{
		Use: "show NAME", Aliases: []string{"get"}, Short: "Show a stack and what it manages", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			at, err := s.stacks(f)
			if err != nil {
				return err
			}
			w, err := at.show(c.Context(), args[0])
			if err != nil {
				return err
			}
			return s.show(view{data: w, text: stackText(w)})
		},
	}
	f.place(s, c)
	return c
}

func stackText(w stack.Wire) string {
	p := w.Properties
	deny := string(p.Deny.Mode)
	if len(p.Deny.Principals) > 0 {
		deny += ", but not to " + strings.Join(p.Deny.Principals, ", ")
	}
	reason := ""
	if p.Error != nil {
		reason = p.Error.Message
	}
	out := fields([2]string{"Name", w.Name}, [2]string{"Group", groupIn(w.ID)}, [2]string{"State", p.ProvisioningState}, [2]string{"Error", reason},
		[2]string{"Description", p.Description}, [2]string{"Action on unmanage", string(p.Unmanage.Resources)}, [2]string{"Denied to others", deny},
		[2]string{"Deployment", nameIn(p.DeploymentID)}, [2]string{"Duration", p.Duration})
	t := table{columns: []string{"MANAGED RESOURCE", "SCOPE", "STATUS", "DENIED"}, empty: "It manages nothing."}
	for _, r := range p.Resources {
		t.rows = append(t.rows, []string{r.ID, scopeOf(r), r.Status, r.DenyStatus})
	}
	return out + t.String()
}

func (s *session) stackList() *cobra.Command {
	var f stackFlags
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List stacks", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			at, err := s.stacks(f)
			if err != nil {
				return err
			}
			all, err := at.list(c.Context())
			if err != nil {
				return err
			}
			t := table{columns: []string{"STACK", "GROUP", "STATE", "RESOURCES", "ON UNMANAGE", "DENIED"}, empty: "There are no stacks: radial stack apply makes one."}
			for _, w := range all {
				p := w.Properties
				t.rows = append(t.rows, []string{w.Name, groupIn(w.ID), p.ProvisioningState, fmt.Sprint(len(p.Resources)), string(p.Unmanage.Resources), string(p.Deny.Mode)})
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
	f.place(s, c)
	return c
}

func (s *session) stackDelete() *cobra.Command {
	var f stackFlags
	c := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a stack and what it manages", Args: cobra.ExactArgs(1),
		Long: `Deletes what a stack manages, dependants first, and then the stack; with --action-on-unmanage detach only
the stack. Objects whose cluster is gone count as deleted; those whose cluster is another one now are left
alone, and so is the stack.`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			action, err := f.action()
			if err != nil {
				return err
			}
			credentials, err := s.readCredentials(f)
			if err != nil {
				return err
			}
			at, err := s.stacks(f)
			if err != nil {
				return err
			}
			w, err := at.show(ctx, args[0])
			if core.IsCode(err, core.CodeNotFound) {
				return s.done(deleted{ID: at.id(args[0]).String()}, "Stack %s was not there.", args[0])
			}
			if err != nil {
				return err
			}
			action = cmp.Or(action, w.Properties.Unmanage.Resources, stack.Delete)
			if !f.yes {
				fmt.Fprint(s.Err, whatGoes(w, action))
			}
			if err := s.confirm(f.yes, deletionQuestion(w)); err != nil {
				return err
			}
			if action == stack.Detach {
				fmt.Fprintln(s.Err, "Action on unmanage: detach. What the stack manages stays.")
			} else {
				fmt.Fprintln(s.Err, "Action on unmanage: delete. What the stack manages is deleted.")
			}
			found, err := at.remove(ctx, args[0], stackInput{unmanage: action, credentials: credentials})
			if err != nil {
				return supplied(err)
			}
			n := len(w.Properties.Resources) // none is known of an update that did not come to its end
			if !found {
				return s.done(deleted{ID: w.ID}, "Stack %s was not there.", w.Name)
			}
			if n == 0 {
				return s.done(deleted{ID: w.ID, Deleted: true}, "Stack %s deleted.", w.Name)
			}
			if action == stack.Detach {
				return s.done(deleted{ID: w.ID, Deleted: true}, "Stack %s deleted; %s let go.", w.Name, count(n, "resource"))
			}
			return s.done(deleted{ID: w.ID, Deleted: true, With: n}, "Stack %s deleted, with %s.", w.Name, count(n, "resource"))
		},
	}
	f.unmanageFlag(c, "")
	f.credentialsFlag(c)
	f.place(s, c)
	confirmFlag(c, &f.yes)
	return c
}

// whatGoes lists what a deletion takes along, or lets go.
func whatGoes(w stack.Wire, action stack.Action) string {
	const most = 20
	list := w.Properties.Resources
	var b strings.Builder
	for i, r := range list {
		if i == 0 && action == stack.Detach {
			b.WriteString("To be managed by nobody any more:\n")
		} else if i == 0 {
			b.WriteString("To be deleted:\n")
		}
		if i == most {
			fmt.Fprintf(&b, "  and %d more (radial stack show %s)\n", len(list)-most, w.Name)
			break
		}
		fmt.Fprintf(&b, "  %s%s\n", r.ID, inScope(r))
	}
	// The record of an update that nobody brought to its end is behind.
	if state := stack.State(w.Properties.ProvisioningState); state != stack.StateSucceeded && state != stack.StateFailed {
		b.WriteString("Its last update did not come to its end; what that made is the stack's too.\n")
	}
	return b.String()
}

func deletionQuestion(w stack.Wire) string {
	switch n := len(w.Properties.Resources); {
	case n > 0:
		return fmt.Sprintf("Delete stack %s with %s?", w.Name, count(n, "resource"))
	case w.Properties.ProvisioningState == string(stack.StateSucceeded):
		return fmt.Sprintf("Delete stack %s, which manages nothing?", w.Name)
	}
	return fmt.Sprintf("Delete stack %s?", w.Name)
}

func (s *session) stackWhatIf() *cobra.Command {
	var f stackFlags
	c := &cobra.Command{
		Use: "what-if NAME -f TEMPLATE", Short: "Show what applying a template would do, and do nothing", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			in, at, err := s.beginStack(ctx, f)
			if err != nil {
				return err
			}
			var changes []stack.WireChange
			err = s.working(ctx, "comparing", func(ctx context.Context) (err error) {
				changes, err = at.whatIf(ctx, args[0], in)
				return err
			})
			if err != nil {
				return err
			}
			return s.show(view{data: orEmpty(changes), text: stackChangesText(changes)})
		},
	}
	f.input(c)
	f.place(s, c)
	return c
}

var stackSigns = map[string]string{stack.ChangeCreate: "+", stack.ChangeDelete: "-", stack.ChangeDetach: ">", stack.ChangeModify: "~", stack.ChangeNone: "=", stack.ChangeOther: "?"}

func stackChangesText(changes []stack.WireChange) string {
	var b strings.Builder
	counts := map[string]int{}
	for _, c := range changes {
		counts[c.ChangeType]++
		fmt.Fprintf(&b, "%s %s  %s%s", stackSigns[c.ChangeType], c.ChangeType, c.ID, inScope(c.WireResource))
		if c.Certainty == stack.Potential {
			b.WriteString("  (perhaps: only the deployment knows)")
		}
		b.WriteByte('\n')
		if c.Reason != "" {
			fmt.Fprintf(&b, "    %s\n", c.Reason)
		}
		deltaText(&b, c.Delta, "    ")
	}
	var sums []string
	for _, kind := range []string{stack.ChangeCreate, stack.ChangeModify, stack.ChangeDelete, stack.ChangeDetach, stack.ChangeNone, stack.ChangeOther} {
		if n := counts[kind]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if len(sums) == 0 {
		return "The template makes nothing, and nothing would go."
	}
	return b.String() + "\nNothing was changed. It would be: " + strings.Join(sums, ", ") + "."
}

func (s *session) stackExport() *cobra.Command {
	var f stackFlags
	c := &cobra.Command{
		Use: "export NAME", Short: "Show the template that a stack was applied with", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			at, err := s.stacks(f)
			if err != nil {
				return err
			}
			text, err := at.export(c.Context(), args[0])
			if err != nil {
				return err
			}
			if s.output == "table" {
				s.output = "json"
			}
			return s.show(view{data: text})
		},
	}
	f.place(s, c)
	return c
}

// stackID is the id of a stack of the control plane.
func (s *session) stackID(name string) core.ID {
	return core.GroupID(cmp.Or(s.group, setup.DefaultName)).Resource(stack.Type, name)
}

func sortStacks(all []stack.Wire) {
	slices.SortFunc(all, func(a, b stack.Wire) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
}
