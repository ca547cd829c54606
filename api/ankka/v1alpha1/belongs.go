package v1alpha1

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Owners of requests beside services and projects: in a project's namespace, a
// Recipe or an adopted workload of the subject's name (C-143).
var widenedOwners = []schema.GroupKind{{Group: "radapp.io", Kind: "Recipe"}, {Group: "apps", Kind: "Deployment"}}

// CheckBelongs says whether a request asks for nothing but its own subject's
// (C-143): whoever may write requests in one project must reach no other's
// thing by it, and whoever makes one for a service none of another service. It
// is nil for a request that a provider may serve; the error is for a member to
// read. A kind that is not known is an error too: say [DetailNotImplemented]
// first.
//
// Two things it cannot know, and the provider has to: that the parameter
// identity is the one that it answered for this subject, and that what has the
// bucket's name is labelled as the subject's.
func CheckBelongs(r *CloudResource) error {
	s := r.Spec.Subject
	if err := s.Validate(); err != nil {
		return err
	}
	if r.Namespace != Namespace(s.Project) {
		return fmt.Errorf("the request is in namespace %s, and project %s is in %s", printable(r.Namespace), s.Project, Namespace(s.Project))
	}
	asService, err := checkOwner(r)
	if err != nil {
		return err
	}
	secret, _ := SyncedSecret(s.Project, r.Name)
	name, err := RequestName(s, r.Spec.Kind, secret)
	if err != nil {
		return err
	}
	if r.Name != name {
		return fmt.Errorf("the request is named %s, and one of kind %s for %s is named %s", printable(r.Name), r.Spec.Kind, s, name)
	}
	return checkParameters(r, secret, asService)
}

// checkOwner answers whether the owner is a service or project, whose
// ServiceAccount is known by its name.
func checkOwner(r *CloudResource) (known bool, err error) {
	s := r.Spec.Subject
	controllers := 0
	for _, o := range r.OwnerReferences {
		if o.Controller == nil || !*o.Controller {
			continue
		}
		controllers++
		gv, err := schema.ParseGroupVersion(o.APIVersion)
		if err != nil {
			return false, errors.New("the request's owner has an apiVersion that is none")
		}
		gk := gv.WithKind(o.Kind).GroupKind()
		want, wantName := AnkkaServiceKind, s.Service
		if s.Service == "" {
			want, wantName = AnkkaProjectKind, s.Project
		}
		known = gk == (schema.GroupKind{Group: Group, Kind: want})
		widened := false
		for _, w := range widenedOwners {
			widened = widened || s.Service != "" && gk == w
		}
		if !known && !widened || o.Name != wantName {
			return false, fmt.Errorf("the request is owned by %s %s, and serves %s", printable(o.Kind), printable(o.Name), s)
		}
	}
	if controllers != 1 {
		return false, fmt.Errorf("the request has no owner that controls it; one that serves %s is owned by it", s)
	}
	return known, nil
}

func checkParameters(r *CloudResource, secret string, known bool) error {
	s, p := r.Spec.Subject, r.Spec.Parameters
	switch r.Spec.Kind {
	case KindIdentity:
		a, err := ParseIdentityAsk(p)
		if err != nil {
			return err
		}
		// A workload runs under an account of its choice, but not under the one
		// that every pod of the namespace has that chose none.
		if want := ServiceAccountName(s); known && a.ServiceAccount != want {
			return fmt.Errorf("serviceAccount is %s, and that of %s is %s", printable(a.ServiceAccount), s, want)
		}
		if a.ServiceAccount == "default" && !(known && s.Service == "default") {
			return errors.New("serviceAccount is that of every workload that names none; name one of its own")
		}
	case KindSecretAccess:
		a, err := ParseSecretAccessAsk(p)
		if err != nil {
			return err
		}
		own, project := ServiceSecretPrefix(s.Project, s.Service), ProjectSecretPrefix(s.Project)
		for _, id := range a.Own {
			if !strings.HasPrefix(id, own) {
				return fmt.Errorf("own has %s, which is not one of %s", printable(id), s)
			}
		}
		for _, id := range a.Read {
			if !strings.HasPrefix(id, own) && !strings.HasPrefix(id, project) {
				return fmt.Errorf("read has %s, which is none of %s or its project", printable(id), s)
			}
		}
	case KindSecretSync:
		a, err := ParseSecretSyncAsk(p)
		if err != nil {
			return err
		}
		if want := SyncedSecretName(secret); a.SecretName != want {
			return fmt.Errorf("secretName is %s, and secret %s is synced into %s", printable(a.SecretName), secret, want)
		}
		for _, id := range a.Entries {
			if !strings.HasPrefix(id, ProjectSecretPrefix(s.Project)) {
				return fmt.Errorf("entries have %s, which is not one of project %s", printable(id), s.Project)
			}
		}
	case KindBucket:
		a, err := ParseBucketAsk(p)
		if err != nil {
			return err
		}
		if _, err := BucketNameFor(a.NamePrefix, s, a.Purpose); err != nil {
			return err
		}
	case KindBucketCredential:
		a, err := ParseCredentialAsk(p)
		if err != nil {
			return err
		}
		if !BucketBelongs(a.Bucket, s) {
			return fmt.Errorf("bucket %s is not one of %s", printable(a.Bucket), s)
		}
		if want := StorageSecretName(s); a.SecretName != want {
			return fmt.Errorf("secretName is %s, and that of %s is %s", printable(a.SecretName), s, want)
		}
	case KindWrappingKey:
		_, err := ParseWrappingKeyAsk(p)
		return err
	}
	return nil
}

// BucketBelongs says whether name is the bucket's of a subject, for some name
// prefix. The digest alone would not do: it has 32 bits, and whoever can name
// services can look for one with another's. Where names are cut there is room
// for that still, and the bucket's labels decide (C-148).
func BucketBelongs(name string, s Subject) bool {
	if s.Validate() != nil {
		return false
	}
	purpose := PurposeService
	if s.Service == "" {
		purpose = PurposeBackup
	}
	for n := 1; n <= min(len(name), MaxNamePrefix); n++ {
		if want, err := BucketNameFor(name[:n], s, purpose); err == nil && want == name {
			return true
		}
	}
	return false
}
