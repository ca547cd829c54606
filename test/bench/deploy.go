package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/scope"
)

const (
	deployed      = 200
	deployAtATime = 16
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// deploy makes 200 ConfigMaps by one template and its loop, and beside it by a
// bare client that applies as many at a time; then the same once more, when they
// are there. Both take turns, each in namespaces of its own.
func (b *bench) deploy() error {
	if err := b.startCluster(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.dir, "kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS = -1
	cs, bare, err := b.clients()
	if err != nil {
		return err
	}
	engine := deploy.New(deploy.EngineOptions{Parallel: deployAtATime, Resolver: scope.NewResolver(map[string]scope.Connect{
		core.LocalCluster: func(context.Context) (*kubernetes.Cluster, error) {
			return kubernetes.New(core.LocalCluster, config, kubernetes.Options{})
		},
	})})
	text := fmt.Appendf(nil, `{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","version":"1.0.0"}},
		"resources":{"m":{"copy":{"name":"m","count":%d},"import":"k","type":"core/ConfigMap@v1",
		"properties":{"metadata":{"name":"[format('m-{0}', copyIndex())]","labels":{"n":"[string(copyIndex())]"}},"data":{"text":"[format('value {0}', copyIndex())]"}}}}}`, deployed)
	const rounds = 5
	var journal []core.Output
	var made, again, madeBare, againBare []float64
	for i := range rounds {
		for j, measure := range []struct {
			what        string
			run         func(ns string, n int) error
			first, next *[]float64
		}{
			{"bare", func(ns string, _ int) error { return applyAll(b.ctx, bare, ns) }, &madeBare, &againBare},
			{"template", func(ns string, n int) error {
				if n == 0 {
					journal = nil
				}
				res, err := engine.Deploy(b.ctx, deploy.Request{Name: "bench", Template: text, Base: extension.Scope{Namespace: ns}, Run: fmt.Sprint(n), Seed: []byte(ns), Previous: journal,
					Record: func(context.Context, []core.Output, []core.ID) error { return nil }})
				if err == nil {
					journal = res.Journal
				}
				if err == nil && len(res.Resources) != deployed {
					err = fmt.Errorf("%d resources were made", len(res.Resources))
				}
				return err
			}, &made, &again},
		} {
			ns := fmt.Sprintf("deploy-%s-%d", measure.what, i)
			if _, err := cs.CoreV1().Namespaces().Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
				return err
			}
			for n, times := range []*[]float64{measure.first, measure.next} {
				begun := time.Now()
				if err := measure.run(ns, n); err != nil {
					return fmt.Errorf("%s, round %d.%d: %w", measure.what, i, j, err)
				}
				*times = append(*times, milliseconds(time.Since(begun)))
			}
		}
	}
	b.add(figure{Name: fmt.Sprintf("%d ConfigMaps by one template, median", deployed), Value: quantile(made, 0.5), Unit: "ms",
		Beside: quantile(madeBare, 0.5), What: "as many server-side applies by a bare client"}.ratioAtMost(1.5))
	b.add(figure{Name: "The same once more, when they are there", Value: quantile(again, 0.5), Unit: "ms",
		Beside: quantile(againBare, 0.5), What: "the bare client once more"})
	return nil
}

// applyAll applies the same objects by server-side apply.
func applyAll(ctx context.Context, client dynamic.Interface, ns string) error {
	next := make(chan int)
	errs := make(chan error, deployAtATime)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers sync.WaitGroup
	for range deployAtATime {
		workers.Go(func() {
			for i := range next {
				o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
					"metadata": map[string]any{"name": fmt.Sprintf("m-%d", i), "namespace": ns, "labels": map[string]any{"n": fmt.Sprint(i)}},
					"data":     map[string]any{"text": fmt.Sprintf("value %d", i)}}}
				if _, err := client.Resource(configMaps).Namespace(ns).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "bench"}); err != nil {
					select {
					case errs <- err:
					default:
					}
					cancel()
				}
			}
		})
	}
	for i := range deployed {
		next <- i
	}
	close(next)
	workers.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}
