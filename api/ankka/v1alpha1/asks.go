package v1alpha1

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// What each kind asks and answers, typed. Parameters and Outputs write the
// strings that stand in a CloudResource, Parse… read them; the operator and
// every provider use the two sides of the same pair, and so agree.

// IdentityAsk is for an identity in the cloud for a Kubernetes ServiceAccount
// of the subject's namespace.
//
// +kubebuilder:object:generate=false
type IdentityAsk struct{ ServiceAccount string }

// Parameters of the request.
func (a IdentityAsk) Parameters() (map[string]string, error) {
	return checked(KindIdentity, map[string]string{ParamServiceAccount: a.ServiceAccount})
}

// ParseIdentityAsk reads parameters of kind identity.
func ParseIdentityAsk(p map[string]string) (IdentityAsk, error) {
	r := read(KindIdentity, false, p)
	a := IdentityAsk{ServiceAccount: r.name(ParamServiceAccount)}
	return a, r.err()
}

// IdentityAnswer is the identity and the annotations that bind the
// ServiceAccount to it, which the operator copies as they are (C-89).
//
// +kubebuilder:object:generate=false
type IdentityAnswer struct {
	Identity                  string
	ServiceAccountAnnotations map[string]string
}

// Outputs of the answer.
func (a IdentityAnswer) Outputs() (map[string]string, error) {
	pairs, err := FormatPairs(a.ServiceAccountAnnotations)
	if err != nil {
		return nil, err
	}
	return answered(KindIdentity, map[string]string{OutputIdentity: a.Identity, OutputServiceAccountAnnotations: pairs})
}

// ParseIdentityAnswer reads outputs of kind identity.
func ParseIdentityAnswer(o map[string]string) (IdentityAnswer, error) {
	r := read(KindIdentity, true, o)
	a := IdentityAnswer{
		Identity:                  r.text(OutputIdentity),
		ServiceAccountAnnotations: parse(r, OutputServiceAccountAnnotations, ParsePairs),
	}
	return a, r.err()
}

// SecretAccessAsk says which secrets of the account the identity may keep
// (write, read and remove) and which it may only read. The entries are prefixes
// of secret ids, since a service names its secrets when it runs.
//
// +kubebuilder:object:generate=false
type SecretAccessAsk struct {
	Identity  string
	Own, Read []string
}

// Parameters of the request.
func (a SecretAccessAsk) Parameters() (map[string]string, error) {
	own, err := FormatList(a.Own)
	read, err2 := FormatList(a.Read)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	return checked(KindSecretAccess, map[string]string{ParamIdentity: a.Identity, ParamOwn: own, ParamRead: read})
}

// ParseSecretAccessAsk reads parameters of kind secret-access.
func ParseSecretAccessAsk(p map[string]string) (SecretAccessAsk, error) {
	r := read(KindSecretAccess, false, p)
	a := SecretAccessAsk{Identity: r.text(ParamIdentity), Own: parse(r, ParamOwn, parseIDs), Read: parse(r, ParamRead, parseIDs)}
	return a, r.err()
}

// SecretSyncAsk is for a Secret of the subject's namespace kept in step with
// secrets of the account: its entries by name, each with the id of its secret.
//
// +kubebuilder:object:generate=false
type SecretSyncAsk struct {
	SecretName string
	Entries    map[string]string
	// EntryGeneration is answered once the Secret holds what it stands for.
	EntryGeneration int64
}

// Parameters of the request; entries are sorted by name.
func (a SecretSyncAsk) Parameters() (map[string]string, error) {
	entries, err := FormatPairs(a.Entries)
	if err != nil {
		return nil, err
	}
	return checked(KindSecretSync, map[string]string{
		ParamSecretName: a.SecretName, ParamEntries: entries, ParamEntryGeneration: FormatNumber(a.EntryGeneration)})
}

// ParseSecretSyncAsk reads parameters of kind secret-sync.
func ParseSecretSyncAsk(p map[string]string) (SecretSyncAsk, error) {
	r := read(KindSecretSync, false, p)
	a := SecretSyncAsk{
		SecretName:      r.name(ParamSecretName),
		Entries:         parse(r, ParamEntries, parseEntries),
		EntryGeneration: parse(r, ParamEntryGeneration, ParseNumber),
	}
	return a, r.err()
}

// SecretSyncAnswer is the entry generation that the Secret holds.
//
// +kubebuilder:object:generate=false
type SecretSyncAnswer struct{ EntryGeneration int64 }

// Outputs of the answer.
func (a SecretSyncAnswer) Outputs() (map[string]string, error) {
	return answered(KindSecretSync, map[string]string{OutputEntryGeneration: FormatNumber(a.EntryGeneration)})
}

// ParseSecretSyncAnswer reads outputs of kind secret-sync.
func ParseSecretSyncAnswer(o map[string]string) (SecretSyncAnswer, error) {
	r := read(KindSecretSync, true, o)
	a := SecretSyncAnswer{EntryGeneration: parse(r, OutputEntryGeneration, ParseNumber)}
	return a, r.err()
}

// BucketAsk is for a bucket.
//
// +kubebuilder:object:generate=false
type BucketAsk struct {
	// Purpose is PurposeService or PurposeBackup.
	Purpose string
	// Location is the installation's, word for word (C-19).
	Location   string
	Versioning bool
	// SoftDeleteDays keeps removed objects so long; 0 is not at all.
	SoftDeleteDays int64
	// CORSOrigins are "*" or origins (https://host[:port]); none is none.
	CORSOrigins []string
	// KMSKey is the installation's key, or empty.
	KMSKey     string
	NamePrefix string
	// NoncurrentVersionDays is when replaced versions go; nil is never.
	NoncurrentVersionDays *int64
}

// Parameters of the request.
func (a BucketAsk) Parameters() (map[string]string, error) {
	origins, err := FormatList(a.CORSOrigins)
	if err != nil {
		return nil, err
	}
	days := ""
	if a.NoncurrentVersionDays != nil {
		days = FormatNumber(*a.NoncurrentVersionDays)
	}
	return checked(KindBucket, map[string]string{
		ParamPurpose: a.Purpose, ParamLocation: a.Location,
		ParamVersioning: FormatBool(a.Versioning), ParamSoftDeleteDays: FormatNumber(a.SoftDeleteDays),
		ParamCORSOrigins: origins, ParamKMSKey: a.KMSKey,
		ParamNamePrefix: a.NamePrefix, ParamNoncurrentVersionDays: days,
	})
}

// ParseBucketAsk reads parameters of kind bucket.
func ParseBucketAsk(p map[string]string) (BucketAsk, error) {
	r := read(KindBucket, false, p)
	a := BucketAsk{
		Purpose: parse(r, ParamPurpose, func(s string) (string, error) {
			if s != PurposeService && s != PurposeBackup {
				return "", errors.New(`must be "service" or "backup"`)
			}
			return s, nil
		}),
		Location:       r.text(ParamLocation),
		Versioning:     parse(r, ParamVersioning, ParseBool),
		SoftDeleteDays: parse(r, ParamSoftDeleteDays, ParseNumber),
		CORSOrigins:    parse(r, ParamCORSOrigins, parseOrigins),
		KMSKey:         p[ParamKMSKey],
		NamePrefix: parse(r, ParamNamePrefix, func(s string) (string, error) {
			if ValidateNamePrefix(s) != nil {
				return "", errors.New("must be 1 to 50 characters of a-z, 0-9 and hyphens, the first no hyphen")
			}
			return s, nil
		}),
		NoncurrentVersionDays: parse(r, ParamNoncurrentVersionDays, func(s string) (*int64, error) {
			if s == "" {
				return nil, nil
			}
			n, err := ParseNumber(s)
			if err != nil || n == 0 {
				return nil, errors.New("must be empty or a whole number of days from 1")
			}
			return &n, nil
		}),
	}
	return a, r.err()
}

// BucketAnswer is a bucket and how it is reached.
//
// +kubebuilder:object:generate=false
type BucketAnswer struct{ Bucket, Endpoint, Region string }

// Outputs of the answer.
func (a BucketAnswer) Outputs() (map[string]string, error) {
	return answered(KindBucket, map[string]string{OutputBucket: a.Bucket, OutputEndpoint: a.Endpoint, OutputRegion: a.Region})
}

// ParseBucketAnswer reads outputs of kind bucket.
func ParseBucketAnswer(o map[string]string) (BucketAnswer, error) {
	r := read(KindBucket, true, o)
	a := BucketAnswer{Bucket: r.text(OutputBucket), Endpoint: r.text(OutputEndpoint), Region: r.text(OutputRegion)}
	return a, r.err()
}

// CredentialAsk is for a credential by which identity reaches bucket, in the
// named Secret. Its generation is spec.credentialGeneration.
//
// +kubebuilder:object:generate=false
type CredentialAsk struct{ Bucket, Identity, SecretName string }

// Parameters of the request.
func (a CredentialAsk) Parameters() (map[string]string, error) {
	return checked(KindBucketCredential, map[string]string{ParamBucket: a.Bucket, ParamIdentity: a.Identity, ParamSecretName: a.SecretName})
}

// ParseCredentialAsk reads parameters of kind bucket-credential.
func ParseCredentialAsk(p map[string]string) (CredentialAsk, error) {
	r := read(KindBucketCredential, false, p)
	a := CredentialAsk{Bucket: r.text(ParamBucket), Identity: r.text(ParamIdentity), SecretName: r.name(ParamSecretName)}
	return a, r.err()
}

// CredentialAnswer names the Secret; the credential is nowhere else.
//
// +kubebuilder:object:generate=false
type CredentialAnswer struct{ SecretName string }

// Outputs of the answer.
func (a CredentialAnswer) Outputs() (map[string]string, error) {
	return answered(KindBucketCredential, map[string]string{OutputSecretName: a.SecretName})
}

// ParseCredentialAnswer reads outputs of kind bucket-credential.
func ParseCredentialAnswer(o map[string]string) (CredentialAnswer, error) {
	r := read(KindBucketCredential, true, o)
	a := CredentialAnswer{SecretName: r.name(OutputSecretName)}
	return a, r.err()
}

// WrappingKeyAsk is that identity may wrap with the installation's key.
//
// +kubebuilder:object:generate=false
type WrappingKeyAsk struct{ Identity, Key string }

// Parameters of the request.
func (a WrappingKeyAsk) Parameters() (map[string]string, error) {
	return checked(KindWrappingKey, map[string]string{ParamIdentity: a.Identity, ParamKey: a.Key})
}

// ParseWrappingKeyAsk reads parameters of kind wrapping-key.
func ParseWrappingKeyAsk(p map[string]string) (WrappingKeyAsk, error) {
	r := read(KindWrappingKey, false, p)
	a := WrappingKeyAsk{Identity: r.text(ParamIdentity), Key: r.text(ParamKey)}
	return a, r.err()
}

// WrappingKeyAnswer is the key.
//
// +kubebuilder:object:generate=false
type WrappingKeyAnswer struct{ Key string }

// Outputs of the answer.
func (a WrappingKeyAnswer) Outputs() (map[string]string, error) {
	return answered(KindWrappingKey, map[string]string{OutputKey: a.Key})
}

// ParseWrappingKeyAnswer reads outputs of kind wrapping-key.
func ParseWrappingKeyAnswer(o map[string]string) (WrappingKeyAnswer, error) {
	r := read(KindWrappingKey, true, o)
	a := WrappingKeyAnswer{Key: r.text(OutputKey)}
	return a, r.err()
}

// checked refuses to write what could not be read: a request that every
// provider would answer Failed is an error of whoever asks.
func checked(kind string, p map[string]string) (map[string]string, error) {
	if err := CheckParameters(kind, p); err != nil {
		return nil, err
	}
	return p, nil
}

func answered(kind string, o map[string]string) (map[string]string, error) {
	if err := CheckOutputs(kind, o); err != nil {
		return nil, err
	}
	return o, nil
}

var (
	secretID  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,255}$`)
	entryName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,253}$`)
)

// parseIDs reads a list of secret ids, or prefixes of them.
func parseIDs(text string) ([]string, error) {
	ids, err := ParseList(text)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if !secretID.MatchString(id) {
			return nil, errors.New("must be a list of ids, each 1 to 255 characters of A-Z, a-z, 0-9, _ and -")
		}
	}
	return ids, nil
}

func parseEntries(text string) (map[string]string, error) {
	entries, err := ParsePairs(text)
	if err != nil {
		return nil, err
	}
	for name, id := range entries {
		if !entryName.MatchString(name) || !secretID.MatchString(id) {
			return nil, errors.New("must be a list of NAME=id, names of A-Z, a-z, 0-9, ., _ and -, ids of A-Z, a-z, 0-9, _ and -")
		}
	}
	return entries, nil
}

// ValidateOrigin says whether text is an origin as browsers send it, or "*".
func ValidateOrigin(text string) error {
	if text == "*" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil ||
		u.Scheme+"://"+u.Host != text || strings.ContainsAny(text, ", \t\r\n*") {
		return errors.New(`must be "*" or an origin such as https://host or https://host:port`)
	}
	return nil
}

func parseOrigins(text string) ([]string, error) {
	origins, err := ParseList(text)
	if err != nil {
		return nil, err
	}
	for _, o := range origins {
		if ValidateOrigin(o) != nil {
			return nil, errors.New(`must be a list whose items are "*" or origins such as https://host or https://host:port`)
		}
	}
	return origins, nil
}
