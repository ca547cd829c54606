package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

// waited is one thing that a wait was for, as it then was.
type waited struct {
	Name string `json:"name"`
	// State is Ready, or the provisioning state of a resource.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

func (s *session) waitCommand() *cobra.Command {
	var k kubernetesFlags
	c := &cobra.Command{
		Use: "wait deployment/NAME | recipe/NAME | resource/ID | operation/ID ...", Args: cobra.MinimumNArgs(1),
		Short: "Wait until what Radial does for an object is done",
		Long: `Waits until each of what is named is done, in the order named, and ends at once when one fails, with the
reason. Nothing is polled: the cluster and the control plane tell.

  deployment/NAME  the container resource and the connection data are up to date with the Deployment as it
                   is written now, no hold is left, and the rollout is complete
  recipe/NAME      the Recipe is Ready at its present generation
  resource/ID      the provisioning of a resource has ended; the id may be written as TYPE/NAME
  operation/ID     an operation has ended

Kubernetes objects are looked for in the cluster of --kubeconfig and --kube-context. --timeout bounds the wait.`,
		Example: `  radial wait deployment/web recipe/db -n shop --timeout 5m
  radial wait resource/Applications.Datastores/redisCaches/db`,
		RunE: func(c *cobra.Command, args []string) error {
			var targets []func(context.Context) (waited, error)
			for _, arg := range args {
				t, err := s.waitTarget(&k, arg)
				if err != nil {
					return err
				}
				targets = append(targets, t)
			}
			all := []waited{}
			text := ""
			for i, target := range targets {
				var w waited
				err := s.working(c.Context(), "waiting for "+args[i], func(ctx context.Context) (err error) {
					w, err = target(ctx)
					return err
				})
				if err != nil {
					return err
				}
				s.stands = ""
				all = append(all, w)
				verb := "is "
				if w.State == string(core.StateSucceeded) {
					verb = "has "
				}
				text += fmt.Sprintf("%s %s%s.\n", w.Name, verb, strings.ToLower(w.State[:1])+w.State[1:])
			}
			return s.show(view{data: all, text: text})
		},
	}
	k.add(c)
	c.Flags().StringVarP(&k.namespace, "namespace", "n", "", "namespace of Deployments and Recipes (the context's unless set)")
	c.Flags().StringVarP(&s.group, "group", "g", "", "resource group of resources named as TYPE/NAME (any unless set)")
	return c
}

// waitTarget reads KIND/NAME. What cannot be meant is said before anything is waited for.
func (s *session) waitTarget(k *kubernetesFlags, arg string) (func(context.Context) (waited, error), error) {
	kind, name, ok := strings.Cut(arg, "/")
	bad := usagef("%q is not one of deployment/NAME, recipe/NAME, resource/ID, operation/ID", arg)
	if !ok || name == "" {
		return nil, bad
	}
	switch strings.ToLower(kind) {
	case "deployment", "deployments", "deploy", "deployments.apps", "deployment.apps":
		return func(ctx context.Context) (waited, error) { return s.waitDeployment(ctx, k, name) }, nil
	case "recipe", "recipes", "recipes.radapp.io", "recipe.radapp.io":
		return func(ctx context.Context) (waited, error) { return s.waitRecipe(ctx, k, name) }, nil
	case "operation", "operations", "op":
		return func(ctx context.Context) (waited, error) { return s.waitOperation(ctx, name) }, nil
	case "resource", "resources":
		args := []string{"/" + strings.TrimPrefix(name, "/")}
		if !strings.HasPrefix(strings.ToLower(args[0]), "/planes/") {
			i := strings.LastIndexByte(name, '/')
			if i <= 0 || i == len(name)-1 {
				return nil, bad
			}
			args = []string{name[:i], name[i+1:]}
		}
		return func(ctx context.Context) (waited, error) { return s.waitResource(ctx, args) }, nil
	}
	return nil, bad
}

func (s *session) waitOperation(ctx context.Context, name string) (waited, error) {
	op, err := s.oneOperation(ctx, name)
	if err != nil {
		return waited{}, err
	}
	c, err := s.client()
	if err != nil {
		return waited{}, err
	}
	s.stands = fmt.Sprintf("operation %s is %s", op.Name, op.Status)
	if op, err = c.AwaitOperation(ctx, op.Name); err != nil {
		return waited{}, err
	}
	return waited{Name: "Operation " + op.Name, State: op.Status}, endedAs(op)
}

// errSettled ends a watch that has seen what it waited for.
var errSettled = errors.New("settled")

// waitResource follows the change stream and looks whenever the resource has changed, or may have.
func (s *session) waitResource(ctx context.Context, args []string) (waited, error) {
	id, t, err := s.target(ctx, args)
	if err != nil {
		return waited{}, err
	}
	c, err := s.client()
	if err != nil {
		return waited{}, err
	}
	var last *arm.Resource
	look := func(ctx context.Context) error {
		r, _, err := c.Get(ctx, id, t.version())
		if err != nil {
			return err
		}
		last = r
		if client.State(r).Terminal() {
			return errSettled
		}
		s.stands = fmt.Sprintf("%s is %s", nameAndType(id.String()), state(*r))
		return nil
	}
	// Asked once before the stream: what does not exist, or a server that is not there, is said at once.
	err = look(ctx)
	if err == nil {
		watching, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		err = c.Watch(watching, func(ch arm.Change) {
			changed, _ := core.ParseID(ch.ID)
			if !ch.Reset && !changed.Equal(id) {
				return
			}
			// An outage is the stream's to wait out: it comes back with a Reset.
			if err := look(watching); err != nil && !core.IsCode(err, core.CodeUnavailable) {
				stop(err)
			}
		}, client.WatchOptions{})
		if ctx.Err() == nil {
			err = context.Cause(watching)
		}
	}
	switch {
	case core.IsCode(err, core.CodeNotFound) && last != nil:
		return waited{}, core.Errorf(core.CodeNotFound, "%s was deleted", nameAndType(id.String()))
	case !errors.Is(err, errSettled):
		return waited{}, err
	}
	w := waited{Name: capital(nameAndType(id.String())), State: state(*last)}
	if st := client.State(last); st == core.StateFailed || st == core.StateCanceled {
		return w, s.lastFailure(ctx, id, st)
	}
	if w.State == "" {
		w.State = string(core.StateSucceeded)
	}
	return w, nil
}

// lastFailure is why a resource is in a state that nobody wants: what its latest operation ended with.
func (s *session) lastFailure(ctx context.Context, id core.ID, st core.State) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	all, err := c.Operations(ctx, client.OperationQuery{Resource: id, Limit: 10})
	if err != nil {
		return err
	}
	ended := slices.IndexFunc(all, func(op arm.Operation) bool { return core.State(op.Status) == st })
	if ended < 0 {
		return core.Errorf(core.CodeInternal, "%s is %s; its operation is too long ago to say why: write it again, or delete it", nameAndType(id.String()), st)
	}
	return fmt.Errorf("%s is %s: %w", nameAndType(id.String()), st, endedAs(all[ended]))
}
