package deployment_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/audit"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/store/sqlite"
)

// account makes a ServiceAccount and returns a token of it.
func (p *plane) account(name string) string {
	p.Helper()
	ctx := p.Context()
	accounts := p.client.CoreV1().ServiceAccounts(p.namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
	t, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{auth.DefaultAudience}}}, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return t.Status.Token
}

// A deployment writes as whoever asked for it, by their roles when it comes to
// each write; what it makes by the server's own credentials takes the right to
// govern.
func TestCaller_D46(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var records []audit.Record
	tokens := map[string]string{}
	p := newPlane(t, func(p *plane) {
		for _, name := range []string{"owner", "contributor", "reader"} {
			tokens[name] = p.account(name)
		}
		p.token = tokens["owner"]
		p.door = func(db *sqlite.Store, broker *feed.Broker) auth.Options {
			authn, err := auth.NewAuthenticator(auth.AuthenticatorOptions{Cluster: p.client})
			if err != nil {
				t.Fatal(err)
			}
			as := func(name string, role auth.Role, scope core.ID) auth.Assignment {
				return auth.Assignment{Principal: auth.Principal{Kind: auth.KindServiceAccount, Name: p.namespace + "/" + name}, Role: role, Scope: scope}
			}
			return auth.Options{
				Authenticator: authn, Store: db,
				Assignments: auth.NewAssignments(db, broker, nil, as("owner", auth.Owner, core.MustParseID("/planes/radius/local")),
					as("contributor", auth.Contributor, core.GroupID("default")), as("reader", auth.Reader, core.GroupID("default"))),
				Root: func(context.Context, auth.Identity) (bool, error) { return false, nil },
				Audit: func(r audit.Record) {
					mu.Lock()
					defer mu.Unlock()
					records = append(records, r)
				},
			}
		}
	})
	const other = "/planes/radius/local/resourceGroups/other"
	p.must(200, "PUT", other+ucp, `{}`)
	as := func(name string) { p.token = tokens[name] }

	as("contributor")
	got := p.deploy("mine", body(one(app)), core.StateSucceeded)
	if by := at(got.body, "systemData", "createdBy"); by != "system:serviceaccount:"+p.namespace+":contributor" {
		t.Errorf("the deployment is by %v", by)
	}
	made := p.must(200, "GET", group+"/providers/Applications.Core/applications/a"+ucp, "")
	if by := at(made.body, "systemData", "createdBy"); by != "system:serviceaccount:"+p.namespace+":contributor" {
		t.Errorf("what it made is by %v", by)
	}
	refused := func(t *testing.T, name, template string, says ...string) {
		t.Helper()
		got := p.deploy(name, body(template), core.StateFailed)
		message := text(at(got.body, "properties", "error", "message"))
		for _, want := range says {
			if !strings.Contains(message, want) {
				t.Errorf("the error does not say %q: %s", want, message)
			}
		}
	}
	t.Run("another group's", func(t *testing.T) {
		nested := `{` + head + `,"resources":{"n":{"type":"Microsoft.Resources/deployments","apiVersion":"2025-04-01","name":"n","resourceGroup":"other","properties":{"mode":"Incremental","expressionEvaluationOptions":{"scope":"inner"},"template":{` + head + `,"resources":{` +
			strings.Replace(app, `[resourceId('Applications.Core/environments','default')]`, group+"/providers/Applications.Core/environments/default", 1) + `}}}}}}`
		refused(t, "elsewhere", nested, "contributor", "no role", "other")
		as("owner")
		p.must(404, "GET", other+"/providers/Applications.Core/applications/a"+ucp, "")
		p.must(404, "GET", other+"/providers/Microsoft.Resources/deployments/n"+version, "") // nor its history
		as("contributor")
	})
	t.Run("what decides over others", func(t *testing.T) {
		refused(t, "roles", one(`"r":{"type":"System.Authorization/roleAssignments","apiVersion":"2023-10-01-preview","name":"r","properties":{"principal":{"kind":"user","name":"me"},"role":"Owner"}}`), "may govern")
	})
	t.Run("the server's credentials", func(t *testing.T) {
		k8s := `{` + head + `,` + p.k8s() + `,"resources":{"c":{"import":"k8s","type":"core/ConfigMap@v1","properties":{"metadata":{"name":"governed"}}}}}`
		refused(t, "cluster", k8s, "server's own credentials", "may govern")
		p.must(403, "POST", all+"/cluster/whatIf"+version, body(k8s))
		if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "governed", metav1.GetOptions{}); err == nil {
			t.Error("it was made")
		}
		as("owner")
		p.deploy("cluster", body(k8s), core.StateSucceeded)
	})
	t.Run("a reader", func(t *testing.T) {
		as("reader")
		p.must(200, "GET", all+"/mine"+version, "")
		p.must(204, "HEAD", all+"/mine"+version, "")
		p.must(200, "GET", all+"/mine/operations"+version, "")
		p.must(200, "POST", all+"/mine/exportTemplate"+version, `{}`)
		p.must(403, "PUT", all+"/mine"+version, body(one(app)))
		p.must(403, "DELETE", all+"/mine"+version, "")
		p.must(403, "POST", all+"/mine/cancel"+version, `{}`)
		p.must(403, "POST", all+"/mine/listOutputsWithSecureValues"+version, `{}`)
	})
	mu.Lock()
	defer mu.Unlock()
	found := false
	for _, r := range records {
		found = found || r.Source == "operation" && r.Allowed && strings.HasSuffix(r.ID, "/applications/a") && strings.HasSuffix(r.Principal, "/contributor")
	}
	if !found {
		t.Error("the audit log has no record of what the deployment wrote")
	}
}
