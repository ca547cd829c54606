package v1alpha1

import (
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func days(n int64) *int64 { return &n }

// One good request and answer a kind, as they are to be written, letter for letter.
var samples = map[string]struct {
	ask, answer          func() (map[string]string, error)
	parameters, outputs  map[string]string
	parseAsk, parseReply func(map[string]string) (any, error)
	wantAsk, wantReply   any
}{
	KindIdentity: {
		IdentityAsk{"reports"}.Parameters,
		IdentityAnswer{"reports@acme", map[string]string{"example.test/identity": "reports=1", "a": ""}}.Outputs,
		map[string]string{"serviceAccount": "reports"},
		map[string]string{"identity": "reports@acme", "serviceAccountAnnotations": "a=,example.test/identity=reports=1"},
		wrap(ParseIdentityAsk), wrap(ParseIdentityAnswer),
		IdentityAsk{"reports"}, IdentityAnswer{"reports@acme", map[string]string{"example.test/identity": "reports=1", "a": ""}},
	},
	KindSecretAccess: {
		SecretAccessAsk{"reports@acme", []string{"s_shop_reports_"}, []string{"p_shop_", "p_other_"}}.Parameters,
		nil,
		map[string]string{"identity": "reports@acme", "own": "s_shop_reports_", "read": "p_shop_,p_other_"},
		map[string]string{},
		wrap(ParseSecretAccessAsk), nil,
		SecretAccessAsk{"reports@acme", []string{"s_shop_reports_"}, []string{"p_shop_", "p_other_"}}, nil,
	},
	KindSecretSync: {
		SecretSyncAsk{"stripe-cloud-secret", map[string]string{"B": "p_shop_stripe__B", "A": "p_shop_stripe__A"}, 3}.Parameters,
		SecretSyncAnswer{3}.Outputs,
		map[string]string{"secretName": "stripe-cloud-secret", "entries": "A=p_shop_stripe__A,B=p_shop_stripe__B", "entryGeneration": "3"},
		map[string]string{"entryGeneration": "3"},
		wrap(ParseSecretSyncAsk), wrap(ParseSecretSyncAnswer),
		SecretSyncAsk{"stripe-cloud-secret", map[string]string{"B": "p_shop_stripe__B", "A": "p_shop_stripe__A"}, 3}, SecretSyncAnswer{3},
	},
	KindBucket: {
		BucketAsk{Purpose: PurposeService, Location: "Europe-West2", NamePrefix: "acme", CORSOrigins: []string{"https://a.test", "http://b.test:8080"}, NoncurrentVersionDays: days(30), Versioning: true, SoftDeleteDays: 7, KMSKey: "k/1"}.Parameters,
		BucketAnswer{"acme-shop-reports-ae7cc739", "https://storage.test", "europe-west2"}.Outputs,
		map[string]string{"purpose": "service", "location": "Europe-West2", "versioning": "true", "softDeleteDays": "7",
			"corsOrigins": "https://a.test,http://b.test:8080", "kmsKey": "k/1", "namePrefix": "acme", "noncurrentVersionDays": "30"},
		map[string]string{"bucket": "acme-shop-reports-ae7cc739", "endpoint": "https://storage.test", "region": "europe-west2"},
		wrap(ParseBucketAsk), wrap(ParseBucketAnswer),
		BucketAsk{Purpose: PurposeService, Location: "Europe-West2", NamePrefix: "acme", CORSOrigins: []string{"https://a.test", "http://b.test:8080"}, NoncurrentVersionDays: days(30), Versioning: true, SoftDeleteDays: 7, KMSKey: "k/1"},
		BucketAnswer{"acme-shop-reports-ae7cc739", "https://storage.test", "europe-west2"},
	},
	KindBucketCredential: {
		CredentialAsk{"b", "reports@acme", "reports-cloud-storage"}.Parameters,
		CredentialAnswer{"reports-cloud-storage"}.Outputs,
		map[string]string{"bucket": "b", "identity": "reports@acme", "secretName": "reports-cloud-storage"},
		map[string]string{"secretName": "reports-cloud-storage"},
		wrap(ParseCredentialAsk), wrap(ParseCredentialAnswer),
		CredentialAsk{"b", "reports@acme", "reports-cloud-storage"}, CredentialAnswer{"reports-cloud-storage"},
	},
	KindWrappingKey: {
		WrappingKeyAsk{"shop@acme", "ring/key"}.Parameters,
		WrappingKeyAnswer{"ring/key"}.Outputs,
		map[string]string{"identity": "shop@acme", "key": "ring/key"},
		map[string]string{"key": "ring/key"},
		wrap(ParseWrappingKeyAsk), wrap(ParseWrappingKeyAnswer),
		WrappingKeyAsk{"shop@acme", "ring/key"}, WrappingKeyAnswer{"ring/key"},
	},
}

func wrap[T any](f func(map[string]string) (T, error)) func(map[string]string) (any, error) {
	return func(m map[string]string) (any, error) { return f(m) }
}

// The key sets are written out here once more: the contract is what the seed
// says, not what the code says.
func TestKeySets_C66_C67_C69_C71_C72_C73_C74(t *testing.T) {
	want := map[string][2]string{
		"identity":          {"serviceAccount", "identity serviceAccountAnnotations"},
		"secret-access":     {"identity own read", ""},
		"secret-sync":       {"secretName entries entryGeneration", "entryGeneration"},
		"bucket":            {"purpose location versioning softDeleteDays corsOrigins kmsKey namePrefix noncurrentVersionDays", "bucket endpoint region"},
		"bucket-credential": {"bucket identity secretName", "secretName"},
		"wrapping-key":      {"identity key", "key"},
	}
	kinds := Kinds()
	if len(kinds) != 6 || len(want) != 6 || len(samples) != 6 {
		t.Fatalf("C-74: %d kinds", len(kinds))
	}
	for _, kind := range kinds {
		got := [2]string{strings.Join(ParameterNames(kind), " "), strings.Join(OutputNames(kind), " ")}
		if got != want[kind] || !KnownKind(kind) {
			t.Errorf("C-74: %s asks and answers %q, want %q", kind, got, want[kind])
		}
		s := samples[kind]
		p, err := s.ask()
		if err != nil || !maps.Equal(p, s.parameters) {
			t.Errorf("%s writes %v, %v; want %v", kind, p, err, s.parameters)
		}
		if a, err := s.parseAsk(p); err != nil || !reflect.DeepEqual(a, s.wantAsk) {
			t.Errorf("%s reads %v, %v; want %v", kind, a, err, s.wantAsk)
		}
		if !slices.Equal(slices.Sorted(maps.Keys(p)), slices.Sorted(slices.Values(ParameterNames(kind)))) {
			t.Errorf("C-74: %s writes keys %v", kind, p)
		}
		if s.answer != nil {
			o, err := s.answer()
			if err != nil || !maps.Equal(o, s.outputs) {
				t.Errorf("%s answers %v, %v; want %v", kind, o, err, s.outputs)
			}
			if a, err := s.parseReply(o); err != nil || !reflect.DeepEqual(a, s.wantReply) {
				t.Errorf("%s reads the answer %v, %v; want %v", kind, a, err, s.wantReply)
			}
		}
		if err := CheckOutputs(kind, s.outputs); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for _, check := range []struct {
			what   string
			f      func(string, map[string]string) error
			values map[string]string
		}{{"parameters", CheckParameters, s.parameters}, {"outputs", CheckOutputs, s.outputs}} {
			for k := range check.values {
				less := maps.Clone(check.values)
				delete(less, k)
				var form *FormError
				if err := check.f(kind, less); !errors.As(err, &form) || !strings.Contains(err.Error(), k+" is missing") {
					t.Errorf("C-74: %s %s without %s: %v", kind, check.what, k, err)
				}
			}
			more := maps.Clone(check.values)
			more["colour"] = "blue-value"
			if err := check.f(kind, more); err == nil || !strings.Contains(err.Error(), `"colour" is no `) || strings.Contains(err.Error(), "blue") {
				t.Errorf("C-74: %s %s with one more: %v", kind, check.what, err)
			}
		}
	}
	if KnownKind("queue") || CheckParameters("queue", nil) == nil || CheckOutputs("queue", nil) == nil || ParameterNames("queue") != nil {
		t.Error("C-74: an unknown kind has a form")
	}
}

// The vocabulary is the platform's: no cloud's word in a kind, key or purpose.
func TestWords_C9(t *testing.T) {
	cloud := regexp.MustCompile(`(?i)google|gcs|gcp|aws|s3|azure|iam|arn|hmac`)
	words := append(Kinds(), PurposeService, PurposeBackup)
	for _, kind := range Kinds() {
		words = append(append(words, ParameterNames(kind)...), OutputNames(kind)...)
	}
	for _, w := range words {
		if cloud.MatchString(w) {
			t.Errorf("C-9: %s is a cloud's word", w)
		}
	}
	if p := samples[KindBucket].parameters[ParamLocation]; p != "Europe-West2" {
		t.Errorf("C-9 C-19: location became %s", p)
	}
}

func TestMalformed(t *testing.T) {
	for _, c := range []struct{ kind, key, value, want string }{
		{KindBucket, ParamVersioning, "yes", `versioning must be "true" or "false"`},
		{KindBucket, ParamVersioning, "", `versioning must be`},
		{KindBucket, ParamSoftDeleteDays, "-1", "softDeleteDays must be a whole number"},
		{KindBucket, ParamSoftDeleteDays, "07", "softDeleteDays must be a whole number"},
		{KindBucket, ParamSoftDeleteDays, "1e3", "softDeleteDays must be a whole number"},
		{KindBucket, ParamPurpose, "fun", `purpose must be "service" or "backup"`},
		{KindBucket, ParamLocation, "", "location must not be empty"},
		{KindBucket, ParamNamePrefix, "-a", "namePrefix must be"},
		{KindBucket, ParamNoncurrentVersionDays, "0", "noncurrentVersionDays must be empty or"},
		{KindBucket, ParamCORSOrigins, "https://a.test,", "corsOrigins must be"},
		{KindBucket, ParamCORSOrigins, "https://a.test/path", "corsOrigins must be"},
		{KindBucket, ParamCORSOrigins, "ftp://a.test", "corsOrigins must be"},
		{KindIdentity, ParamServiceAccount, "No Name", "serviceAccount must be the name"},
		{KindSecretAccess, ParamOwn, "a b", "own must be a list of ids"},
		{KindSecretAccess, ParamIdentity, "", "identity must not be empty"},
		{KindSecretSync, ParamEntries, "A", "entries must be a comma-separated list of key=value"},
		{KindSecretSync, ParamEntries, "A=1,A=2", "each key once"},
		{KindSecretSync, ParamEntries, "A=b=c", "entries must be a list of NAME=id"},
		{KindSecretSync, ParamEntries, "A/=b", "entries must be a list of NAME=id"},
		{KindSecretSync, ParamEntryGeneration, "x", "entryGeneration must be a whole number"},
		{KindBucketCredential, ParamSecretName, "../x", "secretName must be the name"},
		{KindWrappingKey, ParamKey, "", "key must not be empty"},
	} {
		p := maps.Clone(samples[c.kind].parameters)
		p[c.key] = c.value
		err := CheckParameters(c.kind, p)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s=%q: %v; want %s", c.kind, c.key, c.value, err, c.want)
		}
	}
	// An answer stands in statuses, in variables and on terminals.
	for _, value := range []string{"a\x1b[2Jb", "a\nb", strings.Repeat("x", MaxDetail+1), "a\u202eb"} {
		for kind, key := range map[string]string{KindBucket: OutputEndpoint, KindIdentity: OutputIdentity, KindWrappingKey: OutputKey} {
			o := maps.Clone(samples[kind].outputs)
			o[key] = value
			if err := CheckOutputs(kind, o); err == nil || !strings.Contains(err.Error(), key+" must be text that can be printed") {
				t.Errorf("C-152: %s %s=%.20q: %v", kind, key, value, err)
			}
		}
	}
	// Hostile keys are neither repeated at length nor without end.
	p := map[string]string{}
	for i := range 1000 {
		p[strings.Repeat("k", 5000)+"\x1b"+FormatNumber(int64(i))] = "v"
	}
	if err := CheckParameters(KindBucket, p); err == nil || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("hostile keys: %d bytes", len(err.Error()))
	}
	// Whoever asks finds out before a request is written.
	if p, err := (BucketAsk{Purpose: PurposeService, Location: "x", NamePrefix: "-"}).Parameters(); err == nil {
		t.Errorf("written: %v", p)
	}
}

func TestEncoding_C62_C63_C64(t *testing.T) {
	if s, err := FormatList([]string{"a", "b c", "d"}); s != "a,b c,d" || err != nil {
		t.Errorf("C-62: %q, %v", s, err)
	}
	if s, err := FormatList(nil); s != "" || err != nil {
		t.Errorf("C-62: %q, %v", s, err)
	}
	for _, bad := range [][]string{{""}, {"a,b"}, {"a", ""}} {
		if s, err := FormatList(bad); err == nil {
			t.Errorf("C-62: %q is written %q", bad, s)
		}
	}
	if FormatBool(true) != "true" || FormatBool(false) != "false" {
		t.Error("C-63")
	}
	for _, bad := range []string{"", "True", "1", "yes", " true"} {
		if _, err := ParseBool(bad); err == nil {
			t.Errorf("C-63: %q is read", bad)
		}
	}
	for n, text := range map[int64]string{0: "0", 7: "7", 1 << 62: "4611686018427387904"} {
		if got, err := ParseNumber(text); got != n || err != nil || FormatNumber(n) != text {
			t.Errorf("C-64: %s: %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "+1", "-1", "01", "1.0", "0x1", " 1", "9223372036854775808"} {
		if n, err := ParseNumber(bad); err == nil {
			t.Errorf("C-64: %q is read as %d", bad, n)
		}
	}
}

func FuzzEncoding_C62(f *testing.F) {
	f.Add("a", "b", "c=d")
	f.Add("", ",", "=")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		in := []string{a, b, c}
		if text, err := FormatList(in); err == nil {
			if out, err := ParseList(text); err != nil || !slices.Equal(in, out) {
				t.Errorf("C-62: %q became %q, %v", in, out, err)
			}
		}
		pairs := map[string]string{a: b, c: a}
		if text, err := FormatPairs(pairs); err == nil {
			if out, err := ParsePairs(text); err != nil || !maps.Equal(pairs, out) {
				t.Errorf("C-66: %q became %q, %v", pairs, out, err)
			}
		}
		if n, err := ParseNumber(a); err == nil && FormatNumber(n) != a {
			t.Errorf("C-64: %q has two spellings", a)
		}
	})
}
