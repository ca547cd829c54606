package provider

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
)

// Cloud is one cloud. It also implements the interface of each kind that it
// serves: [Identities], [SecretAccess], [SecretValues], [Buckets],
// [Credentials], [WrappingKeys]. A kind whose interface it does not implement
// is answered Failed, naming the kind and the version (C-101).
//
// Methods are called from many goroutines, though never twice at once for one
// request. Every one can be called again after any failure, of the cloud or of
// this process, and must then come to the same result: what it finds made is
// made. The context ends with [Options.CallTimeout], or when the process is to
// end.
//
// What an error says decides the answer: [Waiting], [Refused] and [ErrMoved]
// are for the member to read; anything else is taken as a passing fault, is
// shown as Waiting, bounded and without what looks like a secret, and is
// retried with back-off. A missing permission is a Refused that names it.
type Cloud interface {
	// Version is the process' name and version, such as
	// "radial-provider-gcp 0.1.0". It stands in every answer.
	Version() string
}

// Request is whom a call is for. A thing that is made carries Installation,
// Subject and purpose (labels, or whatever the cloud has); one that does not
// carry exactly these is someone else's, in the same account too, and is
// refused ([Taken]), never adopted (C-148).
type Request struct {
	// Installation is the id of this installation: 1 to 63 characters of a-z,
	// 0-9 and hyphens.
	Installation string
	// Subject is a service of a project, or a project. It is checked: the
	// request stands in the project's namespace and is owned by the subject.
	Subject v1alpha1.Subject
	// Namespace is the project's.
	Namespace string
	// Account, Location and KMSKey are the installation's, as it wrote them.
	// KMSKey may be empty.
	Account, Location, KMSKey string
	// CreatedAt is when the request was made, in the API server's time.
	CreatedAt time.Time
}

// Thing tells how what an Ensure method answers came to be; Ready or Recovered
// follows from it (C-147).
type Thing struct {
	// Made is that this very call made it. Then it is not Recovered, whatever
	// the two clocks say.
	Made bool
	// CreatedAt is when the cloud says that it was made. It is Recovered if that
	// was before the request was, or in the same second and before the first call
	// for it. Zero when the cloud does not tell: then what this call has not made
	// is Recovered.
	CreatedAt time.Time
}

// Identities serves kind identity.
type Identities interface {
	// EnsureIdentity makes the subject's identity and lets ask.ServiceAccount
	// of the request's namespace act as it. One identity for each subject.
	EnsureIdentity(ctx context.Context, r Request, ask v1alpha1.IdentityAsk) (v1alpha1.IdentityAnswer, Thing, error)
	// OwnsIdentity says whether identity is the one that EnsureIdentity answers
	// for the subject. It changes nothing. The kinds that name an identity are
	// checked with it (C-143).
	OwnsIdentity(ctx context.Context, r Request, identity string) (bool, error)
}

// SecretAccess serves kind secret-access.
type SecretAccess interface {
	// EnsureSecretAccess grants the identity exactly what is asked: writing,
	// reading and removing secrets whose id starts with one of ask.Own, and
	// reading those of ask.Read. What an older ask had and this one has not is
	// taken away. Identity and prefixes are checked to be the subject's.
	EnsureSecretAccess(ctx context.Context, r Request, ask v1alpha1.SecretAccessAsk) error
}

// SecretValues serves kind secret-sync.
type SecretValues interface {
	// SecretValues reads the present value of each id. An id without a value
	// yet is left out of the answer: the request waits, naming it. Nothing
	// that is read reaches anything but the Secret. The ids are checked to be
	// the project's.
	SecretValues(ctx context.Context, r Request, ids []string) (map[string][]byte, error)
}

// BucketAsk is what a bucket is to be.
type BucketAsk struct {
	v1alpha1.BucketAsk
	// Name is the bucket's, by the rule of the contract. No other will do.
	Name string
}

// Buckets serves kind bucket.
type Buckets interface {
	// EnsureBucket makes the bucket, or brings one of the subject's into the
	// form that is asked. It never changes anything about a bucket that is not
	// the subject's: that is [Taken]. A bucket of the subject's in another
	// account or location is [ErrMoved].
	EnsureBucket(ctx context.Context, r Request, ask BucketAsk) (v1alpha1.BucketAnswer, Thing, error)
	// OwnsBucket says whether the bucket is there and the subject's, by what
	// EnsureBucket left on it. It changes nothing.
	OwnsBucket(ctx context.Context, r Request, bucket string) (bool, error)
}

// Credential is a key as the cloud gives it out, once. It is never logged,
// and nothing of it but ID is kept anywhere but in the Secret.
type Credential struct {
	// ID names it in [Credentials]' calls, and is in the status. It opens
	// nothing by itself. Up to 512 bytes.
	ID string
	// AccessKey and SecretKey are the Secret's two entries.
	AccessKey, SecretKey string
}

// String hides the keys from logs and errors.
func (c Credential) String() string { return "credential " + c.ID }

// GoString does so for %#v.
func (c Credential) GoString() string { return c.String() }

// LogValue does so for log/slog, and MarshalJSON for whatever writes JSON.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON writes the id alone.
func (c Credential) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// Issued is a credential that the cloud lists.
type Issued struct {
	ID string
	// CreatedAt is when it was issued; zero when the cloud does not tell.
	CreatedAt time.Time
}

// Credentials serves kind bucket-credential. Bucket and identity are checked to
// be the subject's before any call.
//
// Which credential is in place, which is to end and when is the package's
// business; a cloud only does as it is told.
type Credentials interface {
	// EnsureBucketAccess grants the identity the reading, writing and removing
	// of objects in the bucket, and nothing else. It is called before a
	// credential is issued and again at the slow re-check (C-151).
	EnsureBucketAccess(ctx context.Context, r Request, ask v1alpha1.CredentialAsk) error
	// IssueCredential makes one. It must not be retried inside after an answer
	// that may have been lost: the package finds what was made by
	// ListCredentials.
	IssueCredential(ctx context.Context, r Request, ask v1alpha1.CredentialAsk) (Credential, error)
	// CredentialUsable says nil once the cloud takes the credential, and Waiting
	// until then: the Secret holds it already, but it is not reported in place
	// and the one before is not retired. After a restart c has its ID alone:
	// then what the cloud knows of the credential decides, or its age since
	// issuedAt against what the cloud's documentation says.
	CredentialUsable(ctx context.Context, r Request, ask v1alpha1.CredentialAsk, c Credential, issuedAt time.Time) error
	// EndCredential makes it unusable for good. One that has ended already, or
	// never was, is nil.
	EndCredential(ctx context.Context, r Request, ask v1alpha1.CredentialAsk, id string) error
	// ListCredentials are all of the identity's that have not ended, with those
	// that another process or an older request issued.
	ListCredentials(ctx context.Context, r Request, ask v1alpha1.CredentialAsk) ([]Issued, error)
}

// WrappingKeys serves kind wrapping-key.
type WrappingKeys interface {
	// EnsureWrappingKey lets the identity wrap and unwrap with the key. The key
	// is checked to be the installation's, the identity the subject's.
	EnsureWrappingKey(ctx context.Context, r Request, ask v1alpha1.WrappingKeyAsk) error
}

// Implements says whether a cloud serves a kind.
func Implements(c Cloud, kind string) bool {
	var ok bool
	switch kind {
	case v1alpha1.KindIdentity:
		_, ok = c.(Identities)
	case v1alpha1.KindSecretAccess:
		_, ok = c.(SecretAccess)
	case v1alpha1.KindSecretSync:
		_, ok = c.(SecretValues)
	case v1alpha1.KindBucket:
		_, ok = c.(Buckets)
	case v1alpha1.KindBucketCredential:
		_, ok = c.(Credentials)
	case v1alpha1.KindWrappingKey:
		_, ok = c.(WrappingKeys)
	}
	return ok
}
