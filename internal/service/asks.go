package service

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
)

// Ask is a request as the operator writes it.
type Ask struct {
	Kind    string
	Subject v1alpha1.Subject
	// Secret is the project secret's name, for secret-sync alone.
	Secret     string
	Parameters map[string]string
	// CredentialGeneration is for bucket-credential alone.
	CredentialGeneration int64
}

// Owner is whom a request serves, and goes with.
type Owner struct {
	APIVersion, Kind, Name string
	UID                    string
	// Blocks that the owner's deletion in the foreground waits for the request.
	Blocks bool
}

func (o Owner) reference() map[string]any {
	r := map[string]any{"apiVersion": o.APIVersion, "kind": o.Kind, "name": o.Name, "uid": o.UID, "controller": true}
	if o.Blocks {
		r["blockOwnerDeletion"] = true
	}
	return r
}

// ownerOf is the owner that a service or project is.
func ownerOf(kind string, m metav1.ObjectMeta) Owner {
	return Owner{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: m.Name, UID: string(m.UID), Blocks: true}
}

// Request is the object of an ask: its spec, its owner and its labels, as one
// apply set.
func Request(a Ask, provider string, owner Owner) (*unstructured.Unstructured, error) {
	name, err := v1alpha1.RequestName(a.Subject, a.Kind, a.Secret)
	if err != nil {
		return nil, err
	}
	subject := map[string]any{"project": a.Subject.Project}
	if a.Subject.Service != "" {
		subject["service"] = a.Subject.Service
	}
	parameters := map[string]any{}
	for k, v := range a.Parameters {
		parameters[k] = v
	}
	spec := map[string]any{"provider": provider, "kind": a.Kind, "subject": subject, "parameters": parameters}
	if a.CredentialGeneration > 0 {
		spec["credentialGeneration"] = a.CredentialGeneration
	}
	return object(v1alpha1.GroupVersion.String(), v1alpha1.CloudResourceKind, v1alpha1.Namespace(a.Subject.Project), name, labels(a.Subject), owner, map[string]any{"spec": spec}), nil
}

// object is an apply set.
func object(apiVersion, kind, namespace, name string, labels map[string]string, owner Owner, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	for k, v := range content {
		u.Object[k] = v
	}
	u.Object["apiVersion"], u.Object["kind"] = apiVersion, kind
	u.Object["metadata"] = map[string]any{"name": name, "namespace": namespace, "labels": texts(labels), "ownerReferences": []any{owner.reference()}}
	return u
}

func texts(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// labels tell whose an object is.
func labels(s v1alpha1.Subject) map[string]string {
	l := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelProject: s.Project}
	if s.Service != "" {
		l[v1alpha1.LabelName], l[v1alpha1.LabelService] = s.Service, s.Service
	}
	return l
}

// Wants is what a service needs of the cloud.
type Wants struct{ Identity, Storage, Access bool }

// wants says what a service needs, of its descriptor and the installation.
// Where there is no provider that is nothing (C-11).
func wants(spec *v1alpha1.AnkkaServiceSpec, s cloud.Settings) Wants {
	if !s.HasProvider() {
		return Wants{}
	}
	w := Wants{Storage: spec.ProvisionObjectStorage && s.ObjectStorage && !suppliesStorage(spec), Access: s.ProjectSecrets}
	w.Identity = w.Storage || w.Access
	return w
}

// suppliesStorage says that the descriptor names a store of its own.
func suppliesStorage(spec *v1alpha1.AnkkaServiceSpec) bool {
	return slices.ContainsFunc(spec.Env, func(e v1alpha1.EnvVar) bool { return strings.HasPrefix(e.Name, "ANKKA_S3_") })
}

func subjectOf(spec *v1alpha1.AnkkaServiceSpec) v1alpha1.Subject {
	return v1alpha1.Subject{Project: spec.ProjectID, Service: spec.ServiceName}
}

// AskIdentity asks for an identity for a ServiceAccount.
func AskIdentity(s v1alpha1.Subject, serviceAccount string) (Ask, error) {
	p, err := v1alpha1.IdentityAsk{ServiceAccount: serviceAccount}.Parameters()
	return Ask{Kind: v1alpha1.KindIdentity, Subject: s, Parameters: p}, err
}

// askBucket asks for a service's bucket.
func askBucket(spec *v1alpha1.AnkkaServiceSpec, s cloud.Settings) (Ask, error) {
	a := v1alpha1.BucketAsk{
		Purpose: v1alpha1.PurposeService, Location: s.Location, KMSKey: s.KMSKey, NamePrefix: s.NamePrefix,
		Versioning: spec.ObjectStorageVersioning, SoftDeleteDays: spec.ObjectStorageSoftDeleteDays, NoncurrentVersionDays: spec.ObjectStorageVersionAgeDays,
	}
	if spec.ExposeObjectStorage {
		a.CORSOrigins = spec.ObjectStorageOrigins
	}
	p, err := a.Parameters()
	return Ask{Kind: v1alpha1.KindBucket, Subject: subjectOf(spec), Parameters: p}, err
}

// askCredential asks for the credential by which identity reaches bucket, both
// as they were answered.
func askCredential(s v1alpha1.Subject, bucket, identity string, generation int64) (Ask, error) {
	p, err := v1alpha1.CredentialAsk{Bucket: bucket, Identity: identity, SecretName: v1alpha1.StorageSecretName(s)}.Parameters()
	return Ask{Kind: v1alpha1.KindBucketCredential, Subject: s, Parameters: p, CredentialGeneration: generation}, err
}

// askAccess asks that a service may keep its own secrets and read its
// project's.
func askAccess(s v1alpha1.Subject, identity string) (Ask, error) {
	p, err := v1alpha1.SecretAccessAsk{Identity: identity,
		Own: []string{v1alpha1.ServiceSecretPrefix(s.Project, s.Service)}, Read: []string{v1alpha1.ProjectSecretPrefix(s.Project)}}.Parameters()
	return Ask{Kind: v1alpha1.KindSecretAccess, Subject: s, Parameters: p}, err
}

// askSync asks that a project's secret is kept in step.
func askSync(project string, secret v1alpha1.ProjectSecret) (Ask, error) {
	entries := make(map[string]string, len(secret.Entries))
	for _, e := range secret.Entries {
		entries[e] = v1alpha1.ProjectSecretID(project, secret.Name, e)
	}
	p, err := v1alpha1.SecretSyncAsk{SecretName: v1alpha1.SyncedSecretName(secret.Name), Entries: entries, EntryGeneration: secret.EntryGeneration}.Parameters()
	return Ask{Kind: v1alpha1.KindSecretSync, Subject: v1alpha1.Subject{Project: project}, Secret: secret.Name, Parameters: p}, err
}

// askBackupBucket asks for the bucket that a project's backups go to.
func askBackupBucket(project string, s cloud.Settings) (Ask, error) {
	p, err := v1alpha1.BucketAsk{Purpose: v1alpha1.PurposeBackup, Location: s.Location, KMSKey: s.KMSKey, NamePrefix: s.NamePrefix}.Parameters()
	return Ask{Kind: v1alpha1.KindBucket, Subject: v1alpha1.Subject{Project: project}, Parameters: p}, err
}

// askWrappingKey asks that a project's identity may wrap with the
// installation's key.
func askWrappingKey(project, identity string, s cloud.Settings) (Ask, error) {
	p, err := v1alpha1.WrappingKeyAsk{Identity: identity, Key: s.KMSKey}.Parameters()
	return Ask{Kind: v1alpha1.KindWrappingKey, Subject: v1alpha1.Subject{Project: project}, Parameters: p}, err
}

// refusal says why a service cannot be served as it is described, whatever the
// cloud says. The control plane refuses the same before; an AnkkaService can
// also be written by hand.
func refusal(s *v1alpha1.AnkkaService, settings cloud.Settings) error {
	spec := &s.Spec
	if err := subjectOf(spec).Validate(); err != nil {
		return err
	}
	if s.Namespace != v1alpha1.Namespace(spec.ProjectID) || s.Name != spec.ServiceName {
		return fmt.Errorf("a service of project %s stands in namespace %s under its own name", spec.ProjectID, v1alpha1.Namespace(spec.ProjectID))
	}
	for _, e := range spec.Env {
		if err := cloud.CheckVariable(e.Name); err != nil {
			return err
		}
		if e.SecretName == "" {
			continue
		}
		if err := cloud.CheckSecretReference(e.SecretName); err != nil {
			return err
		}
	}
	switch {
	case !spec.ProvisionObjectStorage:
	case suppliesStorage(spec):
		return errors.New("object storage: the descriptor sets ANKKA_S3_ variables of a store of its own, and asks for one with provisionObjectStorage; it can have one of them")
	case !settings.HasProvider():
		return errors.New("object storage: it needs a cloud provider, and the installation has none")
	case !settings.ObjectStorage:
		return errors.New("object storage: the installation keeps none in its cloud account")
	}
	return nil
}
