package walkthrough

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/arm"
)

// before: the chart is installed beside a Secret that somebody made by hand. Radial runs and has no part in it.
func before(ctx context.Context, w *Walk) error {
	if _, err := w.command(ctx, "devcluster", "kubectl", "create", "namespace", w.Namespace); err != nil {
		return err
	}
	w.facts.handMadeURL = "redis://redis.example.com:6379"
	if _, err := w.kubectl(ctx, "create", "secret", "generic", HandMade, "--from-literal=url="+w.facts.handMadeURL, "--from-literal=made-by=hand"); err != nil {
		return err
	}
	if err := w.helm(ctx, "install", Release, w.chart("1-before")); err != nil {
		return err
	}
	d, err := w.rolledOut(ctx, nil)
	if err != nil {
		return err
	}
	if w.facts.template, err = templateJSON(d); err != nil {
		return err
	}
	if w.facts.replicaSets, err = w.replicaSetUIDs(ctx); err != nil {
		return err
	}
	if n := len(w.facts.replicaSets); n != 1 {
		return violated("the first install made %d ReplicaSets", n)
	}
	births, err := w.births(ctx)
	if err != nil {
		return err
	}
	w.facts.oldName = births[w.facts.replicaSets[0]].name
	w.saw("Deployment %s: %d of %d pods ready, one ReplicaSet, reads its URL from Secret %s", d.Name, d.Status.AvailableReplicas, *d.Spec.Replicas, HandMade)
	if err := w.processKnows(ctx, "DB_CONNECTION"); err != nil {
		return err
	}
	if len(d.Finalizers) > 0 || hasOurs(d) {
		return violated("Radial has touched a Deployment that does not ask for it: annotations %v, finalizers %v", d.Annotations, d.Finalizers)
	}
	app, err := w.application(ctx)
	if err != nil {
		return err
	}
	if app != nil {
		return violated("application %q is in the catalogue though nothing asked for it", app.Name)
	}
	w.saw("nothing of Radial in it, and nothing of it in Radial's catalogue")
	return nil
}

func hasOurs(d *appsv1.Deployment) bool {
	for k := range d.Annotations {
		if strings.HasPrefix(k, "radapp.io/") {
			return true
		}
	}
	for _, m := range d.ManagedFields {
		if strings.HasPrefix(m.Manager, "radial") {
			return true
		}
	}
	return false
}

// enabled: the annotation makes the Deployment part of the catalogue and changes nothing of it.
func enabled(ctx context.Context, w *Walk) error {
	if err := w.helm(ctx, "upgrade", Release, w.chart("2-enabled")); err != nil {
		return err
	}
	if _, err := w.rolledOut(ctx, adopted); err != nil {
		return err
	}
	g, err := w.showGraph(ctx)
	if err != nil {
		return err
	}
	site := node(g, Release)
	if site == nil || !strings.EqualFold(site.Type, "Applications.Core/containers") {
		return violated("the graph has no container %q: %+v", Release, g.Resources)
	}
	if !slices.ContainsFunc(site.OutputResources, func(o arm.GraphOutput) bool {
		return o.ID == fmt.Sprintf("/planes/kubernetes/local/namespaces/%s/providers/apps/Deployment/%s", w.Namespace, Release)
	}) {
		return violated("the container does not stand for the Deployment: %+v", site.OutputResources)
	}
	w.saw("application %s, named after the namespace, has a container %s that stands for the Deployment", w.Namespace, Release)
	return w.untouched(ctx)
}

// recipe: Redis is provisioned and answers into the Secret that the chart reads.
func recipe(ctx context.Context, w *Walk) error {
	if err := w.radialCommand(ctx, "recipe", "list"); err != nil {
		return err
	}
	began := time.Now()
	if err := w.helm(ctx, "upgrade", Release, w.chart("3-recipe")); err != nil {
		return err
	}
	if err := w.recipeReady(ctx); err != nil {
		return err
	}
	w.saw("Recipe %s is Ready, %s after the command", Recipe, since(began))
	s, err := w.kube.CoreV1().Secrets(w.Namespace).Get(ctx, HandMade, metav1.GetOptions{})
	if err != nil {
		return err
	}
	switch url := string(s.Data["url"]); {
	case url == "" || url == w.facts.handMadeURL:
		return violated("Secret %s does not hold the Recipe's url; its keys are %v", HandMade, secretKeys(s))
	case string(s.Data["made-by"]) != "hand":
		return violated("the hand-made key of Secret %s is gone; its keys are %v", HandMade, secretKeys(s))
	}
	w.saw("Secret %s holds the keys %s: url is the Recipe's now, made-by is as it was", HandMade, strings.Join(secretKeys(s), ", "))
	g, err := w.graph(ctx)
	if err != nil {
		return err
	}
	redis := node(g, Recipe)
	if redis == nil || !strings.EqualFold(redis.Type, "Applications.Datastores/redisCaches") || len(redis.OutputResources) == 0 {
		return violated("the graph has no provisioned redisCaches %q: %+v", Recipe, g.Resources)
	}
	var made []string
	for _, o := range redis.OutputResources {
		made = append(made, o.Type+" "+o.Name)
	}
	w.saw("the recipe made %s", strings.Join(made, ", "))
	return w.untouched(ctx)
}

// connect: the variables arrive in the pods by one rollout, and none starts without them.
func connect(ctx context.Context, w *Walk) error {
	w.seen.expectHold()
	began := time.Now()
	if err := w.helm(ctx, "upgrade", Release, w.chart("4-connection")); err != nil {
		return err
	}
	d, err := w.rolledOut(ctx, adopted)
	if err != nil {
		return err
	}
	w.saw("rolled out %s after the command", since(began))
	if err := w.connected(ctx, d); err != nil {
		return err
	}
	if variable(d, "DB_CONNECTION") != nil {
		return violated("DB_CONNECTION is still there, though the chart has let go of it")
	}
	return w.oneNewReplicaSet(ctx, w.facts.replicaSets)
}

// connected demands that the container reads the connection's URL from a Secret that has it.
func (w *Walk) connected(ctx context.Context, d *appsv1.Deployment) error {
	v := variable(d, Connection)
	if v == nil || v.ValueFrom == nil || v.ValueFrom.SecretKeyRef == nil {
		return violated("%s does not come from a Secret: %+v", Connection, v)
	}
	ref := v.ValueFrom.SecretKeyRef
	s, err := w.kube.CoreV1().Secrets(w.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(s.Data[ref.Key]) == 0 {
		return violated("Secret %s has no %s; its keys are %v", ref.Name, ref.Key, secretKeys(s))
	}
	if s.Immutable == nil || !*s.Immutable {
		return violated("Secret %s can be changed under the pods that read it", ref.Name)
	}
	w.saw("%s comes from Secret %s (immutable; keys %s)", Connection, ref.Name, strings.Join(secretKeys(s), ", "))
	return w.processKnows(ctx, Connection)
}

// processKnows demands that the process in the web site's pod says that it has its Redis from the variable.
func (w *Walk) processKnows(ctx context.Context, name string) error {
	if !w.RealPods {
		return nil
	}
	pods, err := w.kube.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + Release})
	if err != nil {
		return err
	}
	// A pod of the old template may still be on its way out.
	live := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(live) != 1 {
		return violated("%d pods of the web site live", len(live))
	}
	log, err := w.kubectl(ctx, "logs", live[0].Name)
	if err != nil {
		return err
	}
	w.Tell.Output(log)
	if !strings.Contains(log, "Redis by "+name+" at ") {
		return violated("the process in the pod does not know its Redis from %s", name)
	}
	w.saw("the process in the pod has it")
	return nil
}

// oneNewReplicaSet demands that beside the old ones exactly one ReplicaSet was ever made, and that it and every
// pod of it were made with the variable.
func (w *Walk) oneNewReplicaSet(ctx context.Context, old []string) error {
	births, err := w.births(ctx)
	if err != nil {
		return err
	}
	var sets, podCount int
	for uid, b := range births {
		if slices.Contains(old, uid) {
			continue
		}
		switch {
		case b.kind == "ReplicaSet":
			sets++
		case len(old) > 0 && !b.connected && b.owner == "ReplicaSet/"+w.facts.oldName:
			continue // a pod of the old template
		default:
			podCount++
		}
		if !b.connected {
			return violated("%s %s was made without %s", b.kind, b.name, Connection)
		}
	}
	if sets != 1 || podCount == 0 {
		return violated("%d new ReplicaSets with %d pods were made, not one with pods", sets, podCount)
	}
	if !w.seen.wasHeld() {
		return violated("the rollout was not held")
	}
	w.saw("the rollout was held at admission until the data was there: exactly one new ReplicaSet was made, and no pod started without %s", Connection)
	return nil
}

// uninstall: everything goes but what was made by hand.
func uninstall(ctx context.Context, w *Walk) error {
	g, err := w.showGraph(ctx)
	if err != nil {
		return err
	}
	site, redis := node(g, Release), node(g, Recipe)
	if site == nil || redis == nil || !slices.ContainsFunc(site.Connections, func(c arm.GraphConnection) bool {
		return c.Direction == "Outbound" && strings.EqualFold(c.ID, redis.ID)
	}) {
		return violated("the graph does not lead from %s to %s: %+v", Release, Recipe, g.Resources)
	}
	w.saw("the graph leads from the web site to its Redis, and from both to what runs in the cluster")
	if err := w.uninstalled(ctx); err != nil {
		return err
	}
	s, err := w.kube.CoreV1().Secrets(w.Namespace).Get(ctx, HandMade, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if keys := secretKeys(s); !slices.Equal(keys, []string{"made-by"}) {
		return violated("Secret %s holds the keys %v, not only what was made by hand and not taken over", HandMade, keys)
	}
	w.saw("Secret %s is still there, without the Recipe's keys: it holds made-by", HandMade)
	return nil
}

// uninstalled runs helm uninstall and waits until only the hand-made Secret is left, here and in the catalogue.
func (w *Walk) uninstalled(ctx context.Context) error {
	began := time.Now()
	if err := w.helm(ctx, "uninstall", Release); err != nil {
		return err
	}
	err := w.until(ctx, "the end of all that the chart and Radial made", func(ctx context.Context) (string, error) {
		left, err := w.leftovers(ctx)
		if err != nil {
			return "", err
		}
		left = slices.DeleteFunc(left, func(s string) bool { return s == "Secret "+HandMade })
		app, err := w.application(ctx)
		if err != nil {
			return "", err
		}
		if app != nil {
			left = append(left, "application "+app.Name)
		}
		groups, err := w.radial.List(ctx, "/planes/radius/local/resourceGroups", apiVersion)
		if err != nil {
			return "", err
		}
		for _, g := range groups {
			if g.Name == "default-"+w.Namespace {
				left = append(left, "group "+g.Name)
			}
		}
		if len(left) == 0 {
			return "", nil
		}
		return "still there: " + strings.Join(left, ", "), nil
	})
	if err != nil {
		return err
	}
	w.saw("nothing is left of the chart, of the Redis, of the injected Secrets, of application and group, %s after the command", since(began))
	return nil
}

// fromNothing: Recipe and connected Deployment arrive together, and the rollout happens once.
func fromNothing(ctx context.Context, w *Walk) error {
	w.seen.forget()
	began := time.Now()
	if err := w.helm(ctx, "install", Release, w.chart("4-connection")); err != nil {
		return err
	}
	d, err := w.rolledOut(ctx, adopted)
	if err != nil {
		return err
	}
	w.saw("Redis provisioned, web site connected and ready %s after the command", since(began))
	if err := w.connected(ctx, d); err != nil {
		return err
	}
	if err := w.oneNewReplicaSet(ctx, nil); err != nil {
		return err
	}
	if w.Keep {
		return nil
	}
	return w.uninstalled(ctx)
}

// radialCommand runs radial and shows what it printed.
func (w *Walk) radialCommand(ctx context.Context, args ...string) error {
	out, err := w.command(ctx, "radial", args...)
	if err == nil {
		w.Tell.Output(out)
	}
	return err
}

// showGraph shows the graph as users see it, and returns it.
func (w *Walk) showGraph(ctx context.Context) (arm.Graph, error) {
	if err := w.radialCommand(ctx, "app", "graph", w.Namespace); err != nil {
		return arm.Graph{}, err
	}
	return w.graph(ctx)
}
