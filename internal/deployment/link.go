package deployment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/internal/template"
)

// LinkOptions say from where linked templates are fetched.
type LinkOptions struct {
	// Hosts are those of registries (oci://, br:) and web servers (https://) that
	// may be asked: a template names them, and whoever may deploy one must not
	// reach into the server's network by it. "*" is any.
	Hosts []string
	// Developer allows every host, http:// too, and file:// of this machine.
	Developer bool
	Fetcher   interface {
		Fetch(ctx context.Context, r oci.Reference) (oci.Content, error)
	}
	// Client fetches from web servers; nil is one with a timeout of 30 s.
	Client *http.Client
}

// Links fetches what templates link to.
func Links(o LinkOptions) func(ctx context.Context, l template.Link) ([]byte, error) {
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 30 * time.Second}
	}
	client := *o.Client
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) > 5 {
			return errors.New("it redirects too often")
		}
		if r.URL.Scheme != via[0].URL.Scheme {
			return errors.New("it redirects to another scheme")
		}
		return o.allowed(r.URL.Host)
	}
	o.Client = &client
	return o.fetch
}

func (o *LinkOptions) allowed(host string) error {
	name := host
	if u, err := url.Parse("//" + host); err == nil {
		name = u.Hostname()
	}
	if o.Developer || slices.ContainsFunc(o.Hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, host) || strings.EqualFold(h, name) }) {
		return nil
	}
	return fmt.Errorf("host %q is not among those that this server fetches templates from (--template-hosts): send the template itself, or have the host added", host)
}

func (o *LinkOptions) fetch(ctx context.Context, l template.Link) ([]byte, error) {
	bad := func(err error) ([]byte, error) {
		return nil, core.Errorf(core.CodeInvalidLink, "the template at %s cannot be fetched: %w", shownURI(l.URI), err).WithTarget(shownURI(l.URI))
	}
	if l.ID != "" {
		return nil, core.Errorf(core.CodeInvalidLink, "the template link names the template spec %s, which is not offered: link a uri", l.ID).WithTarget(l.ID)
	}
	scheme, rest, ok := strings.Cut(l.URI, ":")
	if !ok {
		return bad(errors.New("it is no absolute URI: write https://…, oci://… or br:…"))
	}
	switch scheme = strings.ToLower(scheme); scheme {
	case "oci", "br":
		host, _, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
		if err := o.allowed(host); err != nil {
			return bad(err)
		}
		return o.artifact(ctx, l.URI, bad)
	case "file":
		if !o.Developer {
			return bad(errors.New("files of the server are read in developer mode only"))
		}
		return o.artifact(ctx, l.URI, bad)
	case "https", "http":
		if scheme == "http" && !o.Developer {
			return bad(errors.New("http:// is not safe from change on the way: use https://"))
		}
	default:
		return bad(fmt.Errorf("scheme %q is not one of https, oci, br, file", scheme))
	}
	u, err := url.Parse(l.URI)
	if err != nil || u.Host == "" {
		return bad(errors.New("it is no URL"))
	}
	if err := o.allowed(u.Host); err != nil {
		return bad(err)
	}
	if l.QueryString != "" {
		u.RawQuery = strings.TrimPrefix(l.QueryString, "?")
	}
	return o.web(ctx, u, bad)
}

func (o *LinkOptions) artifact(ctx context.Context, uri string, bad func(error) ([]byte, error)) ([]byte, error) {
	if o.Fetcher == nil {
		return bad(errors.New("this server has no fetcher of artifacts"))
	}
	c, err := o.Fetcher.Fetch(ctx, oci.Reference{Path: uri, PlainHTTP: false})
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return bad(err)
	}
	return c.Data, nil
}

func (o *LinkOptions) web(ctx context.Context, u *url.URL, bad func(error) ([]byte, error)) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return bad(errors.New("it is no URL"))
	}
	resp, err := o.Client.Do(r)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // its text repeats the URL, which may hold a token
		}
		return bad(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return bad(fmt.Errorf("the answer is %s", resp.Status))
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxTemplate+1))
	switch {
	case err != nil:
		return bad(err)
	case len(text) > maxTemplate:
		return bad(fmt.Errorf("it has more than %d bytes", maxTemplate))
	}
	return text, nil
}

// shownURI is a URI without what may be a token in it.
func shownURI(uri string) string {
	if i := strings.IndexByte(uri, '?'); i >= 0 {
		uri = uri[:i]
	}
	if u, err := url.Parse(uri); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return uri
}
