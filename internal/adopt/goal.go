package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/connection"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

const (
	containerType    = "Applications.Core/containers"
	containerVersion = "2023-10-01-preview"
)

// containerID is the deterministic id of a Deployment's container.
func containerID(group core.ID, name string) core.ID { return group.Resource(containerType, name) }

// recipeView is a connection with the Recipe behind it.
type recipeView struct {
	Connection
	found bool
	// id of the Recipe's resource, zero until it is known.
	id      core.ID
	version string
	// reason and cause say why the connection carries nothing yet, "" when the
	// Recipe is Ready.
	reason string
	cause  string
}

// recipes looks up the Recipes of all connections.
func (r *Reconciler) recipes(ctx context.Context, d *appsv1.Deployment, in Intent) ([]recipeView, error) {
	var views []recipeView
	for _, c := range in.Connections {
		v := recipeView{Connection: c}
		if c.Recipe == "" || len(c.Recipe) > 253 || !plainName(c.Recipe) {
			v.reason = ReasonInvalid
			v.cause = fmt.Sprintf("%s%s is %q, which is not the name of a Recipe in namespace %s", AnnotationConnection, c.Name, c.Recipe, d.Namespace)
			views = append(views, v)
			continue
		}
		recipe := new(radapp.Recipe)
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: c.Recipe}, recipe)
		switch {
		case apierrors.IsNotFound(err):
			v.reason = ReasonRecipeNotFound
			v.cause = fmt.Sprintf("connection %s: there is no Recipe %s in namespace %s; create it, or correct the annotation %s%s", c.Name, c.Recipe, d.Namespace, AnnotationConnection, c.Name)
		case err != nil:
			return nil, err
		default:
			v.found = true
			v.id, _ = core.ParseID(recipe.Status.Resource) // unreadable is unknown
			if recipe.Status.Pairing != nil {
				v.version = recipe.Status.Pairing.APIVersion
			}
			if !recipeReady(recipe) || v.id.IsZero() {
				v.reason = ReasonRecipeNotReady
				v.cause = fmt.Sprintf("connection %s: Recipe %s is not Ready", c.Name, c.Recipe)
				if why := recipeCause(recipe); why != "" {
					v.cause += ": " + why
				}
			}
		}
		views = append(views, v)
	}
	return views, nil
}

func plainName(s string) bool {
	for _, c := range s {
		if c == '/' || c == '%' || c <= ' ' {
			return false
		}
	}
	return true
}

// recipeReady reports whether a Recipe is Ready as it stands now.
func recipeReady(r *radapp.Recipe) bool {
	c := meta.FindStatusCondition(r.Status.Conditions, radapp.ConditionReady)
	return r.DeletionTimestamp == nil && c != nil && c.Status == metav1.ConditionTrue && r.Status.ObservedGeneration == r.Generation
}

// recipeCause is why a Recipe is not Ready, in its own words.
func recipeCause(r *radapp.Recipe) string {
	if r.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	c := meta.FindStatusCondition(r.Status.Conditions, radapp.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue || r.Status.ObservedGeneration != r.Generation {
		return ""
	}
	return c.Message
}

// goal is the container resource as it should be (K-8). ok is false while it
// cannot be told, because a Recipe's id is not known yet or, for a container
// that exists, a Recipe is missing: its edge is not taken away for a moment's
// absence.
func (r *Reconciler) goal(d *appsv1.Deployment, in Intent, p paired.Parents, recipes []recipeView, exists bool) (paired.Goal, bool) {
	connections := map[string]any{}
	for _, v := range recipes {
		switch {
		case !v.id.IsZero():
			connections[v.Name] = map[string]any{"source": v.id.String()}
		case v.found || v.reason == ReasonRecipeNotFound && exists:
			return paired.Goal{}, false
		}
	}
	image := ""
	if cs := d.Spec.Template.Spec.Containers; len(cs) > 0 {
		image = cs[0].Image
	}
	properties := map[string]any{
		"application":          p.Application.String(),
		"environment":          p.Environment.String(),
		"resourceProvisioning": "manual",
		"container":            map[string]any{"image": image},
		"resources":            []any{map[string]any{"id": core.KubernetesID(r.Cluster, d.Namespace, "apps", Kind, d.Name).String()}},
	}
	if len(connections) > 0 {
		properties["connections"] = connections
	}
	return paired.Goal{
		ID: containerID(p.Group, d.Name), APIVersion: containerVersion, RetryOn: p.ETag,
		Body: arm.Put{
			Resource: arm.Resource{
				Properties: properties,
				Owner:      &arm.Owner{Cluster: r.Cluster, Namespace: d.Namespace, Kind: Kind, Name: d.Name, UID: string(d.UID)},
			},
			ImplicitParents: true,
		},
	}, true
}

// covers reports whether a live resource is this object's and has every value
// of the goal, so that a controller that has just started need not PUT it.
func covers(g paired.Goal, live *arm.Resource) bool {
	if live == nil || live.Owner == nil || live.Owner.UID != g.Body.Owner.UID {
		return false
	}
	raw, err := json.Marshal(g.Body.Properties)
	if err != nil {
		return false
	}
	var want map[string]any
	if json.Unmarshal(raw, &want) != nil {
		return false
	}
	// A connection too many is an edge too many.
	if reflect.ValueOf(live.Properties["connections"]).IsValid() != reflect.ValueOf(want["connections"]).IsValid() {
		return false
	}
	if have, ok := live.Properties["connections"].(map[string]any); ok && len(have) != len(want["connections"].(map[string]any)) {
		return false
	}
	return subset(want, live.Properties)
}

func subset(want, have any) bool {
	w, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(want, have)
	}
	h, ok := have.(map[string]any)
	if !ok {
		return false
	}
	for k := range w {
		if !subset(w[k], h[k]) {
			return false
		}
	}
	return true
}

// values asks what a connection carries (K-17).
func (r *Reconciler) values(ctx context.Context, v recipeView) (map[string]any, error) {
	res, _, err := r.API.Get(ctx, v.id, v.version)
	if err != nil {
		return nil, err
	}
	if s := client.State(res); !s.Terminal() {
		return nil, core.Errorf(core.CodeConflict, "%s is %s", v.id, s)
	}
	var secrets map[string]any
	err = r.API.Action(ctx, v.id, "listSecrets", v.version, nil, &secrets)
	if err != nil && !core.IsCode(err, core.CodeNotFound) && !core.IsCode(err, core.CodeMethodNotAllowed) {
		return nil, err
	}
	status, _ := res.Properties["status"].(map[string]any)
	computed, _ := status["computedValues"].(map[string]any)
	return connection.Values(res.Properties, computed, secrets), nil
}
