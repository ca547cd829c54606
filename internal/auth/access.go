package auth

import (
	"net/http"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
)

// want is what a request asks for, read from its method and path alone.
type want struct {
	Access
	// operation names the operation whose resource decides, in place of ID.
	operation string
	// body says that the body may name owners and other resources.
	body bool
	// stream says that the answer lasts.
	stream bool
}

// openPaths tell nothing but that the process lives and what it is.
var openPaths = []string{"/healthz", "/livez", "/readyz", "/version"}

// discoveryPaths are what the Kubernetes API server asks of an aggregated API.
func discoveryPath(path string) bool {
	path = strings.ToLower(strings.TrimRight(path, "/"))
	return path == "/apis" || path == "/apis/api.ucp.dev" || path == arm.Prefix ||
		path == "/openapi/v2" || path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/")
}

// membersPaths are the first segments of paths whose callers the server behind
// decides about, by who is a member of which organization. It does so by
// [Caller], which audits what it decides.
var membersPaths = []string{"organizations", "projects", "services", "installation", "auth"}

// MembersPath reports whether a path, taken apart, is one where membership
// decides.
func MembersPath(segments []string) bool {
	return len(segments) > 0 && slices.Contains(membersPaths, strings.ToLower(segments[0]))
}

// governed are the types that decide over others: with whose rights recipes
// run, which recipes those are, and who may do what. All of System.* is, too.
var governed = []string{
	"applications.core/environments", "radius.core/environments", "radius.core/recipepacks",
	"radius.core/terraformsettings", "radius.core/bicepsettings",
	"radial.services/organizations", "radial.services/projects", "radial.services/retirednames",
}

// Governs reports whether a type decides over others: to write it takes Govern.
func Governs(resourceType string) bool { return isGoverned(resourceType) }

func isGoverned(resourceType string) bool {
	t := strings.ToLower(resourceType)
	return strings.HasPrefix(t, "system.") || slices.Contains(governed, t)
}

// wanted reads what a request asks for. What it does not know is for root only.
// canonical names a type as it is called today, so that an alias is no way round.
func wanted(r *arm.Request, canonical func(string) (string, bool)) want {
	s := r.Segments
	is := func(i int, word string) bool { return i < len(s) && strings.EqualFold(s[i], word) }
	unknown := want{Access: Access{Verb: Administer}}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case is(0, "watch") && read:
		return want{Access: Access{Verb: Discover}, stream: true}
	case !is(0, "planes"):
		return unknown
	case len(s) < 3:
		if read {
			return want{Access: Access{Verb: Discover}}
		}
		return unknown
	}
	plane := core.ID{Plane: core.Segment{Type: s[1], Name: s[2]}}
	if r.Method == http.MethodDelete && strings.EqualFold(r.Query("cascade"), "true") {
		// What goes along may stand anywhere, so it takes the right everywhere.
		plain := r.Request.Clone(r.Context())
		plain.URL.RawQuery = ""
		alone := *r
		alone.Request = plain
		w := wanted(&alone, canonical)
		if w.Verb != Administer {
			w.ID = plane
		}
		return w
	}
	at := slices.IndexFunc(s, func(w string) bool { return strings.EqualFold(w, "providers") })
	if at < 0 {
		return wantedScope(r, plane, read)
	}
	provider := s[at+1:]
	switch {
	case at == 3 && read && len(provider) < 2: // summaries of types
		return want{Access: Access{Discover, plane}}
	case at == 3 && is(at+1, "System.Resources") && is(at+2, "resourceproviders"):
		if read {
			return want{Access: Access{Discover, plane}}
		}
		return want{Access: Access{Govern, plane}}
	case at == 3 && is(at+1, "System.Resources") && is(at+2, "auditrecords"):
		// What others did and were refused, over all groups.
		return want{Access: Access{Govern, plane}}
	case is(at+2, "locations") && (is(at+4, "operationstatuses") || is(at+4, "operationresults")):
		scope, err := core.ParseID("/" + strings.Join(s[:at], "/"))
		if err != nil {
			return unknown
		}
		w := want{Access: Access{Write, scope}}
		if read {
			w.Verb = Read
		}
		if len(s) > at+5 {
			w.operation = s[at+5]
		} else if read {
			w.Verb = Discover
		}
		return w
	}
	return wantedResource(r, read, canonical)
}

// wantedScope is for planes, groups and the lists below them.
func wantedScope(r *arm.Request, plane core.ID, read bool) want {
	s := r.Segments
	last := strings.ToLower(s[len(s)-1])
	if read && (last == "resources" || last == "resourcegroups") && len(s)%2 == 0 { // a list below a scope
		if id, err := core.ParseID("/" + strings.Join(s[:len(s)-1], "/")); err == nil {
			return want{Access: Access{Discover, id}}
		}
	}
	id, err := core.ParseID("/" + strings.Join(s, "/"))
	switch {
	case err != nil || len(s) > 5:
		return want{Access: Access{Verb: Administer, ID: plane}}
	case len(id.Scopes) == 0 && read:
		return want{Access: Access{Discover, id}}
	case len(id.Scopes) == 0:
		return want{Access: Access{Govern, id}}
	case read:
		return want{Access: Access{Read, id}}
	case r.Method == http.MethodDelete:
		return want{Access: Access{Delete, id}}
	default:
		return want{Access: Access{Write, id}}
	}
}

func wantedResource(r *arm.Request, read bool, canonical func(string) (string, bool)) want {
	segments, action := r.Segments, ""
	if r.Method == http.MethodPost {
		segments, action = segments[:len(segments)-1], strings.ToLower(segments[len(segments)-1])
	}
	id, err := core.ParseID("/" + strings.Join(segments, "/"))
	if err != nil || len(id.Types) == 0 {
		return want{Access: Access{Verb: Administer}}
	}
	if w, ok := wantedDeployment(r, id, read, action); ok {
		return w
	}
	if name, ok := canonical(id.Type()); ok {
		id = id.WithType(name)
	}
	w := want{Access: Access{ID: id}}
	switch {
	case read && id.IsCollection():
		return want{Access: Access{Discover, id.Scope()}}
	case read:
		w.Verb = Read
	case r.Method == http.MethodPost && action == "listsecrets":
		w.Verb = Secrets
	case r.Method == http.MethodPost && (action == "getgraph" || action == "getmetadata"):
		w.Verb = Read
	case r.Method == http.MethodPost:
		w.Verb = Write
	case r.Method == http.MethodPut || r.Method == http.MethodPatch:
		w.Verb, w.body = Write, true
	case r.Method == http.MethodDelete:
		w.Verb = Delete
	default:
		w.Verb = Administer
	}
	if (w.Verb == Write || w.Verb == Delete) && isGoverned(id.Type()) {
		w.Verb = Govern
	}
	return w
}

// typeDeployment is the type of deployments. What one does is decided when it
// does it, as its caller (see [Authorizer]): the ids that its template happens to
// name take no right.
const typeDeployment = "microsoft.resources/deployments"

// typeStack is the type of deployment stacks, of which the same holds.
const typeStack = "microsoft.resources/deploymentstacks"

// wantedDeployment is for a deployment and what stands below it.
func wantedDeployment(r *arm.Request, id core.ID, read bool, action string) (want, bool) {
	t := strings.ToLower(id.Type())
	own := id
	below, ok := strings.CutPrefix(t, typeStack)
	if !ok {
		below, ok = strings.CutPrefix(t, typeDeployment)
	}
	if !ok || below != "" && below[0] != '/' {
		return want{}, false
	}
	if len(own.Types) > 1 { // its operations
		own.Types = own.Types[:1]
	}
	w := want{Access: Access{Write, own}}
	switch {
	case read && own.IsCollection():
		w.Access = Access{Discover, id.Scope()}
	case read, action == "exporttemplate", action == "getgraph":
		w.Verb = Read
	case r.Method == http.MethodPost && strings.HasPrefix(action, "list"):
		w.Verb = Secrets
	case r.Method == http.MethodDelete:
		w.Verb = Delete
	}
	return w, true
}

// link is another resource that a body names, and what naming it takes.
type link struct {
	at string
	Access
}

// readLinks are the properties whose ids only have to be readable: what a
// resource belongs to or is made of. Any other id may bring the resource's
// secrets with it, as a connection does.
var readLinks = []string{"environment", "application", "recipepacks", "terraformsettings", "bicepsettings", "resources", "scope"}

// links are the ids of other resources of ours in properties.
func links(properties map[string]any) (out []link) {
	var walk func(at string, verb Verb, v any)
	walk = func(at string, verb Verb, v any) {
		switch v := v.(type) {
		case string:
			if len(v) > len("/planes/") && strings.EqualFold(v[:len("/planes/")], "/planes/") {
				if id, err := core.ParseID(v); err == nil && strings.EqualFold(id.Plane.Type, "radius") {
					out = append(out, link{at, Access{verb, id}})
				}
			}
		case []any:
			for _, e := range v {
				walk(at, verb, e)
			}
		case map[string]any:
			for name, e := range v {
				if at == "" {
					verb = Secrets
					if slices.Contains(readLinks, strings.ToLower(name)) {
						verb = Read
					}
					walk("properties."+name, verb, e)
					continue
				}
				walk(at, verb, e)
			}
		}
	}
	walk("", Secrets, properties)
	slices.SortFunc(out, func(a, b link) int { return strings.Compare(a.at+" "+a.ID.Key(), b.at+" "+b.ID.Key()) })
	return out
}
