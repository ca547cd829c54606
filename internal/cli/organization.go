package cli

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

type organization struct {
	ID          string   `json:"id"`
	DisplayName string   `json:"displayName,omitempty"`
	Role        string   `json:"role,omitempty"`
	Members     []member `json:"members"`
}

type member struct {
	Principal string `json:"principal"`
	Role      string `json:"role"`
}

func (o organization) owners() string {
	var names []string
	for _, m := range o.Members {
		if m.Role == "owner" {
			names = append(names, m.Principal)
		}
	}
	return strings.Join(names, ", ")
}

func (s *session) organizationsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "organizations", Aliases: []string{"organization", "org", "orgs"}, Short: "Organizations: who works together on projects",
		Long: `An organization has members, at least one of them an owner. Members work with its projects; owners also say who is
in it. To whoever is no member, it does not exist. An administrator of the platform acts as an owner everywhere.`,
	}
	c.AddCommand(s.organizationsCreate(), s.organizationsList(), s.organizationsGet(), s.organizationsDelete(), s.membersCommand())
	return c
}

func (s *session) organizationsCreate() *cobra.Command {
	var in struct {
		DisplayName string `json:"displayName,omitempty"`
		Owner       string `json:"owner,omitempty"`
	}
	c := &cobra.Command{
		Use: "create ID", Short: "Create an organization", Args: cobra.ExactArgs(1),
		Long: `Creates an organization, which takes an administrator of the platform: whoever is in one may run programs in the
cluster. Its id is not given out again, also not after it was deleted.`,
		Example: `  radial organizations create acme --name "Acme Inc." --owner user:ann@example.com`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := onlyName("organization", args[0]); err != nil {
				return err
			}
			if in.Owner != "" {
				kind, name, err := principalOf(in.Owner)
				if err != nil {
					return err
				}
				in.Owner = kind + ":" + name
			}
			var o organization
			if err := s.plain(c.Context(), http.MethodPost, "/organizations/"+args[0], nil, in, &o); err != nil {
				return err
			}
			return s.done(o, "Organization %q is there, owned by %s.", o.ID, o.owners())
		},
	}
	c.Flags().StringVar(&in.DisplayName, "name", "", "name for people")
	c.Flags().StringVar(&in.Owner, "owner", "", "its first owner: user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME (you unless set)")
	return c
}

func (s *session) organizationsList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the organizations that you are in", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var list struct {
				Value []organization `json:"value"`
			}
			if err := s.plain(c.Context(), http.MethodGet, "/organizations", nil, nil, &list); err != nil {
				return err
			}
			t := table{columns: []string{"ORGANIZATION", "NAME", "ROLE", "OWNERS"}, empty: "You are in no organization: an owner of one, or an administrator of the platform, can make you a member."}
			for _, o := range list.Value {
				t.rows = append(t.rows, []string{o.ID, o.DisplayName, o.Role, o.owners()})
			}
			return s.show(view{data: orEmpty(list.Value), table: t})
		},
	}
}

func (s *session) organizationsGet() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Aliases: []string{"show"}, Short: "Show an organization with its members", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := onlyName("organization", args[0]); err != nil {
				return err
			}
			var o organization
			if err := s.plain(c.Context(), http.MethodGet, "/organizations/"+args[0], nil, nil, &o); err != nil {
				return err
			}
			text := fields([2]string{"Id", o.ID}, [2]string{"Name", o.DisplayName}, [2]string{"Your role", o.Role})
			return s.show(view{data: o, text: text + "\n" + memberTable(o.Members).String()})
		},
	}
}

func memberTable(list []member) table {
	t := table{columns: []string{"MEMBER", "ROLE"}}
	for _, m := range list {
		t.rows = append(t.rows, []string{m.Principal, m.Role})
	}
	return t
}

func (s *session) organizationsDelete() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete ID", Aliases: []string{"rm"}, Short: "Delete an organization that has no projects", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := onlyName("organization", args[0]); err != nil {
				return err
			}
			if err := s.confirm(yes, "Delete organization "+args[0]+"?"); err != nil {
				return err
			}
			if err := s.plain(c.Context(), http.MethodDelete, "/organizations/"+args[0], nil, nil, nil); err != nil {
				return err
			}
			return s.done(map[string]string{"deleted": args[0]}, "Organization %q is deleted; its id is not given out again.", args[0])
		},
	}
	confirmFlag(c, &yes)
	return c
}

func (s *session) membersCommand() *cobra.Command {
	c := &cobra.Command{Use: "members", Aliases: []string{"member"}, Short: "Who is in an organization"}
	list := &cobra.Command{
		Use: "list ORGANIZATION", Aliases: []string{"ls"}, Short: "List the members of an organization", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := onlyName("organization", args[0]); err != nil {
				return err
			}
			var all struct {
				Value []member `json:"value"`
			}
			if err := s.plain(c.Context(), http.MethodGet, "/organizations/"+args[0]+"/members", nil, nil, &all); err != nil {
				return err
			}
			return s.show(view{data: orEmpty(all.Value), table: memberTable(all.Value)})
		},
	}
	c.AddCommand(list, s.memberChange("add ORGANIZATION PRINCIPAL", "Make somebody a member", http.MethodPost), s.memberChange("set ORGANIZATION PRINCIPAL", "Give a member another role", http.MethodPut),
		s.memberChange("remove ORGANIZATION PRINCIPAL", "Take somebody out of an organization", http.MethodDelete))
	return c
}

func (s *session) memberChange(use, short, method string) *cobra.Command {
	var role string
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(2),
		Example: "  radial organizations members " + strings.ReplaceAll(strings.ReplaceAll(use, "ORGANIZATION", "acme"), "PRINCIPAL", "user:bob@example.com"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := onlyName("organization", args[0]); err != nil {
				return err
			}
			kind, name, err := principalOf(args[1])
			if err != nil {
				return err
			}
			principal := kind + ":" + name
			path, said := "/organizations/"+args[0]+"/members", "%s is %s of organization %q."
			var body any
			switch method {
			case http.MethodPost:
				body = map[string]string{"principal": principal, "role": role}
			case http.MethodPut:
				if role == "" {
					return usagef("--role is needed: owner or member")
				}
				body = map[string]string{"role": role}
			}
			if method != http.MethodPost {
				path += "/" + strings.ReplaceAll(principal, "/", ":")
			}
			var o organization
			if err := s.plain(c.Context(), method, path, url.Values{}, body, &o); err != nil {
				return err
			}
			if method == http.MethodDelete {
				return s.done(o, "%s is no member of organization %q any more.", principal, args[0])
			}
			for _, m := range o.Members {
				if m.Principal == principal {
					role = m.Role
				}
			}
			return s.done(o, said, principal, role, args[0])
		},
	}
	if method != http.MethodDelete {
		c.Flags().StringVar(&role, "role", "", "owner or member (a new one is a member unless set)")
	}
	return c
}
