// Package arm speaks the ARM wire of the control plane: it reads paths,
// versions, preconditions and bodies, and writes resources, pages, errors and
// the headers of asynchronous operations. It knows no resource type.
//
// Paths compare without case and may carry [Prefix], under which the
// Kubernetes aggregation layer forwards requests; links in answers keep the
// prefix that the request came with.
package arm

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/radial-project/radial/internal/core"
)

// Prefix is the optional base path of every route.
const Prefix = "/apis/api.ucp.dev/v1alpha3"

// MaxWait bounds what `Prefer: wait=<seconds>` may ask for.
const MaxWait = 60 * time.Second

// maxSegment is the longest segment of a path, in bytes.
const maxSegment = 260

// Request is a request with its path taken apart.
type Request struct {
	*http.Request
	// Base is the prefix that the request was made under: "" or Prefix in the
	// case it was written.
	Base string
	// Segments of the path below Base, unescaped, in the case they were written.
	Segments []string
	// APIVersion is the api-version parameter, "" where there is none.
	APIVersion string
	// Vars are the values of a route's {names}; see [Routes].
	Vars map[string]string
}

// Parse takes the path of r apart. A segment that could not be part of an id is
// a BadRequest.
func Parse(r *http.Request) (*Request, error) {
	req := &Request{Request: r}
	path := r.URL.EscapedPath()
	if len(path) >= len(Prefix) && strings.EqualFold(path[:len(Prefix)], Prefix) &&
		(len(path) == len(Prefix) || path[len(Prefix)] == '/') {
		req.Base, path = path[:len(Prefix)], path[len(Prefix):]
	}
	path = strings.Trim(path, "/")
	for part := range strings.SplitSeq(path, "/") {
		if path == "" { // the prefix itself, or the root
			break
		}
		s, err := url.PathUnescape(part)
		if err != nil {
			return nil, core.Errorf(core.CodeBadRequest, "the path holds %q, which is not well escaped", part)
		}
		if err := checkSegment(s); err != nil {
			return nil, err
		}
		req.Segments = append(req.Segments, s)
	}
	if q := r.URL.RawQuery; q != "" {
		req.APIVersion = query(r).Get("api-version")
	}
	return req, nil
}

// query parses the query once more than Values would: its names compare without
// case, as those of the wire do.
func query(r *http.Request) url.Values {
	values := r.URL.Query()
	// In an order that every reading of one request has: where a parameter is
	// sent twice, who allows the request and who serves it must see the same.
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if lower := strings.ToLower(name); lower != name {
			values[lower] = append(values[lower], values[name]...)
		}
	}
	return values
}

// Query returns the first value of a query parameter; names compare without case.
func (r *Request) Query(name string) string {
	return query(r.Request).Get(strings.ToLower(name))
}

func checkSegment(s string) error {
	if s == "" {
		return core.Errorf(core.CodeBadRequest, "the path has an empty segment")
	}
	if len(s) > maxSegment {
		return core.Errorf(core.CodeBadRequest, "the path has a segment of %d bytes; names have at most %d", len(s), maxSegment)
	}
	if s == "." || s == ".." {
		return core.Errorf(core.CodeBadRequest, "%q is not a name", s)
	}
	for _, c := range s {
		if unicode.IsControl(c) || unicode.IsSpace(c) || c == unicode.ReplacementChar || core.PosesAsASCII(c) || strings.ContainsRune(`/\?#<>"`, c) {
			return core.Errorf(core.CodeBadRequest, "the path segment %q holds the character %q, which no name may", s, c)
		}
	}
	return nil
}

// ID parses the path as the id of a scope, a resource or a collection.
func (r *Request) ID() (core.ID, error) {
	return core.ParseID("/" + strings.Join(r.Segments, "/"))
}

// URL returns the absolute URL of an id on this server, as the client reached
// it.
func (r *Request) URLOf(path string) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + r.Base + path
}

// SystemData is what a front door says about who asks; nothing where it says
// nothing that can be read.
func (r *Request) SystemData() core.SystemData {
	var d core.SystemData
	if header := r.Header.Get("x-ms-arm-resource-system-data"); header != "" && json.Unmarshal([]byte(header), &d) != nil {
		return core.SystemData{}
	}
	return d
}

// Wait returns how long the client is ready to wait for an answer, by
// `Prefer: wait=<seconds>` (RFC 7240), at most MaxWait; 0 where it said nothing.
func (r *Request) Wait() time.Duration {
	for _, header := range r.Header.Values("Prefer") {
		for part := range strings.FieldsFuncSeq(header, func(c rune) bool { return c == ',' || c == ';' }) {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
			if err != nil || seconds <= 0 {
				return 0
			}
			return min(time.Duration(min(seconds, 3600))*time.Second, MaxWait)
		}
	}
	return 0
}

// Preconditions are the conditional headers of a request.
type Preconditions struct {
	// IfMatch is the entity tag that the resource must have, "*" any, "" none
	// asked for.
	IfMatch string
	// IfNoneMatch is "*" when the resource must not exist, or a tag that it
	// must not have.
	IfNoneMatch string
}

// Preconditions reads If-Match and If-None-Match: one tag or "*" each.
func (r *Request) Preconditions() Preconditions {
	return Preconditions{IfMatch: unquote(r.Header.Get("If-Match")), IfNoneMatch: unquote(r.Header.Get("If-None-Match"))}
}

func unquote(tag string) string {
	tag = strings.TrimSpace(tag)
	tag = strings.TrimPrefix(tag, "W/")
	return strings.Trim(tag, `"`)
}

// Check answers PreconditionFailed when a resource with the entity tag etag
// ("" when there is none) does not meet the preconditions.
func (p Preconditions) Check(id core.ID, etag string) error {
	switch {
	case p.IfMatch == "*" && etag == "":
		return core.Errorf(core.CodePrecondition, "%s does not exist, and the request is only for an existing one (If-Match: *)", id).WithTarget(id.String())
	case p.IfMatch != "" && p.IfMatch != "*" && p.IfMatch != etag:
		return core.Errorf(core.CodePrecondition, "%s has changed since it was read (If-Match does not match its ETag): read it again and repeat the change", id).WithTarget(id.String())
	case p.IfNoneMatch == "*" && etag != "":
		return core.Errorf(core.CodePrecondition, "%s exists already, and the request is only for a new one (If-None-Match: *)", id).WithTarget(id.String())
	case p.IfNoneMatch != "" && p.IfNoneMatch == etag:
		return core.Errorf(core.CodePrecondition, "%s still has the entity tag that If-None-Match excludes", id).WithTarget(id.String())
	}
	return nil
}
