package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// bench deploys to the real cluster and keeps a log of what was done in which
// order: the target and the inventory are the real and a plain one, each noting
// what passes through.
type bench struct {
	*testing.T
	namespace string
	cluster   *kubernetes.Cluster
	client    clientset.Interface

	mu        sync.Mutex
	log       []string
	inventory []core.Output
	failOn    func(entry string) error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	c := clustertest.Start(t)
	t.Parallel()
	cluster, err := kubernetes.New("local", c.Config, kubernetes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientset.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{T: t, namespace: c.Namespace(t, "deploy"), cluster: cluster, client: client}
}

func (b *bench) note(format string, args ...any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := fmt.Sprintf(format, args...)
	b.log = append(b.log, entry)
	if b.failOn != nil {
		return b.failOn(entry)
	}
	return nil
}

func (b *bench) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := b.log
	b.log = nil
	return log
}

func (b *bench) Resolve(_ context.Context, s extension.Scope, _ extension.Secrets) (extension.Target, error) {
	return &noted{b.cluster.Target(s.Namespace), b}, nil
}

// noted passes every call on and notes it.
type noted struct {
	extension.Target
	b *bench
}

func nameOf(r extension.Resource) string {
	return r.Properties["metadata"].(map[string]any)["name"].(string)
}

func (n *noted) Apply(ctx context.Context, r extension.Resource) (extension.State, error) {
	if err := n.b.note("apply %s", nameOf(r)); err != nil {
		return extension.State{}, err
	}
	s, err := n.Target.Apply(ctx, r)
	_ = n.b.note("applied %s", nameOf(r))
	return s, err
}

func (n *noted) Delete(ctx context.Context, ref extension.Ref) error {
	if err := n.b.note("delete %s", ref.ID.Name()); err != nil {
		return err
	}
	err := n.Target.Delete(ctx, ref)
	_ = n.b.note("deleted %s", ref.ID.Name())
	return err
}

func (b *bench) record(_ context.Context, put []core.Output, drop []core.ID) error {
	var parts []string
	b.mu.Lock()
	for _, o := range put {
		parts = append(parts, o.ID.Name()+"="+string(o.State))
		i := slices.IndexFunc(b.inventory, func(k core.Output) bool { return k.ID.Equal(o.ID) })
		if i < 0 {
			b.inventory = append(b.inventory, o)
		} else {
			b.inventory[i] = o
		}
	}
	for _, id := range drop {
		parts = append(parts, "-"+id.Name())
		b.inventory = slices.DeleteFunc(b.inventory, func(k core.Output) bool { return k.ID.Equal(id) })
	}
	b.mu.Unlock()
	return b.note("record %s", strings.Join(parts, " "))
}

var owner = core.MustParseID("/planes/radius/local/resourceGroups/g/providers/Test.X/things/t")

// request is that of a recipe: what it makes has an owner, and is previewed.
func (b *bench) request(text string) Request {
	return Request{
		Template: []byte(text), Base: extension.Scope{Extension: "Kubernetes", Namespace: b.namespace},
		Owner: owner, Kind: "template", Preview: true, Previous: slices.Clone(b.inventory), Record: b.record,
	}
}

func (b *bench) run(text string) (*Result, error) {
	b.Helper()
	return New(EngineOptions{Resolver: b}).Deploy(b.Context(), b.request(text))
}

// delete deletes all of the inventory.
func (b *bench) delete() error {
	waiting, err := New(EngineOptions{Resolver: b}).Delete(b.Context(), DeleteRequest{Outputs: slices.Clone(b.inventory), Record: b.record})
	if waiting {
		b.Error("a deletion waits, though nothing is the control plane's")
	}
	return err
}

// chain is a template of config maps: c reads b, which reads a; d stands alone.
const chain = `{"contentVersion":"1.0.0.0","languageVersion":"2.0",
 "imports":{"k":{"provider":"Kubernetes","version":"1.0.0"}},
 "resources":{
  "c":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"c"},"data":{"uid":"[reference('b').metadata.uid]"}}},
  "b":{"import":"k","type":"core/ConfigMap@v1","dependsOn":["a"],"properties":{"metadata":{"name":"b"},"data":{"v":"1"}}},
  "a":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"a"},"data":{"v":"1"}}},
  "d":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"d"},"data":{"v":"1"}}}}}`

func index(t *testing.T, log []string, entry string) int {
	t.Helper()
	i := slices.Index(log, entry)
	if i < 0 {
		t.Fatalf("%q is not in the log:\n%s", entry, strings.Join(log, "\n"))
	}
	return i
}

func TestRun_D31(t *testing.T) {
	b := newBench(t)
	d, err := b.run(chain)
	if err != nil {
		t.Fatal(err)
	}
	log := b.take()
	if log[0] != "record c=Planned b=Planned a=Planned d=Planned" {
		t.Errorf("D-31: the first thing done was %q; all planned ids are recorded in one commit before anything is made", log[0])
	}
	if index(t, log, "applied a") > index(t, log, "apply b") || index(t, log, "applied b") > index(t, log, "apply c") {
		t.Errorf("out of order:\n%s", strings.Join(log, "\n"))
	}
	if len(d.Journal) != 4 {
		t.Fatalf("%d outputs", len(d.Journal))
	}
	for _, o := range b.inventory {
		var h Handle
		if err := json.Unmarshal(o.Handle, &h); err != nil || h.Ref.UID == "" || h.Kind != "template" || o.State != core.OutputMade || !o.Managed {
			t.Errorf("inventory of %s: %s %s", o.ID, o.State, o.Handle)
		}
	}
	c, err := b.client.CoreV1().ConfigMaps(b.namespace).Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil || c.Data["uid"] == "" {
		t.Errorf("c read b as %v, %v", c.Data, err)
	}

	// Again: what is made stays recorded as made.
	if _, err := b.run(chain); err != nil {
		t.Fatal(err)
	}
	if log := b.take(); log[0] != "record c=Made b=Made a=Made d=Made" {
		t.Errorf("a second run recorded %q first", log[0])
	}

	if err := b.delete(); err != nil {
		t.Fatal(err)
	}
	log = b.take()
	if index(t, log, "deleted c") > index(t, log, "delete b") || index(t, log, "deleted b") > index(t, log, "delete a") {
		t.Errorf("D-31: not dependants first:\n%s", strings.Join(log, "\n"))
	}
	if len(b.inventory) != 0 {
		t.Errorf("left in the inventory: %v", b.inventory)
	}
	left, err := b.client.CoreV1().ConfigMaps(b.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: kubernetes.OwnerKey})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("left in the cluster: %d, %v", len(left.Items), err)
	}
}

func TestRunFailure_S43(t *testing.T) {
	b := newBench(t)
	b.failOn = func(entry string) error {
		if entry == "apply b" {
			return errors.New("no room")
		}
		return nil
	}
	_, err := b.run(chain)
	if !core.IsCode(err, CodeFailed) || !strings.Contains(err.Error(), "resource b (core/ConfigMap): no room; not made because of it: c") {
		t.Fatalf("got %v", err)
	}
	if details := core.AsError(err).Details; len(details) != 1 || details[0].Target != "b" {
		t.Errorf("S-43: reported once, with the resource: %+v", details)
	}
	log := b.take()
	index(t, log, "applied a")
	index(t, log, "applied d") // not stopped by b
	if slices.Contains(log, "apply c") {
		t.Error("c was made though b failed")
	}
	// D-31: a failed run forgets nothing.
	if len(b.inventory) != 4 {
		t.Errorf("the inventory has %d outputs, want all 4", len(b.inventory))
	}
	// What was planned and never made deletes as if it had been.
	b.failOn = nil
	if err := b.delete(); err != nil {
		t.Fatal(err)
	}
	if len(b.inventory) != 0 {
		t.Errorf("left: %v", b.inventory)
	}
}

// TestRunLosesItsRecord: when an outcome cannot be recorded (the lease is
// lost), the run stops and says so; the planned record finds what was made.
func TestRunLosesItsRecord_D31(t *testing.T) {
	b := newBench(t)
	lost := core.Errorf(core.CodeFenced, "another worker holds the lease")
	b.failOn = func(entry string) error {
		if strings.HasPrefix(entry, "record") && strings.Contains(entry, "=Made") {
			return lost
		}
		return nil
	}
	if _, err := b.run(chain); !core.IsCode(err, core.CodeFenced) {
		t.Fatalf("got %v", err)
	}
	b.failOn = nil
	for i := range b.inventory { // as it was before the outcomes
		var h Handle
		if err := json.Unmarshal(b.inventory[i].Handle, &h); err != nil {
			t.Fatal(err)
		}
		h.Ref.UID = ""
		b.inventory[i].Handle = mustJSON(h)
		b.inventory[i].State = core.OutputPlanned
	}
	if err := b.delete(); err != nil {
		t.Fatal(err)
	}
	left, err := b.client.CoreV1().ConfigMaps(b.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: kubernetes.OwnerKey})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("left in the cluster: %d, %v", len(left.Items), err)
	}
}

func TestDeleteFailureKeepsWhatItNeeds(t *testing.T) {
	b := newBench(t)
	if _, err := b.run(chain); err != nil {
		t.Fatal(err)
	}
	b.failOn = func(entry string) error {
		if entry == "delete b" {
			return errors.New("no way")
		}
		return nil
	}
	err := b.delete()
	if !core.IsCode(err, CodeDeleteFailed) || !strings.Contains(err.Error(), "ConfigMap/b was not deleted: no way") {
		t.Errorf("got %v", err)
	}
	var left []string
	for _, o := range b.inventory {
		left = append(left, o.ID.Name())
	}
	slices.Sort(left)
	if got := strings.Join(left, " "); got != "a b" {
		t.Errorf("left in the inventory: %s; want b, which failed, and a, which it needs", got)
	}
}

func TestRunRefuses(t *testing.T) {
	b := newBench(t)
	kube := `"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes"%s}}`
	for name, c := range map[string]struct{ text, want string }{
		"one object twice": {fmt.Sprintf("{"+kube, "") + `,"resources":{
			"x":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"s"}}},
			"y":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"s"}}}}}`, "x and y are the same object"},
		"credentials": {fmt.Sprintf("{"+kube, `,"config":{"kubeConfig":"apiVersion: v1"}`) + `,"resources":{
			"x":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"s"}}}}}`, `the import "k" carries a kubeConfig`},
		"a resource of the control plane": {`{"contentVersion":"1.0.0.0","resources":[{"type":"A.B/c","apiVersion":"1","name":"n"}]}`, "no control plane is at hand here"},
		"a fault that a dry run finds": {fmt.Sprintf("{"+kube, "") + `,"resources":{
			"x":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"s"}}},
			"y":{"import":"k","type":"core/Service@v1","properties":{"metadata":{"name":"s"},"spec":{"ports":[{"port":0}]}}}}}`, "spec.ports[0].port"},
	} {
		_, err := b.run(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
		if log := b.take(); len(log) > 0 {
			t.Errorf("%s: done before it was refused: %v", name, log)
		}
	}
}

func TestExistingIsReadNotMade(t *testing.T) {
	b := newBench(t)
	text := `{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes"}},"resources":{
	 "ca":{"existing":true,"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"kube-root-ca.crt"}}},
	 "none":{"existing":true,"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"missing"}}},
	 "x":{"import":"k","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"x"},"data":{"n":"[reference('%s').metadata.name]"}}}}}`
	// The controller manager puts this map into each new namespace.
	w, err := b.client.CoreV1().ConfigMaps(b.namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=kube-root-ca.crt"})
	if err != nil {
		t.Fatal(err)
	}
	<-w.ResultChan()
	w.Stop()
	d, err := b.run(fmt.Sprintf(text, "ca"))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Journal) != 1 || d.Journal[0].LocalID != "x" {
		t.Errorf("outputs: %v", d.Journal)
	}
	if _, err := b.run(fmt.Sprintf(text, "none")); err == nil || !strings.Contains(err.Error(), "missing does not exist") {
		t.Errorf("reading what does not exist answered %v", err)
	}
}
