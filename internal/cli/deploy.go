package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/template"
)

// deployFlags are what radial deploy is told.
type deployFlags struct {
	parameters  []string
	files       []string
	name        string
	application string
	whatIf      bool
	validate    bool
	noWait      bool
	// local says that no control plane is asked for anything.
	local bool
}

func (s *session) deployCommand() *cobra.Command {
	var f deployFlags
	c := &cobra.Command{
		Use: "deploy FILE", Short: "Deploy a template, and show how it goes", Args: cobra.ExactArgs(1),
		Long: `Deploys an ARM JSON template (what Bicep compiles to) to a resource group: resources of the control plane,
objects of Kubernetes and those of other extensions, in the order of their dependencies. FILE is - for
standard input.

Each step is shown as it ends. At the end the outputs stand on standard output; or the error, with the
resource and the cause. What the template does not name is left as it is. Deploying again is safe: what is as
it should be stays.

A parameter is given by -p: -p name=value (text, or JSON where the template wants more than text),
-p name=@file for what a file holds, or -p @file for a file of parameters; the later one wins.`,
		Example: `  radial deploy app.json -g default -p replicas=3 -p password=@secret.txt
  radial deploy app.json -p @app.parameters.json --what-if
  bicep build app.bicep --stdout | radial deploy - --name app`,
		RunE: func(c *cobra.Command, args []string) error { return s.deploy(c.Context(), args[0], f) },
	}
	flags := c.Flags()
	flags.StringArrayVarP(&f.parameters, "parameters", "p", nil, "name=value, name=@file or @file; may be repeated")
	flags.StringArrayVar(&f.files, "parameters-file", nil, "file of parameters, as -p @file; may be repeated")
	flags.StringVarP(&s.group, "group", "g", "", "resource group (default unless set)")
	flags.StringVar(&f.name, "name", "", "name of the deployment (the file's unless set)")
	flags.StringVarP(&s.environment, "environment", "e", "", "environment for the template's parameter of that name")
	flags.StringVarP(&f.application, "application", "a", "", "application for the template's parameter of that name")
	flags.BoolVar(&f.whatIf, "what-if", false, "show what would change, and change nothing")
	flags.BoolVar(&f.validate, "validate-only", false, "only check whether it can be deployed")
	flags.BoolVar(&f.noWait, "no-wait", false, "begin it, and do not wait for its end")
	return c
}

func (s *session) deploy(ctx context.Context, file string, f deployFlags) error {
	if f.whatIf && f.validate {
		return usagef("--what-if and --validate-only are two questions: ask one")
	}
	text, err := s.readTemplate(file)
	if err != nil {
		return err
	}
	t, err := template.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	p, err := s.deployParameters(ctx, t, f)
	if err != nil {
		return err
	}
	name := f.name
	if name == "" {
		name = deploymentName(file)
	}
	id := core.GroupID(cmp.Or(s.group, setup.DefaultName)).Resource("Microsoft.Resources/deployments", name)
	body, err := deploymentBody(text, p)
	if err != nil {
		return err
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	switch {
	case f.validate:
		return s.validateDeployment(ctx, api, id, body)
	case f.whatIf:
		return s.whatIfDeployment(ctx, api, id, body)
	}
	begun, err := api.Deploy(ctx, id, body)
	if core.IsCode(err, core.CodeNotFound) {
		return fmt.Errorf("%w (radial group create %s)", err, id.Group())
	}
	if err != nil {
		return err
	}
	if f.noWait {
		return s.done(begun, "Deployment %s has begun: radial operation logs --follow %s shows how it goes.", id.Name(), begun.Properties.Operation)
	}
	return s.followDeployment(ctx, api, id, begun)
}

// readTemplate reads a template from a file or from standard input.
func (s *session) readTemplate(file string) ([]byte, error) {
	if strings.EqualFold(filepath.Ext(file), ".bicep") {
		return nil, usagef("%s is a source of Bicep: compile it first (bicep build %s), and deploy the JSON", file, file)
	}
	if file == "-" {
		text, err := io.ReadAll(s.In)
		if err != nil {
			return nil, fmt.Errorf("standard input cannot be read: %w", err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return nil, usagef("standard input is empty: it must hold the template")
		}
		return text, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the template cannot be read: %w", err)
	}
	return text, nil
}

// deploymentName is a name for the deployment of a file.
func deploymentName(file string) string {
	if file == "-" {
		return "deployment"
	}
	base := filepath.Base(file)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	name := strings.Map(func(r rune) rune {
		if r < 128 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.()", r)) {
			return r
		}
		return '-'
	}, base)
	return cmp.Or(name[:min(len(name), 64)], "deployment")
}

// given are the inputs of a deployment.
type given struct {
	parameters map[string]any
	extensions map[string]map[string]any
}

func deploymentBody(text []byte, g given) (json.RawMessage, error) {
	properties := map[string]any{"mode": "Incremental", "template": string(text)}
	if json.Valid(text) {
		properties["template"] = json.RawMessage(text)
	}
	parameters := map[string]any{}
	for name, v := range g.parameters {
		parameters[name] = map[string]any{"value": v}
	}
	properties["parameters"] = parameters
	if len(g.extensions) > 0 {
		properties["extensionConfigs"] = g.extensions
	}
	return json.Marshal(map[string]any{"properties": properties})
}

// deployParameters gathers the values of parameters, the later over the earlier.
func (s *session) deployParameters(ctx context.Context, t *template.Template, f deployFlags) (given, error) {
	g := given{parameters: map[string]any{}}
	declared := map[string]template.Parameter{}
	var names []string
	for _, p := range t.Parameters() {
		declared[strings.ToLower(p.Name)] = p
		names = append(names, p.Name)
	}
	for _, file := range f.files {
		if err := s.parametersFile(file, &g); err != nil {
			return g, err
		}
	}
	for _, arg := range f.parameters {
		if file, ok := strings.CutPrefix(arg, "@"); ok {
			if err := s.parametersFile(file, &g); err != nil {
				return g, err
			}
			continue
		}
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return g, usagef("-p %s is not one of name=value, name=@file, @file", arg)
		}
		p, ok := declared[strings.ToLower(name)]
		if !ok {
			return g, usagef("the template has no parameter %q%s", name, hasParameters(names))
		}
		v, err := parameterValue(p, value)
		if err != nil {
			return g, err
		}
		g.set(p.Name, v)
	}
	if err := s.placeParameters(ctx, declared, f, &g); err != nil {
		return g, err
	}
	var missing []string
	for _, p := range t.Parameters() {
		if p.Required && !g.has(p.Name) {
			missing = append(missing, fmt.Sprintf("%s (%s)", p.Name, cmp.Or(p.Type, "of a type of its own")))
		}
	}
	if len(missing) > 0 {
		return g, usagef("the template has no default for %s: give each a value by -p NAME=VALUE or -p NAME=@FILE, or all of them by -p @FILE", strings.Join(missing, ", "))
	}
	return g, nil
}

// set gives a parameter a value in the place of an earlier one, however that was written.
func (g *given) set(name string, v any) {
	maps.DeleteFunc(g.parameters, func(k string, _ any) bool { return strings.EqualFold(k, name) })
	g.parameters[name] = v
}

func (g *given) has(name string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(g.parameters)), func(k string) bool { return strings.EqualFold(k, name) })
}

func hasParameters(names []string) string {
	if len(names) == 0 {
		return ": it has none"
	}
	return ": it has " + strings.Join(names, ", ")
}

// parameterValue reads a value as the template's declaration wants it.
func parameterValue(p template.Parameter, value string) (any, error) {
	from := "-p " + p.Name
	if file, ok := strings.CutPrefix(value, "@"); ok {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("-p %s=@%s: %w", p.Name, file, err)
		}
		value, from = strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r"), file
	}
	switch strings.ToLower(p.Type) {
	case "string", "securestring":
		return value, nil
	case "int":
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return nil, usagef("%s: parameter %s must be a whole number", from, p.Name)
		}
		return n, nil
	case "bool":
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, usagef("%s: parameter %s must be true or false", from, p.Name)
	}
	var v any
	d := json.NewDecoder(strings.NewReader(value))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		if p.Type == "" { // of a type that the template defines: it may be text
			return value, nil
		}
		return nil, usagef("%s: parameter %s is of type %s and must be JSON", from, p.Name, p.Type)
	}
	return v, nil
}

// parametersFile reads a file of parameters. What it refers to is read here: the server has no key vault.
func (s *session) parametersFile(file string, g *given) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("the file of parameters cannot be read: %w", err)
	}
	f, err := template.ParseParameters(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	values, extensions, err := f.Values(template.ParameterSources{Input: s.externalInput})
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for name, v := range values {
		g.set(name, v)
	}
	for alias, c := range extensions {
		if g.extensions == nil {
			g.extensions = map[string]map[string]any{}
		}
		g.extensions[alias] = c
	}
	return nil
}

// externalInput answers what a compiled parameters file asks of where it is used.
func (s *session) externalInput(name string, d template.InputDefinition) (any, error) {
	if !strings.EqualFold(d.Kind, "sys.envVar") {
		return nil, core.Errorf(core.CodeInvalidTemplate, "the external input %q is of kind %q: sys.envVar (a variable of the environment) is what can be read here", name, d.Kind)
	}
	variable, _ := d.Config.(string)
	if o, ok := d.Config.(map[string]any); ok {
		variable, _ = o["name"].(string)
	}
	v := s.Getenv(variable)
	if v == "" {
		return nil, core.Errorf(core.CodeInvalidTemplate, "the external input %q is the environment variable %s, which is not set", name, variable)
	}
	return v, nil
}

// placeParameters gives the parameters environment and application what --environment and --application say;
// an environment that the template must have and nobody named is the one in use (radial env switch), else the one
// called default. They may live in another group than what is deployed.
func (s *session) placeParameters(ctx context.Context, declared map[string]template.Parameter, f deployFlags, g *given) error {
	place := func(kind, one, name string) error {
		p, ok := declared[one]
		if !ok && name != "" {
			return usagef("--%s is given, and the template has no parameter of that name", one)
		}
		if !ok || g.has(one) {
			return nil
		}
		implied := name == ""
		if implied && (one != "environment" || !p.Required || f.local) {
			return nil
		}
		if implied {
			var err error
			if name, err = s.environmentInUse(""); err != nil {
				return err
			}
		}
		_, id, err := s.elsewhere().findKind(ctx, kind, one, name)
		if implied && core.IsCode(err, core.CodeNotFound) {
			return nil // that the parameter has no value is said with all that have none
		}
		if err != nil {
			return err
		}
		if implied {
			fmt.Fprintf(s.Err, "Using environment %s.\n", id.Name())
		}
		g.set(p.Name, id.String())
		return nil
	}
	if err := place("environments", "environment", s.environment); err != nil {
		return err
	}
	return place("applications", "application", f.application)
}

// followDeployment shows the steps of a deployment until its end, and then what came of it.
func (s *session) followDeployment(ctx context.Context, api *client.Client, id core.ID, begun *client.Deployment) error {
	operation := begun.Properties.Operation
	s.waitingFor = pending{operation, "deploying " + id.Name()}
	live := newLive(s, id.Name())
	defer live.stop()
	var last int64
	for ended := false; ; {
		// The end is read before what was said until then, so that nothing said before it is missed.
		op, err := api.Operation(ctx, operation)
		if err != nil && !core.IsCode(err, core.CodeUnavailable) {
			return err
		}
		ended = err == nil && op.EndTime != nil
		said, err := api.Messages(ctx, operation, last, !ended)
		if core.IsCode(err, core.CodeUnavailable) && ctx.Err() == nil && !ended {
			if _, err := api.AwaitOperation(ctx, operation); err != nil { // waits the outage out
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range said {
			last = m.Seq
			live.said(m)
		}
		if ended {
			break
		}
	}
	live.stop()
	s.waitingFor = pending{}
	d, err := api.Deployment(ctx, id)
	if err != nil {
		return err
	}
	return s.ended(d)
}

// ended shows what came of a deployment.
func (s *session) ended(d *client.Deployment) error {
	p := d.Properties
	for _, n := range p.Diagnostics {
		fmt.Fprintf(s.Err, "%s: %s\n", n.Level, n.Message)
	}
	if p.ProvisioningState != string(core.StateSucceeded) {
		if s.output != "table" {
			if err := s.show(view{data: d}); err != nil {
				return err
			}
		}
		e := p.Error
		if e == nil {
			e = core.Errorf(core.CodeInternal, "it ended as %s, without a reason", p.ProvisioningState)
		}
		c := *e
		c.Message = fmt.Sprintf("deployment %s is %s: %s", d.Name, p.ProvisioningState, e.Message)
		return &c
	}
	if s.output == "table" {
		fmt.Fprintf(s.Err, "Deployment %s succeeded: %s.\n", d.Name, count(len(p.OutputResources), "resource"))
	}
	if len(p.Outputs) == 0 && s.output == "table" {
		return nil
	}
	t := table{columns: []string{"OUTPUT", "TYPE", "VALUE"}}
	for _, name := range sortedKeys(p.Outputs) {
		o := p.Outputs[name]
		value := string(o.Value)
		var plain string
		switch {
		case len(o.Value) == 0:
			value = "(secure)"
		case json.Unmarshal(o.Value, &plain) == nil:
			value = plain
		}
		t.rows = append(t.rows, []string{name, o.Type, value})
	}
	return s.show(view{data: d, table: t})
}

// live shows the steps of a deployment: a line for each that ends, and on a terminal those under way below.
type live struct {
	s       *session
	name    string
	running []string
	began   time.Time
	stopped bool
	quit    chan struct{}
	done    chan struct{}
	lines   chan arm.OperationMessage
}

func newLive(s *session, name string) *live {
	l := &live{s: s, name: name, began: time.Now(), quit: make(chan struct{}), done: make(chan struct{}), lines: make(chan arm.OperationMessage)}
	go l.run()
	return l
}

func (l *live) said(m arm.OperationMessage) { l.lines <- m }

func (l *live) stop() {
	if !l.stopped {
		l.stopped = true
		close(l.quit)
		<-l.done
	}
}

func (l *live) run() {
	defer close(l.done)
	tick := time.NewTicker(120 * time.Millisecond)
	defer tick.Stop()
	for frame := 0; ; frame++ {
		select {
		case <-l.quit:
			l.clear()
			return
		case m := <-l.lines:
			l.clear()
			l.line(m)
		case <-tick.C:
			l.draw(frame)
		}
	}
}

func (l *live) clear() {
	if l.s.Terminal {
		fmt.Fprint(l.s.Err, "\r\033[K")
	}
}

func (l *live) draw(frame int) {
	if !l.s.Terminal {
		return
	}
	what := "deploying " + l.name
	if n := len(l.running); n > 0 {
		what += ": " + strings.Join(l.running[:min(n, 3)], ", ")
		if n > 3 {
			what += fmt.Sprintf(" and %d more", n-3)
		}
	}
	fmt.Fprintf(l.s.Err, "\r\033[K%c %s (%d s)", []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[frame%10], what, int(time.Since(l.began).Seconds()))
}

// line shows one line of the log.
func (l *live) line(m arm.OperationMessage) {
	var e struct{ Deployment, Symbol, Operation, State string }
	if len(m.Event) > 0 && json.Unmarshal(m.Event, &e) == nil {
		name := strings.TrimPrefix(e.Deployment+"/"+e.Symbol, "/")
		if e.State == "Running" {
			if !slices.Contains(l.running, name) {
				l.running = append(l.running, name)
			}
			if l.s.Terminal {
				return // it stands below
			}
		} else {
			l.running = slices.DeleteFunc(l.running, func(r string) bool { return r == name })
		}
		if e.Operation == "EvaluateDeploymentOutput" && e.State == "Succeeded" {
			return
		}
	}
	fmt.Fprintf(l.s.Err, "%s\n", m.Text)
}

func (s *session) validateDeployment(ctx context.Context, api *client.Client, id core.ID, body json.RawMessage) error {
	var d *client.Deployment
	err := s.working(ctx, "checking "+id.Name(), func(ctx context.Context) (err error) {
		d, err = api.ValidateDeployment(ctx, id, body)
		return err
	})
	if err != nil {
		return err
	}
	t := table{columns: []string{"RESOURCE", "SCOPE"}, empty: "It can be deployed, and makes nothing."}
	for _, r := range d.Properties.ValidatedResources {
		t.rows = append(t.rows, []string{r.ID, scopeText(r.Scope)})
	}
	verdict := "It can be deployed."
	for _, n := range d.Properties.Diagnostics {
		t.footer += n.Message + "\n"
		if n.Level == "Warning" {
			verdict = "As it is, it would fail."
		}
	}
	t.footer += verdict
	return s.show(view{data: d, table: t})
}

// scopeText names a scope, "" for the control plane and for an extension that is in no scope of its own.
func scopeText(s *client.DeploymentScope) string {
	if s == nil || s.Type == "Cluster" && s.ID == "" && s.Fingerprint == "" {
		return ""
	}
	return strings.TrimSpace(s.Type + " " + cmp.Or(s.ID, s.Fingerprint))
}

var changeSigns = map[string]string{"Create": "+", "Delete": "-", "Modify": "~", "NoChange": "=", "Ignore": "*", "Deploy": "!", "Unsupported": "?"}

func (s *session) whatIfDeployment(ctx context.Context, api *client.Client, id core.ID, body json.RawMessage) error {
	changes := []client.Change{}
	err := s.working(ctx, "comparing", func(ctx context.Context) (err error) {
		changes, err = api.WhatIf(ctx, id, body)
		return err
	})
	if err != nil {
		return err
	}
	return s.show(view{data: orEmpty(changes), text: changesText(changes)})
}

// changesText is a what-if for people.
func changesText(changes []client.Change) string {
	var b strings.Builder
	counts := map[string]int{}
	for _, c := range changes {
		counts[c.ChangeType]++
		fmt.Fprintf(&b, "%s %s  %s", changeSigns[c.ChangeType], c.ChangeType, c.ResourceID)
		if at := scopeText(c.Scope); at != "" {
			fmt.Fprintf(&b, "  (in %s)", at)
		}
		b.WriteByte('\n')
		if c.Reason != "" {
			fmt.Fprintf(&b, "    %s\n", c.Reason)
		}
		propertiesText(&b, c.Delta, "    ")
	}
	var sums []string
	for _, kind := range []string{"Create", "Modify", "Delete", "Deploy", "NoChange", "Ignore", "Unsupported"} {
		if n := counts[kind]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if len(sums) == 0 {
		return "The template makes nothing."
	}
	return b.String() + "\nNothing was changed. It would be: " + strings.Join(sums, ", ") + "."
}

func propertiesText(b *strings.Builder, changes []client.PropertyChange, indent string) {
	for _, p := range changes {
		switch p.Kind {
		case "Create":
			fmt.Fprintf(b, "%s+ %s: %s\n", indent, p.Path, compact(p.After))
		case "Delete":
			fmt.Fprintf(b, "%s- %s: %s\n", indent, p.Path, compact(p.Before))
		case "Array":
			fmt.Fprintf(b, "%s~ %s:\n", indent, p.Path)
			propertiesText(b, p.Children, indent+"  ")
		default:
			if len(p.Children) > 0 {
				fmt.Fprintf(b, "%s~ %s:\n", indent, p.Path)
				propertiesText(b, p.Children, indent+"  ")
				continue
			}
			fmt.Fprintf(b, "%s~ %s: %s -> %s\n", indent, p.Path, compact(p.Before), compact(p.After))
		}
	}
}

func compact(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if text := string(raw); len(text) <= 200 {
		return text
	}
	return string([]rune(string(raw))[:min(197, len([]rune(string(raw))))]) + "…"
}
