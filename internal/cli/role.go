package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

// assignmentType is the type of role assignments.
const assignmentType = "System.Authorization/roleAssignments"

// principalKinds are how a principal is written, and how the wire calls its kind.
var principalKinds = map[string]string{"user": "user", "group": "group", "serviceaccount": "serviceAccount", "sa": "serviceAccount"}

func (s *session) roleCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "role", Aliases: []string{"roles"}, Short: "Roles: who may do what",
		Long: `A role assignment gives a user, a group or a ServiceAccount a role at a scope and below it: the plane, a
resource group (-g), or one resource.

  Reader       sees resources, operations and graphs
  Contributor  also writes, deletes and reads secrets
  Owner        also decides over others: assignments, types, environments, recipe packs
  Controller   is for the controller of a cluster, whose objects alone it may write for`,
	}
	c.AddCommand(s.roleList(), s.roleAssign(), s.roleRevoke())
	return c
}

// assignment is one as it is listed.
type assignment struct {
	Name      string `json:"name"`
	Principal string `json:"principal"`
	Role      string `json:"role"`
	Scope     string `json:"scope"`
	Cluster   string `json:"cluster,omitempty"`
	ID        string `json:"id"`
}

func assignmentOf(r arm.Resource) assignment {
	a := assignment{
		Name: r.Name, ID: r.ID, Role: text(r.Properties, "role"), Cluster: text(r.Properties, "cluster"), Scope: text(r.Properties, "scope"),
		Principal: text(r.Properties, "principal", "kind") + ":" + text(r.Properties, "principal", "name"),
	}
	if id, err := core.ParseID(r.ID); err == nil && a.Scope == "" {
		a.Scope = id.Scope().String()
	}
	return a
}

func (s *session) assignments(ctx context.Context) ([]assignment, resourceType, error) {
	t, err := s.typeNamed(ctx, assignmentType)
	if err != nil {
		return nil, t, err
	}
	c, err := s.client()
	if err != nil {
		return nil, t, err
	}
	list, err := c.List(ctx, s.scope().Resource(assignmentType, "").String(), t.version())
	var all []assignment
	for _, r := range list {
		all = append(all, assignmentOf(r))
	}
	slices.SortFunc(all, func(a, b assignment) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Role, b.Role), cmp.Compare(a.ID, b.ID))
	})
	return all, t, err
}

func (s *session) roleList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the role assignments", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, _, err := s.assignments(c.Context())
			if err != nil {
				return err
			}
			t := table{columns: []string{"PRINCIPAL", "ROLE", "SCOPE", "CLUSTER", "NAME"}, empty: "There are no role assignments: radial role assign makes one."}
			for _, a := range all {
				t.rows = append(t.rows, []string{a.Principal, a.Role, a.Scope, a.Cluster, a.Name})
			}
			return s.show(view{data: orEmpty(all), table: t})
		},
	}
	c.Flags().StringVarP(&s.group, "group", "g", "", "only those in this resource group")
	return c
}

// roleScope is where an assignment counts, and where it is kept: the scope's own plane or group.
func (s *session) roleScope(of string) (core.ID, error) {
	if of == "" {
		return s.scope(), nil
	}
	if s.group != "" {
		return core.ID{}, usagef("--scope and --group both say where the role counts: give one")
	}
	id, err := core.ParseID(of)
	if err != nil {
		return id, usageError{err}
	}
	return id, nil
}

func principalOf(word string) (kind, name string, err error) {
	kind, name, ok := strings.Cut(word, ":")
	known := principalKinds[strings.ToLower(kind)]
	if !ok || known == "" || name == "" {
		return "", "", usagef("%q is no principal: write user:NAME, group:NAME or serviceAccount:NAMESPACE/NAME", word)
	}
	return known, name, nil
}

func (s *session) roleAssign() *cobra.Command {
	var scope, name, cluster string
	c := &cobra.Command{
		Use: "assign PRINCIPAL ROLE", Aliases: []string{"grant"}, Short: "Give somebody a role", Args: cobra.ExactArgs(2),
		Long: `Gives a principal a role: user:NAME, group:NAME or serviceAccount:NAMESPACE/NAME, as the cluster or the OIDC
issuer names them. It counts for the whole plane unless --group or --scope says less. The same assignment
again changes nothing.`,
		Example: `  radial role assign group:platform Owner
  radial role assign user:ann@example.com Contributor -g shop
  radial role assign serviceAccount:radial-system/radial-controller Controller --cluster edge`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			kind, who, err := principalOf(args[0])
			if err != nil {
				return err
			}
			at, err := s.roleScope(scope)
			if err != nil {
				return err
			}
			role := args[1]
			for _, known := range []string{"Reader", "Contributor", "Owner", "Controller"} {
				if strings.EqualFold(known, role) {
					role = known
				}
			}
			t, err := s.typeNamed(ctx, assignmentType)
			if err != nil {
				return err
			}
			properties := map[string]any{"principal": map[string]any{"kind": kind, "name": who}, "role": role}
			if !at.IsScope() {
				properties["scope"] = at.String()
			}
			if cluster != "" {
				properties["cluster"] = cluster
			}
			if name == "" {
				sum := sha256.Sum256([]byte(strings.Join([]string{kind, who, role, at.Key(), cluster}, "\x00")))
				name = strings.ToLower(role) + "-" + hex.EncodeToString(sum[:6])
			}
			r, err := s.write(ctx, at.Scope().Resource(assignmentType, name), t.version(), arm.Resource{Location: "global", Properties: properties}, "assigning the role")
			if err != nil {
				return err
			}
			return s.done(assignmentOf(*r), "%s is %s at %s.", args[0], role, at)
		},
	}
	c.Flags().StringVarP(&s.group, "group", "g", "", "resource group that the role is for")
	c.Flags().StringVar(&scope, "scope", "", "plane, group or resource that the role is for, by id")
	c.Flags().StringVar(&cluster, "cluster", "", "cluster that a Controller speaks for")
	c.Flags().StringVar(&name, "name", "", "name of the assignment (made of what it says unless set)")
	return c
}

func (s *session) roleRevoke() *cobra.Command {
	var scope string
	var yes bool
	c := &cobra.Command{
		Use: "revoke PRINCIPAL ROLE | NAME", Aliases: []string{"delete", "rm"}, Short: "Take a role away", Args: cobra.RangeArgs(1, 2),
		Long: `Takes assignments away: those that give a principal a role at a scope (the plane unless --group or --scope
says another), or the one that has the name or id. It counts from the next request on.`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			all, t, err := s.assignments(ctx)
			if err != nil {
				return err
			}
			var found []assignment
			if len(args) == 1 {
				var names []string
				for _, a := range all {
					names = append(names, a.Name)
					if strings.EqualFold(a.Name, args[0]) || strings.EqualFold(a.ID, args[0]) {
						found = append(found, a)
					}
				}
				if len(found) == 0 {
					return notFound("role assignment", args[0], names, "radial role list")
				}
			} else {
				kind, who, err := principalOf(args[0])
				if err != nil {
					return err
				}
				at, err := s.roleScope(scope)
				if err != nil {
					return err
				}
				for _, a := range all {
					if a.Principal == kind+":"+who && strings.EqualFold(a.Role, args[1]) && strings.EqualFold(a.Scope, at.String()) {
						found = append(found, a)
					}
				}
				if len(found) == 0 {
					return core.Errorf(core.CodeNotFound, "%s is not %s at %s (radial role list shows who is what)", args[0], args[1], at)
				}
			}
			what := fmt.Sprintf("the role %s of %s at %s", found[0].Role, found[0].Principal, found[0].Scope)
			if len(found) > 1 && len(args) == 1 {
				return usagef("more than one role assignment is called %q: say which by --group, or by its id", args[0])
			}
			if err := s.confirm(yes, "Take away "+what+"?"); err != nil {
				return err
			}
			api, err := s.client()
			if err != nil {
				return err
			}
			for _, a := range found {
				id, err := core.ParseID(a.ID)
				if err != nil {
					return err
				}
				answer, err := api.Delete(ctx, id, t.version(), "")
				if err == nil {
					err = s.wait(ctx, "taking away "+what, answer.Token)
				}
				if err != nil {
					return err
				}
			}
			return s.done(found, "Taken away: %s.", what)
		},
	}
	c.Flags().StringVarP(&s.group, "group", "g", "", "resource group that the role is for")
	c.Flags().StringVar(&scope, "scope", "", "plane, group or resource that the role is for, by id")
	confirmFlag(c, &yes)
	return c
}
