// Package scripted is a cloud provider that reaches no cloud. Its account is
// made up: it answers every kind, keeps what was made, records every call and
// every credential issued and ended, and plays refusals, delays and answers
// that get lost as a test scripts them.
//
// The account lives in the provider's process, in a file, or in another process
// that serves it over loopback: then a provider can be killed at any moment and
// its cloud goes on, as clouds do. The provider runs under the same grant as
// any, so whatever it may do, every provider may.
package scripted

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// Ops are what can be asked of an account; each is one cloud call.
const (
	OpEnsureIdentity     = "ensure-identity"
	OpOwnsIdentity       = "owns-identity"
	OpEnsureSecretAccess = "ensure-secret-access"
	OpSecretValues       = "secret-values"
	OpEnsureBucket       = "ensure-bucket"
	OpOwnsBucket         = "owns-bucket"
	OpEnsureBucketAccess = "ensure-bucket-access"
	OpIssue              = "issue"
	OpUsable             = "usable"
	OpEnd                = "end"
	OpList               = "list"
	OpEnsureWrappingKey  = "ensure-wrapping-key"
)

// Call is one call, with the arguments that its op has.
type Call struct {
	Op      string
	Request provider.Request
	// Name is the ServiceAccount, identity, bucket, key or credential's id.
	Name     string
	Bucket   *provider.BucketAsk       `json:",omitempty"`
	Access   *v1alpha1.SecretAccessAsk `json:",omitempty"`
	IDs      []string                  `json:",omitempty"`
	Identity string                    `json:",omitempty"`
}

// Answer is what a call answers.
type Answer struct {
	Text        string            `json:",omitempty"`
	Annotations map[string]string `json:",omitempty"`
	Thing       provider.Thing
	Yes         bool              `json:",omitempty"`
	Values      map[string][]byte `json:",omitempty"`
	// Keys are the credential's, apart, since it hides itself.
	ID, AccessKey, SecretKey string            `json:",omitempty"`
	Issued                   []provider.Issued `json:",omitempty"`
}

// Record is one thing that happened in the account.
type Record struct {
	At time.Time
	// Event is "call", "issued" or "ended".
	Event   string
	Op      string           `json:",omitempty"`
	Subject v1alpha1.Subject `json:",omitzero"`
	// ID is the credential's, or what the call was about.
	ID string `json:",omitempty"`
}

// Script makes calls fail.
type Script struct {
	// Op chooses the calls; empty is every one.
	Op string
	// Times is how many calls it is for; 0 is all until it is replaced.
	Times int
	// Phase is Waiting or Failed, with Text; empty is a fault of the cloud with
	// Text. Moved is the answer that the thing is elsewhere.
	Phase v1alpha1.Phase
	Text  string
	Moved bool
	// Lost has the call done, and its answer lost.
	Lost bool
	// Delay comes before everything.
	Delay time.Duration
}

type owned struct {
	Installation string
	Subject      v1alpha1.Subject
	CreatedAt    time.Time
	// Account and Location are where it is.
	Account, Location string
	Ask               *provider.BucketAsk `json:",omitempty"`
	// Granted are identities that were let in.
	Granted []string `json:",omitempty"`
}

type key struct {
	Identity, Bucket, AccessKey, SecretKey string
	Subject                                v1alpha1.Subject
	CreatedAt                              time.Time
	EndedAt                                time.Time `json:",omitzero"`
}

// Account is the made-up cloud. Methods may be called at the same time.
type Account struct {
	mu    sync.Mutex
	path  string
	now   func() time.Time
	state struct {
		Identities map[string]*owned
		Buckets    map[string]*owned
		Keys       map[string]*key
		// Secrets are values that differ from the made-up ones; nil is none.
		Secrets map[string][]byte
		Access  map[string]v1alpha1.SecretAccessAsk
		Records []Record
	}
	// scripts are by project.
	scripts map[string][]*Script
}

// NewAccount is an account in memory, or in a file if path is not empty: then
// it goes on where it was.
func NewAccount(path string) (*Account, error) {
	a := &Account{path: path, now: time.Now, scripts: map[string][]*Script{}}
	st := &a.state
	if path != "" {
		raw, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(raw, st)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("the account's file: %w", err)
		}
	}
	for _, m := range []any{&st.Identities, &st.Buckets} {
		if m := m.(*map[string]*owned); *m == nil {
			*m = map[string]*owned{}
		}
	}
	if st.Keys == nil {
		st.Keys = map[string]*key{}
	}
	if st.Secrets == nil {
		st.Secrets = map[string][]byte{}
	}
	if st.Access == nil {
		st.Access = map[string]v1alpha1.SecretAccessAsk{}
	}
	return a, nil
}

// Script replaces what is scripted for a project's calls.
func (a *Account) Script(project string, scripts ...Script) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scripts[project] = nil
	for _, s := range scripts {
		a.scripts[project] = append(a.scripts[project], &s)
	}
}

// Records are all so far.
func (a *Account) Records() []Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.state.Records)
}

// SetSecret gives a secret of the account a value; nil takes it away.
func (a *Account) SetSecret(id string, value []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Secrets[id] = value
}

// Plant has somebody else hold a bucket: another customer of the cloud if
// installation is empty, else another installation in the same account.
func (a *Account) Plant(bucket, account, installation string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Buckets[bucket] = &owned{Installation: installation, Account: account, CreatedAt: a.now()}
}

// Lose removes a bucket with all that is in it, as a hand in the console does.
func (a *Account) Lose(bucket string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.state.Buckets, bucket)
}

// Granted are the identities that were let into a bucket.
func (a *Account) Granted(bucket string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.state.Buckets[bucket]; b != nil {
		return slices.Clone(b.Granted)
	}
	return nil
}

// Revoke takes back what was granted on a bucket, as a hand in the console
// does.
func (a *Account) Revoke(bucket string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.state.Buckets[bucket]; b != nil {
		b.Granted = nil
	}
}

// Holds says whether a bucket or identity is there.
func (a *Account) Holds(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.Buckets[name] != nil || a.state.Identities[name] != nil
}

// Reaches says whether a credential opens a bucket now.
func (a *Account) Reaches(accessKey, secretKey, bucket string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.state.Keys {
		if k.AccessKey == accessKey && k.SecretKey == secretKey && k.EndedAt.IsZero() {
			b := a.state.Buckets[bucket]
			return b != nil && slices.Contains(b.Granted, k.Identity)
		}
	}
	return false
}

// Live are the ids of a project's credentials that have not ended.
func (a *Account) Live(project string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []string
	for id, k := range a.state.Keys {
		if k.Subject.Project == project && k.EndedAt.IsZero() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// ErrLost is an answer that did not arrive.
var ErrLost = errors.New("connection reset by peer")

// Do carries out a call.
func (a *Account) Do(ctx context.Context, c Call) (Answer, error) {
	s := a.arrive(c)
	if s.Delay > 0 {
		t := time.NewTimer(s.Delay)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		case <-t.C:
		}
	}
	switch {
	case s.Moved:
		return Answer{}, provider.ErrMoved
	case s.Phase == v1alpha1.PhaseWaiting:
		return Answer{}, provider.Waiting("%s", s.Text)
	case s.Phase == v1alpha1.PhaseFailed:
		return Answer{}, provider.Refused("%s", s.Text)
	case s.Text != "":
		return Answer{}, errors.New(s.Text)
	}
	answer, err := a.carryOut(c)
	if s.Lost {
		return Answer{}, ErrLost
	}
	return answer, err
}

// arrive records the call and takes the script that is for it.
func (a *Account) arrive(c Call) Script {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record(Record{Event: "call", Op: c.Op, Subject: c.Request.Subject, ID: c.Name})
	for _, s := range a.scripts[c.Request.Subject.Project] {
		if s.Times < 0 || s.Op != "" && s.Op != c.Op {
			continue
		}
		taken := *s
		if s.Times > 0 {
			if s.Times--; s.Times == 0 {
				s.Times = -1
			}
		}
		return taken
	}
	return Script{}
}

func (a *Account) record(r Record) {
	r.At = a.now()
	a.state.Records = append(a.state.Records, r)
}

// IdentityOf is the subject's identity.
func IdentityOf(account string, s v1alpha1.Subject) string {
	name := s.Project
	if s.Service != "" {
		name = s.Service + "." + s.Project
	}
	return name + "@" + account + ".scripted"
}

func (o *owned) of(r provider.Request) bool {
	return o != nil && o.Account == r.Account && o.Installation == r.Installation && o.Subject == r.Subject
}

func (a *Account) carryOut(c Call) (Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer, err := a.apply(c)
	if err != nil {
		return answer, err
	}
	return answer, a.save()
}

func (a *Account) apply(c Call) (Answer, error) {
	r, st := c.Request, &a.state
	mine := func() *owned {
		return &owned{Installation: r.Installation, Subject: r.Subject, CreatedAt: a.now(), Account: r.Account, Location: r.Location}
	}
	switch c.Op {
	case OpEnsureIdentity:
		name := IdentityOf(r.Account, r.Subject)
		made := st.Identities[name] == nil
		if made {
			st.Identities[name] = mine()
		}
		if !st.Identities[name].of(r) {
			return Answer{}, provider.Refused("the identity is another installation's")
		}
		return Answer{Text: name, Annotations: map[string]string{"scripted.example/identity": c.Name}, Thing: provider.Thing{Made: made, CreatedAt: st.Identities[name].CreatedAt}}, nil
	case OpOwnsIdentity:
		return Answer{Yes: c.Name == IdentityOf(r.Account, r.Subject) && st.Identities[c.Name].of(r)}, nil
	case OpEnsureSecretAccess:
		st.Access[c.Access.Identity] = *c.Access
		return Answer{}, nil
	case OpSecretValues:
		values := map[string][]byte{}
		for _, id := range c.IDs {
			if v, set := st.Secrets[id]; !set {
				values[id] = []byte("scripted-value-of-" + id)
			} else if v != nil {
				values[id] = v
			}
		}
		return Answer{Values: values}, nil
	case OpEnsureBucket:
		b := st.Buckets[c.Bucket.Name]
		made := b == nil
		switch {
		case made:
			b = mine()
			st.Buckets[c.Bucket.Name] = b
		case b.Subject == r.Subject && b.Installation == r.Installation && (b.Account != r.Account || b.Location != r.Location):
			return Answer{}, provider.ErrMoved
		case !b.of(r):
			return Answer{}, provider.Taken(c.Bucket.Name)
		}
		b.Ask = c.Bucket
		return Answer{Text: c.Bucket.Name, Thing: provider.Thing{Made: made, CreatedAt: b.CreatedAt}}, nil
	case OpOwnsBucket:
		return Answer{Yes: st.Buckets[c.Name].of(r)}, nil
	case OpEnsureBucketAccess:
		b := st.Buckets[c.Name]
		if b == nil {
			return Answer{}, provider.Refused("bucket %s is not there", c.Name)
		}
		if !slices.Contains(b.Granted, c.Identity) {
			b.Granted = append(b.Granted, c.Identity)
		}
		return Answer{}, nil
	case OpIssue:
		id := "key-" + strings.ToLower(rand.Text()[:12])
		k := &key{Identity: c.Identity, Bucket: c.Name, AccessKey: "SCRIPTED" + rand.Text(), SecretKey: rand.Text() + rand.Text(), Subject: r.Subject, CreatedAt: a.now()}
		st.Keys[id] = k
		a.record(Record{Event: "issued", Subject: r.Subject, ID: id})
		return Answer{ID: id, AccessKey: k.AccessKey, SecretKey: k.SecretKey}, nil
	case OpUsable:
		if k := st.Keys[c.Name]; k == nil || !k.EndedAt.IsZero() {
			return Answer{}, provider.Refused("the credential has ended")
		}
		return Answer{}, nil
	case OpEnd:
		if k := st.Keys[c.Name]; k != nil && k.EndedAt.IsZero() {
			k.EndedAt = a.now()
			a.record(Record{Event: "ended", Subject: r.Subject, ID: c.Name})
		}
		return Answer{}, nil
	case OpList:
		var l []provider.Issued
		for _, id := range slices.Sorted(maps.Keys(st.Keys)) {
			if k := st.Keys[id]; k.Identity == c.Identity && k.EndedAt.IsZero() {
				l = append(l, provider.Issued{ID: id, CreatedAt: k.CreatedAt})
			}
		}
		return Answer{Issued: l}, nil
	case OpEnsureWrappingKey:
		return Answer{}, nil
	}
	return Answer{}, fmt.Errorf("there is no call %q", c.Op)
}

// save writes the file, whole or not at all.
func (a *Account) save() error {
	if a.path == "" {
		return nil
	}
	raw, err := json.MarshalIndent(a.state, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(a.path), ".account-*")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), a.path)
}
