package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/cli/setup"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/deployment"
	"github.com/radial-project/radial/internal/extension/registry"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/stack/clusterrecords"
	"github.com/radial-project/radial/internal/stack/filerecords"
	"github.com/radial-project/radial/internal/stack/local"
)

// localFlags say how to work without a control plane (S-57).
type localFlags struct {
	local   bool
	cluster kubernetesFlags
	record  string
	// extensions are those besides Kubernetes that templates may import.
	extensions registry.Flags
}

func (f *localFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.local, "local", false, "without a control plane: run in this process, against the cluster of a kubeconfig")
	f.cluster.add(c)
	f.extensions.AddOne(c.Flags())
	c.Flags().StringVar(&f.record, "record", "", "with --local, where records of stacks lie: file:PATH, or the `namespace` of the cluster ("+clusterrecords.DefaultNamespace+")")
}

// unused refuses flags that mean nothing without --local.
func (f *localFlags) unused() error {
	for name, v := range map[string]string{"kubeconfig": f.cluster.kubeconfig, "kube-context": f.cluster.context, "record": f.record} {
		if v != "" {
			return usagef("--%s is for --local: a control plane knows its clusters itself", name)
		}
	}
	if list, err := f.extensions.Registrations(); err != nil || len(list) > 0 {
		return usagef("--extension is for --local: a control plane has its own (radial-server --extension)")
	}
	return nil
}

// localStacks are the stacks that this process looks after.
type localStacks struct {
	s      *session
	stacks *local.Stacks
}

func (f *localFlags) open(s *session) (stackPlace, error) {
	cfg, err := f.cluster.config("keep a stack in")
	if err != nil {
		return nil, err
	}
	namespace, _, err := f.cluster.loaded().Namespace()
	if err != nil {
		return nil, err
	}
	var records stack.Records
	if path, ok := strings.CutPrefix(f.record, "file:"); ok {
		if path == "" {
			return nil, usagef("--record file: needs a path, as file:stacks.json")
		}
		records = filerecords.New(path)
	} else {
		if f.record != "" && len(validation.IsDNS1123Label(f.record)) > 0 {
			return nil, usagef("--record %q is neither file:PATH nor the name of a namespace", f.record)
		}
		client, err := clientset.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		records = clusterrecords.New(clusterrecords.Options{Client: client, Namespace: f.record})
	}
	known, err := f.extensions.Open(registry.Options{Alone: true, Log: slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return nil, usagef("%w", err)
	}
	s.ends = append(s.ends, known.Close)
	return localStacks{s, local.New(local.Options{
		Config: cfg, Namespace: namespace, Records: records, Extensions: known, Link: deployment.Links(deployment.LinkOptions{Developer: true}),
	})}, nil
}

func (l localStacks) id(name string) core.ID {
	return local.ID(cmp.Or(l.s.group, setup.DefaultName), name)
}

// watch shows the steps of a run in this process.
func (l localStacks) watch(name string, in *local.Input) (stop func()) {
	live := newLive(l.s, name)
	// Nobody goes on where this process ends.
	l.s.stands = fmt.Sprintf("what was made until then is of stack %[1]s: radial stack apply %[1]s --local goes on, radial stack delete %[1]s --local takes it away", name)
	in.Progress = func(e deploy.Event) {
		raw, err := json.Marshal(e)
		if err != nil {
			raw = nil
		}
		live.said(arm.OperationMessage{Time: e.Time, Text: deployment.EventText(e), Event: raw})
	}
	in.Phase = func(_ stack.State, text string) { live.said(arm.OperationMessage{Text: text}) }
	return live.stop
}

func inputOf(in stackInput) local.Input {
	return local.Input{
		Template: in.text, Parameters: in.given.parameters, ExtensionConfigs: in.given.extensions, Unmanage: in.unmanage, Deny: in.deny,
		Description: in.description, Credentials: in.credentials,
	}
}

func (l localStacks) apply(ctx context.Context, name string, in stackInput) (stack.Wire, error) {
	input := inputOf(in)
	stop := l.watch(name, &input)
	r, err := l.stacks.Apply(ctx, l.id(name), input)
	stop()
	if r.ID.IsZero() {
		return stack.Wire{}, err
	}
	return wireOf(r), err
}

func wireOf(r stack.Record) stack.Wire {
	w := r.Wire()
	if r.Ended.After(r.Started) {
		w.Properties.Duration = deployment.ISODuration(r.Ended.Sub(r.Started))
	}
	return w
}

func (l localStacks) show(ctx context.Context, name string) (stack.Wire, error) {
	r, err := l.stacks.Show(ctx, l.id(name))
	if err != nil {
		return stack.Wire{}, err
	}
	return wireOf(r), nil
}

func (l localStacks) list(ctx context.Context) ([]stack.Wire, error) {
	records, err := l.stacks.List(ctx)
	var all []stack.Wire
	for _, r := range records {
		if l.s.group == "" || strings.EqualFold(r.ID.Group(), l.s.group) {
			all = append(all, wireOf(r))
		}
	}
	sortStacks(all)
	return all, err
}

func (l localStacks) remove(ctx context.Context, name string, in stackInput) (bool, error) {
	input := inputOf(in)
	stop := l.watch(name, &input)
	_, err := l.stacks.Remove(ctx, l.id(name), input)
	stop()
	return true, err
}

func (l localStacks) whatIf(ctx context.Context, name string, in stackInput) ([]stack.WireChange, error) {
	changes, err := l.stacks.WhatIf(ctx, l.id(name), inputOf(in))
	return stack.WireChanges(changes), err
}

func (l localStacks) export(context.Context, string) (json.RawMessage, error) {
	return nil, usagef("with --local no template is kept: it is in the file that the stack was applied with")
}
