package project_test

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
)

// The name of the installation's key is an owner's to see, by radial
// installation: a project says how its keyring stands, and not by which key.
func TestKeyringNamesNoKey_C32_C107(t *testing.T) {
	t.Parallel()
	h := start(t, settings())
	_, name := h.organization()
	var p v1alpha1.AnkkaProject
	if err := h.Admin.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(name), Name: name}, &p); err != nil {
		t.Fatal(err)
	}
	p.Status = v1alpha1.AnkkaProjectStatus{ObservedGeneration: p.Generation, Lifecycle: v1alpha1.LifecycleReady, Keyring: &v1alpha1.KeyringStatus{Phase: v1alpha1.PhaseReady, Key: "ring/key"}}
	if err := ankkatest.Connect(t, h.As(t, ankkatest.Operator)).Status().Update(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(ankkatest.Limit); ; <-tick.C {
		a := h.want(200, "bob", "GET", "/projects/"+name, "")
		if strings.Contains(a.raw, "ring/key") {
			t.Fatalf("C-32: a member is shown the key: %s", a.raw)
		}
		if strings.Contains(a.raw, `"keyring":{"phase":"Ready"}`) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("C-107: the keyring's phase is not folded: %s", a.raw)
		}
	}
	if a := h.want(200, "root", "GET", "/planes/radius/local/resourceGroups/ankka-"+name+"/providers/Radial.Services/projects/"+name+version, ""); strings.Contains(a.raw, "ring/key") {
		t.Errorf("C-32: the resource holds the key: %s", a.raw)
	}
}
