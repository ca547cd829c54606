package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

func (s *session) auditCommand() *cobra.Command {
	c := &cobra.Command{Use: "audit", Short: "The audit log: who was allowed and refused what"}
	c.AddCommand(s.auditList())
	return c
}

func (s *session) auditList() *cobra.Command {
	var q client.AuditQuery
	var since, until string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List decisions of the control plane, the latest first", Args: cobra.NoArgs,
		Long: `Lists the decisions of the control plane about who may do what, the latest first. Owners of the plane may.
A decision is here a moment after it was made. In developer mode nothing is decided, so nothing is listed.

Times are written as 2026-01-31T12:00:00Z, or as how long ago: 90m, 24h.`,
		Example: `  radial audit list --since 24h --refused
  radial audit list --principal user:ann --id /planes/radius/local/resourceGroups/shop`,
		RunE: func(c *cobra.Command, _ []string) error {
			if q.Limit < 0 {
				return usagef("--limit %d is negative", q.Limit)
			}
			if q.ID != "" {
				if _, err := core.ParseID(q.ID); err != nil {
					return usagef("--id: %w", err)
				}
			}
			now := time.Now()
			var err error
			if q.Since, err = moment("since", since, now); err != nil {
				return err
			}
			if q.Until, err = moment("until", until, now); err != nil {
				return err
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			all, err := api.AuditRecords(c.Context(), q)
			if err != nil {
				return err
			}
			t := table{columns: []string{"TIME", "PRINCIPAL", "DECISION", "ACTION", "ID", "REASON"}, empty: "There are no such decisions."}
			for _, r := range all {
				decision := "refused"
				if r.Allowed {
					decision = "allowed"
				}
				t.rows = append(t.rows, []string{clock(r.Time), r.Principal, decision, r.Action, r.Target, strings.TrimSpace(r.Reason)})
			}
			if q.Limit > 0 && len(all) == q.Limit {
				t.footer = fmt.Sprintf("The latest %d; --limit 0 lists all.", q.Limit)
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
	f := c.Flags()
	f.StringVar(&q.Principal, "principal", "", "only those about `who`, such as user:ann or serviceAccount:namespace/name")
	f.StringVar(&q.ID, "id", "", "only what was asked at or below an `id`")
	f.StringVar(&since, "since", "", "only those made at a `time` or later")
	f.StringVar(&until, "until", "", "only those made before a `time`")
	f.BoolVar(&q.Refused, "refused", false, "only what was refused")
	f.IntVar(&q.Limit, "limit", 50, "list so many at most (0: all)")
	return c
}

// moment reads a time, or how long before now it was.
func moment(flag, v string, now time.Time) (time.Time, error) {
	if v == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(v); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usagef("--%s %q is no time: write 2026-01-31T12:00:00Z, or how long ago, such as 24h", flag, v)
}
