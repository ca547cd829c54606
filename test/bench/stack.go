package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/stack/filerecords"
	"github.com/radial-project/radial/internal/stack/local"
)

const (
	stackKept    = 1000
	stackDropped = 1000
	stackNested  = 3
)

// stack updates a stack of three nested templates that keeps 1,000 ConfigMaps and
// drops 1,000, once as they are and once with each of those that stay changed;
// beside it a bare client applies and deletes as many, as many at a time. Each has
// a namespace of its own, and they take turns.
func (b *bench) stack() error {
	if err := b.startCluster(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.dir, "kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS = -1
	var deletes, reads atomic.Int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/configmaps") {
				switch r.Method {
				case http.MethodDelete:
					deletes.Add(1)
				case http.MethodGet:
					reads.Add(1)
				}
			}
			return next.RoundTrip(r)
		})
	})
	cs, bare, err := b.clients()
	if err != nil {
		return err
	}
	const rounds = 3
	var ours, changed, theirs []float64
	calls := 0.0
	for i := range rounds {
		ns := fmt.Sprintf("stack-%d", i)
		for _, name := range []string{ns, ns + "-bare"} {
			if _, err := cs.CoreV1().Namespaces().Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		took, err := bareStack(b.ctx, bare, ns+"-bare")
		if err != nil {
			return err
		}
		theirs = append(theirs, took)
		stacks := local.New(local.Options{Config: config, Namespace: ns, Records: filerecords.New(filepath.Join(b.dir, ns+".json"))})
		apply := func(count int, text string) (float64, error) {
			begun := time.Now()
			r, err := stacks.Apply(b.ctx, local.ID("bench", ns), local.Input{Template: stackTemplate(ns, count, text), Unmanage: stack.Delete})
			if err == nil && len(r.Resources) != count {
				err = fmt.Errorf("%d resources are managed, not %d", len(r.Resources), count)
			}
			return milliseconds(time.Since(begun)), err
		}
		for text, list := range map[string]*[]float64{"value": &ours, "another": &changed} {
			if _, err := apply(stackKept+stackDropped, "value"); err != nil {
				return err
			}
			deletes.Store(0)
			reads.Store(0)
			if took, err = apply(stackKept, text); err != nil {
				return err
			}
			*list = append(*list, took)
			calls = max(calls, float64(deletes.Load()+reads.Load())/stackDropped)
		}
	}
	b.add(figure{Name: fmt.Sprintf("A stack that keeps %d and drops %d ConfigMaps, median", stackKept, stackDropped), Value: quantile(ours, 0.5), Unit: "ms",
		Beside: quantile(theirs, 0.5), What: "as many applies and deletes by a bare client"}.ratioAtMost(1.3))
	b.add(figure{Name: "The same, with each of those that stay changed", Value: quantile(changed, 0.5), Unit: "ms",
		Beside: quantile(theirs, 0.5), What: "the same"})
	// Watches that wait for ends are calls too, though not one for an object.
	b.add(figure{Name: "Calls for each deleted object, reads and watches included", Value: calls}.atMost(1.02))
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stackTemplate is three nested deployments with their part of count ConfigMaps.
func stackTemplate(ns string, count int, text string) []byte {
	var nested []string
	for i := range stackNested {
		first, last := i*count/stackNested, (i+1)*count/stackNested
		nested = append(nested, fmt.Sprintf(`"n%d":{"type":"Microsoft.Resources/deployments","apiVersion":"2022-09-01","name":"n%d","properties":{"mode":"Incremental",
		"expressionEvaluationOptions":{"scope":"inner"},"template":{"contentVersion":"1.0.0.0","languageVersion":"2.0",
		"imports":{"k":{"provider":"Kubernetes","version":"1.0.0","config":{"namespace":%q}}},
		"resources":{"m":{"copy":{"name":"m","count":%d},"import":"k","type":"core/ConfigMap@v1",
		"properties":{"metadata":{"name":"[format('m-{0}', add(copyIndex(), %d))]"},"data":{"text":"[format('{1} {0}', add(copyIndex(), %d), '%s')]"}}}}}}}`, i, i, ns, last-first, first, first, text))
	}
	return []byte(`{"contentVersion":"1.0.0.0","languageVersion":"2.0","resources":{` + strings.Join(nested, ",") + `}}`)
}

// bareStack makes all objects, and measures applying those that stay and deleting
// the others, each with its uid.
func bareStack(ctx context.Context, client dynamic.Interface, ns string) (float64, error) {
	maps := client.Resource(configMaps).Namespace(ns)
	uids := make([]types.UID, stackKept+stackDropped)
	apply := func(i int) error {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": fmt.Sprintf("m-%d", i), "namespace": ns}, "data": map[string]any{"text": fmt.Sprintf("value %d", i)}}}
		made, err := maps.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "bench"})
		if err == nil {
			uids[i] = made.GetUID()
		}
		return err
	}
	if err := atATime(len(uids), apply); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := atATime(stackKept, apply); err != nil {
		return 0, err
	}
	err := atATime(stackDropped, func(i int) error {
		i += stackKept
		return maps.Delete(ctx, fmt.Sprintf("m-%d", i), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uids[i]}})
	})
	return milliseconds(time.Since(begun)), err
}

// atATime does n things, deployAtATime at a time, and returns the first error.
func atATime(n int, do func(i int) error) error {
	next := make(chan int)
	var first error
	var once sync.Once
	var workers sync.WaitGroup
	for range deployAtATime {
		workers.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return first
}
