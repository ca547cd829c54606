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
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/client/contexts"
	"github.com/radial-project/radial/internal/core"
)

// Commands are `radial login`, `radial logout` and `radial context`.
func Commands(getenv func(string) string) []*cobra.Command {
	open := func() (*contexts.File, error) {
		path, err := contexts.Path(getenv)
		if err != nil {
			return nil, err
		}
		return contexts.Load(path)
	}
	return []*cobra.Command{loginCommand(open), logoutCommand(open), contextCommand(open)}
}

type opener func() (*contexts.File, error)

func loginCommand(open opener) *cobra.Command {
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
			fmt.Fprintf(cmd.OutOrStdout(), "Context %s is the current one: %s\n", c.Name, c.Server)
			if allowed != nil {
				fmt.Fprintf(cmd.OutOrStdout(), "You are known there, and have no role yet: %s\n", allowed)
			}
			return nil
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

func logoutCommand(open opener) *cobra.Command {
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
			fmt.Fprintf(cmd.OutOrStdout(), "Context %s is forgotten\n", name)
			return nil
		},
	}
}

func contextCommand(open opener) *cobra.Command {
	cmd := &cobra.Command{Use: "context", Short: "The control planes that you use"}
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List them; the current one is marked", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := open()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 3, ' ', 0)
			fmt.Fprintln(w, "CURRENT\tNAME\tSERVER\tBY")
			for _, c := range f.Contexts {
				mark := ""
				if c.Name == f.CurrentContext {
					mark = "*"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, c.Name, c.Server, by(c))
			}
			return w.Flush()
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
			fmt.Fprintf(cmd.OutOrStdout(), "Context %s is the current one\n", args[0])
			return nil
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
