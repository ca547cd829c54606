package fakegoogle

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bucket of any customer.
type bucket struct {
	project *project
	doc     map[string]any
	policy  *policy
	objects map[string][]byte
}

// key is an HMAC key.
type key struct {
	project, access, secret, email, state, etag string
	made, changed                               time.Time
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)

var locations = []string{"EUROPE-WEST2", "EUROPE-WEST3", "EU", "US", "US-EAST1"}

// route tells what an API call asks; false for what is none: that is S3's.
func (f *Fake) route(r *http.Request, raw []byte) (operation, bool) {
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/storage/v1/"); ok {
		return f.storage(r, strings.Split(rest, "/"), raw)
	}
	if rest, ok := strings.CutPrefix(path, "/v3/projects/"); ok {
		return f.resourceManager(r, rest, raw)
	}
	if rest, ok := strings.CutPrefix(path, "/v1/projects/"); ok {
		p := strings.Split(rest, "/")
		switch {
		case len(p) >= 2 && p[1] == "serviceAccounts":
			return f.serviceAccounts(r, p[0], p[2:], raw)
		case len(p) == 5 && p[1] == "secrets" && p[4] == "latest:access":
			return f.secretVersions(p[0], p[2]), true
		case len(p) == 7 && p[5] == "cryptoKeys":
			return f.kmsKeys(r, "projects/"+rest, raw)
		}
	}
	return operation{}, false
}

// storage serves storage v1.
func (f *Fake) storage(r *http.Request, p []string, raw []byte) (operation, bool) {
	op := operation{api: "storage"}
	q := r.URL.Query()
	switch {
	case len(p) == 1 && p[0] == "b" && r.Method == http.MethodPost:
		op.op, op.project = "storage.buckets.create", q.Get("project")
		op.do = func() (any, *apiError) { return f.insert(op.project, raw) }
	case len(p) == 1 && p[0] == "b":
		op.op, op.project = "storage.buckets.list", q.Get("project")
		op.do = func() (any, *apiError) {
			items := []any{}
			for _, name := range slices.Sorted(maps.Keys(f.buckets)) {
				if b := f.buckets[name]; b.project.id == op.project && strings.HasPrefix(name, q.Get("prefix")) {
					items = append(items, b.doc)
				}
			}
			return map[string]any{"kind": "storage#buckets", "items": items}, nil
		}
	case len(p) >= 2 && p[0] == "b":
		return f.ofBucket(r, p, raw)
	case len(p) >= 3 && p[0] == "projects" && p[2] == "hmacKeys":
		return f.hmacKeys(r, p, raw)
	case len(p) == 3 && p[0] == "projects" && p[2] == "serviceAccount":
		op.op, op.project = "resourcemanager.projects.get", p[1]
		op.do = func() (any, *apiError) { return map[string]any{"email_address": f.agent(p[1])}, nil }
	default:
		return op, false
	}
	return op, true
}

func (f *Fake) agent(project string) string {
	return "service-" + strconv.FormatUint(f.projects[project].number, 10) + "@gs-project-accounts.iam.gserviceaccount.com"
}

func (f *Fake) insert(project string, raw []byte) (any, *apiError) {
	doc := map[string]any{}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fault(http.StatusBadRequest, "invalid", "no bucket")
	}
	name, _ := doc["name"].(string)
	if !bucketName.MatchString(name) || strings.HasPrefix(name, "goog") || strings.Contains(name, "google") {
		return nil, fault(http.StatusBadRequest, "invalid", "Invalid bucket name: '%s'", name)
	}
	if b := f.buckets[name]; b != nil {
		if b.project.id == project {
			return nil, fault(http.StatusConflict, "conflict", "Your previous request to create the named bucket succeeded and you already own it.")
		}
		return nil, fault(http.StatusConflict, "conflict", "The requested bucket name is not available. The bucket namespace is shared by all users of the system.")
	}
	location, _ := doc["location"].(string)
	if doc["location"] = strings.ToUpper(location); !slices.Contains(locations, strings.ToUpper(location)) {
		return nil, fault(http.StatusBadRequest, "invalid", "The specified location constraint is not valid.")
	}
	if _, ok := doc["softDeletePolicy"]; !ok {
		doc["softDeletePolicy"] = map[string]any{"retentionDurationSeconds": "604800"}
	}
	p := f.projects[project]
	number := strconv.FormatUint(p.number, 10)
	b := &bucket{project: p, doc: doc, objects: map[string][]byte{}, policy: f.newPolicy(
		binding{Role: "roles/storage.legacyBucketOwner", Members: []string{"projectEditor:" + project, "projectOwner:" + project}},
		binding{Role: "roles/storage.legacyBucketReader", Members: []string{"projectViewer:" + project}})}
	doc["id"], doc["projectNumber"], doc["metageneration"] = name, number, "1"
	doc["timeCreated"] = f.o.Now().UTC().Format(time.RFC3339Nano)
	if err := f.validBucket(doc); err != nil {
		return nil, err
	}
	f.buckets[name] = b
	return doc, nil
}

func (f *Fake) validBucket(doc map[string]any) *apiError {
	if l, ok := doc["labels"].(map[string]any); ok {
		for k, v := range l {
			if s, ok := v.(string); !ok || !label.MatchString(s) || !label.MatchString(k) || len(l) > 64 {
				return fault(http.StatusBadRequest, "invalid", "Invalid label %s", k)
			}
		}
	}
	if s, ok := doc["softDeletePolicy"].(map[string]any); ok {
		n, err := strconv.ParseInt(str(s["retentionDurationSeconds"]), 10, 64)
		if err != nil || n != 0 && (n < 7*86400 || n > 90*86400) {
			return fault(http.StatusBadRequest, "invalid", "soft delete retention must be 0 or 7 to 90 days")
		}
	}
	if e, ok := doc["encryption"].(map[string]any); ok {
		number := str(doc["projectNumber"])
		if !f.mayWrap(str(e["defaultKmsKeyName"]), "serviceAccount:service-"+number+"@gs-project-accounts.iam.gserviceaccount.com") {
			return fault(http.StatusForbidden, "forbidden", "Permission denied on Cloud KMS key. Please ensure that your Cloud Storage service account has been authorized to use this key.")
		}
	}
	return nil
}

var label = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)

func str(v any) string { s, _ := v.(string); return s }

func (f *Fake) ofBucket(r *http.Request, p []string, raw []byte) (operation, bool) {
	op := operation{api: "storage"}
	f.mu.Lock()
	if b := f.buckets[p[1]]; b != nil {
		op.project = b.project.id
	} else {
		// Of what is not there everybody is told so.
		op.open = true
	}
	f.mu.Unlock()
	find := func(do func(*bucket) (any, *apiError)) func() (any, *apiError) {
		return func() (any, *apiError) {
			if b := f.buckets[p[1]]; b != nil {
				return do(b)
			}
			return nil, fault(http.StatusNotFound, "notFound", "The specified bucket does not exist.")
		}
	}
	iam := len(p) == 3 && p[2] == "iam"
	switch {
	case len(p) == 2 && r.Method == http.MethodGet:
		op.op, op.do = "storage.buckets.get", find(func(b *bucket) (any, *apiError) { return b.doc, nil })
	case len(p) == 2 && r.Method == http.MethodPatch:
		op.op = "storage.buckets.update"
		op.do = find(func(b *bucket) (any, *apiError) {
			if m := r.URL.Query().Get("ifMetagenerationMatch"); m != "" && m != b.doc["metageneration"] {
				return nil, fault(http.StatusPreconditionFailed, "conditionNotMet", "Precondition Failed")
			}
			var patch map[string]any
			if err := json.Unmarshal(raw, &patch); err != nil {
				return nil, fault(http.StatusBadRequest, "invalid", "no patch")
			}
			next := merge(b.doc, patch)
			n, _ := strconv.Atoi(str(b.doc["metageneration"]))
			next["metageneration"] = strconv.Itoa(n + 1)
			if err := f.validBucket(next); err != nil {
				return nil, err
			}
			b.doc = next
			return next, nil
		})
	case iam && r.Method == http.MethodGet:
		op.op = "storage.buckets.getIamPolicy"
		op.do = find(func(b *bucket) (any, *apiError) {
			return b.policy.read(r.URL.Query().Get("optionsRequestedPolicyVersion")), nil
		})
	case iam && r.Method == http.MethodPut:
		op.op = "storage.buckets.setIamPolicy"
		op.do = find(func(b *bucket) (any, *apiError) { return f.set(b.policy, raw, http.StatusPreconditionFailed) })
	case len(p) == 2 && r.Method == http.MethodDelete:
		op.op = "storage.buckets.delete"
		op.do = find(func(*bucket) (any, *apiError) { delete(f.buckets, p[1]); return nil, nil })
	default:
		return op, false
	}
	return op, true
}

// merge is a JSON merge patch.
func merge(doc, patch map[string]any) map[string]any {
	out := maps.Clone(doc)
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(out, k)
		case map[string]any:
			old, _ := out[k].(map[string]any)
			if old == nil {
				old = map[string]any{}
			}
			out[k] = merge(old, v)
		default:
			out[k] = v
		}
	}
	return out
}

func (f *Fake) hmacKeys(r *http.Request, p []string, raw []byte) (operation, bool) {
	op := operation{api: "storage", project: p[1]}
	meta := func(k *key) map[string]any {
		return map[string]any{"kind": "storage#hmacKeyMetadata", "id": k.project + "/" + k.access, "accessId": k.access, "projectId": k.project,
			"serviceAccountEmail": k.email, "state": k.state, "etag": k.etag, "timeCreated": k.made.UTC().Format(time.RFC3339Nano), "updated": k.changed.UTC().Format(time.RFC3339Nano)}
	}
	find := func(do func(*key) (any, *apiError)) func() (any, *apiError) {
		return func() (any, *apiError) {
			if k := f.keys[p[3]]; k != nil && k.project == p[1] && k.state != "DELETED" {
				return do(k)
			}
			return nil, fault(http.StatusNotFound, "notFound", "Access ID not found in project.")
		}
	}
	switch email := r.URL.Query().Get("serviceAccountEmail"); {
	case len(p) == 3 && r.Method == http.MethodPost:
		op.op = "storage.hmacKeys.create"
		op.do = func() (any, *apiError) {
			if !f.seen(f.accounts[email]) {
				return nil, fault(http.StatusNotFound, "notFound", "Service account %s was not found.", email)
			}
			if n := len(f.live(email)); n >= f.o.KeyLimit {
				return nil, fault(http.StatusForbidden, "quotaExceeded", "Service account HMAC key limit reached")
			}
			k := &key{project: p[1], email: email, state: "ACTIVE", etag: f.etag(), made: f.o.Now(), changed: f.o.Now()}
			k.access = "GOOG1E" + (rand.Text() + rand.Text() + rand.Text())[:55]
			secret := make([]byte, 30)
			_, _ = rand.Read(secret)
			k.secret = base64.StdEncoding.EncodeToString(secret)
			f.keys[k.access] = k
			return map[string]any{"kind": "storage#hmacKey", "secret": k.secret, "metadata": meta(k)}, nil
		}
	case len(p) == 3:
		op.op = "storage.hmacKeys.list"
		op.do = func() (any, *apiError) {
			items := []any{}
			for _, k := range f.live(email) {
				items = append(items, meta(k))
			}
			return map[string]any{"kind": "storage#hmacKeysMetadata", "items": items}, nil
		}
	case len(p) == 4 && r.Method == http.MethodPut:
		op.op = "storage.hmacKeys.update"
		op.do = find(func(k *key) (any, *apiError) {
			var in struct{ State, Etag string }
			_ = json.Unmarshal(raw, &in)
			switch {
			case in.Etag != "" && in.Etag != k.etag:
				return nil, fault(http.StatusPreconditionFailed, "conditionNotMet", "Precondition Failed")
			case in.State != "ACTIVE" && in.State != "INACTIVE":
				return nil, fault(http.StatusBadRequest, "invalid", "Invalid state")
			}
			if k.state != in.State {
				k.state, k.changed = in.State, f.o.Now()
			}
			k.etag = f.etag()
			return meta(k), nil
		})
	case len(p) == 4 && r.Method == http.MethodDelete:
		op.op = "storage.hmacKeys.delete"
		op.do = find(func(k *key) (any, *apiError) {
			if k.state != "INACTIVE" || f.o.Now().Before(k.changed.Add(f.o.DeleteDelay)) {
				return nil, fault(http.StatusBadRequest, "invalid", "Cannot delete keys in state ACTIVE")
			}
			k.state = "DELETED"
			return nil, nil
		})
	default:
		return op, false
	}
	return op, true
}

// live are the keys of a service account that are not deleted, in the order in which they were made.
func (f *Fake) live(email string) []*key {
	var out []*key
	for _, access := range slices.Sorted(maps.Keys(f.keys)) {
		if k := f.keys[access]; k.email == email && k.state != "DELETED" {
			out = append(out, k)
		}
	}
	slices.SortStableFunc(out, func(a, b *key) int { return a.made.Compare(b.made) })
	return out
}
