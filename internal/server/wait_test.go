package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/recipe"
)

func TestLongPoll_D21(t *testing.T) {
	t.Parallel()
	t.Run("D-21 the answer is held until the operation ends", func(t *testing.T) {
		running, release := make(chan struct{}), make(chan struct{})
		d := &driver{execute: func(ctx context.Context, run recipe.Run) (recipe.Result, error) {
			close(running)
			<-release
			return recipe.Result{Definition: run.Definition}, nil
		}}
		a := start(t, Options{Recipes: engine(d)})
		started := a.want(a.send("PUT", made("a"), props(map[string]any{"environment": envID})), 201)
		within(t, "the recipe", 10*time.Second, running)
		now := a.want(a.send("GET", started.header.Get("Azure-AsyncOperation"), nil), 200)
		if now.body["status"] != "Updating" || now.header.Get("Retry-After") != "1" || now.body["endTime"] != nil {
			t.Errorf("without Prefer it answered %s", now.raw)
		}
		held := make(chan answer, 1)
		go func() {
			got, err := a.try("GET", started.header.Get("Azure-AsyncOperation"), nil, "Prefer", "respond-async, wait=30")
			if err != nil {
				t.Error(err)
			}
			held <- got
		}()
		select {
		case got := <-held:
			t.Fatalf("it was not held: %s", got.raw)
		case <-time.After(100 * time.Millisecond): // it is being held
		}
		close(release)
		select {
		case got := <-held:
			if got.body["status"] != "Succeeded" || got.header.Get("Preference-Applied") != "wait=30" || got.body["endTime"] == nil {
				t.Errorf("it ended with %v %s", got.header, got.raw)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("it was held after the end")
		}
		if got := a.want(a.send("GET", made("a"), nil), 200); got.prop("provisioningState") != "Succeeded" {
			t.Errorf("the waiter was told before the resource was: %s", got.raw)
		}
	})
	t.Run("D-21 the answer is given when the time is over", func(t *testing.T) {
		a := start(t, Options{NoWorkers: true})
		started := a.want(a.send("PUT", inert("a"), props(map[string]any{})), 201)
		begun := time.Now()
		got := a.want(a.send("GET", started.header.Get("Azure-AsyncOperation"), nil, "Prefer", "wait=1"), 200)
		if took := time.Since(begun); took < 900*time.Millisecond || got.body["status"] != "Accepted" {
			t.Errorf("after %s it answered %s", took, got.raw)
		}
	})
	t.Run("D-21 a shutdown gives the answer at once", func(t *testing.T) {
		a := start(t, Options{NoWorkers: true})
		started := a.want(a.send("PUT", inert("a"), props(map[string]any{})), 201)
		held := make(chan answer, 1)
		go func() {
			got, _ := a.try("GET", started.header.Get("Azure-AsyncOperation"), nil, "Prefer", "wait=60")
			held <- got
		}()
		time.Sleep(50 * time.Millisecond) // whether it is held yet or not, the answer must come
		a.Server.Stop()
		select {
		case got := <-held:
			if got.status != 200 || got.body["status"] != "Accepted" {
				t.Errorf("answered %d %s", got.status, got.raw)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("it was held through the shutdown")
		}
	})
	t.Run("an unknown operation is not found", func(t *testing.T) {
		a := start(t, Options{})
		path := "/planes/radius/local/providers/Test.Things/locations/global/operationStatuses/7b0d8bb2-0000-0000-0000-000000000000"
		if got := a.want(a.send("GET", path, nil, "Prefer", "wait=5"), 404); got.code() != "NotFound" {
			t.Errorf("answered %s", got.raw)
		}
	})
}

// stream reads the change stream line by line.
func stream(t *testing.T, url string) (<-chan wire.Change, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	lines := make(chan wire.Change, 100)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			var c wire.Change
			if json.Unmarshal(sc.Bytes(), &c) != nil {
				return
			}
			lines <- c
		}
	}()
	return lines, cancel
}

func next(t *testing.T, lines <-chan wire.Change, what string, is func(wire.Change) bool) wire.Change {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		select {
		case c, ok := <-lines:
			if !ok {
				t.Fatalf("the stream ended before %s", what)
			}
			if is(c) {
				return c
			}
		case <-timeout:
			t.Fatalf("no %s within 10 s", what)
		}
	}
}

func TestWatch_D21(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	lines, cancel := stream(t, a.URL+"/apis/api.ucp.dev/v1alpha3/watch/changes")
	if first := next(t, lines, "the first line", func(wire.Change) bool { return true }); !first.Reset {
		t.Fatalf("the stream begins with %+v", first)
	}
	a.succeed(a.want(a.send("PUT", inert("a"), props(map[string]any{"password": "needle-in-the-stream"})), 201))
	id := group + "/providers/Test.Things/inert/a"
	accepted := next(t, lines, "the change of the write", func(c wire.Change) bool { return c.ID == id })
	if accepted.State != "Accepted" || accepted.Operation == "" {
		t.Errorf("the write came as %+v", accepted)
	}
	ended := next(t, lines, "the end of the operation", func(c wire.Change) bool { return c.Operation == accepted.Operation && c.State == "Succeeded" })
	if ended.Seq <= accepted.Seq {
		t.Errorf("seq went from %d to %d", accepted.Seq, ended.Seq)
	}
	cancel()
	a.succeed(a.want(a.send("DELETE", inert("a"), nil), 202))

	// Taken up after the end of the write, it tells what came since and no more.
	again, _ := stream(t, version(a.URL+"/watch/changes?since="+mustJSON(ended.Seq), ucp))
	first := next(t, again, "the first line", func(wire.Change) bool { return true })
	if first.Reset || first.Seq != ended.Seq {
		t.Errorf("it was taken up with %+v", first)
	}
	next(t, again, "the deletion", func(c wire.Change) bool {
		if c.Operation == accepted.Operation {
			t.Errorf("told again: %+v", c)
		}
		return c.ID == id && c.Deleted
	})
	if got := a.want(a.send("GET", "/watch/changes?since=yesterday", nil), 400); got.code() != "BadRequest" {
		t.Errorf("a bad since answered %s", got.raw)
	}
}

func TestLoopback_D48(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	host := strings.TrimPrefix(a.URL, "http://")
	_, port, _ := strings.Cut(host, ":")
	for name, c := range map[string]struct {
		header []string
		status int
	}{
		"its own address":                {nil, 200},
		"localhost":                      {[]string{"Host", "localhost:" + port}, 200},
		"IPv6 loopback":                  {[]string{"Host", "[::1]:" + port}, 200},
		"a name that resolves to it":     {[]string{"Host", "evil.example:" + port}, 403},
		"a name that begins like it":     {[]string{"Host", "localhost.evil.example"}, 403},
		"another address":                {[]string{"Host", "10.0.0.1"}, 403},
		"its own page":                   {[]string{"Origin", a.URL}, 200},
		"a page of another site":         {[]string{"Origin", "https://evil.example"}, 403},
		"a page of another port":         {[]string{"Origin", "http://127.0.0.1:1"}, 403},
		"a page of nowhere":              {[]string{"Origin", "null"}, 403},
		"an image of another site":       {[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"what the user typed themselves": {[]string{"Sec-Fetch-Site", "none"}, 200},
	} {
		t.Run("D-48 "+name, func(t *testing.T) {
			a := &api{a.Instance, t}
			got := a.want(a.send("GET", version(group, ucp), nil, c.header...), c.status)
			if c.status == 403 && got.code() != "AuthorizationFailed" {
				t.Errorf("answered %s", got.raw)
			}
			// A write is refused before anything happens.
			if c.status == 403 {
				a.want(a.send("PUT", inert("evil"), props(map[string]any{}), c.header...), 403)
				a.want(a.send("GET", inert("evil"), nil), 404)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	a.want(a.send("GET", "/healthz", nil), 200)
	a.want(a.send("GET", "/readyz", nil), 200)
	if got := a.want(a.send("GET", "/version", nil), 200); got.body["version"] != core.Version {
		t.Errorf("answered %s", got.raw)
	}
	if err := a.Store.Close(); err != nil {
		t.Fatal(err)
	}
	a.want(a.send("GET", "/healthz", nil), 200)
	if got := a.want(a.send("GET", "/readyz", nil), 503); got.code() != "ServiceUnavailable" {
		t.Errorf("without its store it answered %s", got.raw)
	}
	if got := a.want(a.send("GET", inert("a"), nil), 503); got.code() != "ServiceUnavailable" {
		t.Errorf("a read without its store answered %s", got.raw)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	names := []string{"a", "A_b", "a%25b", "b", "c", "d-e", "zz"}
	for _, n := range names {
		a.succeed(a.want(a.send("PUT", inert(n), props(map[string]any{})), 201))
	}
	seen := map[string]int{}
	for link := version(group+"/providers/"+inertType+"?top=2", testVersion); link != ""; {
		got := a.want(a.send("GET", link, nil), 200)
		for _, r := range got.body["value"].([]any) {
			seen[dig(r, "name").(string)]++
		}
		link, _ = got.body["nextLink"].(string)
	}
	if len(seen) != len(names) || seen["a%b"] != 1 {
		t.Errorf("the pages held %v", seen)
	}
	for _, top := range []string{"0", "-1", "many", "100000"} {
		a.want(a.send("GET", version(group+"/providers/"+inertType+"?top="+top, testVersion), nil), 400)
	}
	if got := a.want(a.send("GET", version(group+"/resources", ucp), nil), 200); len(got.body["value"].([]any)) != len(names)+1 {
		t.Errorf("the group holds %s", got.raw)
	}
	if got := a.want(a.send("DELETE", version(group, ucp), nil), 409); !strings.Contains(got.message(), "/inert/") {
		t.Errorf("deleting a group that is not empty answered %s", got.raw)
	}
}

// A browser reads the same changes as server-sent events, and takes them up
// where it was cut off.
func TestEvents_D21(t *testing.T) {
	t.Parallel()
	a := start(t, Options{})
	events := func(last string) *bufio.Scanner {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		t.Cleanup(cancel)
		r, err := http.NewRequestWithContext(ctx, "GET", a.URL+"/watch/changes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Last-Event-ID", last)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		return bufio.NewScanner(resp.Body)
	}
	// event reads one event whole.
	event := func(sc *bufio.Scanner) (id string, c wire.Change) {
		t.Helper()
		for sc.Scan() {
			line := sc.Text()
			switch {
			case line == "":
				return id, c
			case strings.HasPrefix(line, "id: "):
				id = line[4:]
			case strings.HasPrefix(line, "data: "):
				if err := json.Unmarshal([]byte(line[6:]), &c); err != nil {
					t.Fatal(err)
				}
			default:
				t.Fatalf("line %q is of no event", line)
			}
		}
		t.Fatal("the stream ended")
		return "", c
	}
	first := events("")
	id, c := event(first)
	if !c.Reset {
		t.Fatalf("the stream begins with %+v", c)
	}
	a.succeed(a.want(a.send("PUT", inert("a"), props(map[string]any{})), 201))
	for c.State != "Succeeded" || !strings.HasSuffix(c.ID, "/a") {
		id, c = event(first)
		if id != strconv.FormatInt(c.Seq, 10) {
			t.Errorf("event %s holds the change %d", id, c.Seq)
		}
	}
	a.succeed(a.want(a.send("PUT", inert("b"), props(map[string]any{})), 201))
	again := events(id)
	for range 2 {
		if _, c = event(again); c.Reset {
			t.Fatal("D-21: a stream that is taken up begins anew")
		}
	}
	if !strings.HasSuffix(c.ID, "/b") {
		t.Errorf("D-21: after the first stream comes %+v", c)
	}
}
