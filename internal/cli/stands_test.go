package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/core"
)

// TestDeploymentStands_K28: each way in which a Deployment is not done is told apart from each other, and those
// that time does not mend end the wait.
func TestDeploymentStands_K28(t *testing.T) {
	done := func() *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 3, Annotations: map[string]string{"radapp.io/connection-redis": "db"}}}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
		return d
	}
	// observed writes the status that the controller would write about d as it is.
	observed := func(d *appsv1.Deployment, phrase radapp.Phrase, ready metav1.ConditionStatus, reason, message string) {
		raw, err := json.Marshal(radapp.DeploymentStatus{
			ObservedHash: radapp.ObservedHash(d.Annotations, d.Spec.Template), Phrase: phrase,
			Conditions: []metav1.Condition{{Type: radapp.ConditionReady, Status: ready, Reason: reason, Message: message}},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Annotations[radapp.AnnotationStatus] = string(raw)
	}
	good := func(d *appsv1.Deployment) {
		observed(d, radapp.PhraseReady, metav1.ConditionTrue, "Ready", "up to date")
	}

	for name, c := range map[string]struct {
		change func(*appsv1.Deployment)
		done   bool
		stands string // what it waits for
		fails  string // why waiting helps nothing
	}{
		"all is done":  {change: good, done: true, stands: "up to date"},
		"not seen yet": {change: func(*appsv1.Deployment) {}, stands: "is a radial-controller running"},
		"seen before it was changed": {change: func(d *appsv1.Deployment) {
			good(d)
			d.Spec.Template.Labels = map[string]string{"new": "yes"}
		}, stands: "has not seen it as it is now"},
		"a status that is no JSON": {change: func(d *appsv1.Deployment) { d.Annotations[radapp.AnnotationStatus] = "{" }, stands: "has not seen it"},
		"waits for a Recipe": {change: func(d *appsv1.Deployment) {
			observed(d, radapp.PhraseWaiting, metav1.ConditionFalse, "RecipeNotFound", "no Recipe db")
			d.Spec.Paused, d.Annotations[radapp.AnnotationHeld] = true, "x"
		}, stands: "RecipeNotFound: no Recipe db"},
		"failed": {change: func(d *appsv1.Deployment) {
			observed(d, radapp.PhraseFailed, metav1.ConditionFalse, "EnvironmentRefused", "ask for it")
		}, fails: "EnvironmentRefused: ask for it"},
		"held still": {change: func(d *appsv1.Deployment) {
			good(d)
			d.Spec.Paused, d.Annotations[radapp.AnnotationHeld] = true, "x"
		}, stands: "the hold is about to end"},
		"paused by its user": {change: func(d *appsv1.Deployment) {
			observed(d, radapp.PhraseReady, metav1.ConditionTrue, "PausedByUser", "resume it")
			d.Spec.Paused = true
		}, fails: "PausedByUser: resume it"},
		"not adopted":  {change: func(d *appsv1.Deployment) { d.Annotations = nil }, fails: "radapp.io/enabled"},
		"switched off": {change: func(d *appsv1.Deployment) { d.Annotations[radapp.AnnotationEnabled] = "False" }, fails: "not adopted"},
		"misspelt and nothing else": {change: func(d *appsv1.Deployment) {
			d.Annotations = map[string]string{"radapp.io/conection-redis": "db"}
			observed(d, radapp.PhraseFailed, metav1.ConditionFalse, "UnknownAnnotation", "did you mean")
		}, fails: "UnknownAnnotation: did you mean"},
		"being deleted":  {change: func(d *appsv1.Deployment) { good(d); d.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, fails: "being deleted"},
		"an old rollout": {change: func(d *appsv1.Deployment) { good(d); d.Status.ObservedGeneration = 2 }, stands: "rolling out"},
		"old pods left":  {change: func(d *appsv1.Deployment) { good(d); d.Status.Replicas = 2 }, stands: "rolling out"},
		"not available":  {change: func(d *appsv1.Deployment) { good(d); d.Status.AvailableReplicas = 0 }, stands: "1 of 1 pods are new, 0 available"},
		"stuck": {change: func(d *appsv1.Deployment) {
			good(d)
			d.Status.AvailableReplicas = 0
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded", Message: "took too long"}}
		}, fails: "took too long"},
	} {
		t.Run(name, func(t *testing.T) {
			d := done()
			c.change(d)
			got, stands, err := deploymentStands(d)
			switch {
			case c.fails != "":
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("error %v, want %q", err, c.fails)
				}
			case err != nil || got != c.done || !strings.Contains(stands, c.stands):
				t.Errorf("done %t, %q, %v; want %t, %q", got, stands, err, c.done, c.stands)
			}
		})
	}
}

func TestRecipeStands_K28(t *testing.T) {
	recipe := func(conditions ...metav1.Condition) *radapp.Recipe {
		r := &radapp.Recipe{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		r.Status.ObservedGeneration, r.Status.Conditions = 2, conditions
		return r
	}
	condition := func(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "Because", Message: message}
	}
	old := recipe(condition("Ready", metav1.ConditionTrue, "of before"))
	old.Generation = 3
	for name, c := range map[string]struct {
		r      *radapp.Recipe
		done   bool
		stands string
		fails  string
	}{
		"ready":            {r: recipe(condition("Ready", metav1.ConditionTrue, "there")), done: true, stands: "there"},
		"of another time":  {r: old, stands: "not seen it"},
		"nothing said yet": {r: recipe(), stands: "not seen it"},
		"provisioning":     {r: recipe(condition("Ready", metav1.ConditionFalse, "on its way"), condition("Reconciling", metav1.ConditionTrue, "")), stands: "Because: on its way"},
		"stalled":          {r: recipe(condition("Ready", metav1.ConditionFalse, "x"), condition("Stalled", metav1.ConditionTrue, "wrong spec")), fails: "Because: wrong spec"},
	} {
		got, stands, err := recipeStands(c.r)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: error %v, want %q", name, err, c.fails)
			}
		} else if err != nil || got != c.done || !strings.Contains(stands, c.stands) {
			t.Errorf("%s: done %t, %q, %v; want %t, %q", name, got, stands, err, c.done, c.stands)
		}
	}
}

// TestDetailTree: a line for each fault, its place before it, nothing said twice.
func TestDetailTree(t *testing.T) {
	raw := `{"code":"X","message":"two objects failed","details":[
		{"code":"A","message":"Secret db: it is there\nand not ours; delete it","target":"resources.secret","details":[{"code":"B","message":"two objects failed"},{"code":"C","message":"owner: shop","target":"metadata"}]},
		{"code":"D","message":"Deployment db: not ready"}]}`
	var wire arm.Error
	if err := json.Unmarshal([]byte(raw), &wire); err != nil {
		t.Fatal(err)
	}
	e := wireError(wire)
	got := detailTree(e.Message, e.Details, "  ")
	want := "  - resources.secret: Secret db: it is there and not ours; delete it\n    - metadata: owner: shop\n  - Deployment db: not ready\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestErrorText: faults that a message strings together have a line each; what it says besides stays.
func TestErrorText(t *testing.T) {
	a := core.Error{Target: "depth", Message: "must be an integer"}
	b := core.Error{Target: "password", Message: "password: must have at least 8 characters"}
	for name, c := range map[string]struct {
		said    string
		details []core.Error
		want    string
	}{
		"none":          {"it failed; try again", nil, "it failed; try again\n"},
		"one, said":     {"failed: must be an integer", []core.Error{a}, "failed: must be an integer\n"},
		"one, not said": {"failed", []core.Error{a}, "failed\n  - depth: must be an integer\n"},
		"two, strung":   {"x.yaml: failed: depth: must be an integer; password: must have at least 8 characters", []core.Error{a, b}, "x.yaml: failed:\n  - depth: must be an integer\n  - password: must have at least 8 characters\n"},
		"two, and more": {"failed: depth: must be an integer; password: must have at least 8 characters. Do this", []core.Error{a, b}, "failed:\n  - depth: must be an integer\n  - password: must have at least 8 characters\nDo this\n"},
		"one begins as the other": {"failed: a: is required, such as x; b: is required", []core.Error{{Target: "a", Message: "is required, such as x"}, {Target: "b", Message: "is required"}},
			"failed:\n  - a: is required, such as x\n  - b: is required\n"},
		"a name inside a word": {"failed: a: known here is name; b: x", []core.Error{{Target: "a", Message: "known here is name"}, {Target: "b", Message: "x"}}, "failed:\n  - a: known here is name\n  - b: x\n"},
		"two, one unsaid":      {"failed: must be an integer", []core.Error{a, b}, "failed: must be an integer\n  - password: must have at least 8 characters\n"},
	} {
		if got := errorText(c.said, c.details); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, c.want)
		}
	}
}
