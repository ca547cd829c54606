package arm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
)

// writeTimeout is how long a client may take to read an answer.
const writeTimeout = 30 * time.Second

// WriteJSON answers v with the status.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that went away is no fault of ours
	return nil
}

// WriteEach answers an object whose one member is the list of what each yields,
// written as it comes: an answer of any size takes no memory. An error before
// the first is the request's; after that the answer is broken off, so that no
// client takes it for whole.
func WriteEach(w http.ResponseWriter, status int, member string, each func(yield func(any) error) error) error {
	name, err := json.Marshal(member)
	if err != nil {
		return err
	}
	control := http.NewResponseController(w)
	out := bufio.NewWriterSize(w, 64<<10)
	begun := false
	begin := func() {
		begun = true
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		w.WriteHeader(status)
		fmt.Fprintf(out, "{%s:[", name)
	}
	n := 0
	var raw []byte
	err = each(func(v any) error {
		var err error
		if raw, err = appendJSON(raw[:0], v); err != nil {
			return err
		}
		switch {
		case !begun:
			begin()
		default:
			_ = out.WriteByte(',') // its errors stay until Flush
		}
		if n++; n%1024 == 0 { // a client that reads on may take its time
			_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		}
		_, err = out.Write(raw)
		return err
	})
	switch {
	case err != nil && !begun:
		return err
	case err != nil:
		panic(http.ErrAbortHandler)
	case !begun:
		begin()
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush() // a client that went away is no fault of ours
	return nil
}

// WriteResource answers a resource with its entity tag.
func WriteResource(w http.ResponseWriter, status int, r wire.Resource, etag string) error {
	if etag != "" {
		w.Header().Set("ETag", `"`+etag+`"`)
	}
	return WriteJSON(w, status, r)
}

// WriteError answers the error envelope. An error that is no [core.Error] is a
// defect: its text stays on the server, the answer names the request instead.
func WriteError(w http.ResponseWriter, err error) {
	e := core.AsError(err)
	if e.Code == core.CodeUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if err := WriteJSON(w, e.Code.Status(), struct {
		Error *core.Error `json:"error"`
	}{e}); err != nil { // additionalInfo that is no JSON
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// WriteFlatError answers an error as the routes of organizations, projects and
// services do: {"status": 409, "error": "<what a person reads>"}, with the code,
// and what is wrong one by one, beside it.
func WriteFlatError(w http.ResponseWriter, err error) {
	e := core.AsError(err)
	if e.Code == core.CodeUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	type problem struct {
		Message string `json:"message"`
		Target  string `json:"target,omitempty"`
	}
	out := struct {
		Status   int       `json:"status"`
		Error    string    `json:"error"`
		Code     core.Code `json:"code"`
		Target   string    `json:"target,omitempty"`
		Problems []problem `json:"problems,omitempty"`
	}{Status: e.Code.Status(), Error: e.Message, Code: e.Code, Target: e.Target}
	for _, d := range e.Details {
		out.Problems = append(out.Problems, problem{d.Message, d.Target})
	}
	_ = WriteJSON(w, out.Status, out) // of strings alone
}

// OperationPath is the id of an operation's status ("operationStatuses") or
// result ("operationResults"): below the plane and the namespace of the
// resource's type.
func OperationPath(resource core.ID, kind, operation string) string {
	plane := core.ID{Plane: resource.Plane}
	namespace := resource.Provider
	if namespace == "" {
		namespace = "System.Resources"
	}
	return plane.String() + "/providers/" + namespace + "/locations/global/" + kind + "/" + operation
}

// SetAsync sets the headers by which a client follows an operation.
func SetAsync(w http.ResponseWriter, r *Request, resource core.ID, operation string) {
	version := "?api-version=" + url.QueryEscape(r.APIVersion)
	h := w.Header()
	h.Set("Azure-AsyncOperation", r.URLOf(OperationPath(resource, "operationStatuses", operation))+version)
	h.Set("Location", r.URLOf(OperationPath(resource, "operationResults", operation))+version)
	h.Set("Retry-After", "1")
}

// OperationStatus is an operation on the wire.
func OperationStatus(op core.Operation) wire.OperationStatus {
	s := wire.OperationStatus{
		ID:        OperationPath(op.ResourceID, "operationStatuses", op.ID),
		Name:      op.ID,
		Status:    string(op.State),
		StartTime: op.Created.UTC(),
		Error:     ErrorOf(op.Error),
	}
	if op.State.Terminal() {
		end := op.Ended.UTC()
		s.EndTime = &end
	}
	return s
}

// ErrorOf is an error on the wire, nil for nil.
func ErrorOf(e *core.Error) *wire.Error {
	if e == nil {
		return nil
	}
	out := &wire.Error{Code: string(e.Code), Message: e.Message, Target: e.Target}
	for i := range e.Details {
		out.Details = append(out.Details, *ErrorOf(&e.Details[i]))
	}
	for _, info := range e.Info {
		raw, err := json.Marshal(info.Info)
		if err != nil {
			continue
		}
		out.AdditionalInfo = append(out.AdditionalInfo, wire.ErrorInfo{Type: info.Type, Info: raw})
	}
	return out
}

// The size of a page: what is asked for by `top`, at most MaxTop.
const MaxTop = 1000

// PageOf is what a list request asks for.
type PageOf struct {
	Limit int
	After string
}

// Page reads `top` (1 to MaxTop, which is also the default) and `skipToken`.
func (r *Request) Page() (PageOf, error) {
	p := PageOf{Limit: MaxTop}
	if top := r.Query("top"); top != "" {
		n, err := strconv.Atoi(top)
		if err != nil || n < 1 || n > MaxTop {
			return p, core.Errorf(core.CodeBadRequest, "top is %q: it must be a number from 1 to %d", top, MaxTop)
		}
		p.Limit = n
	}
	if token := r.Query("skipToken"); token != "" {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || len(raw) <= tokenSum || !bytes.Equal(raw[:tokenSum], r.tokenSum(string(raw[tokenSum:]))) {
			return p, core.Errorf(core.CodeBadRequest, "the skipToken is none that this server gave for this list: take it from nextLink unchanged, with the rest of the link").WithTarget("skipToken")
		}
		p.After = string(raw[tokenSum:])
	}
	return p, nil
}

// tokenSum is the length of the sum in front of a skipToken, in bytes.
const tokenSum = 8

// tokenSum ties a place in a list to that list: its path and what narrows it. It
// keeps no secret and guards none (every page is asked for on its own authority);
// it tells a token that was cut, changed or moved to another list from one that
// was given, so that no page is silently left out. Any replica can check it.
func (r *Request) tokenSum(after string) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00", strings.ToLower(strings.Join(r.Segments, "/")))
	q := query(r.Request)
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch name := strings.ToLower(name); name {
		case "top", "skiptoken", "api-version":
		default:
			fmt.Fprintf(h, "%s=%s\x00", name, strings.ToLower(q.Get(name)))
		}
	}
	h.Write([]byte("\x00" + after))
	return h.Sum(nil)[:tokenSum]
}

// NextLink is the URL of the page after the one that r asked for, "" on the last.
func (r *Request) NextLink(next string) string {
	if next == "" {
		return ""
	}
	q := query(r.Request)
	q.Del("skiptoken")
	q.Set("skipToken", base64.RawURLEncoding.EncodeToString(append(r.tokenSum(next), next...)))
	path := ""
	for _, s := range r.Segments {
		path += "/" + url.PathEscape(s)
	}
	return r.URLOf(path) + "?" + q.Encode()
}
