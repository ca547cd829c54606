package fakenode

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const workers = 4

// Config is what Run needs.
type Config struct {
	Client  kubernetes.Interface
	Nodes   int
	Untaint bool // take the not-ready taint away, because no controller manager does
	Clock   clock.PassiveClock
	Log     io.Writer
}

// Run keeps the nodes and their pods until ctx ends. An error means that it could not begin.
func Run(ctx context.Context, cfg Config) error {
	nodes := make([]*node, cfg.Nodes)
	for i := range nodes {
		nodes[i] = &node{client: cfg.Client, name: NodeName(i), untaint: cfg.Untaint}
		if err := nodes[i].beat(ctx); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		ticker := time.NewTicker(beatPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for _, n := range nodes {
				if err := n.beat(ctx); err != nil && ctx.Err() == nil {
					fmt.Fprintln(cfg.Log, err) // the next beat tries again
				}
			}
		}
	})

	k := newKubelet(cfg)
	factory := informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}))
	pods := factory.Core().V1().Pods()
	k.pods = pods.Lister()
	if _, err := pods.Informer().AddEventHandler(k.handler()); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range workers {
		wg.Go(func() { k.work(ctx) })
	}
	<-ctx.Done()
	k.queue.ShutDown()
	factory.Shutdown()
	return nil
}

// kubelet brings the status of pods on fake nodes to what statusAt says.
type kubelet struct {
	client kubernetes.Interface
	clock  clock.PassiveClock
	log    io.Writer
	pods   corelisters.PodLister
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu sync.Mutex
	// seen is when each pod was first met. A pod's own times have whole seconds, too coarse for a short delay.
	seen map[types.UID]time.Time
}

func newKubelet(cfg Config) *kubelet {
	return &kubelet{
		client: cfg.Client, clock: cfg.Clock, log: cfg.Log, seen: map[types.UID]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
	}
}

func (k *kubelet) handler() cache.ResourceEventHandler {
	enqueue := func(o any) {
		if pod, ok := o.(*corev1.Pod); ok && strings.HasPrefix(pod.Spec.NodeName, NamePrefix) {
			k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, o any) { enqueue(o) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			if pod, ok := o.(*corev1.Pod); ok {
				k.mu.Lock()
				delete(k.seen, pod.UID)
				k.mu.Unlock()
			}
		},
	}
}

func (k *kubelet) work(ctx context.Context) {
	for {
		key, quit := k.queue.Get()
		if quit {
			return
		}
		again, err := k.sync(ctx, key)
		switch {
		case err != nil && ctx.Err() == nil:
			fmt.Fprintf(k.log, "pod %s: %v\n", key, err)
			k.queue.AddRateLimited(key)
		case again > 0:
			k.queue.Forget(key)
			k.queue.AddAfter(key, again)
		default:
			k.queue.Forget(key)
		}
		k.queue.Done(key)
	}
}

// sync does for one pod what is due now, and says after how long to look again.
func (k *kubelet) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pod, err := k.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if pod.DeletionTimestamp != nil {
		return 0, k.finishDeletion(ctx, pod)
	}
	if terminal(pod) {
		return 0, nil
	}
	s, again, err := nextStage(pod, k.age(pod))
	if err != nil {
		fmt.Fprintf(k.log, "pod %s: %v\n", key, err) // nothing to repeat: a change of the pod brings it back
		return 0, nil
	}
	want := statusAt(pod, s, metav1.NewTime(k.clock.Now()))
	if shows(pod, want) {
		return again, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": want})
	if err != nil {
		return 0, err
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another pod of that name by now
		return 0, nil
	}
	return again, err
}

// finishDeletion is what a kubelet does once the containers are gone. Finalizers may hold the pod longer.
func (k *kubelet) finishDeletion(ctx context.Context, pod *corev1.Pod) error {
	if ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0 {
		return nil
	}
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// age is how long the node has known the pod. A pod that another run of the node started counts from then.
func (k *kubelet) age(pod *corev1.Pod) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	first, ok := k.seen[pod.UID]
	if !ok {
		first = k.clock.Now()
		if pod.Status.StartTime != nil {
			first = pod.Status.StartTime.Time
		}
		k.seen[pod.UID] = first
	}
	return k.clock.Since(first)
}
