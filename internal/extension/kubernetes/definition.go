package kubernetes

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// servedTimeout bounds the wait between a definition's Established condition
// and its kind in discovery.
const servedTimeout = 30 * time.Second

// served waits until the kind of a definition that has just become ready is
// found by discovery: its condition comes a moment before that, and an object
// of the kind may be the next thing that a template makes. Discovery has no
// watch, so this asks again after growing pauses.
func (t *Target) served(ctx context.Context, a addressed, o *unstructured.Unstructured) error {
	if a.gvk.Group != "apiextensions.k8s.io" || a.gvk.Kind != "CustomResourceDefinition" {
		return nil
	}
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	name, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	ctx, cancel := context.WithTimeoutCause(ctx, servedTimeout, errNotReadyInTime)
	defer cancel()
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		text, _ := version["name"].(string)
		gvk := schema.GroupVersionKind{Group: group, Version: text, Kind: name}
		for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			_, _, err := t.c.lookup(ctx, gvk)
			if err == nil {
				break
			}
			if core.IsCode(err, core.CodeInvalidTemplate) {
				err = wait(ctx, pause)
			}
			if context.Cause(ctx) == errNotReadyInTime {
				return core.Errorf(extension.CodeNotReady, "%s in cluster %q is established, but its kind %s is still not served after %s", a.what, t.c.name, gvk.Kind, servedTimeout)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", a.what, err)
			}
		}
	}
	return nil
}
