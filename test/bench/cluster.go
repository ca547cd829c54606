package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

func (b *bench) clients() (kubernetes.Interface, dynamic.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.dir, "kubeconfig"))
	if err != nil {
		return nil, nil, err
	}
	cfg.QPS = -1
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	dyn, err := dynamic.NewForConfig(cfg)
	return cs, dyn, err
}

// adopt applies a Recipe of an inert type and a connected Deployment together,
// several times, and measures until the Deployment is available with its
// variables; beside it the same Deployment without Radial.
func (b *bench) adopt() error {
	if err := b.startCluster(); err != nil {
		return err
	}
	cs, dyn, err := b.clients()
	if err != nil {
		return err
	}
	const rounds = 5
	var with, plain []float64
	sets := 0
	for i := range rounds {
		ns := fmt.Sprintf("bench-%d", i)
		if _, err := cs.CoreV1().Namespaces().Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		took, _, err := b.rollout(cs, dyn, ns, "plain", false)
		if err != nil {
			return err
		}
		plain = append(plain, took)
		took, n, err := b.rollout(cs, dyn, ns, "web", true)
		if err != nil {
			return err
		}
		with, sets = append(with, took), max(sets, n)
	}
	b.add(figure{Name: "Recipe and connected Deployment to Available, right after a start", Value: with[0], Unit: "ms",
		Beside: plain[0], What: "the same Deployment without Radial"}.atMost(1000))
	b.add(figure{Name: "Recipe and connected Deployment to Available, worst of those after it", Value: maxOf(with[1:]), Unit: "ms",
		Beside: maxOf(plain[1:]), What: "the same Deployment without Radial"}.atMost(1000))
	b.add(figure{Name: "ReplicaSets of that Deployment", Value: float64(sets)}.atMost(1))
	return nil
}

var recipes = schema.GroupVersionResource{Group: "radapp.io", Version: "v1alpha3", Resource: "recipes"}

// rollout creates the Deployment, and with adopted the Recipe it connects to,
// and returns the milliseconds until it is available and its ReplicaSets.
func (b *bench) rollout(cs kubernetes.Interface, dyn dynamic.Interface, ns, name string, adopted bool) (float64, int, error) {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.invalid/web:1"}}}},
		},
	}
	w, err := cs.AppsV1().Deployments(ns).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return 0, 0, err
	}
	defer w.Stop()
	start := time.Now()
	if adopted {
		d.Annotations = map[string]string{"radapp.io/connection-note": "note"}
		r := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "radapp.io/v1alpha3", "kind": "Recipe", "metadata": map[string]any{"name": "note"},
			"spec": map[string]any{"type": benchType, "parameters": map[string]any{"text": "hello", "url": "redis://example"}},
		}}
		if _, err := dyn.Resource(recipes).Namespace(ns).Create(ctx, r, metav1.CreateOptions{}); err != nil {
			return 0, 0, err
		}
	}
	if _, err := cs.AppsV1().Deployments(ns).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return 0, 0, err
	}
	for e := range w.ResultChan() {
		d, ok := e.Object.(*appsv1.Deployment)
		if !ok || d.Status.AvailableReplicas != 1 || d.Status.UpdatedReplicas != 1 || d.Status.ObservedGeneration != d.Generation || d.Spec.Paused {
			continue
		}
		took := float64(time.Since(start).Microseconds()) / 1000
		if adopted && !hasVariable(d, "CONNECTION_NOTE_URL") {
			return 0, 0, errors.New("the Deployment is available without CONNECTION_NOTE_URL")
		}
		rs, err := cs.AppsV1().ReplicaSets(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return 0, 0, err
		}
		return took, len(rs.Items), nil
	}
	return 0, 0, fmt.Errorf("deployment %s/%s was not available within a minute", ns, name)
}

func hasVariable(d *appsv1.Deployment, name string) bool {
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		if e.Name == name {
			return true
		}
	}
	return false
}

// idle measures what an installation costs when nothing changes: anonymous
// memory of our processes and writes to the API server.
func (b *bench) idle() error {
	if err := b.startCluster(); err != nil {
		return err
	}
	cs, _, err := b.clients()
	if err != nil {
		return err
	}
	before, err := b.writes(cs)
	if err != nil {
		return err
	}
	const idle = 20 * time.Second
	select { // the measurement is of time itself
	case <-time.After(idle):
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
	after, err := b.writes(cs)
	if err != nil {
		return err
	}
	b.add(figure{Name: fmt.Sprintf("API writes in %s of nothing happening", idle), Value: after - before}.atMost(0))
	total := 0.0
	for _, p := range []string{"radial-server", "radial-controller"} {
		mb, err := b.anonymous(p)
		if err != nil {
			return err
		}
		total += mb
		b.add(figure{Name: "anonymous memory (PSS) of " + p, Value: mb, Unit: "MB"})
	}
	b.add(figure{Name: "anonymous memory (PSS) of both", Value: total, Unit: "MB"}.atMost(90))
	return nil
}

// writes counts the API server's mutating requests on the kinds we touch.
func (b *bench) writes(cs kubernetes.Interface) (float64, error) {
	raw, err := cs.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.ctx)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		labels, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		ours, mutating := false, false
		for _, r := range []string{"deployments", "recipes", "secrets", "events", "configmaps", "services"} {
			ours = ours || strings.Contains(labels, `resource="`+r+`"`)
		}
		for _, v := range []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"} {
			mutating = mutating || strings.Contains(labels, `verb="`+v+`"`)
		}
		if ours && mutating {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, nil
}

// anonymous returns the megabytes of anonymous memory of our process.
func (b *bench) anonymous(name string) (float64, error) {
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, p := range procs {
		cmd, err := os.ReadFile(p)
		args := strings.Split(string(cmd), "\x00")
		if err != nil || filepath.Base(args[0]) != name || !strings.Contains(string(cmd), b.dir) {
			continue
		}
		f, err := os.Open(filepath.Join(filepath.Dir(p), "smaps_rollup"))
		if err != nil {
			return 0, err
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if kb, ok := strings.CutPrefix(s.Text(), "Pss_Anon:"); ok {
				v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(kb, "kB")), 64)
				return v / 1024, err
			}
		}
	}
	return 0, fmt.Errorf("no process %s of %s found", name, b.dir)
}

func maxOf(v []float64) float64 {
	m := 0.0
	for _, x := range v {
		m = max(m, x)
	}
	return m
}
