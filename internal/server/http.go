package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/telemetry"
)

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := s.o.Now()
	id := w.Header().Get(auth.HeaderRequestID) // the audit log speaks of the request by it
	if id == "" {
		id = uuid.NewString()
	}
	w.Header().Set("x-ms-request-id", id)
	if c := r.Header.Get("x-ms-client-request-id"); c != "" && len(c) <= 128 {
		w.Header().Set("x-ms-client-request-id", c)
	}
	defer func() {
		// A handler that panics is a defect; the client gets an answer, and the
		// value of the panic, which may hold anything, stays out of the log.
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler {
				panic(v)
			}
			s.o.Log.Error("request panicked", "request", id, "method", r.Method, "path", r.URL.Path, "stack", string(debug.Stack()))
			arm.WriteError(w, core.Errorf(core.CodeInternal, "the server met a defect; its log has the stack under request %s", id))
		}
	}()
	err := s.serve(w, r)
	switch {
	case err != nil && plain(r):
		arm.WriteFlatError(w, s.shown(err, r, id))
	case err != nil:
		arm.WriteError(w, s.shown(err, r, id))
	}
	s.o.Log.Debug("request", "method", r.Method, "path", r.URL.Path, "took", s.o.Now().Sub(begun), "code", string(core.CodeOf(err)))
}

// plain reports whether a request is one of the plain routes, whose errors are
// flat.
func plain(r *http.Request) bool {
	req, err := arm.Parse(r)
	return err == nil && auth.MembersPath(req.Segments)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	if s.o.Loopback {
		if err := checkLoopback(r); err != nil {
			return err
		}
	}
	req, err := arm.Parse(r)
	if err != nil {
		return err
	}
	h, allowed, err := s.routes.Find(req)
	if err != nil {
		if len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
		}
		return err
	}
	telemetry.Routed(r.Context(), req.Pattern)
	return h(w, req)
}

// shown is an error as the client sees it. One that is no core.Error is a
// defect: its text goes to the log only.
func (s *Server) shown(err error, r *http.Request, id string) error {
	var e *core.Error
	switch {
	case errors.As(err, &e):
		if e.Code.Status() >= 500 && e.Code != core.CodeUnavailable {
			s.o.Log.Error("request failed", "request", id, "method", r.Method, "path", r.URL.Path, "code", string(e.Code), "error", err.Error())
		}
		return err
	case r.Context().Err() != nil:
		return core.Errorf(core.CodeUnavailable, "the request ended before its answer")
	case errors.Is(err, context.DeadlineExceeded):
		return core.Errorf(core.CodeUnavailable, "the store did not answer in time: try again")
	}
	s.o.Log.Error("request failed", "request", id, "method", r.Method, "path", r.URL.Path, "error", err.Error())
	return core.Errorf(core.CodeInternal, "the server met an unexpected error; its log has it under request %s", id)
}

// checkLoopback refuses what a browser sends on behalf of another site (D-48):
// a name that was made to resolve to loopback comes as Host, and a page of
// another origin says so in Origin or Sec-Fetch-Site.
func checkLoopback(r *http.Request) error {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if !loopbackName(host) {
		return core.Errorf(core.CodeForbidden, "the request is for host %q: in developer mode the server answers on loopback only, as localhost, 127.0.0.1 or [::1]", r.Host)
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host {
			return core.Errorf(core.CodeForbidden, "the request comes from a page of %q: in developer mode the server answers its own pages only", origin)
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && !slices.Contains([]string{"same-origin", "none"}, site) {
		return core.Errorf(core.CodeForbidden, "the request comes from a page of another site: in developer mode the server answers its own pages only")
	}
	return nil
}

func loopbackName(host string) bool {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// healthz answers 503 when the process should be replaced.
func (s *Server) healthz(w http.ResponseWriter, r *arm.Request) error {
	if err := s.o.Probes.Healthy(r.Context()); err != nil {
		return core.Errorf(core.CodeUnavailable, "the server is not well: %w", err)
	}
	return arm.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz answers 503 while requests would fail: the store cannot be read or
// written.
func (s *Server) readyz(w http.ResponseWriter, r *arm.Request) error {
	if err := s.o.Probes.IsReady(r.Context()); err != nil {
		return core.Errorf(core.CodeUnavailable, "the server is not ready: %w", err)
	}
	return arm.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// answers reports whether the store can be read.
func (s *Server) answers(ctx context.Context) error {
	if _, _, err := s.o.Store.Get(ctx, localPlane); err != nil {
		return fmt.Errorf("the store does not answer: %w", err)
	}
	return nil
}

func (s *Server) version(w http.ResponseWriter, _ *arm.Request) error {
	return arm.WriteJSON(w, http.StatusOK, map[string]string{"version": core.Version, "apiVersion": APIVersion})
}

// discovery answers the prefix itself as the Kubernetes aggregation layer
// expects of an API behind it: no resources in the sense of Kubernetes. Clients
// of the peer ask for it to see whether a control plane is there.
func (s *Server) discovery(w http.ResponseWriter, r *arm.Request) error {
	if r.Base == "" {
		return core.Errorf(core.CodeNotFound, "The request '%s %s' is invalid.", r.Method, r.URL.Path)
	}
	return arm.WriteJSON(w, http.StatusOK, map[string]any{
		"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "api.ucp.dev/v1alpha3", "resources": []any{},
	})
}
