package project_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/project"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// What was removed from the cluster while no control plane followed is told once
// one follows, and of a service that the cluster never took nothing is said.
func TestFollowAfterAnAbsence_C107(t *testing.T) {
	t.Parallel()
	w := ankkatest.Start(t)
	broker := feed.New()
	kept, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "radial.db"), sqlite.Options{Listener: broker.Publish})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if _, err := kept.Accept(t.Context(), store.Write{Now: time.Now(), Resource: core.Resource{ID: core.ID{Plane: core.Segment{Type: "radius", Name: "local"}},
		APIVersion: project.APIVersion, Location: "global", Properties: []byte("{}"), State: core.StateSucceeded}}); err != nil {
		t.Fatal(err)
	}
	in := w.Project(t, unique("absent"))
	row := func(name string, values map[string]any) core.ID {
		t.Helper()
		status, err := json.Marshal(dynamic.Status{ComputedValues: values})
		if err != nil {
			t.Fatal(err)
		}
		id := project.ServiceID(in, name)
		if _, err := kept.Accept(t.Context(), store.Write{Now: time.Now(), Parents: []core.Resource{{ID: project.GroupID(in), APIVersion: project.APIVersion, Location: "global", Properties: []byte("{}"), State: core.StateSucceeded}}, Resource: core.Resource{ID: id, APIVersion: project.APIVersion, Location: "global",
			Properties: []byte(`{"image":"x"}`), Status: status, State: core.StateSucceeded}}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	never := row("never", map[string]any{})
	gone := row("gone", map[string]any{"generation": 1, "observed": map[string]any{"lifecycle": "Ready"}})
	changes := broker.Subscribe(broker.Seq())
	s, err := project.New(project.Options{Store: kept, Feed: broker, Installation: &project.Installation{Settings: settings(), Config: w.As(t, ankkatest.ControlPlane), Cluster: "local"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), ankkatest.Limit)
	defer cancel()
	ended := make(chan struct{})
	go func() { s.Follow(ctx); close(ended) }()
	for {
		r, _, err := kept.Get(t.Context(), gone)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(r.Status), "NotDeployed") {
			break
		}
		if _, err := changes.Next(ctx); err != nil {
			t.Fatalf("it still says %s", r.Status)
		}
	}
	if r, _, err := kept.Get(t.Context(), never); err != nil || strings.Contains(string(r.Status), "NotDeployed") {
		t.Errorf("%v: %s", err, r.Status)
	}
	cancel()
	<-ended
}
