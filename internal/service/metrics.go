package service

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// collector counts what the cache holds when it is asked, so that a figure can
// be neither late nor lost.
type collector struct{ *kit }

var (
	descServices = prometheus.NewDesc("radial_operator_services", "Services by where they stand.", []string{"lifecycle"}, nil)
	descProjects = prometheus.NewDesc("radial_operator_projects", "Projects by where they stand.", []string{"lifecycle"}, nil)
	descRequests = prometheus.NewDesc("radial_operator_requests", "Requests to the cloud provider by kind and by what the operator makes of their answer: Waiting, Ready, Recovered, Failed, or Unanswered past the acknowledgement bound.", []string{"kind", "state"}, nil)
)

// observe registers the collector; a process that runs several managers, as
// tests do, measures the last.
func observe(mgr manager.Manager, k *kit) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		c := collector{k}
		ctrlmetrics.Registry.Unregister(c)
		if err := ctrlmetrics.Registry.Register(c); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}))
}

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) {
	out <- descServices
	out <- descProjects
	out <- descRequests
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	ctx := context.Background()
	count := func(d *prometheus.Desc, n map[[2]string]int, labels int) {
		for k, v := range n {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), k[:labels]...)
		}
	}
	var services v1alpha1.AnkkaServiceList
	if c.List(ctx, &services) == nil {
		n := map[[2]string]int{}
		for i := range services.Items {
			n[[2]string{string(services.Items[i].Status.Lifecycle)}]++
		}
		count(descServices, n, 1)
	}
	var projects v1alpha1.AnkkaProjectList
	if c.List(ctx, &projects) == nil {
		n := map[[2]string]int{}
		for i := range projects.Items {
			n[[2]string{string(projects.Items[i].Status.Lifecycle)}]++
		}
		count(descProjects, n, 1)
	}
	if !c.settings.HasProvider() {
		return
	}
	var requests v1alpha1.CloudResourceList
	if c.List(ctx, &requests) != nil {
		return
	}
	n, now := map[[2]string]int{}, c.now()
	for i := range requests.Items {
		r := &requests.Items[i]
		v := Decide(r, c.settings.AcknowledgementBound, now)
		state := string(v.Phase)
		if v.Detail == v1alpha1.DetailUnanswered(r.Spec.Provider) {
			state = "Unanswered"
		}
		kind := r.Spec.Kind
		if !v1alpha1.KnownKind(kind) {
			kind = "other"
		}
		n[[2]string{kind, state}]++
	}
	count(descRequests, n, 2)
}
