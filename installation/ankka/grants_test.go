package ankka_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
)

// The grants in whole, written out once more: what the seed says a provider
// may do, and what the decision on the operator's install says. Everything that
// is not here is refused. A row is a group's resource, perhaps of one name, and
// the verbs.
var (
	providerTable = []string{
		"ankka.thinkmorestupidless.com/cloudresources get list watch",
		"ankka.thinkmorestupidless.com/cloudresources/status get update patch",
		"/secrets create patch",
	}
	operatorTable = []string{
		"ankka.thinkmorestupidless.com/cloudresources get list watch create patch",
		"ankka.thinkmorestupidless.com/cloudresources/status get",
		"ankka.thinkmorestupidless.com/ankkaservices get list watch",
		"ankka.thinkmorestupidless.com/ankkaservices/status get update patch",
		"ankka.thinkmorestupidless.com/ankkaservices/finalizers update",
		"ankka.thinkmorestupidless.com/ankkaprojects get list watch",
		"ankka.thinkmorestupidless.com/ankkaprojects/status get update patch",
		"ankka.thinkmorestupidless.com/ankkaprojects/finalizers update",
		"apps/deployments get list watch create patch",
		"/serviceaccounts get list watch create patch",
		"/services get list watch create patch delete",
		"autoscaling/horizontalpodautoscalers get list watch create patch delete",
		"events.k8s.io/events create patch",
	}
	// In its own namespace.
	operatorPlatformTable = []string{
		"coordination.k8s.io/leases create",
		"coordination.k8s.io/leases:radial-operator get update patch",
	}
	// What every account may, by roles that every cluster comes with: know
	// itself (of the roles that C-47 leaves out, the one with resources) and, in
	// newer clusters, read the certificates of authorities.
	everyoneTable = []string{
		"authentication.k8s.io/selfsubjectreviews create",
		"authorization.k8s.io/selfsubjectaccessreviews create",
		"authorization.k8s.io/selfsubjectrulesreviews create",
		"certificates.k8s.io/clustertrustbundles get list watch",
	}
)

var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// furtherVerbs are judged by access review alone: no request has them.
var furtherVerbs = []string{"impersonate", "bind", "escalate", "approve", "sign", "use", "attest", "*"}

// grant is one thing that may be done.
type grant struct{ group, resource, name, verb string }

func (g grant) String() string {
	r := g.group + "/" + g.resource
	if g.name != "" {
		r += ":" + g.name
	}
	return r + " " + g.verb
}

func table(tables ...[]string) map[grant]bool {
	out := map[grant]bool{}
	for _, row := range slices.Concat(tables...) {
		words := strings.Fields(row)
		group, resource, _ := strings.Cut(words[0], "/")
		resource, name, _ := strings.Cut(resource, ":")
		for _, verb := range words[1:] {
			out[grant{group, resource, name, verb}] = true
		}
	}
	return out
}

// served is one resource or subresource that the API server serves.
type served struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
}

// everything lists what is served, in one version a group, and the virtual
// subresources that only authorizers know.
func everything(t *testing.T, w *ankkatest.World) []served {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := d.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[schema.GroupResource]bool{}
	var out []served
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			gvr := gv.WithResource(r.Name)
			if !seen[gvr.GroupResource()] {
				seen[gvr.GroupResource()] = true
				out = append(out, served{gvr, r.Kind, r.Namespaced})
			}
		}
	}
	for _, kind := range []string{"cloudresources", "ankkaservices", "ankkaprojects"} {
		out = append(out, served{v1alpha1.GroupVersion.WithResource(kind + "/finalizers"), "", true})
	}
	if len(out) < 100 {
		t.Fatalf("only %d resources are served", len(out))
	}
	return out
}

func diff(t *testing.T, what string, got, want map[grant]bool) {
	t.Helper()
	for g := range got {
		if !want[g] {
			t.Errorf("%s may %s, and the table does not say so", what, g)
		}
	}
	for g := range want {
		if !got[g] {
			t.Errorf("%s may not %s, and the table says so", what, g)
		}
	}
}

// places are the namespaces in which a grant could differ.
func places() []string {
	return []string{v1alpha1.Namespace(project), v1alpha1.PlatformNamespace, v1alpha1.ProviderNamespace, "kube-system", ""}
}

func wants(a ankkatest.Account, namespace string) map[grant]bool {
	switch {
	case a == providerUser:
		return table(everyoneTable, providerTable)
	case a == operatorUser && namespace == v1alpha1.PlatformNamespace:
		return table(everyoneTable, operatorTable, operatorPlatformTable)
	case a == operatorUser:
		return table(everyoneTable, operatorTable)
	}
	return table(everyoneTable)
}

// By access review: every group, resource, subresource and verb, in a project's
// namespace and cluster-wide; in the other kinds of places a seeded fifth of
// them, and all with RADIAL_FAULT=all.
func TestGrants_Reviews_C44_C45_C46_C47_C48_C49_C50_C51_C52(t *testing.T) {
	w := cluster(t)
	all := everything(t, w)
	reviewed := 0
	seed, err := strconv.ParseUint(os.Getenv("RADIAL_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("RADIAL_SEED=%d", seed)
	drawn := rand.New(rand.NewPCG(seed, 1))
	for _, a := range []ankkatest.Account{providerUser, operatorUser, nobody} {
		for _, ns := range places() {
			var ask []grant
			named := ns == v1alpha1.PlatformNamespace
			if a == nobody && ns != v1alpha1.Namespace(project) {
				continue
			}
			for _, r := range all {
				for _, verb := range verbs {
					ask = append(ask, grant{r.Group, r.Resource, "", verb})
					if named {
						ask = append(ask, grant{r.Group, r.Resource, "radial-operator", verb})
					}
				}
				for _, verb := range furtherVerbs {
					if named || ns == "" {
						ask = append(ask, grant{r.Group, r.Resource, "", verb})
					}
				}
			}
			want := wants(a, ns)
			// A grant without a name is one for every name.
			for g := range maps.Clone(want) {
				if g.name == "" && named {
					g.name = "radial-operator"
					want[g] = true
				}
			}
			if ns != "" && ns != v1alpha1.Namespace(project) && os.Getenv("RADIAL_FAULT") != "all" {
				// What is granted is always reviewed.
				ask = slices.DeleteFunc(ask, func(g grant) bool { return !want[g] && drawn.IntN(5) > 0 })
			}
			ask = append(ask, grant{"*", "*", "", "*"}, grant{"", "users", "", "impersonate"}, grant{"", "groups", "", "impersonate"})
			reviewed += len(ask)
			got := map[grant]bool{}
			var mu sync.Mutex
			each(len(ask), func(i int) {
				g := ask[i]
				resource, sub, _ := strings.Cut(g.resource, "/")
				review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: a.User(), Groups: a.Groups(),
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: g.verb, Group: g.group, Resource: resource, Subresource: sub, Name: g.name}}}
				if err := w.Admin.Create(t.Context(), &review); err != nil {
					t.Errorf("review of %s: %v", g, err)
				}
				if review.Status.Allowed {
					mu.Lock()
					got[g] = true
					mu.Unlock()
				}
			})
			diff(t, fmt.Sprintf("C-44…C-52: %s in %q", a.User(), ns), got, want)
		}
	}
	t.Logf("%d resources, %d reviews", len(all), reviewed)
}

// each runs f for 0..n-1, a few at a time.
func each(n int, f func(int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() { defer func() { <-slots }(); f(i) })
	}
	wg.Wait()
}

// The control plane describes services and projects, and may ask for what a
// template holds; it answers nothing, and ends no request.
func TestGrants_ControlPlane_C50(t *testing.T) {
	w := cluster(t)
	got, want := map[grant]bool{}, table([]string{
		"ankka.thinkmorestupidless.com/cloudresources get list watch create patch",
		"ankka.thinkmorestupidless.com/ankkaservices get list watch create patch delete",
		"ankka.thinkmorestupidless.com/ankkaprojects get list watch create patch delete",
	})
	a := ankkatest.ControlPlane
	for _, r := range everything(t, w) {
		if r.Group != v1alpha1.Group {
			continue
		}
		for _, verb := range slices.Concat(verbs, furtherVerbs) {
			resource, sub, _ := strings.Cut(r.Resource, "/")
			review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: a.User(), Groups: a.Groups(),
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: v1alpha1.Namespace(project), Verb: verb, Group: r.Group, Resource: resource, Subresource: sub}}}
			if err := w.Admin.Create(t.Context(), &review); err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed {
				got[grant{r.Group, r.Resource, "", verb}] = true
			}
		}
	}
	diff(t, "C-50: the control plane", got, want)
}

// As the accounts themselves see it: the rules in their own tokens' eyes.
func TestGrants_Rules_C47(t *testing.T) {
	w := cluster(t)
	for _, a := range []ankkatest.Account{providerUser, operatorUser} {
		k := ankkatest.Connect(t, w.As(t, a))
		for _, ns := range places()[:4] {
			review := authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: ns}}
			if err := k.Create(t.Context(), &review); err != nil || review.Status.Incomplete {
				t.Fatalf("rules of %s: %v, incomplete %v", a.User(), err, review.Status.Incomplete)
			}
			got := map[grant]bool{}
			for _, r := range review.Status.ResourceRules {
				names := r.ResourceNames
				if len(names) == 0 {
					names = []string{""}
				}
				for _, group := range r.APIGroups {
					for _, resource := range r.Resources {
						for _, name := range names {
							for _, verb := range r.Verbs {
								got[grant{group, resource, name, verb}] = true
							}
						}
					}
				}
			}
			diff(t, fmt.Sprintf("C-47: %s in %s", a.User(), ns), got, wants(a, ns))
			for _, r := range review.Status.NonResourceRules {
				for _, verb := range r.Verbs {
					if verb != "get" {
						t.Errorf("C-47: %s may %s %v", a.User(), verb, r.NonResourceURLs)
					}
				}
			}
		}
	}
}

// By doing it: every verb on every resource and subresource with the minted
// tokens. Whether RBAC let it through is told by its words, since a policy or
// a subresource may say Forbidden too.
func TestGrants_Attempts_C7_C44_C45_C46_C47_C48_C49_C50_C51_C52(t *testing.T) {
	w := cluster(t)
	all := everything(t, w)
	for _, a := range []ankkatest.Account{providerUser, operatorUser} {
		c := w.As(t, a)
		for _, ns := range []string{v1alpha1.Namespace(project), a.Namespace} {
			type attempt struct {
				served
				verb, name string
			}
			var tries []attempt
			for _, r := range all {
				for _, verb := range verbs {
					if verb == "deletecollection" && strings.Contains(r.Resource, "/") || (verb == "list" || verb == "watch") && strings.Contains(r.Resource, "/") {
						continue // no request has these
					}
					name := "attempt"
					if r.Resource == "leases" && verb != "create" {
						name = "radial-operator"
					}
					tries = append(tries, attempt{r, verb, name})
				}
			}
			got := map[grant]bool{}
			var mu sync.Mutex
			each(len(tries), func(i int) {
				try := tries[i]
				if !strings.HasSuffix(try.Resource, "/finalizers") && let(t, c, try.served, try.verb, ns, try.name) {
					mu.Lock()
					g := grant{try.Group, try.Resource, "", try.verb}
					if try.name == "radial-operator" {
						g.name = try.name
					}
					got[g] = true
					mu.Unlock()
				}
			})
			want := wants(a, ns)
			maps.DeleteFunc(want, func(g grant, _ bool) bool { return strings.HasSuffix(g.resource, "/finalizers") })
			diff(t, fmt.Sprintf("C-44…C-52: by attempt, %s in %s", a.User(), ns), got, want)
			t.Logf("%s in %s: %d attempts, %d let through", a.Name, ns, len(tries), len(got))
		}
	}
}

// let does it, as a dry run where it would change something, and says whether
// authorization let it through.
func let(t *testing.T, c *rest.Config, r served, verb, namespace, name string) bool {
	t.Helper()
	resource, sub, _ := strings.Cut(r.Resource, "/")
	at := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		at = "/api/" + r.Version
	}
	if r.namespaced {
		at = path.Join(at, "namespaces", namespace)
	}
	if r.GroupVersionResource.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) || resource == "namespaces" && r.Group == "" {
		at = "/api/v1"
	}
	collection, one := path.Join(at, resource), path.Join(at, resource, name, sub)
	gv := schema.GroupVersion{Group: r.Group, Version: r.Version}.String()
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, gv, r.kind, name)
	var code int
	var text string
	switch verb {
	case "get":
		code, text = request(t, c, http.MethodGet, one, "", "", "")
	case "list":
		code, text = request(t, c, http.MethodGet, collection, "", "", "")
	case "watch":
		code, text = request(t, c, http.MethodGet, collection+"?watch=1&timeoutSeconds=1", "", "", "")
	case "create":
		to := collection
		if sub != "" {
			to = one
		}
		code, text = request(t, c, http.MethodPost, to+"?dryRun=All", "application/json", "", body)
	case "update":
		code, text = request(t, c, http.MethodPut, one+"?dryRun=All", "application/json", "", body)
	case "patch":
		code, text = request(t, c, http.MethodPatch, one+"?dryRun=All", "application/merge-patch+json", "", `{"metadata":{"annotations":{"a":"b"}}}`)
	case "delete":
		code, text = request(t, c, http.MethodDelete, one+"?dryRun=All", "application/json", "", "")
	case "deletecollection":
		code, text = request(t, c, http.MethodDelete, collection+"?dryRun=All", "application/json", "", "")
	}
	if code == http.StatusUnauthorized || code == 0 {
		t.Errorf("%s %s: %d %s", verb, one, code, text)
	}
	return code != http.StatusForbidden || !strings.Contains(text, fmt.Sprintf("cannot %s resource", verb))
}

// A Secret that is there, with something in it: neither process gets to see it,
// and what a provider's own write answers has no value in it if it asks so.
func TestGrants_Secrets_C7_C51_C115_C145(t *testing.T) {
	w := cluster(t)
	ns := v1alpha1.Namespace(project)
	const canary = "c2VjcmV0LWNhbmFyeQ"
	const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	at := "/api/v1/namespaces/" + ns + "/secrets"
	provider := w.As(t, providerUser)
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"read-cloud-storage","annotations":{%q:"key-1"}},"stringData":{"ANKKA_S3_ACCESS_KEY":"a","ANKKA_S3_SECRET_KEY":%q}}`
	secret = fmt.Sprintf(secret, v1alpha1.AnnotationCredentialID, canary)
	code, text := request(t, provider, http.MethodPost, at, "application/json", metadataOnly, secret)
	if code != http.StatusCreated || strings.Contains(text, canary) || strings.Contains(text, `"data"`) || !strings.Contains(text, "PartialObjectMetadata") {
		t.Errorf("C-145: create answers %d %s", code, text)
	}
	// Taken: the answer says so and nothing of what is in it (C-118, C-119).
	code, text = request(t, provider, http.MethodPost, at, "application/json", metadataOnly, secret)
	if code != http.StatusConflict || strings.Contains(text, canary) {
		t.Errorf("C-145: a second create answers %d %s", code, text)
	}
	patch := func(id, value string) (int, string) {
		return request(t, provider, http.MethodPatch, at+"/read-cloud-storage", "application/json-patch+json", metadataOnly, fmt.Sprintf(
			`[{"op":"test","path":"/metadata/annotations/ankka.thinkmorestupidless.com~1credential-id","value":%q},{"op":"replace","path":"/metadata/annotations/ankka.thinkmorestupidless.com~1credential-id","value":%q},{"op":"replace","path":"/data/ANKKA_S3_SECRET_KEY","value":"eA=="}]`, id, value))
	}
	if code, text = patch("key-9", "key-2"); code != http.StatusUnprocessableEntity || strings.Contains(text, canary) {
		t.Errorf("C-144: a patch on condition of another credential answers %d %s", code, text)
	}
	if code, text = patch("key-1", "key-2"); code != http.StatusOK || strings.Contains(text, `"data"`) || strings.Contains(text, "eA==") {
		t.Errorf("C-144 C-145: a patch answers %d %s", code, text)
	}
	for _, a := range []ankkatest.Account{providerUser, operatorUser} {
		c := w.As(t, a)
		for _, p := range []string{at + "/read-cloud-storage", at, "/api/v1/secrets", at + "?watch=1&timeoutSeconds=1", at + "?fieldSelector=metadata.Name%3Dread-cloud-storage"} {
			for _, accept := range []string{"application/json", metadataOnly, "application/json;as=Table;g=meta.k8s.io;v=v1"} {
				if code, text := request(t, c, http.MethodGet, p, "", accept, ""); code != http.StatusForbidden || strings.Contains(text, canary) {
					t.Errorf("C-7 C-51: %s reads %s as %s: %d", a.User(), p, accept, code)
				}
			}
		}
	}
}
