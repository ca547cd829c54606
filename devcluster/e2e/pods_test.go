package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

const namespace = corev1.NamespaceDefault

func deployment(name string, replicas int32, annotations map[string]string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec:       podSpec(),
			},
		},
	}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.test/app:1"}}}
}

func makeDeployment(t *testing.T, client kubernetes.Interface, d *appsv1.Deployment) {
	t.Helper()
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// waitAvailable waits until a Deployment has that many available replicas.
func waitAvailable(t *testing.T, client kubernetes.Interface, name string, replicas int32) {
	t.Helper()
	lw := cache.NewListWatchFromClient(client.AppsV1().RESTClient(), "deployments", namespace, fields.OneTermEqualSelector("metadata.name", name))
	wait(t, "deployment "+name+" available", lw, &appsv1.Deployment{}, func(e watch.Event) (bool, error) {
		d := e.Object.(*appsv1.Deployment)
		return d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == replicas && d.Status.UpdatedReplicas == replicas, nil
	})
}

func makePod(t *testing.T, client kubernetes.Interface, name string, annotations map[string]string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: podSpec()}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// waitPod waits until the condition holds for a pod; nil stands for a pod that is gone.
func waitPod(t *testing.T, client kubernetes.Interface, name, what string, done func(*corev1.Pod) bool) {
	t.Helper()
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", namespace, fields.OneTermEqualSelector("metadata.name", name))
	wait(t, "pod "+name+" "+what, lw, &corev1.Pod{}, func(e watch.Event) (bool, error) {
		if e.Type == watch.Deleted {
			return done(nil), nil
		}
		return done(e.Object.(*corev1.Pod)), nil
	})
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func waitingReason(p *corev1.Pod) string {
	if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
		return ""
	}
	return p.Status.ContainerStatuses[0].State.Waiting.Reason
}

func TestPods(t *testing.T) {
	t.Parallel()
	r := cluster(t, t.TempDir(), "--fake-nodes", "2")
	client := r.client()

	t.Run("a Deployment's pods become Ready, each with an address of its own", func(t *testing.T) {
		t.Parallel()
		makeDeployment(t, client, deployment("web", 5, nil))
		waitAvailable(t, client, "web", 5)
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			t.Fatal(err)
		}
		ips := map[string]bool{}
		for _, p := range pods.Items {
			ips[p.Status.PodIP] = true
		}
		if len(ips) != 5 {
			t.Errorf("5 pods have the addresses %v", ips)
		}
	})
	t.Run("a fate that fails shows as on a real node", func(t *testing.T) {
		t.Parallel()
		for fate, want := range map[string]struct {
			reason string
			phase  corev1.PodPhase
		}{
			"crash": {reason: "CrashLoopBackOff", phase: corev1.PodRunning},
			"image": {reason: "ImagePullBackOff", phase: corev1.PodPending},
		} {
			makePod(t, client, "fate-"+fate, map[string]string{"fakenode/fate": fate})
			waitPod(t, client, "fate-"+fate, want.reason, func(p *corev1.Pod) bool {
				return p != nil && waitingReason(p) == want.reason && p.Status.Phase == want.phase && !podReady(p)
			})
		}
	})
	t.Run("a fate may change while the pod is there", func(t *testing.T) {
		t.Parallel()
		makePod(t, client, "healed", map[string]string{"fakenode/fate": "crash"})
		waitPod(t, client, "healed", "crashing", func(p *corev1.Pod) bool { return p != nil && waitingReason(p) == "CrashLoopBackOff" })
		patch := []byte(`{"metadata":{"annotations":{"fakenode/fate":null}}}`)
		if _, err := client.CoreV1().Pods(namespace).Patch(t.Context(), "healed", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		waitPod(t, client, "healed", "ready", func(p *corev1.Pod) bool { return p != nil && podReady(p) })
	})
	t.Run("ready-after holds readiness back for that long", func(t *testing.T) {
		t.Parallel()
		begun := time.Now()
		makePod(t, client, "slow", map[string]string{"fakenode/ready-after": "1500ms"})
		waitPod(t, client, "slow", "running", func(p *corev1.Pod) bool {
			if p != nil && podReady(p) {
				t.Error("ready without having run unready before")
			}
			return p != nil && p.Status.Phase == corev1.PodRunning
		})
		waitPod(t, client, "slow", "ready", func(p *corev1.Pod) bool { return p != nil && podReady(p) })
		if took := time.Since(begun); took < 1500*time.Millisecond {
			t.Errorf("ready after %s, before the time that its annotation gives", took)
		}
	})
	t.Run("a Job ends when its pods succeed", func(t *testing.T) {
		t.Parallel()
		spec := podSpec()
		spec.RestartPolicy = corev1.RestartPolicyNever
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"fakenode/fate": "succeed"}}, Spec: spec}}}
		if _, err := client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		lw := cache.NewListWatchFromClient(client.BatchV1().RESTClient(), "jobs", namespace, fields.OneTermEqualSelector("metadata.name", "once"))
		wait(t, "job complete", lw, &batchv1.Job{}, func(e watch.Event) (bool, error) {
			for _, c := range e.Object.(*batchv1.Job).Status.Conditions {
				if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		})
	})
	t.Run("a deleted pod goes, whatever its grace period", func(t *testing.T) {
		t.Parallel()
		makePod(t, client, "gone", nil)
		waitPod(t, client, "gone", "ready", func(p *corev1.Pod) bool { return p != nil && podReady(p) })
		if err := client.CoreV1().Pods(namespace).Delete(t.Context(), "gone", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](3600)}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, client, "gone")
	})
	t.Run("the fake node may do no more than it does", func(t *testing.T) {
		t.Parallel()
		node := clientFor(t, filepath.Join(r.state, "identities", "fake-node.kubeconfig"))
		if _, err := node.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list Secrets: %v, want Forbidden", err)
		}
		if _, err := node.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: podSpec()}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("create a Pod: %v, want Forbidden", err)
		}
	})
}

// waitGone waits until a pod does not exist. A watch that starts after its end sees no event for it, so the
// watch starts from a state in which a Get answers.
func waitGone(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	pods := client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 {
		return
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted {
			return
		}
	}
	t.Fatalf("pod %s is still there", name)
}
