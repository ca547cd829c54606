package clusterrecords

import (
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/stack/recordstest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

func client(t *testing.T) (kubernetes.Interface, *clustertest.Cluster) {
	c := clustertest.Start(t)
	api, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return api, c
}

func TestRecords_S57(t *testing.T) {
	api, c := client(t)
	recordstest.Run(t, func(t *testing.T) (here, there stack.Records) {
		ns := c.Namespace(t, "records")
		return New(Options{Client: api, Namespace: ns}), New(Options{Client: api, Namespace: ns})
	})
}

func TestRecords_namespaceIsMade(t *testing.T) {
	api, _ := client(t)
	r := New(Options{Client: api, Namespace: "records-made-first"})
	id := core.GroupID("g").Resource(stack.Type, "s")
	s, err := r.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), stack.Record{ID: id, State: stack.StateSucceeded}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := r.List(t.Context()); err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
}

// A process that was killed holds its lock until that runs out. One that was only
// stopped, and comes back after another has taken over, can write nothing more.
func TestRecords_lostLock_S55(t *testing.T) {
	api, c := client(t)
	ns := c.Namespace(t, "records")
	var mu sync.Mutex
	now := time.Now()
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	id := core.GroupID("g").Resource(stack.Type, "s")
	old := New(Options{Client: api, Namespace: ns, Lease: time.Hour, Now: clock})
	first, err := old.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Save(t.Context(), stack.Record{ID: id, Description: "first"}); err != nil {
		t.Fatal(err)
	}
	// Somebody else's write that is no other holder's does no harm.
	if _, err := api.CoreV1().Secrets(ns).Patch(t.Context(), name(id), "application/merge-patch+json", []byte(`{"metadata":{"labels":{"seen":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := first.Save(t.Context(), stack.Record{ID: id, Description: "second"}); err != nil {
		t.Fatalf("after a label: %v", err)
	}
	mu.Lock()
	now = now.Add(2 * time.Hour)
	mu.Unlock()
	next, err := New(Options{Client: api, Namespace: ns, Now: clock}).Open(t.Context(), id)
	if err != nil {
		t.Fatalf("after the lock ran out: %v", err)
	}
	if next.Record().Description != "second" {
		t.Errorf("took over %+v", next.Record())
	}
	if err := first.Save(t.Context(), stack.Record{ID: id, Description: "late"}); !core.IsCode(err, core.CodeFenced) {
		t.Errorf("the old holder's write: %v", err)
	}
	select {
	case <-first.Context().Done():
	default:
		t.Error("the old holder's context goes on")
	}
	if err := first.Remove(t.Context()); !core.IsCode(err, core.CodeFenced) {
		t.Errorf("the old holder's removal: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := old.Open(t.Context(), id); !core.IsCode(err, core.CodeConflict) || !strings.Contains(err.Error(), "holds its lock until") {
		t.Errorf("its close took the lock away from the new holder: %v", err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if r, err := old.Read(t.Context(), id); err != nil || r.Description != "second" {
		t.Errorf("%+v, %v", r, err)
	}
}
