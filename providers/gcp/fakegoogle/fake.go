// Package fakegoogle is Google Cloud as far as the provider uses it, over
// net/http: the five JSON APIs, the metadata server, and Cloud Storage's S3 API
// with signature version 4. It keeps state, has several customers, takes its
// time until what was made is seen, knows etags and conditions of policies, and
// plays faults. Time is injected.
//
// It follows Google's documentation, and where that and practice differ, practice:
// an older policy version loses conditions, a bucket's 409 does not tell whose it
// is, a key can be deleted only some time after it was deactivated.
package fakegoogle

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options of a fake.
type Options struct {
	// Now is time.Now unless set.
	Now func() time.Time
	// Account is the project of the installation, ClusterProject that of the
	// cluster.
	Account, ClusterProject string
	// Provider is the service account that the metadata server answers for.
	Provider string
	// AccountDelay is how long a new service account is not seen, KeyDelay how
	// long a new key opens nothing, EndDelay how long a deactivated one still
	// opens, DeleteDelay how long it cannot be deleted, GrantDelay how long a
	// bucket's policy takes.
	AccountDelay, KeyDelay, EndDelay, DeleteDelay, GrantDelay time.Duration
	// KeyLimit is how many keys a service account may have; 10 unless set.
	KeyLimit int
	// Roles are the custom roles that there are, with their permissions.
	Roles map[string][]string
}

// Call is one that reached the fake.
type Call struct {
	// Op is the permission that it needs, such as storage.buckets.create.
	Op     string
	Method string
	Path   string
	Body   string
	// Code is what was answered; 0 when the answer was dropped.
	Code int
}

// Fault is played to calls.
type Fault struct {
	// Op is the calls' permission; empty for all. On must be in path or body.
	Op, On string
	// Code, Reason and Message are answered instead of doing anything.
	Code            int
	Reason, Message string
	// Lost does what is asked, and drops the answer; Dropped does nothing and
	// drops.
	Lost, Dropped bool
	// Until holds the call back until it is closed, or the caller gives up.
	Until <-chan struct{}
	// Times it is played; 0 is for good.
	Times int
}

// Fake is Google.
type Fake struct {
	o  Options
	mu sync.Mutex

	projects map[string]*project
	accounts map[string]*account
	buckets  map[string]*bucket
	keys     map[string]*key
	secrets  map[string][]byte
	// damaged are those whose values change on their way.
	damaged  map[string]bool
	kms      map[string]*policy
	tokens   map[string]string
	denied   map[string]bool
	disabled map[string]bool
	faults   []*Fault
	calls    []Call
	etags    int
	blind    int
	// hook is called before and after each API call is carried out; true drops
	// the connection.
	hook func(c Call, after bool) bool
}

type project struct {
	id     string
	number uint64
	// admins may do all in it.
	admins []string
	policy *policy
}

// New makes one with the account's project and another customer's, named
// somebody-elses.
func New(o Options) *Fake {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Account == "" {
		o.Account = "acme-test"
	}
	if o.ClusterProject == "" {
		o.ClusterProject = "acme-cluster"
	}
	if o.Provider == "" {
		o.Provider = "radial-provider@" + o.Account + ".iam.gserviceaccount.com"
	}
	if o.KeyLimit == 0 {
		o.KeyLimit = 10
	}
	if o.Roles == nil {
		prefix := "projects/" + o.Account + "/roles/"
		o.Roles = map[string][]string{
			prefix + "radialSecretCreator": {"secretmanager.secrets.create"},
			prefix + "radialSecretKeeper": {"secretmanager.secrets.get", "secretmanager.secrets.delete", "secretmanager.versions.add",
				"secretmanager.versions.access", "secretmanager.versions.list", "secretmanager.versions.get", "secretmanager.versions.destroy"},
		}
	}
	f := &Fake{o: o, projects: map[string]*project{}, accounts: map[string]*account{}, buckets: map[string]*bucket{}, keys: map[string]*key{},
		secrets: map[string][]byte{}, damaged: map[string]bool{}, kms: map[string]*policy{}, tokens: map[string]string{}, denied: map[string]bool{}, disabled: map[string]bool{}}
	f.AddProject(o.Account, 111111111111, o.Provider)
	f.AddProject("somebody-elses", 999999999999, "them@somebody-elses.iam.gserviceaccount.com")
	return f
}

// AddProject adds one whose admins may do all in it.
func (f *Fake) AddProject(id string, number uint64, admins ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.projects[id] = &project{id: id, number: number, admins: admins, policy: f.newPolicy(binding{Role: "roles/owner", Members: []string{"user:owner@" + id}})}
}

// AddKey adds a key of Cloud KMS.
func (f *Fake) AddKey(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kms[name] = f.newPolicy()
}

// SetSecret sets the value of a secret of the account; nil takes it away.
func (f *Fake) SetSecret(id string, value []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.secrets[id] = value; value == nil {
		delete(f.secrets, id)
	}
}

// Damage has the value of a secret changed on its way.
func (f *Fake) Damage(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.damaged[id] = true
}

// Deny takes a permission from the provider, or gives it back.
func (f *Fake) Deny(permission string, denied bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denied[permission] = denied
}

// Disable switches an API off: storage, iam, secretmanager, cloudkms or
// resourcemanager.
func (f *Fake) Disable(api string, off bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disabled[api] = off
}

// Play plays faults to the calls that come, the first that fits.
func (f *Fake) Play(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range faults {
		f.faults = append(f.faults, &x)
	}
}

// Heal ends all faults.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Hook is called before and after each API call is carried out; where it answers
// true the connection is dropped.
func (f *Fake) Hook(hook func(c Call, after bool) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// Calls are those of the APIs whose permission starts with one of ops; all
// without any.
func (f *Fake) Calls(ops ...string) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c Call) bool {
		return len(ops) > 0 && !slices.ContainsFunc(ops, func(op string) bool { return strings.HasPrefix(c.Op, op) })
	})
}

// Forget empties the log of calls.
func (f *Fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = nil
}

// BlindWrites is how many policies were written without an etag.
func (f *Fake) BlindWrites() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blind
}

// apiError is an error of an API.
type apiError struct {
	code            int
	reason, message string
}

func fault(code int, reason, format string, args ...any) *apiError {
	return &apiError{code, reason, fmt.Sprintf(format, args...)}
}

// operation is a call understood: op is the permission, do carries it out and
// answers what is marshalled.
type operation struct {
	api, op string
	project string
	// open is that everybody is answered, since there is nothing to hide.
	open bool
	do   func() (any, *apiError)
}

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/computeMetadata/v1/"); ok {
		f.metadata(w, r, rest)
		return
	}
	op, ok := f.route(r, raw)
	if !ok {
		f.s3(w, r, raw)
		return
	}
	c := Call{Op: op.op, Method: r.Method, Path: r.URL.Path, Body: string(raw)}
	played, hook, at := f.begin(c)
	finish := func(code int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls[at].Code = code
	}
	if played != nil && played.Until != nil {
		select {
		case <-played.Until:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	if played != nil && played.Dropped || hook != nil && hook(c, false) {
		panic(http.ErrAbortHandler)
	}
	rec := httptest.NewRecorder()
	switch {
	case played != nil && played.Code != 0:
		write(rec, op.api, nil, fault(played.Code, played.Reason, "%s", played.Message))
	default:
		answer, aerr := f.authorized(r, op)
		write(rec, op.api, answer, aerr)
	}
	if played != nil && played.Lost || hook != nil && hook(c, true) {
		panic(http.ErrAbortHandler)
	}
	finish(rec.Code)
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

func (f *Fake) begin(c Call) (*Fault, func(Call, bool) bool, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
	for i, x := range f.faults {
		if x.Op != "" && x.Op != c.Op || !strings.Contains(c.Path+"\n"+c.Body, x.On) {
			continue
		}
		if x.Times--; x.Times == 0 {
			f.faults = slices.Delete(slices.Clone(f.faults), i, i+1)
		} else if x.Times < 0 {
			x.Times = 0
		}
		return x, f.hook, len(f.calls) - 1
	}
	return nil, f.hook, len(f.calls) - 1
}

// authorized carries an operation out if its caller may.
func (f *Fake) authorized(r *http.Request, op operation) (any, *apiError) {
	f.mu.Lock()
	defer f.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	caller := f.tokens[token]
	if caller == "" {
		return nil, fault(http.StatusUnauthorized, "authError", "Invalid Credentials")
	}
	if f.disabled[op.api] {
		return nil, fault(http.StatusForbidden, "SERVICE_DISABLED", "the API is not enabled")
	}
	p := f.projects[op.project]
	if !op.open && (p == nil || !slices.Contains(p.admins, caller) || f.denied[op.op]) {
		// As Google says it: of what is not there, too.
		return nil, fault(http.StatusForbidden, "forbidden", "%s does not have %s access, or it may not exist.", caller, op.op)
	}
	return op.do()
}

func write(w http.ResponseWriter, api string, answer any, err *apiError) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	if err != nil {
		w.WriteHeader(err.code)
		e := map[string]any{"code": err.code, "message": err.message}
		if api == "storage" {
			e["errors"] = []any{map[string]any{"domain": "global", "reason": err.reason, "message": err.message}}
		} else {
			e["status"] = status(err.code)
			e["details"] = []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": err.reason, "domain": "googleapis.com"}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"error": e})
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func status(code int) string {
	return map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
		412: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}[code]
}

// metadata is the metadata server of a cluster with Workload Identity.
func (f *Fake) metadata(w http.ResponseWriter, r *http.Request, path string) {
	if r.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
		return
	}
	w.Header().Set("Metadata-Flavor", "Google")
	f.mu.Lock()
	defer f.mu.Unlock()
	switch path {
	case "project/project-id":
		_, _ = io.WriteString(w, f.o.ClusterProject)
	case "instance/service-accounts/default/email":
		_, _ = io.WriteString(w, f.o.Provider)
	case "instance/service-accounts/default/token":
		if f.disabled["metadata"] {
			http.Error(w, "cannot impersonate", http.StatusForbidden)
			return
		}
		t := "ya29." + rand.Text()
		f.tokens[t] = f.o.Provider
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": t, "expires_in": 3600, "token_type": "Bearer"})
	default:
		http.NotFound(w, r)
	}
}

// Tokens is how many the metadata server has given out.
func (f *Fake) Tokens() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.tokens)
}

// EndTokens makes all tokens invalid.
func (f *Fake) EndTokens() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.tokens)
}

func (f *Fake) etag() string {
	f.etags++
	return "e" + strconv.Itoa(f.etags)
}
