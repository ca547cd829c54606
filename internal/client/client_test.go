package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/servertest"
)

var redis = core.GroupID("default").Resource("Applications.Datastores/redisCaches", "db")

func body() arm.Resource {
	return arm.Resource{Location: "global", Properties: map[string]any{"environment": servertest.EnvironmentID("default")}}
}

// gated makes recipes wait; the returned function lets them go.
func gated(p *servertest.Plane) func() {
	gate := make(chan struct{})
	p.Recipes.OnExecute(func(ctx context.Context, _ recipe.Request) (recipe.Result, error) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return servertest.Result(), nil
	})
	return func() { close(gate) }
}

func TestOperation_K27(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t)
	release := gated(p)
	c := client.New(p.URL, client.Options{})
	a, err := c.Put(t.Context(), redis, servertest.APIVersion, body())
	if err != nil || a.Token == "" || client.State(a.Resource) != core.StateAccepted {
		t.Fatalf("PUT = %+v, %v", a, err)
	}
	if done, err := c.Poll(t.Context(), a.Token); done || err != nil {
		t.Fatalf("Poll of a running operation = %v, %v", done, err)
	}

	// Another process, which knows the server by another address, resumes it.
	other := client.New(p.URL+"/apis/api.ucp.dev/v1alpha3", client.Options{})
	if done, err := other.Poll(t.Context(), a.Token); done || err != nil {
		t.Errorf("a resumed Poll = %v, %v", done, err)
	}
	ended := make(chan error, 1)
	polls := p.Requests("GET", "operationstatuses")
	go func() { ended <- other.Wait(context.Background(), a.Token) }()
	release()
	if err := <-ended; err != nil {
		t.Errorf("Wait = %v", err)
	}
	if n := p.Requests("GET", "operationstatuses") - polls; n > 2 {
		t.Errorf("Wait asked %d times; the long poll should answer at the end", n)
	}
	if done, err := c.Poll(t.Context(), a.Token); !done || err != nil {
		t.Errorf("Poll after the end = %v, %v", done, err)
	}

	d, err := c.Delete(t.Context(), redis, servertest.APIVersion, "")
	if err != nil || d.Token == "" || d.Missing {
		t.Fatalf("DELETE = %+v, %v", d, err)
	}
	if err := c.Wait(t.Context(), d.Token); err != nil {
		t.Errorf("Wait of a DELETE = %v", err)
	}
	if d, err := c.Delete(t.Context(), redis, servertest.APIVersion, ""); err != nil || !d.Missing {
		t.Errorf("a second DELETE = %+v, %v", d, err)
	}
}

func TestOperation_FailureIsTheOperations(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t)
	p.Recipes.OnExecute(func(context.Context, recipe.Request) (recipe.Result, error) {
		return recipe.Result{}, core.Errorf(core.CodeRecipeDeployment, "quota is used up")
	})
	c := client.New(p.URL, client.Options{})
	a, err := c.Put(t.Context(), redis, servertest.APIVersion, body())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(t.Context(), a.Token); !core.IsCode(err, core.CodeRecipeDeployment) || !strings.Contains(err.Error(), "quota") {
		t.Errorf("Wait = %v", err)
	}
	done, err := c.Poll(t.Context(), a.Token)
	if !done || !core.IsCode(err, core.CodeRecipeDeployment) {
		t.Errorf("Poll = %v, %v; a failed operation is done, and has its error", done, err)
	}
}

// A resume token lies in a status that users may edit: it must not send the
// controller anywhere but to its server.
func TestPoll_GoesNowhereElse(t *testing.T) {
	t.Parallel()
	var stray atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stray.Add(1) }))
	defer elsewhere.Close()
	p := servertest.Start(t)
	release := gated(p)
	defer release()
	c := client.New(p.URL, client.Options{})
	a, err := c.Put(t.Context(), redis, servertest.APIVersion, body())
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.ReplaceAll(a.Token, p.URL, elsewhere.URL)
	if forged == a.Token {
		t.Fatalf("the token has no URL to forge: %s", a.Token)
	}
	if done, err := c.Poll(t.Context(), forged); done || err != nil {
		t.Errorf("Poll of a token that names another host = %v, %v; want this server's answer", done, err)
	}
	if n := stray.Load(); n != 0 {
		t.Errorf("%d requests went to a host that a token named", n)
	}
	status := regexp.MustCompile(`/planes/[^"?]+/operation(Statuses|Results)/[^"?]+`)
	stream := status.ReplaceAllString(a.Token, "/watch/changes")
	if stream == a.Token {
		t.Fatalf("the token has no path to forge: %s", a.Token)
	}
	for _, broken := range []string{"", "{", `{"type":"x"}`, `{"type":"Resource","token":{}}`, stream} {
		if done, err := c.Poll(t.Context(), broken); done || !core.IsCode(err, core.CodeBadRequest) {
			t.Errorf("Poll(%q) = %v, %v; want BadRequest", broken, done, err)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t)
	c := client.New(p.URL, client.Options{})
	if _, _, err := c.Get(t.Context(), redis, servertest.APIVersion); !core.IsCode(err, core.CodeNotFound) {
		t.Errorf("Get of nothing = %v", err)
	}
	if _, _, err := c.Get(t.Context(), redis, "1999-01-01"); !core.IsCode(err, core.CodeInvalidAPIVersion) {
		t.Errorf("Get in an unknown version = %v", err)
	}
	_, err := c.Put(t.Context(), redis, servertest.APIVersion, arm.Resource{Properties: map[string]any{"environment": servertest.EnvironmentID("default"), "port": "x"}})
	var e *core.Error
	if !errors.As(err, &e) || e.Code.Status() != 400 {
		t.Errorf("an invalid PUT = %v", err)
	}

	p.Stop()
	_, _, err = c.Get(t.Context(), redis, servertest.APIVersion)
	if !core.IsCode(err, core.CodeUnavailable) || !strings.Contains(err.Error(), p.URL) || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("a server that is down = %v; it must name the URL and what to do", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.Get(ctx, redis, servertest.APIVersion); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled call = %v", err)
	}

	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	_, _, err = client.New(stranger.URL, client.Options{}).Get(t.Context(), redis, "v")
	if !core.IsCode(err, core.CodeNotFound) || !strings.Contains(err.Error(), "is it a Radial server") {
		t.Errorf("an answer of somebody else = %v", err)
	}
	if _, _, err := client.New("::nonsense", client.Options{}).Get(t.Context(), redis, "v"); err == nil {
		t.Error("a base URL that is none is accepted")
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-held }))
	defer slow.Close()
	defer close(held)
	c := client.New(slow.URL, client.Options{Timeout: 20 * time.Millisecond})
	if _, _, err := c.Get(context.Background(), redis, "v"); !core.IsCode(err, core.CodeUnavailable) {
		t.Errorf("a server that does not answer = %v, want ServiceUnavailable", err)
	}
}

func TestNameConflict_K49(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t)
	c := client.New(p.URL, client.Options{})
	put := func(uid string) error {
		b := arm.Put{Resource: body(), ImplicitParents: true}
		b.Owner = &arm.Owner{Cluster: "local", Namespace: "demo", Kind: "Recipe", Name: "db", UID: uid}
		a, err := c.Put(t.Context(), redis, servertest.APIVersion, b)
		if err != nil {
			return err
		}
		return c.Wait(t.Context(), a.Token)
	}
	if err := put("one"); err != nil {
		t.Fatal(err)
	}
	err := put("two")
	if owner, ok := client.Owner(err); !core.IsCode(err, core.CodeNameConflict) || !ok || owner.UID != "one" || owner.Namespace != "demo" {
		t.Errorf("a second owner's PUT = %v, owner %+v", err, owner)
	}
	if _, err := c.Delete(t.Context(), redis, servertest.APIVersion, "two"); !core.IsCode(err, core.CodeNameConflict) {
		t.Errorf("a second owner's DELETE = %v", err)
	}
	if _, ok := client.Owner(errors.New("x")); ok {
		t.Error("an owner was found in any error")
	}
}

func TestWatch_K32(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t)
	c := client.New(p.URL, client.Options{Random: func() float64 { return 1 }})
	changes := make(chan arm.Change, 1000)
	downs := make(chan error, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Watch(ctx, func(ch arm.Change) { changes <- ch }, client.WatchOptions{Down: func(err error) { downs <- err }})
	}()
	next := func(what string, is func(arm.Change) bool) {
		t.Helper()
		limit := time.NewTimer(20 * time.Second)
		defer limit.Stop()
		for {
			select {
			case ch := <-changes:
				if is(ch) {
					return
				}
			case <-limit.C:
				t.Fatalf("no %s came", what)
			}
		}
	}
	reset := func(ch arm.Change) bool { return ch.Reset }
	next("reset at the start", reset)
	if _, err := c.Put(t.Context(), redis, servertest.APIVersion, body()); err != nil {
		t.Fatal(err)
	}
	next("end of the operation", func(ch arm.Change) bool {
		return strings.EqualFold(ch.ID, redis.String()) && ch.State == string(core.StateSucceeded)
	})
	p.Stop()
	if err := <-downs; err == nil {
		t.Error("the stream broke off without a reason")
	}
	p.Start()
	next("reset after the outage", reset)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch ended with %v", err)
	}
}

func TestList_FollowsPages(t *testing.T) {
	t.Parallel()
	const prefix = "/apis/api.ucp.dev/v1alpha3"
	var srv *httptest.Server
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := r.URL.Query().Get("skipToken")
		l := arm.List{Value: []arm.Resource{{Name: "a" + page}}}
		if page == "" {
			l.NextLink = srv.URL + prefix + "/planes/x?api-version=v&skipToken=2"
		}
		if !strings.HasPrefix(r.URL.Path, prefix+"/planes/x") {
			t.Errorf("asked for %s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(l)
	}))
	defer srv.Close()
	got, err := client.New(srv.URL+prefix, client.Options{}).List(t.Context(), "/planes/x", "v")
	if err != nil || len(got) != 2 || got[1].Name != "a2" {
		t.Errorf("List = %v, %v", got, err)
	}
}

func TestType(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t)
	c := client.New(p.URL, client.Options{})
	for _, name := range []string{"Applications.Datastores/redisCaches", "applications.datastores/REDISCACHES", "Applications.Link/redisCaches"} {
		typ, err := c.Type(t.Context(), name)
		if err != nil || typ.APIVersion != servertest.APIVersion || typ.Inert || !typ.Declared["host"] {
			t.Errorf("Type(%s) = %+v, %v", name, typ, err)
		}
	}
	for name, says := range map[string]string{
		"Applications.Datastores/reddisCaches": "Applications.Datastores/redisCaches",
		"Nobody.Here/things":                   "radial resource-type list",
		"nonsense":                             "Namespace/type",
	} {
		if _, err := c.Type(t.Context(), name); !core.IsCode(err, core.CodeInvalidResourceType) || !strings.Contains(err.Error(), says) {
			t.Errorf("Type(%s) = %v; it should say %q", name, err, says)
		}
	}
}
