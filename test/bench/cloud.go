package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/installation/ankka"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/provider"
	"github.com/radial-project/radial/provider/scripted"
)

const (
	cloudProject  = "bench"
	cloudProvider = "gcp"
	cloudRounds   = 100
)

// cloud measures requests to a cloud provider that answers at once. One request
// at a time, from its write until it is seen Ready, beside the three writes that
// it takes: the request, the provider's claim and its answer. Then services with
// object storage by the real operator: from the last answer until it stands in
// the service's status.
func (b *bench) cloud() error {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := b.startCluster(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.dir, "kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS = -1
	c, err := cloudClient(config)
	if err != nil {
		return err
	}
	if err := b.installCloud(c); err != nil {
		return err
	}
	stop, err := b.provide(c, config)
	if err != nil {
		return err
	}
	defer stop()
	var requests, writes []float64
	for i := range cloudRounds {
		took, err := b.cloudRequest(c, fmt.Sprintf("asks-%d", i), cloudProvider)
		if err != nil {
			return err
		}
		requests = append(requests, took)
		if took, err = b.cloudWrites(c, fmt.Sprintf("bare-%d", i)); err != nil {
			return err
		}
		writes = append(writes, took)
	}
	b.add(figure{Name: "cloud request to Ready, instant provider, median", Value: quantile(requests, .5), Unit: "ms",
		Beside: quantile(writes, .5), What: "the three writes"}.ratioAtMost(3))
	b.add(figure{Name: "cloud request to Ready, instant provider, p95", Value: quantile(requests, .95), Unit: "ms",
		Beside: quantile(writes, .95), What: "the three writes"})

	end, err := b.operate(c, config)
	if err != nil {
		return err
	}
	defer end()
	var wakes, services []float64
	for i := range cloudRounds {
		wake, whole, err := b.cloudService(c, fmt.Sprintf("reports-%d", i))
		if err != nil {
			return err
		}
		if i > 0 { // the first waits for the operator's start
			wakes, services = append(wakes, wake), append(services, whole)
		}
	}
	b.add(figure{Name: "last answer to the service's status, worst", Value: maxOf(wakes), Unit: "ms"}.atMost(1000))
	b.add(figure{Name: "last answer to the service's status, median", Value: quantile(wakes, .5), Unit: "ms"})
	b.add(figure{Name: "service to bucket and credential in its status, median", Value: quantile(services, .5), Unit: "ms",
		Beside: 3 * quantile(writes, .5), What: "the nine writes of its three requests"})
	return nil
}

func cloudClient(c *rest.Config) (client.WithWatch, error) {
	return client.NewWithWatch(c, client.Options{Scheme: ankkatest.Scheme()})
}

// installCloud installs kinds, accounts and grants, and waits until they are
// served.
func (b *bench) installCloud(c client.WithWatch) error {
	if err := ankkatest.Apply(b.ctx, c, ankka.Files, slices.Concat(ankka.CRDs, ankka.OperatorGrant, ankka.ProviderGrant)...); err != nil {
		return err
	}
	err := c.Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace(cloudProject)}})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(b.ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, l := range []client.ObjectList{&v1alpha1.CloudResourceList{}, &v1alpha1.AnkkaServiceList{}, &v1alpha1.AnkkaProjectList{}} {
			if c.List(ctx, l) != nil {
				return false, nil
			}
		}
		return true, nil
	})
}

// as is a configuration with a token of a shipped account.
func (b *bench) as(c client.Client, config *rest.Config, namespace, name string) (*rest.Config, error) {
	r := &authenticationv1.TokenRequest{}
	err := c.SubResource("token").Create(b.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}, r)
	as := clustertest.WithToken(config, r.Status.Token)
	as.QPS = -1
	return as, err
}

// provide runs a provider whose cloud answers at once.
func (b *bench) provide(c client.Client, config *rest.Config) (func(), error) {
	as, err := b.as(c, config, v1alpha1.ProviderNamespace, v1alpha1.ProviderAccount)
	if err != nil {
		return nil, err
	}
	account, err := scripted.NewAccount("")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- provider.Run(ctx, provider.Options{Cloud: scripted.Cloud{Account: account}, Config: as,
			Settings: provider.Settings{Provider: cloudProvider, Account: "acme", Location: "Nowhere-1", RotationGrace: time.Hour, Installation: "bench"}})
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}

// operate runs the operator as it is shipped.
func (b *bench) operate(c client.Client, config *rest.Config) (func(), error) {
	as, err := b.as(c, config, v1alpha1.PlatformNamespace, v1alpha1.OperatorAccount)
	if err != nil {
		return nil, err
	}
	raw, err := clustertest.Kubeconfig(as)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.dir, "operator.kubeconfig")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(b.ctx, filepath.Join(b.bin, "radial-operator"), "--kubeconfig", path, "--health-listen=0", "--metrics-listen=0")
	cmd.Env = append(os.Environ(), "ANKKA_CLOUD_PROVIDER="+cloudProvider, "ANKKA_CLOUD_ACCOUNT=acme", "ANKKA_CLOUD_LOCATION=Nowhere-1", "ANKKA_CLOUD_KMS_KEY=",
		"ANKKA_CLOUD_ACKNOWLEDGEMENT_BOUND=2m", "ANKKA_CLOUD_ROTATION_GRACE=1h", "ANKKA_OBJECT_STORAGE=cloud", "ANKKA_PROJECT_SECRETS=cluster",
		"ANKKA_BACKUPS=none", "ANKKA_KEYRING=local", "ANKKA_OBJECT_STORAGE_NAME_PREFIX=acme")
	log, err := os.Create(filepath.Join(b.dir, "operator.log"))
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
	}, nil
}

// owned makes a service that nobody serves yet, and a request for an identity of
// it; the service is paused so that it costs nothing later.
func (b *bench) owned(c client.Client, name, provider string) (*v1alpha1.CloudResource, error) {
	s := &v1alpha1.AnkkaService{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace(cloudProject)},
		Spec: v1alpha1.AnkkaServiceSpec{ProjectID: cloudProject, ServiceName: name, Image: "registry.invalid/x:1", Paused: true}}
	if err := c.Create(b.ctx, s); err != nil {
		return nil, err
	}
	return &v1alpha1.CloudResource{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-identity", Namespace: s.Namespace, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind(v1alpha1.AnkkaServiceKind))}},
		Spec: v1alpha1.CloudResourceSpec{Provider: provider, Kind: v1alpha1.KindIdentity, Subject: v1alpha1.Subject{Project: cloudProject, Service: name},
			Parameters: map[string]string{v1alpha1.ParamServiceAccount: name}},
	}, nil
}

// cloudRequest is the milliseconds from a request's write until it is seen
// Ready.
func (b *bench) cloudRequest(c client.WithWatch, name, provider string) (float64, error) {
	r, err := b.owned(c, name, provider)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	w, err := c.Watch(ctx, &v1alpha1.CloudResourceList{}, client.InNamespace(r.Namespace), client.MatchingFields{"metadata.name": r.Name})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	begun := time.Now()
	if err := c.Create(ctx, r); err != nil {
		return 0, err
	}
	for e := range w.ResultChan() {
		if got, ok := e.Object.(*v1alpha1.CloudResource); ok && got.Status.Phase == v1alpha1.PhaseReady {
			return milliseconds(time.Since(begun)), nil
		}
	}
	return 0, fmt.Errorf("request %s was not answered within a minute", r.Name)
}

// cloudWrites is the milliseconds of the three writes, by a bare client.
func (b *bench) cloudWrites(c client.Client, name string) (float64, error) {
	r, err := b.owned(c, name, "nobody")
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := c.Create(b.ctx, r); err != nil {
		return 0, err
	}
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseWaiting, v1alpha1.PhaseReady} {
		r.Status.ObservedGeneration, r.Status.Phase = r.Generation, phase
		r.Status.Account, r.Status.Location, r.Status.ProviderVersion = "acme", "Nowhere-1", scripted.Version
		if phase == v1alpha1.PhaseReady {
			r.Status.Outputs = map[string]string{v1alpha1.OutputIdentity: "i", v1alpha1.OutputServiceAccountAnnotations: "a=b"}
		}
		if err := c.Status().Update(b.ctx, r); err != nil {
			return 0, err
		}
	}
	return milliseconds(time.Since(begun)), nil
}

// cloudService makes a service with object storage. wake is from its last answer
// until that stands in its status, whole from the service's write.
func (b *bench) cloudService(c client.WithWatch, name string) (wake, whole float64, err error) {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	ns := v1alpha1.Namespace(cloudProject)
	answers, err := c.Watch(ctx, &v1alpha1.CloudResourceList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": v1alpha1.ServiceRequestName(name, v1alpha1.SuffixStorageCredential)})
	if err != nil {
		return 0, 0, err
	}
	defer answers.Stop()
	states, err := c.Watch(ctx, &v1alpha1.AnkkaServiceList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return 0, 0, err
	}
	defer states.Stop()
	s := &v1alpha1.AnkkaService{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: v1alpha1.AnkkaServiceSpec{ProjectID: cloudProject, ServiceName: name, Image: "registry.invalid/x:1", ProvisionObjectStorage: true}}
	begun := time.Now()
	if err := c.Create(ctx, s); err != nil {
		return 0, 0, err
	}
	var answered time.Time
	for {
		select {
		case e, ok := <-answers.ResultChan():
			if !ok {
				return 0, 0, fmt.Errorf("service %s was not answered within a minute", name)
			}
			if r, is := e.Object.(*v1alpha1.CloudResource); is && r.Status.Phase.Done() && answered.IsZero() {
				answered = time.Now()
			}
		case e, ok := <-states.ResultChan():
			if !ok {
				return 0, 0, fmt.Errorf("service %s had no object storage within a minute", name)
			}
			got, is := e.Object.(*v1alpha1.AnkkaService)
			if !is || got.Status.ObjectStorage == nil || got.Status.ObjectStorage.Phase != v1alpha1.PhaseProvisioned {
				continue
			}
			now := time.Now()
			if answered.IsZero() { // the two watches overtook each other
				answered = now
			}
			return milliseconds(now.Sub(answered)), milliseconds(now.Sub(begun)), nil
		}
	}
}
