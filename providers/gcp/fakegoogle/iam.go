package fakegoogle

import (
	"encoding/base64"
	"encoding/json"
	"hash/crc32"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// policy is one of access, with what it was before, since a change takes time.
type policy struct {
	Bindings []binding `json:"bindings"`
	Etag     string    `json:"etag"`
	Version  int       `json:"version"`

	before  []binding
	changed time.Time
}

type binding struct {
	Role      string     `json:"role"`
	Members   []string   `json:"members"`
	Condition *condition `json:"condition,omitempty"`
}

type condition struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Expression  string `json:"expression,omitempty"`
}

func (f *Fake) newPolicy(b ...binding) *policy { return &policy{Bindings: b, Etag: f.etag()} }

// read is the policy as it is answered to whoever asks for a version: to one who
// asks for less than 3, conditions are not shown.
func (p *policy) read(version string) *policy {
	out := &policy{Etag: p.Etag, Version: 1, Bindings: slices.Clone(p.Bindings)}
	for i := range out.Bindings {
		if out.Bindings[i].Condition == nil {
			continue
		}
		if version == "3" {
			out.Version = 3
		} else {
			out.Bindings[i].Condition = nil
		}
	}
	return out
}

var serviceAccount = regexp.MustCompile(`^serviceAccount:([^\[]+)$`)

// set writes the policy. clash is the code for an etag that is not the last.
func (f *Fake) set(p *policy, raw json.RawMessage, clash int) (any, *apiError) {
	var next policy
	if err := json.Unmarshal(raw, &next); err != nil {
		return nil, fault(http.StatusBadRequest, "invalid", "no policy")
	}
	switch {
	case next.Etag == "":
		f.blind++
	case next.Etag != p.Etag:
		return nil, fault(clash, "conditionNotMet", "there were concurrent policy changes")
	}
	seen := map[string]bool{}
	for i, b := range next.Bindings {
		if b.Condition != nil && next.Version < 3 {
			next.Bindings[i].Condition = nil
		}
		if strings.HasPrefix(b.Role, "projects/") && f.o.Roles[b.Role] == nil {
			return nil, fault(http.StatusBadRequest, "invalid", "Role %s does not exist.", b.Role)
		}
		if len(b.Members) == 0 {
			return nil, fault(http.StatusBadRequest, "invalid", "a binding has no members")
		}
		c, _ := json.Marshal(b.Condition)
		if key := b.Role + string(c); seen[key] {
			return nil, fault(http.StatusBadRequest, "invalid", "two bindings of one role and condition")
		} else {
			seen[key] = true
		}
		for _, m := range b.Members {
			s := serviceAccount.FindStringSubmatch(m)
			if s == nil {
				continue
			}
			_, domain, _ := strings.Cut(s[1], "@")
			id, ok := strings.CutSuffix(domain, ".iam.gserviceaccount.com")
			if a := f.accounts[s[1]]; ok && f.projects[id] != nil && !f.seen(a) && !slices.Contains(f.projects[id].admins, s[1]) {
				return nil, fault(http.StatusBadRequest, "invalid", "Service account %s does not exist.", s[1])
			}
		}
	}
	p.before, p.changed = f.effective(p), f.o.Now()
	p.Bindings, p.Etag = next.Bindings, f.etag()
	return p.read("3"), nil
}

// effective is what a policy grants now.
func (f *Fake) effective(p *policy) []binding {
	if f.o.Now().Before(p.changed.Add(f.o.GrantDelay)) {
		return p.before
	}
	return p.Bindings
}

// account is a service account.
type account struct {
	Name        string `json:"name"`
	ProjectID   string `json:"projectId"`
	Email       string `json:"email"`
	DisplayName string `json:"displayName,omitempty"`
	Description string `json:"description,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`
	Etag        string `json:"etag"`

	made   time.Time
	policy *policy
}

func (f *Fake) seen(a *account) bool {
	return a != nil && !f.o.Now().Before(a.made.Add(f.o.AccountDelay))
}

var accountID = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])$`)

// PlantAccount puts a service account into the account's project.
func (f *Fake) PlantAccount(id, description string, disabled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	email := id + "@" + f.o.Account + ".iam.gserviceaccount.com"
	f.accounts[email] = &account{Name: "projects/" + f.o.Account + "/serviceAccounts/" + email, ProjectID: f.o.Account, Email: email,
		Description: description, Disabled: disabled, Etag: f.etag(), policy: f.newPolicy()}
}

// ActsAs are who may act as a service account.
func (f *Fake) ActsAs(email string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	if a := f.accounts[email]; a != nil {
		for _, b := range a.policy.Bindings {
			out = append(out, b.Members...)
		}
	}
	return out
}

// Account answers a service account's id, display name and description.
func (f *Fake) Account(email string) (id, display, description string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.accounts[email]
	if a == nil {
		return "", "", "", false
	}
	id, _, _ = strings.Cut(email, "@")
	return id, a.DisplayName, a.Description, true
}

// serviceAccounts serves iam v1.
func (f *Fake) serviceAccounts(r *http.Request, id string, rest []string, raw []byte) (operation, bool) {
	op := operation{api: "iam", project: id}
	if len(rest) == 0 {
		if r.Method != http.MethodPost {
			return op, false
		}
		op.op = "iam.serviceAccounts.create"
		op.do = func() (any, *apiError) {
			var in struct {
				AccountID      string  `json:"accountId"`
				ServiceAccount account `json:"serviceAccount"`
			}
			if err := json.Unmarshal(raw, &in); err != nil || len(in.AccountID) < 6 || len(in.AccountID) > 30 || !accountID.MatchString(in.AccountID) {
				return nil, fault(http.StatusBadRequest, "invalid", "account id %q is not 6 to 30 characters", in.AccountID)
			}
			if len(in.ServiceAccount.DisplayName) > 100 || len(in.ServiceAccount.Description) > 256 {
				return nil, fault(http.StatusBadRequest, "invalid", "display name or description are too long")
			}
			a := in.ServiceAccount
			a.Email = in.AccountID + "@" + id + ".iam.gserviceaccount.com"
			if f.accounts[a.Email] != nil {
				return nil, fault(http.StatusConflict, "alreadyExists", "Service account %s already exists within project.", in.AccountID)
			}
			a.Name, a.ProjectID, a.Etag, a.made, a.policy = "projects/"+id+"/serviceAccounts/"+a.Email, id, f.etag(), f.o.Now(), f.newPolicy()
			f.accounts[a.Email] = &a
			return a, nil
		}
		return op, true
	}
	email, verb, _ := strings.Cut(rest[0], ":")
	find := func(do func(*account) (any, *apiError)) func() (any, *apiError) {
		return func() (any, *apiError) {
			if a := f.accounts[email]; f.seen(a) {
				return do(a)
			}
			return nil, fault(http.StatusNotFound, "notFound", "Unknown service account")
		}
	}
	switch verb {
	case "":
		op.op, op.do = "iam.serviceAccounts.get", find(func(a *account) (any, *apiError) { return a, nil })
	case "getIamPolicy":
		op.op = "iam.serviceAccounts.getIamPolicy"
		op.do = find(func(a *account) (any, *apiError) {
			return a.policy.read(r.URL.Query().Get("options.requestedPolicyVersion")), nil
		})
	case "setIamPolicy":
		op.op = "iam.serviceAccounts.setIamPolicy"
		op.do = find(func(a *account) (any, *apiError) { return f.set(a.policy, inner(raw), http.StatusConflict) })
	default:
		return op, false
	}
	return op, true
}

// inner is the policy of a request to set one.
func inner(raw []byte) json.RawMessage {
	var in struct {
		Policy json.RawMessage `json:"policy"`
	}
	_ = json.Unmarshal(raw, &in)
	return in.Policy
}

// resourceManager serves cloudresourcemanager v3.
func (f *Fake) resourceManager(r *http.Request, rest string, raw []byte) (operation, bool) {
	id, verb, _ := strings.Cut(rest, ":")
	op := operation{api: "resourcemanager", project: id}
	switch verb {
	case "":
		op.op = "resourcemanager.projects.get"
		op.do = func() (any, *apiError) {
			return map[string]any{"name": "projects/" + strconv.FormatUint(f.projects[id].number, 10), "projectId": id, "state": "ACTIVE"}, nil
		}
	case "getIamPolicy":
		op.op = "resourcemanager.projects.getIamPolicy"
		op.do = func() (any, *apiError) {
			var in struct {
				Options struct {
					RequestedPolicyVersion int `json:"requestedPolicyVersion"`
				} `json:"options"`
			}
			_ = json.Unmarshal(raw, &in)
			return f.projects[id].policy.read(strconv.Itoa(in.Options.RequestedPolicyVersion)), nil
		}
	case "setIamPolicy":
		op.op = "resourcemanager.projects.setIamPolicy"
		op.do = func() (any, *apiError) { return f.set(f.projects[id].policy, inner(raw), http.StatusConflict) }
	default:
		return op, false
	}
	return op, r.Method == http.MethodGet || r.Method == http.MethodPost
}

// kmsKeys serves cloudkms v1.
func (f *Fake) kmsKeys(r *http.Request, name string, raw []byte) (operation, bool) {
	name, verb, _ := strings.Cut(name, ":")
	// The keys stand in the account, whatever project their name has.
	op := operation{api: "cloudkms", project: f.o.Account}
	find := func(do func(*policy) (any, *apiError)) func() (any, *apiError) {
		return func() (any, *apiError) {
			if p := f.kms[name]; p != nil {
				return do(p)
			}
			return nil, fault(http.StatusNotFound, "notFound", "CryptoKey not found.")
		}
	}
	switch verb {
	case "getIamPolicy":
		op.op = "cloudkms.cryptoKeys.getIamPolicy"
		op.do = find(func(p *policy) (any, *apiError) {
			return p.read(r.URL.Query().Get("options.requestedPolicyVersion")), nil
		})
	case "setIamPolicy":
		op.op = "cloudkms.cryptoKeys.setIamPolicy"
		op.do = find(func(p *policy) (any, *apiError) { return f.set(p, inner(raw), http.StatusConflict) })
	default:
		return op, false
	}
	return op, true
}

// MayWrap says whether a member may use a key.
func (f *Fake) MayWrap(key, email string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mayWrap(key, "serviceAccount:"+email)
}

func (f *Fake) mayWrap(key, member string) bool {
	p := f.kms[key]
	return p != nil && slices.ContainsFunc(p.Bindings, func(b binding) bool {
		return b.Role == "roles/cloudkms.cryptoKeyEncrypterDecrypter" && slices.Contains(b.Members, member)
	})
}

// secretVersions serves secretmanager v1.
func (f *Fake) secretVersions(project, id string) operation {
	return operation{api: "secretmanager", project: project, op: "secretmanager.versions.access", do: func() (any, *apiError) {
		v, ok := f.secrets[id]
		if !ok {
			return nil, fault(http.StatusNotFound, "notFound", "Secret [%s] not found or has no versions.", id)
		}
		sent := v
		if f.damaged[id] {
			sent = append(slices.Clone(v), '!')
		}
		return map[string]any{"name": "projects/1/secrets/" + id + "/versions/1", "payload": map[string]any{
			"data": base64.StdEncoding.EncodeToString(sent), "dataCrc32c": strconv.FormatUint(uint64(crc32.Checksum(v, crc32.MakeTable(crc32.Castagnoli))), 10)}}, nil
	}}
}

var startsWith = regexp.MustCompile(`^resource\.name\.startsWith\("([^"]*)"\)$`)

// May says whether the account's policy gives a service account a permission on
// a secret.
func (f *Fake) May(email, permission, secret string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.projects[f.o.Account]
	name := "projects/" + strconv.FormatUint(p.number, 10) + "/secrets/" + secret
	for _, b := range p.policy.Bindings {
		permissions := f.o.Roles[b.Role]
		if b.Role == "roles/secretmanager.secretAccessor" {
			permissions = []string{"secretmanager.versions.access"}
		}
		if !slices.Contains(b.Members, "serviceAccount:"+email) || !slices.Contains(permissions, permission) {
			continue
		}
		if b.Condition == nil {
			return true
		}
		for _, part := range strings.Split(b.Condition.Expression, " || ") {
			if m := startsWith.FindStringSubmatch(part); m != nil && strings.HasPrefix(name, m[1]) {
				return true
			}
		}
	}
	return false
}

// Bindings of the account's policy, as role|members|condition.
func (f *Fake) Bindings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, b := range f.projects[f.o.Account].policy.Bindings {
		text := b.Role + "|" + strings.Join(b.Members, ",")
		if b.Condition != nil {
			text += "|" + b.Condition.Expression
		}
		out = append(out, text)
	}
	return out
}

// AddBinding adds one to the account's policy, as somebody else does.
func (f *Fake) AddBinding(role, member, title, expression string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.projects[f.o.Account].policy
	b := binding{Role: role, Members: []string{member}}
	if expression != "" {
		b.Condition = &condition{Title: title, Expression: expression}
	}
	p.Bindings, p.Etag = append(slices.Clone(p.Bindings), b), f.etag()
}
