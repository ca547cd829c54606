package project

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/descriptor"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/store"
)

// Computed values of a project's or service's row: what is declared read-only in
// the manifest, and the hash by which a generation is told from the next.
const (
	valueGeneration = "generation"
	valueObserved   = "observed"
	valueNamespace  = "namespace"
	valueHash       = "specHash"
)

// rendered is a project as the operator reads it.
func renderProject(name string, p project) *v1alpha1.AnkkaProject {
	return &v1alpha1.AnkkaProject{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AnkkaProject"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace(name),
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelProject: name}},
		Spec: v1alpha1.AnkkaProjectSpec{
			ProjectID: name, Organization: p.Organization, DisplayName: p.DisplayName, Secrets: p.Secrets, Backups: p.Backups, Keyring: p.Keyring,
		},
	}
}

// renderService is a service as the operator reads it. StorageCredentialGeneration
// stays unset, and so is not the control plane's (C-130).
func renderService(project, name string, d descriptor.Service, paused bool, restarts, generation int64) *v1alpha1.AnkkaService {
	spec := v1alpha1.AnkkaServiceSpec{
		ProjectID: project, ServiceName: name, Generation: generation, Image: d.Image, Paused: paused, Restarts: restarts,
		Labels: d.Labels, Annotations: d.Annotations, HTTP: d.HTTP, Port: d.Port, Database: d.Database,
		ProvisionObjectStorage: d.ProvisionObjectStorage, ExposeObjectStorage: d.ExposeObjectStorage, ObjectStorageOrigins: d.ObjectStorageOrigins,
		ObjectStorageVersioning: d.ObjectStorageVersioning, ObjectStorageSoftDeleteDays: d.ObjectStorageSoftDeleteDays, ObjectStorageVersionAgeDays: d.ObjectStorageVersionAgeDays,
	}
	for _, e := range d.Env {
		v := v1alpha1.EnvVar{Name: e.Name, Value: e.Value}
		if e.SecretKeyRef != nil {
			v.SecretName, v.SecretKey = e.SecretKeyRef.Name, e.SecretKeyRef.Key
		}
		spec.Env = append(spec.Env, v)
	}
	if r := d.Resources; r != nil {
		spec.Resources = &v1alpha1.ServiceResources{CPU: r.CPU, Memory: r.Memory, Autoscaling: r.Autoscaling}
	}
	return &v1alpha1.AnkkaService{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AnkkaService"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace(project), Labels: map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelName: name, v1alpha1.LabelProject: project, v1alpha1.LabelService: name,
		}},
		Spec: spec,
	}
}

// values are the computed values of a row, which may be changed.
func values(r core.Resource) (dynamic.Status, error) {
	st, err := dynamic.ReadStatus(r)
	if st.ComputedValues == nil {
		st.ComputedValues = map[string]any{}
	}
	return st, err
}

func withValues(r core.Resource, st dynamic.Status) (core.Resource, error) {
	raw, err := json.Marshal(st)
	r.Status = raw
	return r, err
}

func whole(v any) int64 {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case int64:
		return v
	case json.Number:
		n, _ := v.Int64()
		return n
	}
	return 0
}

func (s *Service) putOrganization(context.Context, *operation.Job) (operation.Outcome, error) {
	return operation.Outcome{}, nil // all of it is in the store
}

func (s *Service) removeOrganization(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	if err := s.retire(ctx, "organization", job.Resource.ID.Name(), job.Resource.SystemData); err != nil {
		return operation.Outcome{}, err
	}
	return operation.Outcome{Removed: true}, nil
}

// putProject has the cluster take a project: its namespace, and what the
// operator reads.
func (s *Service) putProject(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	if s.cluster == nil {
		return operation.Outcome{}, errOff()
	}
	p, err := read[project](job.Resource)
	if err != nil {
		return operation.Outcome{}, err
	}
	name := job.Resource.ID.Name()
	u, err := object(renderProject(name, p), []string{"spec", "backupCredentialGeneration"})
	if err != nil {
		return operation.Outcome{}, err
	}
	if err := job.Progress(ctx, core.StateUpdating); err != nil {
		return operation.Outcome{}, err
	}
	err = persist(ctx, job.Say, func(ctx context.Context) error {
		if err := s.cluster.ensureNamespace(ctx, name); err != nil {
			return err
		}
		return s.cluster.apply(ctx, ankkaProjects, u)
	})
	if err != nil {
		return operation.Outcome{}, err
	}
	namespace := v1alpha1.Namespace(name)
	err = s.outputs(ctx, job, core.KubernetesID(s.o.Installation.Cluster, "", "", "Namespace", namespace),
		core.KubernetesID(s.o.Installation.Cluster, namespace, v1alpha1.Group, "AnkkaProject", name))
	if err != nil {
		return operation.Outcome{}, err
	}
	st, err := values(job.Resource)
	if err != nil {
		return operation.Outcome{}, err
	}
	st.ComputedValues[valueNamespace] = namespace
	r, err := withValues(job.Resource, st)
	return operation.Outcome{Resource: &r}, err
}

// outputs are the objects that stand for a resource: shown, and not deleted by
// whoever deletes outputs.
func (s *Service) outputs(ctx context.Context, job *operation.Job, ids ...core.ID) error {
	if len(job.Outputs) == len(ids) {
		return nil
	}
	put := make([]core.Output, len(ids))
	for i, id := range ids {
		put[i] = core.Output{ID: id, State: core.OutputMade}
	}
	return job.SaveOutputs(ctx, put, nil)
}

// removeProject takes the project from the operator. Its namespace stays, with
// what is in it: nobody may delete namespaces. So does all in the cloud.
func (s *Service) removeProject(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	name := job.Resource.ID.Name()
	if s.cluster == nil {
		return operation.Outcome{}, errOff()
	}
	err := persist(ctx, job.Say, func(ctx context.Context) error {
		return s.cluster.remove(ctx, ankkaProjects, v1alpha1.Namespace(name), name)
	})
	if err != nil {
		return operation.Outcome{}, err
	}
	if err := s.retire(ctx, "project", name, job.Resource.SystemData); err != nil {
		return operation.Outcome{}, err
	}
	if err := s.removeParts(ctx, v1alpha1.Subject{Project: name}); err != nil {
		return operation.Outcome{}, err
	}
	return operation.Outcome{Removed: true}, nil
}

// putService has the cluster take a service. Its generation rises when what the
// operator is to run has changed; the same again is the same generation, also
// after a crash on the way.
func (s *Service) putService(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	if s.cluster == nil {
		return operation.Outcome{}, errOff()
	}
	in, _ := projectOf(job.Resource.ID)
	name := job.Resource.ID.Name()
	props := map[string]any{}
	if err := arm.Decode(job.Resource.Properties, &props); err != nil {
		return operation.Outcome{}, err
	}
	d, err := descriptor.FromProperties(props, beside...)
	if err != nil {
		return operation.Outcome{}, err
	}
	paused, _ := props["paused"].(bool)
	st, err := values(job.Resource)
	if err != nil {
		return operation.Outcome{}, err
	}
	generation := whole(st.ComputedValues[valueGeneration])
	sum, err := hash(renderService(in, name, d, paused, whole(props["restarts"]), 0))
	if err != nil {
		return operation.Outcome{}, err
	}
	if st.ComputedValues[valueHash] != sum {
		generation++
	}
	u, err := object(renderService(in, name, d, paused, whole(props["restarts"]), generation), []string{"spec", "storageCredentialGeneration"})
	if err != nil {
		return operation.Outcome{}, err
	}
	if err := job.Progress(ctx, core.StateUpdating); err != nil {
		return operation.Outcome{}, err
	}
	// The project may have been written a moment ago: its namespace comes with it.
	err = persist(ctx, job.Say, func(ctx context.Context) error {
		if err := s.cluster.ensureNamespace(ctx, in); err != nil {
			return err
		}
		return s.cluster.apply(ctx, ankkaServices, u)
	})
	if err != nil {
		return operation.Outcome{}, err
	}
	if err := s.outputs(ctx, job, core.KubernetesID(s.o.Installation.Cluster, u.GetNamespace(), v1alpha1.Group, "AnkkaService", name)); err != nil {
		return operation.Outcome{}, err
	}
	st.ComputedValues[valueGeneration], st.ComputedValues[valueHash] = generation, sum
	r, err := withValues(job.Resource, st)
	return operation.Outcome{Resource: &r}, err
}

func hash(o *v1alpha1.AnkkaService) (string, error) {
	raw, err := json.Marshal(o.Spec)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8]), err
}

// removeService takes a service from the operator and waits until all that ran
// for it is gone. Its bucket stays in the account, and its Secret in the cluster.
func (s *Service) removeService(ctx context.Context, job *operation.Job) (operation.Outcome, error) {
	if s.cluster == nil {
		return operation.Outcome{}, errOff()
	}
	in, _ := projectOf(job.Resource.ID)
	name := job.Resource.ID.Name()
	err := persist(ctx, job.Say, func(ctx context.Context) error {
		return s.cluster.remove(ctx, ankkaServices, v1alpha1.Namespace(in), name)
	})
	if err != nil {
		return operation.Outcome{}, err
	}
	if err := s.removeParts(ctx, v1alpha1.Subject{Project: in, Service: name}); err != nil {
		return operation.Outcome{}, err
	}
	return operation.Outcome{Removed: true}, nil
}

// removeParts removes what the graph shows of a subject's storage.
func (s *Service) removeParts(ctx context.Context, subject v1alpha1.Subject) error {
	for _, id := range []core.ID{bucketID(subject), credentialID(subject)} {
		_, err := s.o.Store.AcceptDelete(ctx, store.Delete{ID: id, Expect: "*", Now: s.o.Now()})
		if err != nil && !core.IsCode(err, core.CodeNotFound) {
			return err
		}
	}
	return nil
}
