package main

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/radial-project/radial/internal/pgtest"
)

func TestConfiguration_D2(t *testing.T) {
	t.Parallel()
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		file        string
		environment []string
		want        string
	}{
		"an unknown key":                   {"developerMoed: true", nil, "developerMoed is no setting: did you mean developerMode?"},
		"an unknown key of a section":      {"workerServer: {maxOperationsConcurrency: 1}", nil, "workerServer.maxOperationsConcurrency is no setting: did you mean workerServer.maxOperationConcurrency?"},
		"a bad value":                      {"developerMode: true\nworkerServer: {lease: soon}", nil, `workerServer.lease: "soon"`},
		"a value that cannot work":         {"developerMode: true\nworkerServer: {maxOperationConcurrency: 0}", nil, "--max-operation-concurrency is 0"},
		"an unknown variable":              {"developerMode: true", []string{"RADIAL_LISTNE=x"}, "RADIAL_LISTNE is no setting: did you mean RADIAL_LISTEN?"},
		"neither half":                     {"developerMode: true\napi: false\nworkers: false", nil, "--api=false and --workers=false"},
		"a store without a name":           {"developerMode: true\nlisten: 127.0.0.1:0\nstore: \"sqlite:\"\nkeyFile: " + filepath.Join(t.TempDir(), "k"), nil, `--store: the store "sqlite:" names no file`},
		"a store of another kind":          {"developerMode: true\nlisten: 127.0.0.1:0\nstore: mysql://user:needle@db/radial\nkeyFile: " + filepath.Join(t.TempDir(), "k"), nil, `--store: the store begins with "mysql://"`},
		"no key for a store that is away":  {"developerMode: true\nstore: postgres://user:needle@db/radial", nil, "--key-file is missing"},
		"an extension in clear text":       {"developerMode: true\nextensions: [{name: Files, url: http://files.example.com}]", nil, `extension "Files": http://files.example.com would send secrets in clear text`},
		"an extension's unknown setting":   {"developerMode: true\nextensions: [{name: Files, uri: https://files.example.com}]", nil, `unknown field "uri"`},
		"an extension of no kind":          {"developerMode: true", []string{"RADIAL_EXTENSION=Files"}, `"Files" is not NAME=URL or NAME=PATH`},
		"a file that is not there at all ": {"", []string{"RADIAL_CONFIG=/nowhere/at/all.yaml"}, "/nowhere/at/all.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var args []string
			if c.file != "" {
				args = []string{"--config", write(c.file)}
			}
			out, err := program(ctx, c.environment, args...).CombinedOutput()
			if err == nil || ctx.Err() != nil {
				t.Fatalf("it did not refuse to start: %v\n%s", err, out)
			}
			if !strings.Contains(string(out), c.want) || strings.Contains(string(out), "needle") {
				t.Errorf("the message must say %q and no secret: %s", c.want, out)
			}
		})
	}
}

// Either half can be switched off: what an API alone accepts is worked on by a
// process of workers alone.
func TestHalves_D2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked := make(chan struct{}, 1)
	address := registry(t, asked, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })

	api := launch(t, dir, "--workers=false", "--store", "sqlite:"+filepath.Join(dir, "radial.db"))
	api.prepare()
	environment := group + "/providers/Applications.Core/environments/e"
	api.must(200, "PUT", environment+ucp, `{"properties":{"compute":{"kind":"kubernetes","namespace":"default"},"recipes":{"Applications.Datastores/redisCaches":{"default":{"templateKind":"bicep","templatePath":"`+address+`/r:1","plainHttp":true}}}}}`)
	id := group + "/providers/Applications.Datastores/redisCaches/cache"
	put := api.must(201, "PUT", id+ucp, `{"properties":{"environment":"`+environment+`"}}`)
	link := put.header.Get("Azure-AsyncOperation")
	if got := api.must(200, "GET", link, "", "Prefer", "wait=1"); got.body["status"] != "Accepted" || len(asked) > 0 {
		t.Fatalf("D-2: without workers the operation is %s", got.raw)
	}
	api.kill()

	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("api: false\nworkerServer: {maxOperationConcurrency: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	worker := launch(t, dir, "--config", file)
	worker.must(200, "GET", "/readyz", "")
	worker.must(404, "GET", id+ucp, "")
	select {
	case <-asked:
	case <-time.After(20 * time.Second):
		t.Fatal("D-2: a process of workers alone did not work")
	}
	worker.kill()

	whole := launch(t, dir)
	if got := whole.must(200, "GET", link[strings.Index(link, "/planes"):], "", "Prefer", "wait=20"); got.body["status"] != "Failed" {
		t.Errorf("D-2: the operation is %s, and no recipe could be fetched", got.raw)
	}
}

// storeURL is a connection string of words as a URL.
func storeURL(dsn string) string {
	q, database := url.Values{}, ""
	for word := range strings.FieldsSeq(dsn) {
		name, value, _ := strings.Cut(word, "=")
		if name == "dbname" {
			database = value
			continue
		}
		q.Set(name, value)
	}
	return "postgres:///" + database + "?" + q.Encode()
}

// On PostgreSQL both halves run at once, apart, and a client of the API is told
// the end of what the worker does.
func TestHalvesApart_D2(t *testing.T) {
	t.Parallel()
	dsn, key := storeURL(pgtest.Database(t)), filepath.Join(t.TempDir(), "key")
	api := launch(t, t.TempDir(), "--workers=false", "--store", dsn, "--key-file", key)
	api.prepare()
	first := api.must(201, "PUT", inert+"first"+version, `{"properties":{"n":1}}`)
	worker := launch(t, t.TempDir(), "--api=false", "--store", dsn, "--key-file", key)
	for _, put := range []reply{first, api.must(201, "PUT", inert+"second"+version, `{"properties":{"n":2}}`)} {
		if got := api.must(200, "GET", put.header.Get("Azure-AsyncOperation"), "", "Prefer", "wait=20"); got.body["status"] != "Succeeded" {
			t.Errorf("D-2: the operation is %s", got.raw)
		}
	}
	worker.must(404, "GET", inert+"first"+version, "")
	// The worker is killed and another takes its place: nothing else changes.
	worker.kill()
	third := api.must(201, "PUT", inert+"third"+version, `{"properties":{"n":3}}`)
	launch(t, t.TempDir(), "--api=false", "--store", dsn, "--key-file", key)
	if got := api.must(200, "GET", third.header.Get("Azure-AsyncOperation"), "", "Prefer", "wait=20"); got.body["status"] != "Succeeded" {
		t.Errorf("D-2: after a worker's death the operation is %s", got.raw)
	}
}

func TestForeign(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"RADIAL_SERVER_SERVICE_HOST", "RADIAL_SERVER_PORT_8443_TCP_ADDR", "RADIAL_SERVER_PORT", "RADIAL_SERVER_TOKEN_FILE", "RADIAL_CONTEXTS", "RADIAL_BIN", "RADIAL_PROVIDER_INSTALLATION"} {
		if !foreign(name) {
			t.Errorf("%s would end the start in a cluster", name)
		}
	}
	settings := settings(command().Flags())
	command().Flags().VisitAll(func(f *pflag.Flag) {
		if foreign(settings.Variable(f.Name)) && f.Name != "help" {
			t.Errorf("--%s cannot be refused by its variable's name", f.Name)
		}
	})
}
