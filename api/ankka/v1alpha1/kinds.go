package v1alpha1

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The six kinds.
const (
	KindIdentity         = "identity"
	KindSecretAccess     = "secret-access"
	KindSecretSync       = "secret-sync"
	KindBucket           = "bucket"
	KindBucketCredential = "bucket-credential"
	KindWrappingKey      = "wrapping-key"
)

// Parameters and outputs.
const (
	ParamServiceAccount        = "serviceAccount"
	ParamIdentity              = "identity"
	ParamOwn                   = "own"
	ParamRead                  = "read"
	ParamSecretName            = "secretName"
	ParamEntries               = "entries"
	ParamEntryGeneration       = "entryGeneration"
	ParamPurpose               = "purpose"
	ParamLocation              = "location"
	ParamVersioning            = "versioning"
	ParamSoftDeleteDays        = "softDeleteDays"
	ParamCORSOrigins           = "corsOrigins"
	ParamKMSKey                = "kmsKey"
	ParamNamePrefix            = "namePrefix"
	ParamNoncurrentVersionDays = "noncurrentVersionDays"
	ParamBucket                = "bucket"
	ParamKey                   = "key"

	OutputIdentity                  = "identity"
	OutputServiceAccountAnnotations = "serviceAccountAnnotations"
	OutputEntryGeneration           = "entryGeneration"
	OutputBucket                    = "bucket"
	OutputEndpoint                  = "endpoint"
	OutputRegion                    = "region"
	OutputSecretName                = "secretName"
	OutputKey                       = "key"
)

// Purposes of a bucket.
const (
	PurposeService = "service"
	PurposeBackup  = "backup"
)

var keySets = map[string]struct{ parameters, outputs []string }{
	KindIdentity:     {[]string{ParamServiceAccount}, []string{OutputIdentity, OutputServiceAccountAnnotations}},
	KindSecretAccess: {[]string{ParamIdentity, ParamOwn, ParamRead}, nil},
	KindSecretSync:   {[]string{ParamSecretName, ParamEntries, ParamEntryGeneration}, []string{OutputEntryGeneration}},
	KindBucket: {
		[]string{ParamPurpose, ParamLocation, ParamVersioning, ParamSoftDeleteDays, ParamCORSOrigins, ParamKMSKey, ParamNamePrefix, ParamNoncurrentVersionDays},
		[]string{OutputBucket, OutputEndpoint, OutputRegion},
	},
	KindBucketCredential: {[]string{ParamBucket, ParamIdentity, ParamSecretName}, []string{OutputSecretName}},
	KindWrappingKey:      {[]string{ParamIdentity, ParamKey}, []string{OutputKey}},
}

// Kinds are the six, in the order in which the contract names them.
func Kinds() []string {
	return []string{KindIdentity, KindSecretAccess, KindSecretSync, KindBucket, KindBucketCredential, KindWrappingKey}
}

// KnownKind says whether kind is one of the six.
func KnownKind(kind string) bool { _, ok := keySets[kind]; return ok }

// ParameterNames are exactly the parameters of a kind (C-74), in order; nil for
// an unknown one.
func ParameterNames(kind string) []string { return slices.Clone(keySets[kind].parameters) }

// OutputNames are exactly the outputs of a kind, in order.
func OutputNames(kind string) []string { return slices.Clone(keySets[kind].outputs) }

// A FormError says in which ways a request or an answer is not of its kind's
// form, in words a member can read. It repeats no value that was given.
//
// +kubebuilder:object:generate=false
type FormError struct {
	Kind string
	// Answer tells that the outputs are meant, not the parameters.
	Answer   bool
	Problems []string
}

// maxProblems bounds a message about hostile input.
const maxProblems = 8

func (e *FormError) Error() string {
	p := e.Problems
	if len(p) > maxProblems {
		p = append(slices.Clone(p[:maxProblems]), fmt.Sprintf("and %d more", len(p)-maxProblems))
	}
	what := "the request is not one of kind "
	if e.Answer {
		what = "the answer is not one to kind "
	}
	return what + e.Kind + ": " + strings.Join(p, "; ")
}

// reader takes values out of a closed set of keys and collects what is wrong.
type reader struct {
	kind     string
	answer   bool
	values   map[string]string
	problems []string
}

func read(kind string, answer bool, values map[string]string) *reader {
	r := &reader{kind: kind, answer: answer, values: values}
	names := keySets[kind].parameters
	noun := "parameter"
	if answer {
		names, noun = keySets[kind].outputs, "output"
	}
	for _, n := range names {
		if _, ok := values[n]; !ok {
			r.problems = append(r.problems, n+" is missing")
		}
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, k) {
			r.problems = append(r.problems, fmt.Sprintf("%s is no %s of it", printable(k), noun))
		}
	}
	return r
}

func (r *reader) fault(name, problem string) {
	r.problems = append(r.problems, name+" "+problem)
}

// text reads a value that must not be empty.
func (r *reader) text(name string) string {
	v, ok := r.values[name]
	switch {
	case ok && v == "":
		r.fault(name, "must not be empty")
	case r.answer && Clean(v) != v:
		// It stands in statuses and variables, and on terminals.
		r.fault(name, fmt.Sprintf("must be text that can be printed, of at most %d bytes", MaxDetail))
		return ""
	}
	return v
}

// name reads a Kubernetes object's name.
func (r *reader) name(name string) string {
	v := r.text(name)
	if v != "" && (len(v) > 253 || !subdomain.MatchString(v)) {
		r.fault(name, "must be the name of a Kubernetes object")
	}
	return v
}

func parse[T any](r *reader, name string, f func(string) (T, error)) T {
	var zero T
	text, ok := r.values[name]
	if !ok {
		return zero
	}
	v, err := f(text)
	if err != nil {
		r.fault(name, err.Error())
		return zero
	}
	return v
}

func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	return &FormError{Kind: r.kind, Answer: r.answer, Problems: r.problems}
}

// CheckParameters says whether parameters are exactly those of kind, each of
// its form. An unknown kind is an error of its own kind of words
// ([DetailNotImplemented]) and is not checked here: it has no form.
func CheckParameters(kind string, parameters map[string]string) error {
	var err error
	switch kind {
	case KindIdentity:
		_, err = ParseIdentityAsk(parameters)
	case KindSecretAccess:
		_, err = ParseSecretAccessAsk(parameters)
	case KindSecretSync:
		_, err = ParseSecretSyncAsk(parameters)
	case KindBucket:
		_, err = ParseBucketAsk(parameters)
	case KindBucketCredential:
		_, err = ParseCredentialAsk(parameters)
	case KindWrappingKey:
		_, err = ParseWrappingKeyAsk(parameters)
	default:
		err = fmt.Errorf("kind %s is not known", printable(kind))
	}
	return err
}

// CheckOutputs says whether outputs are exactly those of kind, each of its
// form.
func CheckOutputs(kind string, outputs map[string]string) error {
	var err error
	switch kind {
	case KindIdentity:
		_, err = ParseIdentityAnswer(outputs)
	case KindSecretAccess:
		err = read(kind, true, outputs).err()
	case KindSecretSync:
		_, err = ParseSecretSyncAnswer(outputs)
	case KindBucket:
		_, err = ParseBucketAnswer(outputs)
	case KindBucketCredential:
		_, err = ParseCredentialAnswer(outputs)
	case KindWrappingKey:
		_, err = ParseWrappingKeyAnswer(outputs)
	default:
		err = fmt.Errorf("kind %s is not known", printable(kind))
	}
	return err
}
