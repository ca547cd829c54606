package service

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noted is an API server that takes what is applied and notes how.
type noted struct {
	client.Client
	body   string
	forced bool
}

func (n *noted) Apply(_ context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	raw, err := json.Marshal(o)
	var with client.ApplyOptions
	with.ApplyOptions(opts)
	n.body, n.forced = string(raw), with.Force != nil && *with.Force
	return err
}

// An object that has taken the place of the one that was judged is not written:
// the API server is told which one is meant; and one that somebody else makes at
// the same moment is not taken over.
func TestApplyMeansOneObject_C143(t *testing.T) {
	there := &corev1.ServiceAccount{}
	there.UID = "the-one-judged"
	for name, exists := range map[string]bool{"new": false, "there": true} {
		n, current := &noted{}, &corev1.ServiceAccount{}
		if exists {
			current = there.DeepCopy()
		}
		if _, err := apply(t.Context(), &applier{client: n}, types.NamespacedName{Name: name}, Rendering{Service: sample(nil)}.Account(nil), current, exists, true); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(n.body, `"uid":"the-one-judged"`); got != exists || n.forced != exists {
			t.Errorf("%s: names the object %v, forced %v: %s", name, got, n.forced, n.body)
		}
	}
}
