package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/connection"
	"github.com/radial-project/radial/internal/core"
)

// AnnotationRecipe on a Secret names the Recipe that answers it. It is a hint:
// that Recipe is asked before it is believed.
const AnnotationRecipe = "radapp.io/recipe"

// dataOf turns values into the keys of a Secret: property names, with _ for
// what a key cannot hold. Two properties that meet in one key are an error
// that names both.
func dataOf(values map[string]any) (map[string][]byte, error) {
	data := make(map[string][]byte, len(values))
	from := make(map[string]string, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] == nil {
			continue
		}
		key := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
				return r
			}
			return '_'
		}, name)
		if other, taken := from[key]; taken {
			return nil, fmt.Errorf("properties %q and %q would both be the key %q of the Secret; rename one of them in the resource type", other, name, key)
		}
		from[key] = name
		data[key] = []byte(connection.Text(values[name]))
	}
	return data, nil
}

// ownedKeys are the keys of a Secret that the field manager owns.
func ownedKeys(s *corev1.Secret) map[string]bool {
	owned := map[string]bool{}
	for _, m := range s.ManagedFields {
		if m.Manager != FieldManager || m.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Data map[string]json.RawMessage `json:"f:data"`
		}
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for f := range fields.Data {
			if key, ok := strings.CutPrefix(f, "f:"); ok {
				if _, there := s.Data[key]; there {
					owned[key] = true
				}
			}
		}
	}
	return owned
}

// madeBy reports whether the Secret was made for the Recipe: it then goes with
// it.
func madeBy(s *corev1.Secret, recipe *radapp.Recipe) bool {
	for _, o := range s.OwnerReferences {
		if o.UID == recipe.UID {
			return true
		}
	}
	return false
}

// work is what has to happen to a Secret.
type work struct {
	create bool
	apply  bool
	drop   []string // keys of ours that are not answered any more
}

// plan compares a Secret with what it should hold; s is nil when there is
// none.
func plan(s *corev1.Secret, recipe *radapp.Recipe, data map[string][]byte) work {
	if s == nil {
		return work{create: true}
	}
	owned := ownedKeys(s)
	w := work{apply: s.Annotations[AnnotationRecipe] != recipe.Name}
	for key, value := range data {
		if !owned[key] || !bytes.Equal(s.Data[key], value) {
			w.apply = true
		}
	}
	for key := range owned {
		if _, wanted := data[key]; !wanted {
			w.drop = append(w.drop, key)
		}
	}
	slices.Sort(w.drop)
	return w
}

// applySecret writes what the resource answers into the Secret (K-14), then
// takes the Recipe's keys out of the one it wrote before (K-15).
func (p *pass) applySecret(ctx context.Context) error {
	name, old := p.recipe.Spec.SecretName, secretName(p.recipe)
	var wrote *radapp.SecretStatus
	if name != "" {
		values, err := valuesOf(ctx, p.r.Server, p.outcome.Resource, p.goal.ID, p.goal.APIVersion)
		if err != nil {
			return err
		}
		data, err := dataOf(values)
		if err != nil {
			return &stalled{radapp.ReasonSecretFailed, err.Error()}
		}
		if err := p.writeSecret(ctx, name, data); err != nil {
			return err
		}
		wrote = &radapp.SecretStatus{Name: name, Keys: slices.Sorted(maps.Keys(data))}
	}
	if old != "" && old != name {
		if err := p.leaveSecret(ctx, old); err != nil {
			return err
		}
	}
	// Only now: as long as the old one is not left, the status has to know it.
	p.recipe.Status.Secret = wrote
	return nil
}

func (p *pass) writeSecret(ctx context.Context, name string, data map[string][]byte) error {
	s, err := p.secret(ctx, name)
	if err != nil {
		return err
	}
	if s != nil {
		if err := p.contested(ctx, s); err != nil {
			return err
		}
	}
	w := plan(s, p.recipe, data)
	switch {
	case w.create:
		err = p.r.cache.Create(ctx, p.newSecret(name, data), kube.FieldOwner(FieldManager))
		if apierrors.IsAlreadyExists(err) {
			// Made since the look: what it is decides the next pass.
			return apierrors.NewConflict(corev1.Resource("secrets"), name, err)
		}
	case len(w.drop) > 0 || w.apply:
		version := s.ResourceVersion
		if len(w.drop) > 0 {
			if version, err = p.dropKeys(ctx, s, w.drop, false); err != nil {
				break
			}
		}
		// On condition of the version that was looked at, so that of two Recipes
		// that want one Secret the second sees the first.
		apply := corev1ac.Secret(name, p.recipe.Namespace).WithUID(s.UID).WithResourceVersion(version).
			WithAnnotations(map[string]string{AnnotationRecipe: p.recipe.Name}).WithData(data)
		err = p.r.cache.Apply(ctx, apply, kube.ForceOwnership, kube.FieldOwner(FieldManager))
	}
	return p.secretFault(name, err)
}

func (p *pass) newSecret(name string, data map[string][]byte) *corev1.Secret {
	yes := true
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: p.recipe.Namespace,
			Annotations: map[string]string{AnnotationRecipe: p.recipe.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: radapp.GroupVersion.String(), Kind: Kind, Name: p.recipe.Name, UID: p.recipe.UID,
				Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Data: data,
	}
}

// contested refuses a Secret that another Recipe answers.
func (p *pass) contested(ctx context.Context, s *corev1.Secret) error {
	name := s.Annotations[AnnotationRecipe]
	if name == "" || name == p.recipe.Name {
		return nil
	}
	var other radapp.Recipe
	err := p.r.live.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: name}, &other)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if other.Spec.SecretName != s.Name && secretName(&other) != s.Name {
		return nil
	}
	return &stalled{radapp.ReasonSecretConflict, fmt.Sprintf(
		"Secret %s is answered by Recipe %s already; give spec.secretName another name. This Recipe takes it over when the other gives it up", s.Name, name)}
}

// leaveSecret takes back what the Recipe gave a Secret: the whole of one that
// was made for it, only its own keys of any other.
func (p *pass) leaveSecret(ctx context.Context, name string) error {
	s, err := p.secret(ctx, name)
	if err != nil || s == nil {
		return err
	}
	if madeBy(s, p.recipe) {
		err := p.r.cache.Delete(ctx, s, kube.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
		return p.secretFault(name, kube.IgnoreNotFound(err))
	}
	if s.Annotations[AnnotationRecipe] != p.recipe.Name {
		return nil // another Recipe's by now, or taken back by its user
	}
	_, err = p.dropKeys(ctx, s, slices.Sorted(maps.Keys(ownedKeys(s))), true)
	return p.secretFault(name, kube.IgnoreNotFound(err))
}

// dropKeys removes keys, and our mark with the last of them, and returns the
// new version.
func (p *pass) dropKeys(ctx context.Context, s *corev1.Secret, keys []string, mark bool) (string, error) {
	data := map[string]any{}
	for _, k := range keys {
		data[k] = nil
	}
	metadata := map[string]any{"uid": string(s.UID), "resourceVersion": s.ResourceVersion}
	if mark {
		metadata["annotations"] = map[string]any{AnnotationRecipe: nil}
	}
	raw, err := json.Marshal(map[string]any{"metadata": metadata, "data": data})
	if err != nil {
		return "", err
	}
	patched := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace}}
	err = p.r.cache.Patch(ctx, patched, kube.RawPatch(types.MergePatchType, raw), kube.FieldOwner(FieldManager))
	return patched.ResourceVersion, err
}

// secret reads one Secret past the cache; nil if there is none.
func (p *pass) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	var s corev1.Secret
	err := p.r.live.Get(ctx, types.NamespacedName{Namespace: p.recipe.Namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, p.secretFault(name, err)
	}
	return &s, nil
}

// secretFault words a refusal of the API server; conflicts pass as they are
// and are looked at again.
func (p *pass) secretFault(name string, err error) error {
	if err == nil || apierrors.IsConflict(err) {
		return err
	}
	why := core.Errorf(core.CodeInternal, "cannot write Secret %s/%s: %w", p.recipe.Namespace, name, err)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return &waiting{reason: radapp.ReasonSecretFailed, message: why.Message, after: p.r.MaxRetry, fault: true}
	}
	return why
}

// removeSecrets takes the Recipe's data out of every Secret that it may have
// written.
func (p *pass) removeSecrets(ctx context.Context) error {
	names := []string{p.recipe.Spec.SecretName, secretName(p.recipe)}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}
		if err := p.leaveSecret(ctx, name); err != nil {
			return err
		}
	}
	p.recipe.Status.Secret = nil
	return nil
}
