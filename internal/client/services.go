package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/internal/core"
)

// Plain asks one of the routes of organizations, projects and services, and reads
// the answer into out, when neither is nil.
func (c *Client) Plain(ctx context.Context, method, path string, query url.Values, body, out any) error {
	_, err := c.plain(ctx, method, path, query, nil, body, out)
	return err
}

func (c *Client) plain(ctx context.Context, method, path string, query url.Values, header http.Header, body, out any) (*answer, error) {
	a, err := c.call(ctx, method, path, query, header, body)
	if err != nil || out == nil || len(a.body) == 0 {
		return a, err
	}
	if json.Unmarshal(a.body, out) != nil {
		return a, core.Errorf(core.CodeInternal, "the answer to %s %s cannot be read: its JSON has another shape than expected", method, path)
	}
	return a, nil
}

// held is how long one held question lasts, below the timeout of a call.
const held = 20 * time.Second

// FollowService tells how a service stands, now and whenever it has changed,
// until see returns true or an error. The server holds each question until there
// is something new.
func (c *Client) FollowService(ctx context.Context, project, name string, see func(json.RawMessage) (bool, error)) error {
	etag := ""
	for {
		header := http.Header{}
		if etag != "" {
			header.Set("If-None-Match", strconv.Quote(etag))
			header.Set("Prefer", "wait="+strconv.Itoa(int(held/time.Second)))
		}
		var now json.RawMessage
		bounded, cancel := context.WithTimeout(ctx, held+c.timeout)
		a, err := c.plain(bounded, http.MethodGet, "/services/"+project+"/"+name, nil, header, nil, &now)
		cancel()
		if err != nil {
			return err
		}
		if a.StatusCode == http.StatusNotModified {
			continue
		}
		etag = strings.Trim(a.Header.Get("ETag"), `"`)
		if done, err := see(now); done || err != nil {
			return err
		}
		if etag == "" {
			return core.Errorf(core.CodeInternal, "the answer of %s has no entity tag, so it cannot be followed; is a proxy between that drops it?", c.URL())
		}
	}
}

// decodeFlat reads an error of the plain routes; nil if there is none.
func decodeFlat(body []byte) *core.Error {
	var e struct {
		Error    string    `json:"error"`
		Code     core.Code `json:"code"`
		Target   string    `json:"target"`
		Problems []struct {
			Message string `json:"message"`
			Target  string `json:"target"`
		} `json:"problems"`
	}
	if json.Unmarshal(body, &e) != nil || e.Error == "" || e.Code == "" {
		return nil
	}
	out := &core.Error{Code: e.Code, Message: e.Error, Target: e.Target}
	for _, p := range e.Problems {
		out.Details = append(out.Details, core.Error{Code: e.Code, Message: p.Message, Target: p.Target})
	}
	return out
}
