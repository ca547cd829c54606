package manifest

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBuiltin says of each built-in type what its clients rely on: bodies it
// takes, and bodies it refuses.
func TestBuiltin(t *testing.T) {
	const (
		old = "2023-10-01-preview"
		now = "2025-08-01-preview"
	)
	ids := `"environment":"/planes/radius/local/resourceGroups/default/providers/Applications.Core/environments/default","application":"/planes/radius/local/resourceGroups/g/providers/Applications.Core/applications/a"`
	tests := map[string]struct {
		version   string
		good, bad []string
	}{
		"Applications.Core/environments": {old, []string{
			`{"compute":{"kind":"kubernetes","namespace":"default","resourceId":"self"}}`,
			`{"compute":{"kind":"kubernetes","namespace":"default","cluster":"east"},"allowedNamespaces":["*","shop","east/shop","east/*"],
			  "recipes":{"Applications.Datastores/redisCaches":{"default":{"templateKind":"bicep","templatePath":"localhost:5000/redis","templateVersion":"1","plainHttp":true,"parameters":{"size":{"x":[1]}}}}},
			  "providers":{"aws":{"scope":"/planes/aws/aws/accounts/1/regions/r"}},"extensions":[{"kind":"kubernetesMetadata","labels":{"a":"b"}}],"simulated":true}`},
			[]string{`{}`, `{"compute":{"kind":"nomad"}}`, `{"compute":{"kind":"kubernetes"},"allowedNamespaces":["Shop"]}`, `{"compute":{"kind":"kubernetes"},"allowedNamespaces":["a/b/c"]}`,
				`{"compute":{"kind":"kubernetes"},"recipes":{"X.Y/z":{"default":{"templateKind":"helm","templatePath":"x"}}}}`}},
		"Applications.Core/applications": {old, []string{`{"environment":"/e"}`, `{"environment":"/e","extensions":[{"kind":"kubernetesNamespace","namespace":"shop"}]}`}, []string{`{}`, `{"environment":"/e","extensions":[{"kind":"kubernetesNamespace"}]}`}},
		"Applications.Core/containers": {old, []string{
			`{` + ids + `,"resourceProvisioning":"manual","resources":[{"id":"/planes/kubernetes/local/namespaces/demo/providers/apps/Deployment/web"}],"connections":{"redis":{"source":"/r"}}}`,
			`{` + ids + `,"container":{"image":"web:1","env":{"A":{"value":"b"},"C":{"valueFrom":{"secretRef":{"source":"s","key":"k"}}}},"ports":{"web":{"containerPort":3000,"protocol":"TCP"}},
			  "readinessProbe":{"kind":"httpGet","containerPort":3000,"path":"/","periodSeconds":3},"volumes":{"t":{"kind":"ephemeral","managedStore":"memory","mountPath":"/t"}}},
			  "extensions":[{"kind":"manualScaling","replicas":2},{"kind":"daprSidecar","appId":"web","appPort":3000}],
			  "runtimes":{"kubernetes":{"pod":{"containers":[{"name":"x"}]}}},"restartPolicy":"Always",
			  "connections":{"kv":{"source":"/r","iam":{"kind":"azure","roles":["Reader"]}}}}`},
			[]string{`{}`, `{` + ids + `,"resourceProvisioning":"recipe"}`, `{` + ids + `,"resources":[{}]}`, `{` + ids + `,"container":{}}`, `{` + ids + `,"container":{"image":"x","ports":{"web":{"containerPort":70000}}}}`,
				`{` + ids + `,"container":{"image":"x","readinessProbe":{"kind":"tcp"}}}`, `{` + ids + `,"extensions":[{"kind":"manualScaling"}]}`}},
		"Applications.Core/extenders": {old, []string{`{` + ids + `,"anything":{"goes":[1,null]},"n":1,"s":"x","b":true,"l":[[{}]],"nothing":null,"secrets":{"k":"v"}}`}, []string{`{"environment":1}`, `{"secrets":"x"}`}},
		"Applications.Datastores/redisCaches": {old, []string{`{` + ids + `}`, `{` + ids + `,"resourceProvisioning":"manual","resources":[{"id":"/x"}],"host":"h","port":6379,"username":"u","tls":true,"secrets":{"password":"p","connectionString":"c","url":"u"}}`,
			`{` + ids + `,"recipe":{"name":"gold","parameters":{"size":"L"}}}`}, []string{`{}`, `{` + ids + `,"port":"6379"}`, `{` + ids + `,"hst":"h"}`, `{` + ids + `,"secrets":{"pasword":"p"}}`, `{` + ids + `,"secrets":null}`}},
		"Applications.Datastores/mongoDatabases": {old, []string{`{` + ids + `,"host":"h","port":27017,"database":"d","username":"u","secrets":{"password":"p","connectionString":"c"}}`}, []string{`{` + ids + `,"secrets":{"url":"x"}}`}},
		"Applications.Datastores/sqlDatabases":   {old, []string{`{` + ids + `,"server":"h","port":1433,"database":"d","username":"u","secrets":{"password":"p","connectionString":"c"}}`}, []string{`{` + ids + `,"server":1}`}},
		"Applications.Messaging/rabbitMQQueues":  {old, []string{`{` + ids + `,"queue":"q","host":"h","port":5672,"vHost":"/","username":"u","tls":false,"secrets":{"password":"p","uri":"amqp://"}}`}, []string{`{` + ids + `,"queue":1}`}},
		"Applications.Dapr/stateStores":          {old, []string{`{` + ids + `,"type":"state.redis","version":"v1","metadata":{"redisHost":{"value":"h"},"p":{"secretKeyRef":{"name":"n","key":"k"}}},"auth":{"secretStore":"s"}}`}, []string{`{` + ids + `,"metadata":{"x":"y"}}`}},
		"Applications.Core/secretStores":         {old, []string{`{"application":"/a","type":"generic","data":{"k":{"encoding":"raw","value":"v"}}}`, `{"resource":"ns/n","data":{"k":{}}}`}, []string{`{}`, `{"data":{"k":{"value":null}}}`}},
		"Applications.Core/gateways":             {old, []string{`{"application":"/a","routes":[{"path":"/","destination":"http://web:3000"}]}`}, []string{`{"application":"/a","routes":[]}`}},
		"Applications.Core/volumes":              {old, []string{`{"application":"/a","kind":"azure.com.keyvault","resource":"/kv","secrets":{"s":{"name":"n"}}}`}, []string{`{"application":"/a","kind":"x"}`}},
		"Radius.Core/environments":               {now, []string{`{}`, `{"recipePacks":["/p"],"recipeParameters":{"Radius.Data/redisCaches":{"a":1}},"providers":{"kubernetes":{"namespace":"default"}},"allowedNamespaces":["*"]}`}, []string{`{"providers":{"kubernetes":{}}}`, `{"recipes":{}}`}},
		"Radius.Core/recipePacks":                {now, []string{`{"recipes":{"Radius.Data/redisCaches":{"kind":"bicep","source":"localhost/x:1","plainHttp":true,"parameters":{"a":1},"outputs":{"host":"h","secrets":{"url":"u"}}}}}`}, []string{`{}`, `{"recipes":{"x":{"kind":"helm","source":"x"}}}`}},
		"Radius.Core/terraformSettings":          {now, []string{`{"terraformrc":{"providerInstallation":{"networkMirror":{"url":"https://m","include":["*"]},"direct":{"exclude":["*"]}},"credentials":{"h":{"secret":"/s"}}},"env":{"A":"b"}}`}, []string{`{"env":{"A":1}}`}},
		"Radius.Core/bicepSettings":              {now, []string{`{"registryAuthentications":{"h":{"authenticationMethod":"BasicAuth","basicAuthSecretId":"/s"}}}`}, []string{`{"registryAuthentications":{"h":{}}}`}},
		"Radius.Data/postgreSqlDatabases":        {now, []string{`{` + ids + `,"username":"u","password":"p","size":"M","database":"d","initSql":"select 1"}`}, []string{`{` + ids + `,"username":"u"}`, `{` + ids + `,"username":"u","password":null}`, `{` + ids + `,"username":"u","password":"p","size":"XL"}`}},
		"Radius.Security/secrets":                {now, []string{`{` + ids + `,"data":{"k":{"value":"v","encoding":"base64"}}}`}, []string{`{` + ids + `,"data":{"k":{}}}`}},
		"Radius.Compute/containers":              {now, []string{`{` + ids + `,"containers":{"web":{"image":"x","ports":{"p":{"containerPort":80}}}},"platformOptions":{"kubernetes":{"a":[1]},"x":1}}`}, []string{`{` + ids + `,"containers":{"web":{}}}`, `{"environment":"/e","containers":{}}`}},
		"Radius.Compute/containerImages":         {now, []string{`{` + ids + `,"build":{"source":"git::https://x","platforms":["linux/amd64"],"args":{"A":"b"}}}`}, []string{`{` + ids + `}`}},
	}
	r := NewRegistry(Builtin()...)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v, err := r.Lookup(name, tc.version)
			if err != nil {
				t.Fatal(err)
			}
			for _, body := range tc.good {
				props := object(t, body)
				v.Schema.ApplyDefaults(props)
				if err := v.Schema.Validate(props); err != nil {
					t.Errorf("refused: %v\n%s", err, body)
				}
			}
			for _, body := range tc.bad {
				if v.Schema.Validate(object(t, body)) == nil {
					t.Errorf("accepted: %s", body)
				}
			}
		})
	}
}

// TestContribTypes lists the types of the public collection; a manifest that
// names one must find it.
func TestContribTypes(t *testing.T) {
	r := NewRegistry(Builtin()...)
	for _, name := range []string{
		"Radius.AI/models", "Radius.AI/search", "Radius.Compute/containerImages", "Radius.Compute/containers", "Radius.Compute/persistentVolumes", "Radius.Compute/routes",
		"Radius.Data/mongoDatabases", "Radius.Data/mySqlDatabases", "Radius.Data/neo4jDatabases", "Radius.Data/postgreSqlDatabases", "Radius.Data/redisCaches", "Radius.Data/sqlServerDatabases",
		"Radius.Messaging/kafka", "Radius.Messaging/rabbitMQ", "Radius.Security/secrets", "Radius.Storage/objectStorage",
	} {
		if _, ok := r.Canonical(name); !ok {
			t.Errorf("%s is not known", name)
		}
	}
}

// TestBuiltinSecrets_D25 proves that what is given to the portable types as a
// secret is redacted, and answered by listSecrets under the names that clients
// and connections know.
func TestBuiltinSecrets_D25(t *testing.T) {
	r := NewRegistry(Builtin()...)
	for name, tc := range map[string]struct{ version, in, redacted, secrets string }{
		"Applications.Datastores/redisCaches": {"2023-10-01-preview", `{"host":"h","secrets":{"password":"p","url":"u"}}`, `{"host":"h","secrets":null}`, `{"password":"p","url":"u"}`},
		"Applications.Core/extenders":         {"2023-10-01-preview", `{"x":"y","secrets":{"k":"v"}}`, `{"x":"y","secrets":null}`, `{"k":"v"}`},
		"Applications.Core/secretStores":      {"2023-10-01-preview", `{"data":{"k":{"value":"v"}}}`, `{"data":{"k":{"value":null}}}`, `{"data":{"k":{"value":"v"}}}`},
		"Radius.Data/postgreSqlDatabases":     {"2025-08-01-preview", `{"username":"u","password":"p"}`, `{"username":"u","password":null}`, `{"password":"p"}`},
		"Radius.Security/secrets":             {"2025-08-01-preview", `{"data":{"k":{"value":"v"}}}`, `{"data":{"k":{"value":null}}}`, `{"data":{"k":{"value":"v"}}}`},
	} {
		v, err := r.Lookup(name, tc.version)
		if err != nil {
			t.Fatal(err)
		}
		props := object(t, tc.in)
		secrets, _ := json.Marshal(v.Schema.Secrets(props))
		v.Schema.Redact(props)
		if diff := cmp.Diff(object(t, tc.redacted), props); diff != "" {
			t.Errorf("%s redacted (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(object(t, tc.secrets), object(t, string(secrets))); diff != "" {
			t.Errorf("%s secrets (-want +got):\n%s", name, diff)
		}
	}
}
