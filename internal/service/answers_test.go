package service

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
)

// Answers come in any order, are taken back, and say more than there is room
// for.
func TestAnswersAsTheyCome_C76_C89_C111_C152(t *testing.T) {
	s := newStage(t, nil)
	s.operate()
	s.describe("reports", storage)
	s.asked("reports-identity")
	s.asked("reports-bucket")
	s.answer("reports-bucket", func(st *v1alpha1.CloudResourceStatus) {
		st.Outputs = map[string]string{"bucket": "acme-reports", "endpoint": "https://s3.example", "region": "r1"}
	})
	// C-76: without the identity no credential is asked for, and nothing has
	// failed.
	st := s.service("reports", "with a bucket", func(st v1alpha1.AnkkaServiceStatus) bool { return st.ObjectStorage.Bucket != "" }).Status
	if st.Lifecycle != v1alpha1.LifecycleUpdateInProgress || st.ObjectStorage.Phase != v1alpha1.PhaseWaiting {
		t.Errorf("C-76: with a bucket and no identity the service is %s: %s", st.Lifecycle, st.Detail)
	}
	s.absent(&v1alpha1.CloudResource{}, "reports-storage-credential")

	s.answerAll("reports", 1)
	s.ready("reports")
	// C-89: an identity that is being answered anew leaves what runs bound as
	// it is.
	s.answer("reports-identity", func(st *v1alpha1.CloudResourceStatus) {
		st.Phase, st.Detail = v1alpha1.PhaseWaiting, "looking at it again"
	})
	s.service("reports", "waiting anew", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.Detail == "object storage: looking at it again"
	})
	// The pass that told so is over once a later one is seen.
	s.describe("reports", func(spec *v1alpha1.AnkkaServiceSpec) { storage(spec); spec.Generation = 2 })
	s.service("reports", "seen", func(st v1alpha1.AnkkaServiceStatus) bool { return st.Generation == 2 })
	if got := get(s, "reports", &corev1.ServiceAccount{}).Annotations["bind.example/to"]; got != "reports=yes" {
		t.Errorf("C-89: the ServiceAccount is bound to %q while the identity is answered anew", got)
	}
	// C-152: more words than an event takes are told in one all the same.
	s.answer("reports-identity", func(st *v1alpha1.CloudResourceStatus) {
		st.Phase, st.Detail = v1alpha1.PhaseFailed, "no: "+strings.Repeat("hostile ", 1<<14)
	})
	until(s, &eventsv1.EventList{}, s.event("Failed"), "told", func(e *eventsv1.Event) bool {
		return strings.HasPrefix(e.Note, "object storage: no: hostile") && len(e.Note) <= 1024
	})
	// C-127: a credential in another Secret than was asked for is given to no
	// instance.
	before := get(s, "reports", &appsv1.Deployment{})
	s.answerAll("reports", 1)
	s.answer("reports-storage-credential", func(st *v1alpha1.CloudResourceStatus) {
		st.CredentialGeneration, st.Outputs = 2, map[string]string{"secretName": "the-database"}
	})
	s.service("reports", "Failed", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.Lifecycle == v1alpha1.LifecycleFailed && strings.Contains(st.Detail, "another Secret than reports-cloud-storage")
	})
	if after := get(s, "reports", &appsv1.Deployment{}); after.Generation != before.Generation {
		t.Error("instances were given another Secret")
	}
}

func TestInSecret_C143(t *testing.T) {
	for name, want := range map[string]v1alpha1.Phase{"s": v1alpha1.PhaseReady, "another": v1alpha1.PhaseFailed} {
		if got := inSecret(done(v1alpha1.PhaseReady, 1, aSecret), name); got.Phase != want || (got.Answer != nil) != want.Done() {
			t.Errorf("an answer that names Secret s, where %s was asked for, is %s", name, got.Phase)
		}
	}
	for _, v := range []*Verdict{waits("later"), fails("no")} {
		if got := inSecret(v, "s"); got.Phase != v.Phase || got.Detail != v.Detail {
			t.Errorf("%+v became %+v", v, got)
		}
	}
}

// An answer stands in the instances' variables word for word: what looks like a
// reference to another variable is none.
func TestAnswersAreVerbatim_C98(t *testing.T) {
	r := Rendering{Service: sample(full), Storage: given()}
	r.Storage.Endpoint = "https://evil.example/$(STRIPE)?$(PLAIN)$$(X)"
	for _, e := range r.env() {
		if m := e.(map[string]any); m["name"] == v1alpha1.VariableEndpoint && m["value"] != "https://evil.example/$$(STRIPE)?$$(PLAIN)$$$$(X)" {
			t.Errorf("the endpoint is rendered %q", m["value"])
		}
	}
}

// A project's secret is kept once the entries that its descriptor names now are.
func TestFoldProject_C108(t *testing.T) {
	kept := func(generation string) SecretAnswer {
		return SecretAnswer{Verdict: *ready(map[string]string{"entryGeneration": generation}), Name: "stripe", EntryGeneration: 2}
	}
	for generation, want := range map[string]v1alpha1.Lifecycle{"1": v1alpha1.LifecycleUpdateInProgress, "2": v1alpha1.LifecycleReady, "3": v1alpha1.LifecycleReady} {
		if f := FoldProject(ProjectAnswers{Secrets: []SecretAnswer{kept(generation)}}); f.Lifecycle != want {
			t.Errorf("C-108: with entry generation %s of 2 kept the project is %s: %s", generation, f.Lifecycle, f.Detail)
		}
	}
}

// A service or project that stands in another project's namespace is Failed, and
// asks for nothing: neither here nor there.
func TestMisplaced_C53_C143(t *testing.T) {
	s := newStage(t, func(s *cloud.Settings) { s.Backups = true })
	s.others = append(s.others, v1alpha1.Namespace(s.w.Project(t, "theirs")))
	theirs := strings.TrimPrefix(s.others[0], v1alpha1.NamespacePrefix)
	s.operate()
	s.apply(v1alpha1.AnkkaProjectKind, theirs, v1alpha1.AnkkaProjectSpec{ProjectID: theirs, Backups: true}, &v1alpha1.AnkkaProject{})
	s.apply(v1alpha1.AnkkaServiceKind, "reports", v1alpha1.AnkkaServiceSpec{ProjectID: theirs, ServiceName: "reports", Generation: 1, Image: "registry.example.com/reports:1", ProvisionObjectStorage: true}, &v1alpha1.AnkkaService{})
	until(s, &v1alpha1.AnkkaProjectList{}, theirs, "Failed", func(p *v1alpha1.AnkkaProject) bool {
		return p.Status.Lifecycle == v1alpha1.LifecycleFailed && strings.Contains(p.Status.Detail, "stands in namespace "+s.others[0])
	})
	s.service("reports", "Failed", func(st v1alpha1.AnkkaServiceStatus) bool {
		return st.Lifecycle == v1alpha1.LifecycleFailed && strings.Contains(st.Detail, "stands in namespace "+s.others[0])
	})
	for _, ns := range []string{s.ns, s.others[0]} {
		var list v1alpha1.CloudResourceList
		if err := s.admin.List(t.Context(), &list, client.InNamespace(ns)); err != nil || len(list.Items) > 0 {
			t.Errorf("%s has %d requests, %v", ns, len(list.Items), err)
		}
	}
}
