// Package login holds the commands by which a person says which control plane
// they use and who they are there.
package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/client/contexts"
	"github.com/radial-project/radial/internal/core"
)

// Show shows what a command has to say in the form that was asked for: data for
// programs, a table of columns and rows or else a text for people.
type Show func(data any, text string, columns []string, rows [][]string) error

// Commands are `radial login`, `radial logout` and `radial context`.
func Commands(getenv func(string) string, show Show) []*cobra.Command {
	open := func() (*contexts.File, error) {
		path, err := contexts.Path(getenv)
		if err != nil {
			return nil, err
		}
		return contexts.Load(path)
	}
	return []*cobra.Command{loginCommand(open, show), logoutCommand(open, show), contextCommand(open, show)}
}

type opener func() (*contexts.File, error)

// listed is a context as programs are shown it: who one is there without how that is proven.
type listed struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	By      string `json:"by"`
	Current bool   `json:"current"`
}

func listedOf(f *contexts.File, c contexts.Context) listed {
	return listed{c.Name, c.Server, by(c), c.Name == f.CurrentContext}
}

func loginCommand(open opener, show Show) *cobra.Command {
	var (
		c                        contexts.Context
		account, audience        string
		kubeconfig, kubeContext  string
		kubeconfigUser           bool
		issuer, clientID, oidcCA string
		scopes                   []string
	)
	cmd := &cobra.Command{
		Use:   "login SERVER",
		Short: "Use a control plane, and say who you are there",
		Long: `Login makes a context: a control plane and how you prove who you are to it. It asks the server once, so
that what does not work is said now, and makes the context the current one.

  --account          tokens of a ServiceAccount that your kubeconfig may ask for, a few minutes each
  --kubeconfig-user  the client certificate of your kubeconfig, or the token that its plugin gives
  --oidc-issuer      sign in with a browser
  --token-file       a token that something else keeps fresh

No secret is kept in the file of contexts; a sign-in is kept beside it, readable by you alone.`,
		Example: `  radial login https://radial.example.com --oidc-issuer https://sso.example.com --oidc-client-id radial-cli
  radial login https://localhost:8443 --ca-file ca.crt --account radial-system/ann`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Server = strings.TrimRight(args[0], "/")
			if c.Name == "" {
				c.Name = nameOf(c.Server)
			}
			user := contexts.Kubeconfig{Path: kubeconfig, Context: kubeContext}
			if account != "" {
				namespace, name, _ := strings.Cut(account, "/")
				c.Account = &contexts.Account{Kubeconfig: user, Namespace: namespace, Name: name, Audience: audience}
			}
			if kubeconfigUser {
				c.Kubeconfig = &user
			}
			if issuer != "" {
				c.OIDC = &contexts.OIDC{Issuer: issuer, ClientID: clientID, CAFile: oidcCA, Scopes: scopes}
			}
			for _, path := range []*string{&c.CAFile, &c.TokenFile} {
				if *path != "" {
					abs, err := filepath.Abs(*path)
					if err != nil {
						return err
					}
					*path = abs
				}
			}
			f, err := open()
			if err != nil {
				return err
			}
			if err := f.Put(c); err != nil {
				return err
			}
			if c.OIDC != nil {
				err := f.SignIn(cmd.Context(), c, func(url, code string) {
					fmt.Fprintf(cmd.ErrOrStderr(), "Open %s\nand enter the code %s\n", url, code)
				})
				if err != nil {
					return err
				}
			}
			allowed, err := try(cmd.Context(), f, c)
			if err != nil {
				return err
			}
			if err := f.Use(c.Name); err != nil {
				return err
			}
			said := fmt.Sprintf("Context %s is the current one: %s\n", c.Name, c.Server)
			if allowed != nil {
				said += fmt.Sprintf("You are known there, and have no role yet: %s\n", allowed)
			}
			return show(listedOf(f, c), said, nil, nil)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Name, "name", "", "name of the context (default: the server's host)")
	f.StringVar(&c.CAFile, "ca-file", "", "file with authorities for the server's certificate, read at every use")
	f.StringVar(&c.TokenFile, "token-file", "", "file with a token, read at every use")
	f.StringVar(&account, "account", "", "ServiceAccount to ask tokens of, as NAMESPACE/NAME")
	f.StringVar(&audience, "audience", "", "audience of those tokens (default: radial)")
	f.BoolVar(&kubeconfigUser, "kubeconfig-user", false, "prove yourself as the user of the kubeconfig")
	f.StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig (default: KUBECONFIG, else ~/.kube/config)")
	f.StringVar(&kubeContext, "kube-context", "", "its context (default: the current one)")
	f.StringVar(&issuer, "oidc-issuer", "", "URL of the OIDC issuer to sign in with")
	f.StringVar(&clientID, "oidc-client-id", "", "client id of Radial's command line there")
	f.StringVar(&oidcCA, "oidc-ca-file", "", "file with authorities for the issuer's certificate")
	f.StringSliceVar(&scopes, "oidc-scopes", nil, "scopes to ask for (default: openid, profile, email, groups, offline_access)")
	return cmd
}

func nameOf(server string) string {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return "default"
	}
	return u.Hostname()
}

// try asks the server who we are: no error when it knows us. denied is what it
// says to somebody without a role.
func try(ctx context.Context, f *contexts.File, c contexts.Context) (denied, err error) {
	t, err := f.Transport(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Server+"/planes?api-version=2023-10-01-preview", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: t}).Do(r)
	var unproven *core.Error
	if errors.As(err, &unproven) {
		return nil, unproven
	}
	if err != nil {
		return nil, core.Errorf(core.CodeUnavailable, "cannot reach the Radial server at %s: %w", c.Server, err)
	}
	defer resp.Body.Close()
	said := message(resp.Body)
	switch {
	case resp.StatusCode == http.StatusOK:
		return nil, nil
	case resp.StatusCode == http.StatusForbidden:
		return said, nil
	}
	return nil, core.Errorf(core.CodeUnauthorized, "the server at %s answered %s: %w", c.Server, resp.Status, said)
}

func message(body io.Reader) error {
	var e struct {
		Error *core.Error `json:"error"`
	}
	if decode(body, &e) != nil || e.Error == nil {
		return fmt.Errorf("no explanation; is it a Radial server?")
	}
	return e.Error
}

func logoutCommand(open opener, show Show) *cobra.Command {
	return &cobra.Command{
		Use:   "logout [CONTEXT]",
		Short: "Forget a context and its sign-in",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := open()
			if err != nil {
				return err
			}
			name := f.CurrentContext
			if len(args) > 0 {
				name = args[0]
			}
			if err := f.Remove(name); err != nil {
				return err
			}
			return show(map[string]string{"forgotten": name}, fmt.Sprintf("Context %s is forgotten.", name), nil, nil)
		},
	}
}

func contextCommand(open opener, show Show) *cobra.Command {
	cmd := &cobra.Command{Use: "context", Short: "The control planes that you use"}
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List them; the current one is marked", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := open()
			if err != nil {
				return err
			}
			all := []listed{}
			var rows [][]string
			for _, c := range f.Contexts {
				l := listedOf(f, c)
				mark := ""
				if l.Current {
					mark = "*"
				}
				all, rows = append(all, l), append(rows, []string{mark, l.Name, l.Server, l.By})
			}
			if len(all) == 0 {
				return show(all, "There are no contexts: radial login makes one.", nil, nil)
			}
			return show(all, "", []string{"CURRENT", "NAME", "SERVER", "BY"}, rows)
		},
	}, &cobra.Command{
		Use: "use CONTEXT", Short: "Make one the current", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := open()
			if err != nil {
				return err
			}
			if err := f.Use(args[0]); err != nil {
				return err
			}
			c, _ := f.Find(args[0])
			return show(listedOf(f, c), fmt.Sprintf("Context %s is the current one.", args[0]), nil, nil)
		},
	})
	return cmd
}

func by(c contexts.Context) string {
	switch {
	case c.TokenFile != "":
		return "token file " + c.TokenFile
	case c.Account != nil:
		return "ServiceAccount " + c.Account.Namespace + "/" + c.Account.Name
	case c.Kubeconfig != nil:
		return "kubeconfig"
	case c.OIDC != nil:
		return c.OIDC.Issuer
	}
	return "nothing"
}

func decode(body io.Reader, v any) error {
	return json.NewDecoder(io.LimitReader(body, 1<<20)).Decode(v)
}
