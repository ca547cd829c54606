package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Limits of a start. They are far above what was measured (seconds), for machines that are busy with a build.
const (
	etcdLimit       = time.Minute
	apiServerLimit  = 2 * time.Minute
	controllerLimit = 2 * time.Minute
	nodeLimit       = 3 * time.Minute
)

// readyzPeriod is the one poll here: the API server tells nobody when /readyz turns ok.
const readyzPeriod = 25 * time.Millisecond

// waitReadyz returns when the API server says of itself that it serves.
func waitReadyz(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeoutCause(ctx, apiServerLimit, fmt.Errorf("the API server's /readyz was not ok within %s", apiServerLimit))
	defer cancel()
	ticker := time.NewTicker(readyzPeriod)
	defer ticker.Stop()
	for {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(5 * time.Second).DoRaw(ctx)
		if err == nil && string(body) == "ok" {
			return nil
		}
		select {
		case <-ctx.Done():
			if err != nil && context.Cause(ctx) != ctx.Err() {
				return fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), err)
			}
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// waitServiceAccount returns when the namespace default has its ServiceAccount: from then on pods can be made
// there, and the controller manager is known to work.
func waitServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "serviceaccounts", corev1.NamespaceDefault, fields.OneTermEqualSelector("metadata.name", "default"))
	return waitWatch(ctx, lw, &corev1.ServiceAccount{}, controllerLimit, "the default ServiceAccount", func(e watch.Event) (bool, error) {
		return e.Type == watch.Added || e.Type == watch.Modified, nil
	})
}

// waitNodes returns when every named node is Ready and carries no taint.
func waitNodes(ctx context.Context, client kubernetes.Interface, names []string) error {
	ready := map[string]bool{}
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	return waitWatch(ctx, lw, &corev1.Node{}, nodeLimit, fmt.Sprintf("nodes %v (Ready, without taints)", names), func(e watch.Event) (bool, error) {
		if n, ok := e.Object.(*corev1.Node); ok {
			ready[n.Name] = e.Type != watch.Deleted && nodeUsable(n)
		}
		return !slices.ContainsFunc(names, func(name string) bool { return !ready[name] }), nil
	})
}

func nodeUsable(n *corev1.Node) bool {
	return len(n.Spec.Taints) == 0 && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// waitWatch waits for a condition on a watch that survives a broken connection.
func waitWatch(ctx context.Context, lw cache.ListerWatcher, kind runtime.Object, limit time.Duration, what string, done watchtools.ConditionFunc) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s: not there within %s", what, limit))
	defer cancel()
	if _, err := watchtools.UntilWithSync(ctx, lw, kind, nil, done); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// newClient makes a client without the client-side throttle, which would only make a local start slower.
func newClient(kubeconfig *rest.Config) (kubernetes.Interface, error) {
	kubeconfig.QPS = -1
	return kubernetes.NewForConfig(kubeconfig)
}
