package extensionsdk

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// HTTPOptions are settings of [HTTP].
type HTTPOptions struct {
	// Token, where it is set, answers the bearer token that callers must show.
	// It is asked for each request, so that the token can be renewed.
	Token func() (string, error)
}

// HTTP serves an extension over contract v2. The version in the paths is the
// caller's wish; an extension of several versions puts each behind a handler of
// its own.
func HTTP(x Extension, o HTTPOptions) http.Handler {
	s := &httpServer{x: x, token: o.Token}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{version}/resource/preview", serve(s, func(ctx context.Context, r Specification) (int, any, error) {
		answer, err := x.Preview(ctx, r)
		return http.StatusOK, whole(&answer), err
	}))
	mux.HandleFunc("POST /{version}/resource/createOrUpdate", serve(s, func(ctx context.Context, r Specification) (int, any, error) {
		answer, err := x.CreateOrUpdate(ctx, r)
		if err != nil {
			return 0, nil, err
		}
		return answered(answer)
	}))
	mux.HandleFunc("POST /{version}/resource/get", serve(s, func(ctx context.Context, r Reference) (int, any, error) {
		answer, err := x.Get(ctx, r)
		return http.StatusOK, whole(&answer), err
	}))
	mux.HandleFunc("POST /{version}/resource/delete", serve(s, func(ctx context.Context, r Reference) (int, any, error) {
		answer, err := x.Delete(ctx, r)
		switch {
		case isNotFound(err), err == nil && answer.Resource == nil && answer.Operation == nil:
			return http.StatusNoContent, nil, nil
		case err != nil:
			return 0, nil, err
		}
		return answered(answer)
	}))
	if f, ok := x.(Follower); ok {
		mux.HandleFunc("POST /{version}/longRunningOperation/get", serve(s, func(ctx context.Context, handle map[string]any) (int, any, error) {
			operation, err := f.Follow(ctx, handle)
			return http.StatusOK, operation, err
		}))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	return mux
}

type httpServer struct {
	x     Extension
	token func() (string, error)
}

func answered(a Answer) (int, any, error) {
	switch {
	case a.Operation != nil:
		return http.StatusAccepted, a.Operation, nil
	case a.Resource != nil:
		return http.StatusOK, whole(a.Resource), nil
	}
	return 0, nil, Errorf("InternalError", "the extension answered neither a resource nor an operation")
}

// whole has the members that the contract requires.
func whole(r *Resource) *Resource {
	r.Identifiers, r.Properties = object(r.Identifiers), object(r.Properties)
	return r
}

func isNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == CodeNotFound
}

// serve is one route: from a request's body to an answer or an error.
func serve[T any](s *httpServer, call func(context.Context, T) (int, any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.allow(r); err != nil {
			fail(w, err)
			return
		}
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
		if err != nil {
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				fail(w, &Error{Code: "RequestTooLarge", Message: "the request has more than 4 MB", HTTPStatus: http.StatusRequestEntityTooLarge})
			}
			return // the caller is gone
		}
		var request T
		if err := Unmarshal(raw, &request); err != nil {
			fail(w, Errorf(CodeInvalid, "the request is not what the contract says: %v", err))
			return
		}
		status, answer, err := call(r.Context(), request)
		if err != nil {
			fail(w, err)
			return
		}
		reply(w, status, answer)
	}
}

func (s *httpServer) allow(r *http.Request) error {
	if s.token == nil {
		return nil
	}
	want, err := s.token()
	if err != nil {
		return &Error{Code: "InternalError", Message: "the token to compare with cannot be read", HTTPStatus: http.StatusInternalServerError}
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	if !ok || want == "" || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
		return &Error{Code: "Unauthorized", Message: "the bearer token is missing or wrong", HTTPStatus: http.StatusUnauthorized}
	}
	return nil
}

func fail(w http.ResponseWriter, err error) {
	e := asError(err)
	status := e.HTTPStatus
	if status == 0 {
		switch e.Code {
		case CodeNotFound:
			status = http.StatusNotFound
		case "InternalError":
			status = http.StatusInternalServerError
		case CodeConfigMismatch, CodePreviewNotSupported:
			status = http.StatusUnprocessableEntity
		default:
			status = http.StatusBadRequest
		}
	}
	reply(w, status, map[string]any{"error": e})
}

func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: "InternalError", Message: err.Error()}
}

func reply(w http.ResponseWriter, status int, answer any) {
	if r, ok := answer.(*Resource); ok && r.RetryAfterSeconds != nil {
		w.Header().Set("Retry-After", strconv.Itoa(*r.RetryAfterSeconds))
	}
	if answer == nil {
		w.WriteHeader(status)
		return
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, `{"error":{"code":"InternalError","message":"the answer is not JSON"}}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}
