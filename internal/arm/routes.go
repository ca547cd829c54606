package arm

import (
	"net/http"
	"strings"

	"github.com/radial-project/radial/internal/core"
)

// Handler answers a request; an error becomes the error envelope.
type Handler func(w http.ResponseWriter, r *Request) error

// Routes maps paths to handlers. A pattern is a path below the prefix:
// fixed segments compare without case (which net/http's patterns cannot), {name}
// stands for one segment, and a last {name...} for the rest, at least one
// segment. The first pattern that fits wins, so put the special before the
// general.
type Routes struct {
	routes []route
}

type route struct {
	pattern  string
	segments []string
	methods  map[string]Handler
}

// Handle adds a route. methods are by name, such as "GET".
func (rs *Routes) Handle(pattern string, methods map[string]Handler) {
	rt := route{pattern: pattern, methods: methods}
	if pattern = strings.Trim(pattern, "/"); pattern != "" { // "" is the prefix itself
		rt.segments = strings.Split(pattern, "/")
	}
	rs.routes = append(rs.routes, rt)
}

// Find returns the handler for r and fills r.Vars and r.Pattern. NotFound if no route fits,
// MethodNotAllowed (with the allowed methods) if one does but not by the method.
func (rs *Routes) Find(r *Request) (Handler, []string, error) {
	for _, rt := range rs.routes {
		vars, ok := rt.match(r.Segments)
		if !ok {
			continue
		}
		h, ok := rt.methods[r.Method]
		if !ok && r.Method == http.MethodHead {
			h, ok = rt.methods[http.MethodGet]
		}
		if !ok {
			allowed := make([]string, 0, len(rt.methods))
			for _, m := range []string{"GET", "PUT", "PATCH", "POST", "DELETE"} {
				if rt.methods[m] != nil {
					allowed = append(allowed, m)
				}
			}
			return nil, allowed, core.Errorf(core.CodeMethodNotAllowed, "The request method '%s' is invalid. It may be one of %s.", r.Method, strings.Join(allowed, ", "))
		}
		r.Vars, r.Pattern = vars, rt.pattern
		return h, nil, nil
	}
	return nil, nil, core.Errorf(core.CodeNotFound, "The request '%s %s' is invalid.", r.Method, r.URL.Path)
}

func (rt route) match(segments []string) (map[string]string, bool) {
	var vars map[string]string
	for i, want := range rt.segments {
		if i >= len(segments) {
			return nil, false
		}
		if name, ok := strings.CutPrefix(want, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			if vars == nil {
				vars = make(map[string]string, 4)
			}
			if rest, ok := strings.CutSuffix(name, "..."); ok {
				vars[rest] = strings.Join(segments[i:], "/")
				return vars, true
			}
			vars[name] = segments[i]
			continue
		}
		if !strings.EqualFold(want, segments[i]) {
			return nil, false
		}
	}
	return vars, len(segments) == len(rt.segments)
}
