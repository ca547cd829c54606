package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

func (s *session) operationCommand() *cobra.Command {
	c := &cobra.Command{Use: "operation", Aliases: []string{"operations", "op"}, Short: "Operations: what the control plane does and did"}
	c.AddCommand(s.operationList(), s.operationShow(), s.operationLogs(), s.operationCancel(), s.operationRetry())
	return c
}

func (s *session) operationList() *cobra.Command {
	var q client.OperationQuery
	c := &cobra.Command{
		Use: "list [TYPE NAME | ID]", Aliases: []string{"ls"}, Short: "List operations, of one resource or of all, the latest first", Args: cobra.MaximumNArgs(2),
		Long: `Lists operations, the one accepted last first: those that run and those that ended not long ago (seven
days unless the control plane is told otherwise).`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			q.Group = s.group
			if len(args) > 0 {
				id, _, err := s.mayBeGone(ctx, args)
				if err != nil {
					return err
				}
				q.Resource, q.Group = id, ""
			}
			if q.Limit < 0 {
				return usagef("--limit %d is negative", q.Limit)
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			all, err := api.Operations(ctx, q)
			if err != nil {
				return err
			}
			t := table{columns: []string{"OPERATION", "VERB", "RESOURCE", "GROUP", "STATUS", "STARTED", "TOOK"}, empty: "There are no such operations."}
			for _, op := range all {
				t.rows = append(t.rows, []string{op.Name, op.Verb, nameAndType(op.ResourceID), groupIn(op.ResourceID), standing(op), clock(op.StartTime), took(op)})
			}
			if q.Limit > 0 && len(all) == q.Limit {
				t.footer = fmt.Sprintf("The latest %d; --limit 0 lists all.", q.Limit)
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
	c.Flags().StringVarP(&s.group, "group", "g", "", "resource group (all groups unless set)")
	c.Flags().BoolVar(&q.Live, "live", false, "only those that have not ended")
	c.Flags().IntVar(&q.Limit, "limit", 50, "list so many at most (0: all)")
	return c
}

// mayBeGone is the id that TYPE NAME or an id means, also of a resource that is not there any more: with a
// group it is not asked for.
func (s *session) mayBeGone(ctx context.Context, args []string) (core.ID, resourceType, error) {
	id, t, err := s.target(ctx, args)
	if core.IsCode(err, core.CodeNotFound) && len(args) == 2 && t.Name != "" {
		return id, t, fmt.Errorf("%w; what is gone is named with --group, or by its id", err)
	}
	return id, t, err
}

func (s *session) operationShow() *cobra.Command {
	return &cobra.Command{
		Use: "show OPERATION", Aliases: []string{"get"}, Short: "Show an operation, and why it failed", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			op, err := s.oneOperation(c.Context(), args[0])
			if err != nil {
				return err
			}
			return s.show(view{data: op, text: operationText(op)})
		},
	}
}

// oneOperation finds an operation by its id, or by as many of its first letters as no other has.
func (s *session) oneOperation(ctx context.Context, name string) (arm.Operation, error) {
	c, err := s.client()
	if err != nil {
		return arm.Operation{}, err
	}
	op, err := c.Operation(ctx, name)
	if !core.IsCode(err, core.CodeNotFound) {
		return op, err
	}
	err = core.Errorf(core.CodeNotFound, "operation %q does not exist, or ended too long ago (radial operation list shows what there is)", name)
	const shortest, longest = 4, 36
	if len(name) < shortest || len(name) >= longest {
		return op, err
	}
	all, failed := c.Operations(ctx, client.OperationQuery{Limit: 1000})
	if failed != nil {
		return op, failed
	}
	var found []arm.Operation
	for _, o := range all {
		if strings.HasPrefix(o.Name, strings.ToLower(name)) {
			found = append(found, o)
		}
	}
	switch len(found) {
	case 0:
		return op, err
	case 1:
		return found[0], nil
	}
	return op, usagef("%d operations begin with %q: say more of the id", len(found), name)
}

func operationText(op arm.Operation) string {
	out := fields(
		[2]string{"Operation", op.Name},
		[2]string{"Resource", op.ResourceID},
		[2]string{"Verb", op.Verb},
		[2]string{"Status", standing(op)},
		[2]string{"Started", clock(op.StartTime)},
		[2]string{"Ended", clockOf(op.EndTime)},
		[2]string{"Took", took(op)},
		[2]string{"Deadline", deadline(op)},
		[2]string{"Attempts", attempts(op)},
		[2]string{"Waited for by", op.Parent},
	)
	if e := op.Error; e != nil {
		out += "Error: " + errorText(e.Message, wireError(*e).Details)
	}
	return out
}

// standing is the status, with what it waits for.
func standing(op arm.Operation) string {
	switch {
	case op.CancelRequested != nil && op.EndTime == nil:
		return op.Status + " (cancel requested)"
	case op.Parked:
		return fmt.Sprintf("%s (waits for %s)", op.Status, count(op.Children, "operation"))
	}
	return op.Status
}

func clock(t time.Time) string { return t.Local().Format(time.DateTime) }

func clockOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return clock(*t)
}

func took(op arm.Operation) string {
	if op.EndTime == nil {
		return ""
	}
	d := op.EndTime.Sub(op.StartTime)
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// deadline matters while it has not passed.
func deadline(op arm.Operation) string {
	if op.EndTime != nil {
		return ""
	}
	return clockOf(op.Deadline)
}

// attempts matter when there were several.
func attempts(op arm.Operation) string {
	if op.Attempts < 2 {
		return ""
	}
	return strconv.Itoa(op.Attempts)
}

func (s *session) operationLogs() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "logs OPERATION", Aliases: []string{"log"}, Short: "Show what an operation said while it ran", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			op, err := s.oneOperation(c.Context(), args[0])
			if err != nil {
				return err
			}
			if follow && s.output != "table" {
				return usagef("--follow shows lines as they come: leave out --output")
			}
			return s.logs(c.Context(), op, follow)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the operation has ended")
	return c
}

func (s *session) logs(ctx context.Context, op arm.Operation, follow bool) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	all, err := c.Messages(ctx, op.Name, 0, false)
	if err != nil {
		return err
	}
	if !follow {
		text := ""
		for _, m := range all {
			text += logLine(m)
		}
		return s.show(view{data: orEmpty(all), text: cmp.Or(text, "It has said nothing.")})
	}
	var last int64
	for {
		for _, m := range all {
			last = m.Seq
			if _, err := fmt.Fprint(s.Out, logLine(m)); err != nil {
				return err
			}
		}
		if op.EndTime != nil && len(all) == 0 {
			break
		}
		// The end is read before what was said until then, so that nothing said before it is missed.
		if op, err = c.Operation(ctx, op.Name); err != nil {
			return err
		}
		if all, err = c.Messages(ctx, op.Name, last, op.EndTime == nil); err != nil {
			return err
		}
	}
	return endedAs(op)
}

// endedAs is the error of an operation that did not succeed.
func endedAs(op arm.Operation) error {
	if core.State(op.Status) == core.StateSucceeded {
		return nil
	}
	if op.Error != nil {
		e := wireError(*op.Error)
		return &e
	}
	return core.Errorf(core.CodeInternal, "operation %s ended as %s, without a reason", op.Name, op.Status)
}

func logLine(m arm.OperationMessage) string {
	return m.Time.Local().Format(time.TimeOnly) + "  " + m.Text + "\n"
}

func (s *session) operationCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel OPERATION", Short: "End an operation before its time, and wait for its end", Args: cobra.ExactArgs(1),
		Long: `Asks for the end of an operation and waits for it. One that no worker has begun ends at once. One that a
worker is at ends at the next point where it can: what its recipe has made is recorded, is kept, and goes
when the resource is deleted or is taken up by the next write.`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			op, err := s.oneOperation(ctx, args[0])
			if err != nil {
				return err
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			if err := api.Cancel(ctx, op.Name); err != nil {
				return err
			}
			op, err = s.awaitOperation(ctx, "canceling", op.Name)
			if err != nil {
				return err
			}
			if core.State(op.Status) != core.StateCanceled {
				return core.Errorf(core.CodeConflict, "operation %s ended as %s before it could be canceled", op.Name, op.Status)
			}
			return s.done(op, "Operation %s on %s is canceled.", op.Name, nameAndType(op.ResourceID))
		},
	}
}

// awaitOperation waits for the end of an operation and returns it as it is then.
func (s *session) awaitOperation(ctx context.Context, what, name string) (op arm.Operation, err error) {
	c, err := s.client()
	if err != nil {
		return op, err
	}
	s.waitingFor = pending{name, what}
	err = s.working(ctx, what, func(ctx context.Context) error {
		op, err = c.AwaitOperation(ctx, name)
		return err
	})
	return op, err
}

func (s *session) operationRetry() *cobra.Command {
	return &cobra.Command{
		Use: "retry OPERATION", Short: "Do again what an operation failed at", Args: cobra.ExactArgs(1),
		Long: `Repeats the failed or canceled operation that a resource ended with, as a new one, and waits for it: a write
with the properties as they are stored, sensitive ones included; or the deletion.`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			op, err := s.oneOperation(ctx, args[0])
			if err != nil {
				return err
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			again, err := api.Retry(ctx, op.Name)
			if err != nil {
				return err
			}
			what := "writing " + nameAndType(op.ResourceID)
			if core.Verb(op.Verb) == core.VerbDelete {
				what = "deleting " + nameAndType(op.ResourceID)
			}
			again, err = s.awaitOperation(ctx, what, again.Name)
			if err == nil {
				err = endedAs(again)
			}
			if err != nil {
				return err
			}
			return s.done(again, "%s: done, by operation %s.", capital(what), again.Name)
		},
	}
}
