package provision

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/paired"
)

// pass is one reconcile of one Recipe.
type pass struct {
	r      *reconciler
	log    *slog.Logger
	before *radapp.Recipe // as last stored
	recipe *radapp.Recipe // as this pass has it
	memory paired.Memory

	parents paired.Parents
	kind    client.Type
	goal    paired.Goal
	outcome paired.Outcome

	again   time.Duration // when to pass again without a signal, after success
	settled bool          // nothing in flight and nothing in fault
	gone    bool          // the finalizer is off
}

func newPass(r *reconciler, recipe *radapp.Recipe) *pass {
	return &pass{r: r, before: recipe.DeepCopy(), recipe: recipe, memory: remember(&recipe.Status),
		log: r.Log.With("recipe", recipe.Namespace+"/"+recipe.Name)}
}

type step struct {
	name string
	do   func(*pass, context.Context) error
}

// The two ways of a Recipe.
var (
	provisioning = []step{
		{"finalizer", (*pass).addFinalizer},
		{"parents", (*pass).resolveParents},
		{"goal", (*pass).computeGoal},
		{"intent", (*pass).recordIntent},
		{"resource", (*pass).applyResource},
		{"secret", (*pass).applySecret},
		{"previous", (*pass).removePrevious},
	}
	removal = []step{
		{"resource", (*pass).removeResource},
		{"secret", (*pass).removeSecrets},
		{"finalizer", (*pass).removeFinalizer},
	}
)

// concerns are the ids whose changes matter to the Recipe.
func (p *pass) concerns() []core.ID {
	ref := reference(p.recipe, p.r.Cluster)
	ids := append(ref.Candidates(), namespaceOf(p.recipe.Spec.Type))
	if group, err := ref.Scope(); err == nil {
		ids = append(ids, group.Resource(p.recipe.Spec.Type, p.recipe.Name))
	}
	for _, f := range append([]paired.Former{{ID: p.memory.Resource}}, p.memory.Previous...) {
		if id, err := core.ParseID(f.ID); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func hasFinalizer(r *radapp.Recipe) bool {
	return slices.Contains(r.Finalizers, radapp.RecipeFinalizer)
}

// addFinalizer comes first: nothing is made that deletion would not find.
func (p *pass) addFinalizer(ctx context.Context) error {
	if hasFinalizer(p.recipe) {
		return nil
	}
	return p.patchFinalizers(ctx, append(slices.Clone(p.recipe.Finalizers), radapp.RecipeFinalizer))
}

func (p *pass) removeFinalizer(ctx context.Context) error {
	kept := slices.DeleteFunc(slices.Clone(p.recipe.Finalizers), func(f string) bool { return f == radapp.RecipeFinalizer })
	err := p.patchFinalizers(ctx, kept)
	p.gone = err == nil || apierrors.IsNotFound(err)
	return kube.IgnoreNotFound(err)
}

// patchFinalizers replaces the list, on condition that nobody else has written
// meanwhile.
func (p *pass) patchFinalizers(ctx context.Context, finalizers []string) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": p.recipe.ResourceVersion, "finalizers": finalizers}})
	if err != nil {
		return err
	}
	patched := &radapp.Recipe{ObjectMeta: *p.recipe.ObjectMeta.DeepCopy()}
	if err := p.r.cache.Patch(ctx, patched, kube.RawPatch("application/merge-patch+json", raw), kube.FieldOwner(FieldManager)); err != nil {
		return err
	}
	p.r.wrote(patched.UID, patched.ResourceVersion)
	p.recipe.ObjectMeta, p.before.ObjectMeta = patched.ObjectMeta, *patched.ObjectMeta.DeepCopy()
	return nil
}

// resolveParents finds environment, application and group (K-3 to K-5).
func (p *pass) resolveParents(ctx context.Context) error {
	parents, err := paired.FindParents(ctx, p.r.Server, reference(p.recipe, p.r.Cluster))
	switch core.CodeOf(err) {
	case "":
	case core.CodeNotFound:
		return &waiting{reason: radapp.ReasonEnvironmentNotFound, message: err.Error(), fault: true}
	case core.CodeConflict:
		return &stalled{radapp.ReasonEnvironmentAmbiguous, err.Error()}
	case core.CodeBadRequest:
		return &stalled{radapp.ReasonInvalidSpec, err.Error()}
	default:
		return err
	}
	p.parents = parents
	s := &p.recipe.Status
	s.Environment, s.Application, s.Scope = parents.Environment.String(), parents.Application.String(), parents.Group.String()
	return nil
}

// computeGoal says which resource it should be.
func (p *pass) computeGoal(ctx context.Context) error {
	t, err := p.r.Server.Type(ctx, p.recipe.Spec.Type)
	if core.IsCode(err, core.CodeInvalidResourceType) || core.IsCode(err, core.CodeInvalidAPIVersion) {
		// The registration of types is no event of its own everywhere: time
		// helps out.
		return &waiting{reason: radapp.ReasonTypeNotFound, message: err.Error(), after: p.r.MaxRetry, fault: true}
	}
	if err != nil {
		return err
	}
	p.kind = t
	if p.goal, err = goalOf(p.recipe, p.r.Cluster, p.parents, t); err != nil {
		return &stalled{radapp.ReasonInvalidSpec, err.Error()}
	}
	return nil
}

// recordIntent stores the id before it is PUT for the first time: from then on
// whoever finds the Recipe finds the resource.
func (p *pass) recordIntent(ctx context.Context) error {
	if !paired.Intend(p.goal, &p.memory) {
		return nil
	}
	p.forget()
	p.conditions(&waiting{reason: radapp.ReasonProvisioning, message: p.memory.Resource + " is being provisioned"})
	return p.write(ctx)
}

// applyResource steps the paired resource.
func (p *pass) applyResource(ctx context.Context) error {
	out, err := p.r.runner.Apply(ctx, p.goal, &p.memory)
	p.outcome = out
	if err != nil {
		return err
	}
	switch out.State {
	case paired.Done:
		return nil
	case paired.InProgress:
		if f := p.memory.Failure; f != nil { // a retry: the failure stands until it succeeds
			return p.failed(&core.Error{Code: f.Code, Message: f.Message}, out)
		}
		return &waiting{reason: radapp.ReasonProvisioning, message: p.memory.Resource + " is being provisioned", after: out.RetryAfter}
	}
	if out.Conflict != nil {
		return &stalled{radapp.ReasonNameConflict, out.Err.Message}
	}
	return p.failed(out.Err, out)
}

func (p *pass) failed(err *core.Error, out paired.Outcome) error {
	reason := radapp.ReasonProvisioningFailed
	switch err.Code {
	case core.CodeForbidden:
		reason = radapp.ReasonEnvironmentRefused
	case core.CodeRecipeNotFound:
		reason = radapp.ReasonRecipeNotFound
	case core.CodeInvalidResourceType:
		reason = radapp.ReasonTypeNotFound
	}
	return &waiting{reason: reason, message: fmt.Sprintf("%s: %s", err.Code, err.Message), after: out.RetryAfter, fault: true}
}

// removePrevious deletes what the Recipe stood for before, after the new
// resource has been told as Ready.
func (p *pass) removePrevious(ctx context.Context) error {
	if !p.outcome.Cleaning {
		return nil
	}
	p.forget()
	p.conditions(nil)
	if err := p.write(ctx); err != nil {
		return err
	}
	out, err := p.r.runner.Clean(ctx, string(p.recipe.UID), &p.memory)
	if err != nil {
		return err
	}
	if out.State != paired.Done {
		p.again = out.RetryAfter
	}
	return nil
}

// removeResource steps the deletion of everything that was ever paired.
func (p *pass) removeResource(ctx context.Context) error {
	var id core.ID
	ref := reference(p.recipe, p.r.Cluster)
	if group, err := ref.Scope(); err == nil {
		id = group.Resource(p.recipe.Spec.Type, p.recipe.Name)
	}
	version := p.memory.APIVersion
	if version == "" {
		t, err := p.r.Server.Type(ctx, p.recipe.Spec.Type)
		switch {
		case core.IsCode(err, core.CodeInvalidResourceType), core.IsCode(err, core.CodeInvalidAPIVersion):
			if p.memory.Resource == "" && len(p.memory.Previous) == 0 {
				return nil // no type, so no resource of it
			}
		case err != nil:
			return err
		}
		version = t.APIVersion
	}
	out, err := p.r.runner.Remove(ctx, id, version, string(p.recipe.UID), &p.memory)
	if err != nil {
		return err
	}
	switch out.State {
	case paired.Done:
		return nil
	case paired.InProgress:
		return &waiting{reason: radapp.ReasonDeleting, message: "the control plane deletes " + id.String(), after: out.RetryAfter}
	}
	return &waiting{reason: radapp.ReasonDeletionFailed, message: fmt.Sprintf("%s: %s", out.Err.Code, out.Err.Message), after: out.RetryAfter, fault: true}
}
