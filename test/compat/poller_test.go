package compat

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/servertest"
)

// resource is the model of a generated client.
type resource struct {
	ID         string         `json:"id"`
	Properties map[string]any `json:"properties"`
}

// sdk is a client as the SDK generates them: a pipeline with its default
// policies, and operations begun by a request.
type sdk struct {
	t        *testing.T
	pipeline runtime.Pipeline
	base     string
	mu       sync.Mutex
	sent     []time.Time // when each GET of a poll was sent
}

func newSDK(t *testing.T, p *servertest.Plane) *sdk {
	c := &sdk{t: t, base: p.URL}
	watch := observer(func(r *policy.Request) {
		if r.Raw().Method == http.MethodGet {
			c.mu.Lock()
			c.sent = append(c.sent, time.Now())
			c.mu.Unlock()
		}
	})
	c.pipeline = runtime.NewPipeline("compat", "v1.0.0", runtime.PipelineOptions{PerRetry: []policy.Policy{watch}},
		&policy.ClientOptions{Transport: p.Client()})
	return c
}

type observer func(*policy.Request)

func (o observer) Do(r *policy.Request) (*http.Response, error) {
	o(r)
	return r.Next()
}

func (c *sdk) polls() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]time.Time(nil), c.sent...)
}

// begin sends a request and makes its poller, as Begin… of a generated client
// does. without drops a header of the answer.
func (c *sdk) begin(ctx context.Context, method, target string, body any, options *runtime.NewPollerOptions[resource], without ...string) *runtime.Poller[resource] {
	c.t.Helper()
	req, err := runtime.NewRequest(ctx, method, c.base+target)
	if err != nil {
		c.t.Fatal(err)
	}
	if body != nil {
		if err := runtime.MarshalAsJSON(req, body); err != nil {
			c.t.Fatal(err)
		}
	}
	res, err := c.pipeline.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, h := range without {
		res.Header.Del(h)
	}
	if !runtime.HasStatusCode(res, 200, 201, 202, 204) {
		c.t.Fatalf("%s %s: %v", method, target, runtime.NewResponseError(res))
	}
	poller, err := runtime.NewPoller(res, c.pipeline, options)
	if err != nil {
		c.t.Fatal(err)
	}
	return poller
}

const cacheID = "/planes/radius/local/resourceGroups/default/providers/Applications.Datastores/redisCaches/cache"

func cacheBody() map[string]any {
	return map[string]any{"location": "global", "properties": map[string]any{"environment": servertest.EnvironmentID("default")}}
}

// held makes recipes wait until release is called, and tells when one began.
func held(p *servertest.Plane, result error) (begun chan string, release func()) {
	begun, gate := make(chan string, 16), make(chan struct{})
	var once sync.Once
	wait := func(ctx context.Context, r recipe.Request) error {
		begun <- r.Resource.ID.String()
		select {
		case <-gate:
			return result
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.Recipes.OnExecute(func(ctx context.Context, r recipe.Request) (recipe.Result, error) {
		return servertest.Result(), wait(ctx, r)
	})
	p.Recipes.OnDelete(wait)
	return begun, func() { once.Do(func() { close(gate) }) }
}

// TestSDKPoller_D10: the pollers that the Azure SDK generates wait for our
// operations, over HTTP and over TLS.
func TestSDKPoller_D10(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *servertest.Plane{"HTTP": servertest.Start, "TLS": servertest.StartTLS} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := start(t)
			c := newSDK(t, p)
			if name == "TLS" && !strings.HasPrefix(p.URL, "https://") {
				t.Fatalf("the plane serves %s", p.URL)
			}

			t.Run("D-10 create waits for the end and reads the result", func(t *testing.T) {
				begun, release := held(p, nil)
				defer release()
				poller := c.begin(ctx, "PUT", cacheID+ucpVersion, cacheBody(), nil)
				<-begun
				if _, err := poller.Poll(ctx); err != nil || poller.Done() {
					t.Fatalf("a running operation: done %v, %v", poller.Done(), err)
				}
				if _, err := poller.Result(ctx); err == nil {
					t.Error("a running operation has a result")
				}
				release()
				got, err := poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second})
				if err != nil || !strings.EqualFold(got.ID, cacheID) || got.Properties["host"] != "redis.example" || got.Properties["provisioningState"] != "Succeeded" {
					t.Fatalf("%v, %v", got, err)
				}
			})
			t.Run("D-10 update is 201 too", func(t *testing.T) {
				p.Recipes.OnExecute(nil)
				got, err := c.begin(ctx, "PUT", cacheID+ucpVersion, cacheBody(), nil).PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second})
				if err != nil || got.Properties["provisioningState"] != "Succeeded" {
					t.Fatalf("%v, %v", got, err)
				}
			})
			t.Run("D-10 PATCH reads the resource at its end", func(t *testing.T) {
				got, err := c.begin(ctx, "PATCH", cacheID+ucpVersion, map[string]any{"tags": map[string]string{"a": "b"}}, nil).
					PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second})
				if err != nil || !strings.EqualFold(got.ID, cacheID) {
					t.Fatalf("%v, %v", got, err)
				}
			})
			t.Run("D-10 a failed operation is an error with the code", func(t *testing.T) {
				begun, release := held(p, errors.New("the recipe could not"))
				release()
				id := cacheID + "-failing"
				_, err := c.begin(ctx, "PUT", id+ucpVersion, cacheBody(), nil).PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second})
				<-begun
				var response *azcore.ResponseError
				if !errors.As(err, &response) || response.ErrorCode == "" {
					t.Fatalf("%v", err)
				}
			})
			t.Run("D-10 DELETE by Azure-AsyncOperation, by Location, and of nothing", func(t *testing.T) {
				p.Recipes.OnExecute(nil)
				p.Recipes.OnDelete(nil)
				for _, without := range [][]string{{"Location"}, {"Azure-AsyncOperation"}} {
					if _, err := c.begin(ctx, "PUT", cacheID+ucpVersion, cacheBody(), nil).PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second}); err != nil {
						t.Fatal(err)
					}
					if _, err := c.begin(ctx, "DELETE", cacheID+ucpVersion, nil, nil, without...).PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second}); err != nil {
						t.Fatalf("without %v: %v", without, err)
					}
				}
				poller := c.begin(ctx, "DELETE", cacheID+ucpVersion, nil, nil)
				if _, err := poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second}); err != nil {
					t.Fatalf("DELETE of nothing: %v", err)
				}
			})
			t.Run("D-10 a synchronous type is done at once", func(t *testing.T) {
				body := map[string]any{"location": "global", "properties": map[string]any{"environment": servertest.EnvironmentID("default")}}
				poller := c.begin(ctx, "PUT", "/planes/radius/local/resourceGroups/default/providers/Applications.Core/applications/shop"+ucpVersion, body, nil)
				if !poller.Done() {
					t.Fatal("it is not done")
				}
				if got, err := poller.Result(ctx); err != nil || got.Properties["provisioningState"] != "Succeeded" {
					t.Fatalf("%v, %v", got, err)
				}
			})
		})
	}
}

// TestSDKPollerKeepsToRetryAfter_D10: a poller that would wait half a minute
// asks again after the second that Retry-After names.
func TestSDKPollerKeepsToRetryAfter_D10(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	p := servertest.Start(t)
	c := newSDK(t, p)
	begun, release := held(p, nil)
	defer release()
	poller := c.begin(ctx, "PUT", cacheID+ucpVersion, cacheBody(), nil)
	<-begun
	done := make(chan error, 1)
	go func() {
		_, err := poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: 30 * time.Second})
		done <- err
	}()
	for len(c.polls()) < 2 { // a first poll, and one after Retry-After
		select {
		case err := <-done:
			t.Fatalf("D-10: the poller ended before the operation: %v", err)
		case <-ctx.Done():
			t.Fatalf("D-10: %d polls in 25 s: the poller does not keep to Retry-After: 1", len(c.polls()))
		case <-time.After(20 * time.Millisecond):
		}
	}
	polls := c.polls()
	if gap := polls[1].Sub(polls[0]); gap < 900*time.Millisecond || gap > 10*time.Second {
		t.Errorf("D-10: polls are %s apart, Retry-After says 1 s", gap)
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestSDKPollerResumes_D10: the token of a poller continues it in another
// process, also when the server was away in between.
func TestSDKPollerResumes_D10(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := servertest.Start(t)
	begun, release := held(p, nil)
	first := newSDK(t, p).begin(ctx, "PUT", cacheID+ucpVersion, cacheBody(), nil)
	<-begun
	token, err := first.ResumeToken()
	if err != nil {
		t.Fatal(err)
	}
	var inToken any
	if err := json.Unmarshal([]byte(token), &inToken); err != nil || strings.Contains(token, "hunter2") {
		t.Fatalf("the token %s: %v", token, err)
	}
	p.Stop()
	p.Recipes.OnExecute(nil)
	p.Start()
	release()
	second := newSDK(t, p)
	poller, err := runtime.NewPollerFromResumeToken[resource](token, second.pipeline, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second})
	if err != nil || !strings.EqualFold(got.ID, cacheID) || got.Properties["provisioningState"] != "Succeeded" {
		t.Fatalf("D-10: %v, %v", got, err)
	}
	if _, err := poller.ResumeToken(); err == nil {
		t.Error("an ended poller still gives a token")
	}
	gone := strings.Replace(token, "operationStatuses/", "operationStatuses/0", 1)
	if lost, err := runtime.NewPollerFromResumeToken[resource](gone, second.pipeline, nil); err == nil {
		_, err = lost.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second})
		var response *azcore.ResponseError
		if !errors.As(err, &response) || response.StatusCode != http.StatusNotFound {
			t.Errorf("D-10: an operation that is not there: %v", err)
		}
	}
}
