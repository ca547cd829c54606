package walkthrough

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/core"
)

var (
	recipes     = schema.GroupVersionResource{Group: "radapp.io", Version: "v1alpha3", Resource: "recipes"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// apiVersion of the built-in types.
const apiVersion = "2023-10-01-preview"

// observer wakes waits at every change in the namespace and in the control plane, and remembers every
// ReplicaSet and pod that ever was there, gone ones included.
type observer struct {
	changed chan struct{}

	mu   sync.Mutex
	born map[string]birth // by uid
	held bool             // the Deployment was seen paused with Radial's mark
}

// birth is what a ReplicaSet or a pod was made with.
type birth struct {
	kind, name, owner string
	// connected says that it was made with the connection's variable.
	connected bool
}

// observe starts to watch, until ctx ends.
func (w *Walk) observe(ctx context.Context) *observer {
	o := &observer{changed: make(chan struct{}, 1), born: map[string]birth{}}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(w.dynamic, 0, w.Namespace, nil)
	for _, gvr := range []schema.GroupVersionResource{recipes, deployments, replicaSets, pods, secrets, services} {
		_, err := factory.ForResource(gvr).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { o.note(obj); o.wake() },
			UpdateFunc: func(_, obj any) { o.note(obj); o.wake() },
			DeleteFunc: func(any) { o.wake() },
		})
		if err != nil {
			panic(err) // the informer has not been stopped
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go func() {
		_ = w.radial.Watch(ctx, func(arm.Change) { o.wake() }, client.WatchOptions{}) // returns ctx's error
	}()
	return o
}

func (o *observer) wake() {
	select {
	case o.changed <- struct{}{}:
	default: // a wake is waiting already
	}
}

func (o *observer) note(obj any) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if u.GetKind() == "Deployment" && u.GetName() == Release {
		paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
		_, marked := u.GetAnnotations()["radapp.io/held"]
		o.mu.Lock()
		defer o.mu.Unlock()
		o.held = o.held || paused && marked
		return
	}
	if u.GetKind() != "ReplicaSet" && u.GetKind() != "Pod" {
		return
	}
	b := birth{kind: u.GetKind(), name: u.GetName()}
	if ref := metav1.GetControllerOf(u); ref != nil {
		b.owner = ref.Kind + "/" + ref.Name
	}
	path := []string{"spec", "containers"}
	if b.kind == "ReplicaSet" {
		path = []string{"spec", "template", "spec", "containers"}
	}
	containers, _, _ := unstructured.NestedSlice(u.Object, path...)
	for _, c := range containers {
		c, _ := c.(map[string]any)
		env, _ := c["env"].([]any)
		for _, e := range env {
			e, _ := e.(map[string]any)
			b.connected = b.connected || e["name"] == Connection
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.born[string(u.GetUID())]; !known { // what it was made with, not what became of it
		o.born[string(u.GetUID())] = b
	}
}

// births returns what was ever made for the Deployment, once all that lives now has been seen.
func (w *Walk) births(ctx context.Context) (map[string]birth, error) {
	out := map[string]birth{}
	err := w.until(ctx, "sight of all ReplicaSets and pods", func(ctx context.Context) (string, error) {
		for _, gvr := range []schema.GroupVersionResource{replicaSets, pods} {
			list, err := w.dynamic.Resource(gvr).Namespace(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + Release})
			if err != nil {
				return "", err
			}
			for _, u := range list.Items {
				if !w.seen.has(string(u.GetUID())) {
					return u.GetKind() + " " + u.GetName(), nil
				}
			}
		}
		return "", nil
	})
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	for uid, b := range w.seen.born {
		if b.owner == "Deployment/"+Release || strings.HasPrefix(b.owner, "ReplicaSet/"+Release+"-") {
			out[uid] = b
		}
	}
	return out, err
}

func (o *observer) has(uid string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.born[uid]
	return ok
}

// forget starts a new record.
func (o *observer) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.born, o.held = map[string]birth{}, false
}

// expectHold starts a new record of holding alone.
func (o *observer) expectHold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
}

// wasHeld says whether a rollout of the Deployment was held since the record began.
func (o *observer) wasHeld() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}

// until asks again at every change, until nothing is missing. The check says what is missing, for the error.
func (w *Walk) until(ctx context.Context, what string, missing func(context.Context) (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	last := ""
	for {
		m, err := missing(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s did not come within %s: %s", what, settleLimit, last)
		case err != nil:
			return fmt.Errorf("waiting for %s: %w", what, err)
		case m == "":
			return nil
		}
		last = m
		select {
		case <-w.seen.changed:
		case <-ctx.Done():
		}
	}
}

// deployment reads the web site's Deployment.
func (w *Walk) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	return w.kube.AppsV1().Deployments(w.Namespace).Get(ctx, Release, metav1.GetOptions{})
}

// rolledOut waits until the Deployment is not paused and all its pods are of the newest template and ready.
func (w *Walk) rolledOut(ctx context.Context, also func(*appsv1.Deployment) string) (*appsv1.Deployment, error) {
	var d *appsv1.Deployment
	err := w.until(ctx, "the rollout", func(ctx context.Context) (_ string, err error) {
		if d, err = w.deployment(ctx); err != nil {
			return "", err
		}
		s := d.Status
		switch {
		case d.Spec.Paused:
			return "the Deployment is held: " + d.Annotations["radapp.io/status"], nil
		case s.ObservedGeneration < d.Generation:
			return "the Deployment controller has not seen the newest generation", nil
		case s.UpdatedReplicas < *d.Spec.Replicas || s.AvailableReplicas < s.UpdatedReplicas || s.Replicas > s.UpdatedReplicas:
			return fmt.Sprintf("%d of %d pods are new, %d available, %d in all", s.UpdatedReplicas, *d.Spec.Replicas, s.AvailableReplicas, s.Replicas), nil
		case also != nil:
			return also(d), nil
		}
		return "", nil
	})
	return d, err
}

// adopted says what is missing until Radial calls the Deployment ready.
func adopted(d *appsv1.Deployment) string {
	var s struct {
		Phrase string `json:"phrase"`
	}
	raw := d.Annotations["radapp.io/status"]
	if json.Unmarshal([]byte(raw), &s) != nil || s.Phrase != "Ready" {
		return "Radial does not call the Deployment ready: " + raw
	}
	return ""
}

// recipeReady waits for the Recipe's Ready.
func (w *Walk) recipeReady(ctx context.Context) error {
	return w.until(ctx, "the Recipe", func(ctx context.Context) (string, error) {
		u, err := w.dynamic.Resource(recipes).Namespace(w.Namespace).Get(ctx, Recipe, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			if c["type"] == "Ready" && c["status"] == "True" && observed == u.GetGeneration() {
				return "", nil
			}
		}
		return fmt.Sprintf("conditions are %v", conditions), nil
	})
}

// replicaSetUIDs lists the ReplicaSets of the Deployment.
func (w *Walk) replicaSetUIDs(ctx context.Context) ([]string, error) {
	list, err := w.kube.AppsV1().ReplicaSets(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + Release})
	if err != nil {
		return nil, err
	}
	var uids []string
	for _, rs := range list.Items {
		uids = append(uids, string(rs.UID))
	}
	slices.Sort(uids)
	return uids, nil
}

func templateJSON(d *appsv1.Deployment) (string, error) {
	b, err := json.Marshal(d.Spec.Template)
	return string(b), err
}

// untouched demands that neither the pod template nor the ReplicaSets have changed since they were noted.
func (w *Walk) untouched(ctx context.Context) error {
	d, err := w.deployment(ctx)
	if err != nil {
		return err
	}
	template, err := templateJSON(d)
	if err != nil {
		return err
	}
	if template != w.facts.template {
		return violated("the pod template has changed:\n  before %s\n  now    %s", w.facts.template, template)
	}
	uids, err := w.replicaSetUIDs(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(uids, w.facts.replicaSets) {
		return violated("the ReplicaSets have changed: before %v, now %v", w.facts.replicaSets, uids)
	}
	w.saw("the pod template is the same to the byte, and so is the ReplicaSet")
	return nil
}

// secretKeys are the names, never the values, of what a Secret holds.
func secretKeys(s *corev1.Secret) []string {
	var keys []string
	for k := range s.Data {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// variable finds an environment variable of the web site's container.
func variable(d *appsv1.Deployment, name string) *corev1.EnvVar {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == name {
				return &e
			}
		}
	}
	return nil
}

// application finds the application in the catalogue; nil when it is not there.
func (w *Walk) application(ctx context.Context) (*arm.Resource, error) {
	all, err := w.radial.List(ctx, "/planes/radius/local/providers/Applications.Core/applications", apiVersion)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Name == w.Namespace {
			return &a, nil
		}
	}
	return nil, nil
}

// graph reads the application's graph.
func (w *Walk) graph(ctx context.Context) (arm.Graph, error) {
	var g arm.Graph
	app, err := w.application(ctx)
	if err != nil {
		return g, err
	}
	if app == nil {
		return g, violated("there is no application %q", w.Namespace)
	}
	id, err := core.ParseID(app.ID)
	if err != nil {
		return g, err
	}
	return g, w.radial.Action(ctx, id, "getGraph", apiVersion, nil, &g)
}

func node(g arm.Graph, name string) *arm.GraphResource {
	for _, r := range g.Resources {
		if r.Name == name {
			return &r
		}
	}
	return nil
}

// leftovers lists what is in the namespace beside what Kubernetes itself puts there.
func (w *Walk) leftovers(ctx context.Context) ([]string, error) {
	var left []string
	for _, gvr := range []schema.GroupVersionResource{recipes, deployments, replicaSets, pods, services, secrets} {
		list, err := w.dynamic.Resource(gvr).Namespace(w.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, u := range list.Items {
			if one := u.GetKind() + " " + u.GetName(); one != "Service kubernetes" { // the API server's own
				left = append(left, one)
			}
		}
	}
	slices.Sort(left)
	return left, nil
}

func since(t time.Time) string { return fmt.Sprintf("%.2f s", time.Since(t).Seconds()) }
