package cli

import (
	"fmt"
	"net/http"

	"github.com/radial-project/radial/internal/client/contexts"
)

// contextChosen finds the context to use: the one that --context or
// RADIAL_CONTEXT names, one of the server that --server or RADIAL_SERVER names,
// or the current one where nothing else says which control plane; nil for none.
func (s *session) contextChosen() (*contexts.File, *contexts.Context, error) {
	path, err := contexts.Path(s.Getenv)
	if err != nil {
		return nil, nil, nil // no home, so nothing was ever kept there
	}
	f, err := contexts.Load(path)
	if err != nil {
		return nil, nil, err
	}
	name := s.context
	if name == "" && s.server == "" && s.dir == "" && s.Getenv("RADIAL_SERVER") == "" {
		name = s.Getenv("RADIAL_CONTEXT")
	}
	if name != "" {
		c, ok := f.Find(name)
		if !ok {
			return nil, nil, fmt.Errorf("there is no context %q in %s (radial context list)", name, path)
		}
		return f, &c, nil
	}
	server := s.server
	if server == "" && s.dir == "" {
		server = s.Getenv("RADIAL_SERVER")
	}
	if server != "" {
		if c, ok := f.ForServer(server); ok {
			return f, &c, nil
		}
		return f, nil, nil
	}
	if s.dir != "" || s.Getenv("RADIAL_DIR") != "" {
		return f, nil, nil
	}
	if c, ok := f.Find(""); ok {
		return f, &c, nil
	}
	return f, nil, nil
}

// place is the control plane to speak to, and what sends the requests; nil for
// the client's own transport.
func (s *session) place() (string, http.RoundTripper, error) {
	f, c, err := s.contextChosen()
	if err != nil {
		return "", nil, err
	}
	if c == nil {
		url, err := s.serverURL()
		return url, nil, err
	}
	t, err := f.Transport(*c)
	return c.Server, t, err
}
