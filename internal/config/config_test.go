package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

type issuer struct {
	URL       string   `json:"url"`
	Audiences []string `json:"audiences"`
}

type values struct {
	Listen  string
	API     bool
	Max     int
	Lease   time.Duration
	Names   []string
	Issuers []issuer
	file    string
}

func settings() (*values, *Settings) {
	v := &values{}
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.StringVar(&v.Listen, "listen", "127.0.0.1:8080", "")
	f.BoolVar(&v.API, "api", true, "")
	f.IntVar(&v.Max, "max-operation-concurrency", 32, "")
	f.DurationVar(&v.Lease, "lease", time.Second, "")
	f.StringSliceVar(&v.Names, "names", nil, "")
	f.Var(JSON[[]issuer]{&v.Issuers}, "oidc-issuers", "")
	f.StringVar(&v.file, "config", "", "")
	s := New(f, "TEST_").NotInFile("config").Under(map[string]string{
		"max-operation-concurrency": "workerServer.maxOperationConcurrency", "lease": "workerServer.lease",
	}).Ignore(func(name string) bool { return name == "TEST_OTHER" })
	return v, s
}

func load(t *testing.T, file string, environment, args []string) (values, error) {
	t.Helper()
	v, s := settings()
	if file != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := s.flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	err := s.Load(environment, "config")
	out := *v
	out.file = ""
	return out, err
}

func TestLoad_D2(t *testing.T) {
	t.Parallel()
	const file = `
listen: 0.0.0.0:1
api: false
names: [a, b]
workerServer:
  maxOperationConcurrency: 7
  lease: 3s
oidcIssuers:
- url: https://issuer.example
  audiences: [radial]
`
	whole := values{Listen: "0.0.0.0:1", Max: 7, Lease: 3 * time.Second, Names: []string{"a", "b"}, Issuers: []issuer{{"https://issuer.example", []string{"radial"}}}}
	for name, c := range map[string]struct {
		file              string
		environment, args []string
		want              func(*values)
	}{
		"the file sets everything":                  {file, nil, nil, func(*values) {}},
		"the environment wins over the file":        {file, []string{"TEST_LISTEN=env:1", "TEST_MAX_OPERATION_CONCURRENCY=9"}, nil, func(v *values) { v.Listen, v.Max = "env:1", 9 }},
		"the command line wins over both":           {file, []string{"TEST_LISTEN=env:1"}, []string{"--listen", "arg:1"}, func(v *values) { v.Listen = "arg:1" }},
		"variables of others are left alone":        {file, []string{"TEST_OTHER=1", "PATH=/bin"}, nil, func(*values) {}},
		"a list in the environment is comma-parted": {file, []string{"TEST_NAMES=x,y"}, nil, func(v *values) { v.Names = []string{"x", "y"} }},
		"null is as if it did not stand there":      {file + "\n", nil, nil, func(*values) {}},
	} {
		want := whole
		c.want(&want)
		got, err := load(t, c.file, c.environment, c.args)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(values{}, issuer{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRefused_D2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file        string
		environment []string
		want        []string
	}{
		"unknown key":              {"listne: x", nil, []string{`config.yaml:1: listne is no setting: did you mean listen?`}},
		"unknown key in a section": {"workerServer:\n  maxOperationsConcurrency: 1", nil, []string{`config.yaml:2: workerServer.maxOperationsConcurrency is no setting: did you mean workerServer.maxOperationConcurrency?`}},
		"outside its section":      {"maxOperationConcurrency: 1", nil, []string{`did you mean workerServer.maxOperationConcurrency?`}},
		"unknown section":          {"nothingLikeIt:\n  a: 1", nil, []string{`nothingLikeIt is no setting: known are api, listen, `}},
		"bad number":               {"workerServer: {maxOperationConcurrency: many}", nil, []string{`workerServer.maxOperationConcurrency: "many" is no int`}},
		"bad duration":             {"workerServer: {lease: soon}", nil, []string{`workerServer.lease: "soon" is no duration`}},
		"bad boolean":              {"api: maybe", nil, []string{`api: "maybe" is no bool`}},
		"a list for one value":     {"listen: [a]", nil, []string{`listen must be a single value`}},
		"a value for a section":    {"workerServer: 3", nil, []string{`workerServer must be a mapping of settings`}},
		"unknown field deep down":  {"oidcIssuers: [{uri: x}]", nil, []string{`oidcIssuers:`, `"uri"`}},
		"twice":                    {"listen: a\nlisten: b", nil, []string{`listen`}},
		"two documents":            {"listen: a\n---\nlisten: b", nil, []string{`more than one document`}},
		"no YAML":                  {"listen: [", nil, []string{`is not YAML`}},
		"the file names a file":    {"config: other.yaml", nil, []string{`config is no setting`}},
		"unknown variable":         {"", []string{"TEST_LISTNE=x"}, []string{`environment variable TEST_LISTNE is no setting: did you mean TEST_LISTEN?`}},
		"bad variable":             {"", []string{"TEST_LEASE=soon"}, []string{`environment variable TEST_LEASE: "soon" is no duration`}},
		"all problems at once":     {"listne: x\napi: maybe", []string{"TEST_LISTNE=x"}, []string{`listne is no setting`, `"maybe" is no bool`, `TEST_LISTNE`}},
	} {
		_, err := load(t, c.file, c.environment, nil)
		if err == nil {
			t.Errorf("%s: not refused", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
}
