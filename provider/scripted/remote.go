package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// Backend is an account, here or in another process.
type Backend interface {
	Do(ctx context.Context, c Call) (Answer, error)
}

// wire is an answer or an error.
type wire struct {
	Answer Answer
	Phase  v1alpha1.Phase `json:",omitempty"`
	Moved  bool           `json:",omitempty"`
	Fault  string         `json:",omitempty"`
}

// ServeHTTP serves the account: POST /call, GET /records.
func (a *Account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /records":
		reply(a.Records())
	case "POST /call":
		var c Call
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&c); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := a.Do(r.Context(), c)
		out := wire{Answer: answer}
		switch {
		case errors.Is(err, ErrLost):
			panic(http.ErrAbortHandler)
		case errors.Is(err, provider.ErrMoved):
			out.Moved = true
		case err != nil:
			out.Fault, out.Phase = err.Error(), provider.PhaseOf(err)
		}
		reply(out)
	default:
		http.NotFound(w, r)
	}
}

// Remote is an account that another process serves on loopback.
type Remote struct {
	url    string
	client *http.Client
}

// NewRemote refuses an address that is not loopback: a scripted provider reaches
// no cloud (C-133).
func NewRemote(base string) (*Remote, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" {
		return nil, fmt.Errorf("account %q is no http URL", base)
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("account %q is not on loopback; a scripted provider reaches nothing else", base)
	}
	return &Remote{url: base + "/call", client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}, nil
}

// Do carries out a call.
func (r *Remote) Do(ctx context.Context, c Call) (Answer, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return Answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	var w wire
	if err := json.NewDecoder(res.Body).Decode(&w); err != nil {
		return Answer{}, err
	}
	switch {
	case w.Moved:
		return Answer{}, provider.ErrMoved
	case w.Phase == v1alpha1.PhaseWaiting:
		return Answer{}, provider.Waiting("%s", w.Fault)
	case w.Phase == v1alpha1.PhaseFailed:
		return Answer{}, provider.Refused("%s", w.Fault)
	case w.Fault != "":
		return Answer{}, errors.New(w.Fault)
	}
	return w.Answer, nil
}
