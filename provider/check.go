package provider

import (
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// check reads what a request asks, by its kind one of the contract's Ask types,
// and refuses what is not the subject's (C-143). It is pure: of the request, the
// settings and what the cloud implements. What only the cloud knows is checked
// once the request is claimed.
func check(r *v1alpha1.CloudResource, s Settings, c Cloud) (any, error) {
	kind := r.Spec.Kind
	if !v1alpha1.KnownKind(kind) || !Implements(c, kind) {
		return nil, invalid("%s", v1alpha1.DetailNotImplemented(kind, c.Version()))
	}
	if r.Status.Account != "" && r.Status.Account != s.Account || r.Status.Location != "" && r.Status.Location != s.Location {
		return nil, invalid("%s", v1alpha1.DetailMoved)
	}
	subject := r.Spec.Subject
	if err := subject.Validate(); err != nil {
		return nil, invalid("%v", err)
	}
	if r.Namespace != v1alpha1.Namespace(subject.Project) {
		return nil, invalid("the request does not stand in the namespace of project %s", subject.Project)
	}
	by, err := owner(r)
	if err != nil {
		return nil, err
	}
	secret, _ := v1alpha1.SyncedSecret(subject.Project, r.Name)
	switch name, err := v1alpha1.RequestName(subject, kind, secret); {
	case kind == v1alpha1.KindSecretSync && subject.Service == "" && secret == "":
		return nil, invalid("a request of kind %s is named %s", kind, v1alpha1.SecretSyncName(subject.Project, "<secret>"))
	case err != nil:
		return nil, invalid("%v", err)
	case name != r.Name:
		// One request for each kind and subject: two would end each other's
		// credentials.
		return nil, invalid("the request of kind %s for %s is named %s", kind, subject, name)
	}
	ask, err := parse(r)
	if err != nil {
		return nil, invalid("%v", err)
	}
	return ask, belongs(r, ask, s, by, secret)
}

func parse(r *v1alpha1.CloudResource) (any, error) {
	p := r.Spec.Parameters
	switch r.Spec.Kind {
	case v1alpha1.KindIdentity:
		return v1alpha1.ParseIdentityAsk(p)
	case v1alpha1.KindSecretAccess:
		return v1alpha1.ParseSecretAccessAsk(p)
	case v1alpha1.KindSecretSync:
		return v1alpha1.ParseSecretSyncAsk(p)
	case v1alpha1.KindBucket:
		return v1alpha1.ParseBucketAsk(p)
	case v1alpha1.KindBucketCredential:
		if r.Spec.CredentialGeneration < 1 {
			return nil, errors.New("credentialGeneration is missing")
		}
		return v1alpha1.ParseCredentialAsk(p)
	}
	return v1alpha1.ParseWrappingKeyAsk(p)
}

// belongs checks what a request names against its subject and the
// installation.
func belongs(r *v1alpha1.CloudResource, ask any, s Settings, by schema.GroupKind, secret string) error {
	subject := r.Spec.Subject
	switch a := ask.(type) {
	case v1alpha1.IdentityAsk:
		// A workload runs as whatever its chart says, and a service under its own
		// name, but neither as what every Pod of the namespace may run as (K-34).
		if a.ServiceAccount == "default" {
			return invalid("ServiceAccount default is every Pod's of the namespace, and is given no identity")
		}
		if by == workloadOwner {
			return nil
		}
		if want := v1alpha1.ServiceAccountName(subject); a.ServiceAccount != want {
			return invalid("the ServiceAccount of %s is %s", subject, want)
		}
	case v1alpha1.SecretAccessAsk:
		own, project := v1alpha1.ServiceSecretPrefix(subject.Project, subject.Service), v1alpha1.ProjectSecretPrefix(subject.Project)
		foreign := func(id string) bool { return !strings.HasPrefix(id, own) }
		if slices.ContainsFunc(a.Own, foreign) {
			return invalid("own holds what is no secret of %s: its ids start with %s", subject, own)
		}
		if slices.ContainsFunc(a.Read, func(id string) bool { return foreign(id) && !strings.HasPrefix(id, project) }) {
			return invalid("read holds what is no secret of %s or its project: their ids start with %s and %s", subject, own, project)
		}
	case v1alpha1.SecretSyncAsk:
		if want := v1alpha1.SyncedSecretName(secret); a.SecretName != want {
			return invalid("secret %s is synced into %s", secret, want)
		}
		prefix := v1alpha1.ProjectSecretPrefix(subject.Project)
		for _, id := range a.Entries {
			if !strings.HasPrefix(id, prefix) {
				return invalid("entries hold what is no secret of project %s: their ids start with %s", subject.Project, prefix)
			}
		}
	case v1alpha1.BucketAsk:
		name, err := v1alpha1.BucketNameFor(a.NamePrefix, subject, a.Purpose)
		if err != nil {
			return invalid("%v", err)
		}
		switch made := r.Status.Outputs[v1alpha1.OutputBucket]; {
		case r.Status.Location != "" && a.Location != r.Status.Location:
			return invalid("%s", v1alpha1.DetailMoved)
		case a.Location != s.Location:
			return invalid("the request asks for another location than the installation's, which is %s", s.Location)
		case a.KMSKey != "" && a.KMSKey != s.KMSKey:
			return invalid("the request names another key than the installation's")
		case made != "" && made != name:
			return invalid("the bucket was made as %s; it is never made again under another name", made)
		}
	case v1alpha1.CredentialAsk:
		if want := v1alpha1.StorageSecretName(subject); a.SecretName != want {
			return invalid("the Secret of %s's storage credential is %s", subject, want)
		}
		if !bucketOf(subject, a.Bucket) {
			if subject.Service != "" && bucketOf(v1alpha1.Subject{Project: subject.Project}, a.Bucket) {
				return invalid("%s", v1alpha1.DetailBackupIdentity)
			}
			return invalid("the bucket is not %s's", subject)
		}
	case v1alpha1.WrappingKeyAsk:
		if s.KMSKey == "" {
			return invalid("the installation names no key")
		}
		if a.Key != s.KMSKey {
			return invalid("the request names another key than the installation's")
		}
	}
	return nil
}

// workloadOwner stands for whatever is neither service nor project (C-143).
var workloadOwner = schema.GroupKind{Kind: "workload"}

// owner checks that the request is controlled by its subject: a service or
// project of that name, or, for what asks like a service, a Recipe or an
// adopted Deployment.
func owner(r *v1alpha1.CloudResource) (schema.GroupKind, error) {
	subject := r.Spec.Subject
	o := metav1.GetControllerOf(r)
	if o == nil {
		return schema.GroupKind{}, invalid("the request has no owner; it must be controlled by what it serves")
	}
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return schema.GroupKind{}, invalid("the request's owner is of no version of a kind that asks")
	}
	gk := gv.WithKind(o.Kind).GroupKind()
	service := schema.GroupKind{Group: v1alpha1.Group, Kind: v1alpha1.AnkkaServiceKind}
	project := schema.GroupKind{Group: v1alpha1.Group, Kind: v1alpha1.AnkkaProjectKind}
	switch {
	case subject.Service == "" && gk == project && o.Name == subject.Project, subject.Service != "" && gk == service && o.Name == subject.Service:
		return gk, nil
	case subject.Service != "" && o.Name == subject.Service &&
		(gk == schema.GroupKind{Group: "radapp.io", Kind: "Recipe"} || gk == schema.GroupKind{Group: "apps", Kind: "Deployment"}):
		return workloadOwner, nil
	}
	return schema.GroupKind{}, invalid("the request is not controlled by %s, which it serves", subject)
}

// bucketOf says whether a bucket's name is one that the rule gives the subject
// under any prefix. Since the digest in it is short, the cloud is asked too.
func bucketOf(s v1alpha1.Subject, bucket string) bool {
	purpose := v1alpha1.PurposeService
	if s.Service == "" {
		purpose = v1alpha1.PurposeBackup
	}
	for n := 1; n <= min(v1alpha1.MaxNamePrefix, len(bucket)); n++ {
		if name, err := v1alpha1.BucketNameFor(bucket[:n], s, purpose); err == nil && name == bucket {
			return true
		}
	}
	return false
}
