package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/store"
)

const keysetsPath = "/planes/radius/local/providers/System.Resources/keysets"

// TestDefect12_RotationUnderLoad_D24: keysets are rotated twice through the API
// while clients write, patch and read secrets and recipes run: no request meets
// a value that does not open, and the old keys are destroyed.
func TestDefect12_RotationUnderLoad_D24(t *testing.T) {
	t.Parallel()
	d := &driver{execute: func(_ context.Context, run recipe.Run) (recipe.Result, error) {
		given, _ := run.Context.Resource.Properties["password"].(string)
		return recipe.Result{Definition: run.Definition, Secrets: map[string]any{"uri": "uri of " + given}}, nil
	}}
	a := start(t, Options{Recipes: engine(d), Keys: server.KeyOptions{Beat: 200 * time.Millisecond, Grace: 2 * time.Second}})
	for i := range 20 {
		a.succeed(a.want(a.send("PUT", inert(fmt.Sprint("still", i)), props(map[string]any{"password": fmt.Sprint("needle-still-", i)})), 201))
	}
	a.succeed(a.want(a.send("PUT", made("still"), props(map[string]any{"environment": envID, "password": "needle-made"})), 201))
	etag := a.want(a.send("GET", inert("still0"), nil), 200).header.Get("ETag")

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for c := range 3 {
		clients.Go(func() {
			a := &api{a.Instance, t}
			for n := 0; ctx.Err() == nil; n++ {
				name, value := fmt.Sprintf("busy%d-%d", c, n%5), fmt.Sprintf("needle-busy-%d-%d", c, n)
				at, uri := inert(name), false
				body := map[string]any{"password": value}
				if n%3 == 0 {
					at, uri = made(name), true
					body["environment"] = envID
				}
				put, err := a.try("PUT", at, props(body))
				if err != nil || put.status != 201 {
					t.Errorf("PUT answered %d %s, %v", put.status, put.raw, err)
					return
				}
				if end := a.await(put); end.body["status"] != "Succeeded" {
					t.Errorf("PUT ended as %s", end.raw)
					return
				}
				if n%4 == 0 && !uri {
					patch, err := a.try("PATCH", at, props(map[string]any{"size": "L"}))
					if err != nil || patch.status != 202 {
						t.Errorf("PATCH answered %d %s, %v", patch.status, patch.raw, err)
						return
					}
					a.await(patch)
				}
				path, query, _ := strings.Cut(at, "?")
				got, err := a.try("POST", path+"/listSecrets?"+query, `{}`)
				if err != nil || got.body["password"] != value || uri && got.body["uri"] != "uri of "+value {
					t.Errorf("listSecrets answered %d %s, %v; want %s", got.status, got.raw, err, value)
					return
				}
			}
		})
	}
	changed, stopChanged := a.Feed.Alert(store.ChangeKeysets, "")
	defer stopChanged()
	states := func() (out []string) {
		list, _ := a.want(a.send("GET", version(keysetsPath, ucp), nil), 200).body["versions"].([]any)
		for _, v := range list {
			out = append(out, v.(map[string]any)["state"].(string))
		}
		return out
	}
	deadline := time.After(2 * time.Minute)
	for n, want := range []string{"[Destroyed Primary]", "[Destroyed Destroyed Primary]"} {
		began := a.want(a.send("POST", version(keysetsPath+"/rotate", ucp), map[string]any{}), 202)
		if strings.Contains(began.raw, "wrapped") || len(began.body["versions"].([]any)) != n+2 {
			t.Errorf("rotate answered %s", began.raw)
		}
		for now := fmt.Sprint(states()); now != want && !t.Failed(); now = fmt.Sprint(states()) {
			select {
			case <-changed:
			case <-time.After(100 * time.Millisecond): // destruction tells nobody
			case <-deadline:
				t.Fatalf("the keysets are %s, want %s", now, want)
			}
		}
	}
	stop()
	clients.Wait()
	if t.Failed() {
		return
	}
	for i := range 20 {
		got := a.want(a.send("POST", version(group+"/providers/"+inertType+fmt.Sprint("/still", i)+"/listSecrets", testVersion), `{}`), 200)
		if got.body["password"] != fmt.Sprint("needle-still-", i) {
			t.Errorf("still%d answers %s", i, got.raw)
		}
	}
	got := a.want(a.send("POST", version(group+"/providers/"+madeType+"/still/listSecrets", testVersion), `{}`), 200)
	if got.body["uri"] != "uri of needle-made" {
		t.Errorf("the recipe's secret is %s", got.raw)
	}
	if now := a.want(a.send("GET", inert("still0"), nil), 200).header.Get("ETag"); now != etag {
		t.Errorf("the ETag has changed from %s to %s", etag, now)
	}
	a.want(a.send("PUT", version(keysetsPath, ucp), map[string]any{}), 405)
}
