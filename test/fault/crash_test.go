package fault

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/test/fault/plane"
)

// sampled is how many points of one write a plain run kills at.
const sampled = 3

// template makes three objects, each after the one before: a ConfigMap, a
// Secret, and a ConfigMap whose name tells which shape was asked for, so that
// a change of shape makes one and deletes one.
const template = `{
  "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
  "languageVersion": "2.0", "contentVersion": "1.0.0.0",
  "parameters": {"context": {"type": "object"}, "shape": {"type": "string", "defaultValue": "round"}},
  "imports": {"kubernetes": {"provider": "Kubernetes", "version": "1.0.0",
    "config": {"namespace": "[parameters('context').runtime.kubernetes.namespace]", "kubeConfig": ""}}},
  "variables": {"name": "[toLower(parameters('context').resource.name)]", "labels": {"fault-of": "[toLower(parameters('context').resource.name)]"}},
  "resources": {
    "one": {"import": "kubernetes", "type": "core/ConfigMap@v1", "properties": {
      "metadata": {"name": "[concat(variables('name'), '-one')]", "labels": "[variables('labels')]"}, "data": {"shape": "[parameters('shape')]"}}},
    "two": {"import": "kubernetes", "type": "core/Secret@v1", "dependsOn": ["one"], "properties": {
      "metadata": {"name": "[concat(variables('name'), '-two')]", "labels": "[variables('labels')]"}, "stringData": {"password": "hunter2"}}},
    "three": {"import": "kubernetes", "type": "core/ConfigMap@v1", "dependsOn": ["two"], "properties": {
      "metadata": {"name": "[concat(variables('name'), '-', parameters('shape'))]", "labels": "[variables('labels')]"}, "data": {"shape": "[parameters('shape')]"}}}
  },
  "outputs": {"result": {"type": "object", "value": {"values": {"host": "made.example"}, "secrets": {"token": "hunter3"}}}}
}`

// play is what is done to one resource before, during and after the crash.
type play struct {
	name string
	// path is of the type, without the resource's name.
	path string
	// before is the body that makes the resource first, "" for none.
	before string
	// method and body are the write that is killed.
	method, body string
	// after are the ends of the names of the objects that then exist.
	after []string
}

func made(n int, shape string) string {
	return fmt.Sprintf(`{"properties":{"n":%d,"password":"hunter1","environment":%q,"application":%q,"recipe":{"parameters":{"shape":%q}}}}`, n, plane.Env, plane.App, shape)
}

var (
	inertPlays = []play{
		{name: "PUT of an inert resource", path: plane.Inert, method: http.MethodPut, body: `{"properties":{"n":1}}`},
		{name: "second PUT of an inert resource", path: plane.Inert, before: `{"properties":{"n":1}}`, method: http.MethodPut, body: `{"properties":{"n":2}}`},
		{name: "DELETE of an inert resource", path: plane.Inert, before: `{"properties":{"n":1}}`, method: http.MethodDelete},
	}
	madePlays = []play{
		{name: "PUT that makes three objects", path: plane.Made, method: http.MethodPut, body: made(1, "round"), after: []string{"one", "round", "two"}},
		{name: "PUT that makes one object and drops one", path: plane.Made, before: made(1, "round"), method: http.MethodPut, body: made(2, "square"), after: []string{"one", "square", "two"}},
		{name: "DELETE of three objects", path: plane.Made, before: made(1, "round"), method: http.MethodDelete},
	}
)

// point is where the process dies.
type point struct {
	at   int
	mode plane.Mode
}

// TestCrash_D18 kills a whole control plane by SIGKILL before, during and after
// every write of its store that a PUT or a DELETE makes, starts another on what
// is left, and wants nothing stuck (every operation ends), nothing lost (what
// was answered is done; what was not can be asked for again) and nothing leaked
// (no object in the cluster that the store does not know at the moment of the
// crash, none after the resource is gone).
func TestCrash_D18(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			t.Run("inert", func(t *testing.T) {
				t.Parallel()
				b := &crashBench{rest: prepared(t, k.fresh(t), "", ""), replicas: k.replicas}
				b.run(t, inertPlays)
			})
			t.Run("recipe on Kubernetes", func(t *testing.T) {
				t.Parallel()
				c := clustertest.Start(t)
				client, err := kubernetes.NewForConfig(c.Config)
				if err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(t.TempDir(), "recipe.json")
				if err := os.WriteFile(file, []byte(template), 0o600); err != nil {
					t.Fatal(err)
				}
				b := &crashBench{client: client, namespace: c.Namespace(t, "fault"), replicas: k.replicas}
				h := k.fresh(t)
				h.config.Kubeconfig = c.Kubeconfig
				b.rest, b.kubeconfig = prepared(t, h, file, b.namespace), c.Kubeconfig
				b.run(t, madePlays)
			})
		})
	}
}

// crashBench holds what all points of one kind of store and type share.
type crashBench struct {
	rest                  home // a prepared store that is copied for every point
	replicas              bool
	client                kubernetes.Interface // nil when no cluster is touched
	namespace, kubeconfig string
}

func (b *crashBench) run(t *testing.T, plays []play) {
	rnd := random(t)
	for i, p := range plays {
		points := b.points(t, p, fmt.Sprintf("calm%d", i))
		if !all() {
			rnd.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
			points = points[:min(sampled, len(points))]
		}
		for _, at := range points {
			t.Run(fmt.Sprintf("%s, %s write %d", p.name, at.mode, at.at), func(t *testing.T) {
				b.crash(t, p, at, fmt.Sprintf("p%d-%d-%s", i, at.at, at.mode))
			})
		}
	}
}

func (b *crashBench) home(t *testing.T) home {
	h := b.rest.clone(t)
	h.config.Kubeconfig = b.kubeconfig
	// Where replicas share a store, a killed one's lease has to run out.
	h.config.Lease = time.Second
	return h
}

// points plays undisturbed and returns where it could have been killed.
func (b *crashBench) points(t *testing.T, p play, name string) []point {
	t.Helper()
	ctx := patient(t)
	process, client := launch(t, b.home(t).config)
	defer process.Kill()
	path := p.path + name + plane.Version
	if p.before != "" {
		if err := client.Do(ctx, http.MethodPut, path, p.before); err != nil {
			t.Fatal(err)
		}
	}
	if err := process.Arm(-1, plane.After); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(ctx, p.method, path, p.body); err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	writes, err := process.Writes()
	if err != nil {
		t.Fatal(err)
	}
	if len(writes) < 3 {
		t.Fatalf("%s writes only %v", p.name, writes)
	}
	b.wantObjects(t, name, p.after)
	if err := client.Do(ctx, http.MethodDelete, path, ""); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s", p.name, strings.Join(writes, ", "))
	var points []point
	for i, w := range writes {
		if w != "Lease" {
			points = append(points, point{i, plane.Before}, point{i, plane.During})
		}
		points = append(points, point{i, plane.After})
	}
	return points
}

func (b *crashBench) crash(t *testing.T, p play, at point, name string) {
	ctx := patient(t)
	h := b.home(t)
	process, client := launch(t, h.config)
	path := p.path + name + plane.Version
	if p.before != "" {
		if err := client.Do(ctx, http.MethodPut, path, p.before); err != nil {
			t.Fatal(err)
		}
	}
	if err := process.Arm(at.at, at.mode); err != nil {
		t.Fatal(err)
	}
	answer, err := client.Send(ctx, p.method, path, p.body)
	answered := err == nil
	if answered && answer.Operation() == "" {
		t.Fatalf("%s answered %d: %s", p.method, answer.Status, answer.Raw)
	}
	ended := make(chan struct{})
	if answered {
		go func() {
			if _, err := client.Await(ctx, answer.Operation()); err == nil {
				close(ended)
			}
		}()
	}
	select {
	case <-process.Exited:
	case <-ended:
		// How many writes tell of outputs depends on how many are done at a time:
		// a run may come to its end before the point. Then it dies here.
		if writes, err := process.Writes(); err == nil && len(writes) <= at.at {
			t.Logf("only %d writes this time", len(writes))
			process.Kill()
		}
	case <-ctx.Done():
		t.Fatal("the process passed the point alive")
	}
	if killed, said := process.Killed(); !killed {
		t.Fatalf("the process was not killed at its point: %s", said)
	}
	b.wantKnown(t, h, p.path, name)

	_, client = launch(t, h.config)
	if answered { // a promise was given
		got, err := client.Await(ctx, answer.Operation())
		if err != nil || got.Body.Status != "Succeeded" {
			t.Fatalf("an accepted operation is lost: %v %s", err, got.Raw)
		}
	} else { // the client does not know, and asks again
		b.again(t, client, p.method, path, p.body)
	}
	got, err := client.Send(ctx, http.MethodGet, path, "")
	if err != nil {
		t.Fatal(err)
	}
	if p.method == http.MethodDelete {
		if got.Status != http.StatusNotFound {
			t.Errorf("the deleted resource is there still: %d %s", got.Status, got.Raw)
		}
	} else if want := fmt.Sprintf(`"n":%v`, got.Body.Properties["n"]); got.Status != http.StatusOK || !strings.Contains(p.body, want) ||
		got.Body.Properties["provisioningState"] != "Succeeded" {
		t.Errorf("after PUT %s: %d %s", p.body, got.Status, got.Raw)
	}
	b.wantObjects(t, name, p.after)

	if err := client.Do(ctx, http.MethodDelete, path, ""); err != nil {
		t.Errorf("stuck: it cannot be deleted: %v", err)
	}
	b.wantObjects(t, name, nil)
}

// again repeats a write until it is accepted, after whatever is under way, and
// waits for its success.
func (b *crashBench) again(t *testing.T, client *plane.Client, method, path, body string) {
	t.Helper()
	ctx := patient(t)
	for {
		r, err := client.Send(ctx, method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status == http.StatusConflict {
			b.settled(t, client, path)
			continue
		}
		if r.Status >= 300 {
			t.Fatalf("the repeated %s answered %d: %s", method, r.Status, r.Raw)
		}
		if link := r.Operation(); link != "" {
			if r, err = client.Await(ctx, link); err != nil || r.Body.Status != "Succeeded" {
				t.Fatalf("the repeated %s ended as %v %s", method, err, r.Raw)
			}
		}
		return
	}
}

// settled returns once the resource shows a terminal state or is gone. The
// change stream would tell; a client that lost its answer asks instead.
func (b *crashBench) settled(t *testing.T, client *plane.Client, path string) {
	t.Helper()
	ctx := patient(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := client.Send(ctx, http.MethodGet, path, "")
		if err != nil {
			t.Fatalf("stuck: %v", err)
		}
		state, _ := r.Body.Properties["provisioningState"].(string)
		if r.Status == http.StatusNotFound || core.State(state).Terminal() {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("stuck in state %s", state)
		}
	}
}

// objects are the names of the objects made for a resource, without the part
// that is the resource's name.
func (b *crashBench) objects(t *testing.T, name string) (names []string) {
	t.Helper()
	if b.client == nil {
		return nil
	}
	of := metav1.ListOptions{LabelSelector: "fault-of=" + name}
	maps, err := b.client.CoreV1().ConfigMaps(b.namespace).List(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps.Items {
		names = append(names, strings.TrimPrefix(m.Name, name+"-"))
	}
	secrets, err := b.client.CoreV1().Secrets(b.namespace).List(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		names = append(names, strings.TrimPrefix(s.Name, name+"-"))
	}
	slices.Sort(names)
	return names
}

func (b *crashBench) wantObjects(t *testing.T, name string, want []string) {
	t.Helper()
	if got := b.objects(t, name); !slices.Equal(got, want) && b.client != nil {
		t.Errorf("the objects of %s are %v, want %v", name, got, want)
	}
}

// wantKnown says that the store knows of every object that exists: nothing is
// made before it is written down.
func (b *crashBench) wantKnown(t *testing.T, h home, path, name string) {
	t.Helper()
	objects := b.objects(t, name)
	if len(objects) == 0 {
		return
	}
	id, err := core.ParseID(path + name)
	if err != nil {
		t.Fatal(err)
	}
	inspect(t, h, func(s store.Store) {
		outputs, err := s.Outputs(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var known []string
		for _, o := range outputs {
			known = append(known, strings.TrimPrefix(o.ID.Name(), name+"-"))
		}
		for _, o := range objects {
			if !slices.Contains(known, o) {
				t.Errorf("leaked: %s exists and the store knows only %v", o, known)
			}
		}
	})
}
