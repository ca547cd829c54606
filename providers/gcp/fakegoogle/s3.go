package fakegoogle

import (
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/radial-project/radial/providers/gcp/internal/sigv4"
)

// s3 serves objects to whoever signs with a key whose service account the
// bucket's policy lets in.
func (f *Fake) s3(w http.ResponseWriter, r *http.Request, raw []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	refuse := func(status int, code string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		type e struct {
			XMLName xml.Name `xml:"Error"`
			Code    string
		}
		_ = xml.NewEncoder(w).Encode(e{Code: code})
	}
	access, err := sigv4.Verify(r, f.o.Now(), func(access string) (string, bool) {
		k := f.keys[access]
		return secretOf(k), k != nil && f.opens(k)
	})
	switch err {
	case nil:
	case sigv4.ErrUnsigned:
		refuse(http.StatusForbidden, "AccessDenied")
		return
	case sigv4.ErrUnknown:
		refuse(http.StatusForbidden, "InvalidAccessKeyId")
		return
	default:
		refuse(http.StatusForbidden, "SignatureDoesNotMatch")
		return
	}
	name, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	b := f.buckets[name]
	if b == nil {
		refuse(http.StatusNotFound, "NoSuchBucket")
		return
	}
	if !f.lets(b, "serviceAccount:"+f.keys[access].email) {
		refuse(http.StatusForbidden, "AccessDenied")
		return
	}
	switch {
	case object == "" && r.Method == http.MethodGet:
		type content struct{ Key string }
		type list struct {
			XMLName  xml.Name `xml:"ListBucketResult"`
			Name     string
			Contents []content
		}
		out := list{Name: name}
		for _, k := range slices.Sorted(maps.Keys(b.objects)) {
			out.Contents = append(out.Contents, content{k})
		}
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(out)
	case r.Method == http.MethodPut:
		b.objects[object] = raw
	case r.Method == http.MethodDelete:
		delete(b.objects, object)
		w.WriteHeader(http.StatusNoContent)
	case b.objects[object] == nil:
		refuse(http.StatusNotFound, "NoSuchKey")
	default:
		_, _ = w.Write(b.objects[object])
	}
}

func secretOf(k *key) string {
	if k == nil {
		return ""
	}
	return k.secret
}

// opens says whether a key opens anything now.
func (f *Fake) opens(k *key) bool {
	now := f.o.Now()
	if now.Before(k.made.Add(f.o.KeyDelay)) {
		return false
	}
	return k.state == "ACTIVE" || now.Before(k.changed.Add(f.o.EndDelay))
}

// objectRoles are those by which objects are read and written.
var objectRoles = []string{"roles/storage.objectUser", "roles/storage.objectAdmin", "roles/storage.admin"}

func (f *Fake) lets(b *bucket, member string) bool {
	for _, p := range []*policy{b.policy, b.project.policy} {
		for _, x := range f.effective(p) {
			if x.Condition == nil && slices.Contains(objectRoles, x.Role) && slices.Contains(x.Members, member) {
				return true
			}
		}
	}
	return false
}

// Reaches writes, reads, lists and removes an object as a service does with the
// key at an address of the fake, and says whether all of it went well.
func Reaches(address, access, secret, bucket string, now time.Time) bool {
	do := func(method, path, body string) (int, string) {
		q, err := http.NewRequest(method, address+"/"+bucket+path, strings.NewReader(body))
		if err != nil {
			return 0, ""
		}
		sigv4.Sign(q, sigv4.Key{Access: access, Secret: secret, Region: "europe-west2", Service: "s3"}, now)
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			return 0, ""
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	put, _ := do(http.MethodPut, "/a/probe", "kept")
	got, text := do(http.MethodGet, "/a/probe", "")
	listed, names := do(http.MethodGet, "?list-type=2", "")
	gone, _ := do(http.MethodDelete, "/a/probe", "")
	return put == 200 && got == 200 && text == "kept" && listed == 200 && strings.Contains(names, "a/probe") && gone == 204
}

// Key is one as a test sees it.
type Key struct {
	Access, Secret, State, Email string
	Made                         time.Time
}

// Keys of a service account that are not deleted, the oldest first; of all of
// the account for an empty one.
func (f *Fake) Keys(email string) []Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Key
	for _, k := range f.keys {
		if (email == "" || k.email == email) && k.state != "DELETED" {
			out = append(out, Key{k.access, k.secret, k.state, k.email, k.made})
		}
	}
	slices.SortFunc(out, func(a, b Key) int { return a.Made.Compare(b.Made) })
	return out
}

// Issued is how many keys were ever made for a service account.
func (f *Fake) Issued(email string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, k := range f.keys {
		if k.email == email {
			n++
		}
	}
	return n
}

// AddHMACKey makes a key as somebody else does.
func (f *Fake) AddHMACKey(access, secret, email string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[access] = &key{project: f.o.Account, access: access, secret: secret, email: email, state: "ACTIVE", etag: f.etag(), made: f.o.Now(), changed: f.o.Now()}
}

// PlantBucket puts a bucket into a project, as somebody else does.
func (f *Fake) PlantBucket(project, name string, doc map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.projects[project]
	d := map[string]any{"name": name, "location": "EUROPE-WEST2", "metageneration": "1", "timeCreated": f.o.Now().UTC().Format(time.RFC3339Nano)}
	maps.Copy(d, doc)
	d["projectNumber"] = strconv.FormatUint(p.number, 10)
	f.buckets[name] = &bucket{project: p, doc: d, policy: f.newPolicy(), objects: map[string][]byte{}}
}

// Bucket is what there is of a bucket, nil if there is none.
func (f *Fake) Bucket(name string) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.buckets[name]; b != nil {
		return maps.Clone(b.doc)
	}
	return nil
}

// ChangeBucket changes a bucket, as somebody else does.
func (f *Fake) ChangeBucket(name string, patch map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	doc := merge(f.buckets[name].doc, patch)
	n, _ := strconv.Atoi(str(doc["metageneration"]))
	doc["metageneration"] = strconv.Itoa(n + 1)
	f.buckets[name].doc = doc
}

// Granted are the members of a bucket's policy by role.
func (f *Fake) Granted(name string) map[string][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string][]string{}
	if b := f.buckets[name]; b != nil {
		for _, x := range b.policy.Bindings {
			out[x.Role] = append(out[x.Role], x.Members...)
		}
	}
	return out
}

// Grant adds to a bucket's policy, as somebody else does; without a role it
// takes everything of the member away.
func (f *Fake) Grant(name, role, member string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.buckets[name].policy
	p.Etag = f.etag()
	if role != "" {
		p.Bindings = append(slices.Clone(p.Bindings), binding{Role: role, Members: []string{member}})
		return
	}
	var out []binding
	for _, b := range p.Bindings {
		b.Members = slices.DeleteFunc(slices.Clone(b.Members), func(m string) bool { return m == member })
		if len(b.Members) > 0 {
			out = append(out, b)
		}
	}
	p.Bindings = out
}

// AllKeys are all that ever were, deleted ones too.
func (f *Fake) AllKeys() []Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Key
	for _, k := range f.keys {
		out = append(out, Key{k.access, k.secret, k.state, k.email, k.made})
	}
	return out
}
