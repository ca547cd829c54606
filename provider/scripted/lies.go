package scripted

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// What a dishonest provider does. Each is an honest one between whose cloud and
// framework, or framework and API server, something lies: so the conformance
// suite is tried against what a wrong provider looks like from outside.
const (
	LieStaleCopy         = "stale-copy"          // decides from the copy that it saw first (C-93)
	LieReadsSecret       = "reads-secret"        // looks at the Secrets that it writes (C-115)
	LiePhaseBehind       = "phase-behind"        // reports a phase under the older observedGeneration (C-91)
	LieEndsEarly         = "ends-early"          // ends the credential before at once (C-124)
	LieNeverEnds         = "never-ends"          // says that it ended credentials, and does not (C-126, C-119)
	LieAdoptsBucket      = "adopts-bucket"       // takes somebody else's bucket (C-88)
	LieOverwritesSecret  = "overwrites-secret"   // writes over a Secret that was there (C-118)
	LieSecretInDetail    = "secret-in-detail"    // tells the key in its words (C-100)
	LieIgnoresMove       = "ignores-move"        // serves what was made in another account (C-102)
	LieTakesAnyParameter = "takes-any-parameter" // overlooks parameters that it does not know (C-74)
	LieAlwaysRecovered   = "always-recovered"    // calls what is new Recovered (C-147)
	LieLongDetail        = "long-detail"         // writes words without bound (C-152)
	LieReissues          = "reissues"            // reports a rotation and leaves the Secret as it was (C-122)
)

// Lies are all of them.
func Lies() []string {
	return []string{LieStaleCopy, LieReadsSecret, LiePhaseBehind, LieEndsEarly, LieNeverEnds, LieAdoptsBucket, LieOverwritesSecret,
		LieSecretInDetail, LieIgnoresMove, LieTakesAnyParameter, LieAlwaysRecovered, LieLongDetail, LieReissues}
}

// Lie makes what runs with o tell a lie.
func Lie(o *provider.Options, lie string) error {
	c, ok := o.Cloud.(Cloud)
	if !slices.Contains(Lies(), lie) || !ok {
		return fmt.Errorf("%q is no lie of a scripted provider; there are %s", lie, strings.Join(Lies(), ", "))
	}
	l := &liar{lie: lie, account: o.Settings.Account, location: o.Settings.Location, first: map[string][]byte{}}
	o.Cloud = lyingCloud{c, l}
	o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &lyingTransport{l, next} })
	return nil
}

type liar struct {
	lie, account, location string

	mu sync.Mutex
	// first is each request as it was seen first.
	first map[string][]byte
	key   string
}

func (l *liar) is(lie string) bool { return l.lie == lie }

// lyingCloud lies to the framework.
type lyingCloud struct {
	Cloud
	*liar
}

func (c lyingCloud) EnsureBucket(ctx context.Context, r provider.Request, ask provider.BucketAsk) (v1alpha1.BucketAnswer, provider.Thing, error) {
	a, t, err := c.Cloud.EnsureBucket(ctx, r, ask)
	switch {
	case c.is(LieAlwaysRecovered):
		t = provider.Thing{}
	case c.is(LieAdoptsBucket) && err != nil:
		_ = c.Cloud.EnsureBucketAccess(ctx, r, v1alpha1.CredentialAsk{Bucket: ask.Name, Identity: IdentityOf(r.Account, r.Subject)})
		return v1alpha1.BucketAnswer{Bucket: ask.Name, Endpoint: Endpoint, Region: r.Location}, provider.Thing{}, nil
	}
	return a, t, err
}

func (c lyingCloud) IssueCredential(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk) (provider.Credential, error) {
	if c.is(LieEndsEarly) {
		old, _ := c.Cloud.ListCredentials(ctx, r, ask)
		for _, o := range old {
			_ = c.Cloud.EndCredential(ctx, r, ask, o.ID)
		}
	}
	k, err := c.Cloud.IssueCredential(ctx, r, ask)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key = k.SecretKey
	return k, err
}

func (c lyingCloud) EndCredential(ctx context.Context, r provider.Request, ask v1alpha1.CredentialAsk, id string) error {
	if c.is(LieNeverEnds) {
		return nil
	}
	return c.Cloud.EndCredential(ctx, r, ask, id)
}

// lyingTransport lies to the framework of the API server, or to the API server.
type lyingTransport struct {
	*liar
	next http.RoundTripper
}

func (t *lyingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && len(parts) == 7 && parts[5] == "cloudresources":
		return t.get(r)
	case r.Method == http.MethodPut && len(parts) == 8 && parts[7] == "status":
		return t.answer(r)
	case strings.Contains(r.URL.Path, "/secrets"):
		return t.secret(r)
	}
	return t.next.RoundTrip(r)
}

// get lies about the request that is read.
func (t *lyingTransport) get(r *http.Request) (*http.Response, error) {
	if t.is(LieStaleCopy) {
		// The credential's first state is remembered once it is to be issued,
		// and handed on ever after.
		t.mu.Lock()
		defer t.mu.Unlock()
		res, err := t.next.RoundTrip(r)
		if err != nil || res.StatusCode != http.StatusOK || !strings.HasSuffix(r.URL.Path, "-"+v1alpha1.SuffixStorageCredential) {
			return res, err
		}
		body, err := slurp(res)
		if err != nil {
			return nil, err
		}
		if first, ok := t.first[r.URL.Path]; ok {
			body = first
		}
		t.first[r.URL.Path] = body
		return withBody(res, body), nil
	}
	if !t.is(LieIgnoresMove) && !t.is(LieTakesAnyParameter) {
		return t.next.RoundTrip(r)
	}
	res, err := t.next.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusOK {
		return res, err
	}
	return change(res, func(o *v1alpha1.CloudResource) {
		if t.is(LieIgnoresMove) && o.Status.Account != "" {
			o.Status.Account, o.Status.Location = t.account, t.location
		}
		for k := range o.Spec.Parameters {
			if t.is(LieTakesAnyParameter) && !slices.Contains(v1alpha1.ParameterNames(o.Spec.Kind), k) {
				delete(o.Spec.Parameters, k)
			}
		}
	})
}

// answer lies in the status that is written.
func (t *lyingTransport) answer(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var o v1alpha1.CloudResource
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	send := func(o v1alpha1.CloudResource) (*http.Response, error) {
		raw, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		again := r.Clone(r.Context())
		again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		return t.next.RoundTrip(again)
	}
	now := func() v1alpha1.CloudResource {
		get := r.Clone(r.Context())
		get.Method, get.Body, get.ContentLength = http.MethodGet, nil, 0
		u := *r.URL
		u.Path = strings.TrimSuffix(u.Path, "/status")
		get.URL = &u
		var live v1alpha1.CloudResource
		if res, err := t.next.RoundTrip(get); err == nil {
			if raw, err := slurp(res); err == nil {
				_ = json.Unmarshal(raw, &live)
			}
		}
		return live
	}
	switch {
	case t.is(LieStaleCopy):
		o.ResourceVersion = now().ResourceVersion
	case t.is(LiePhaseBehind):
		if live := now(); live.Status.ObservedGeneration != o.Status.ObservedGeneration {
			behind := *o.DeepCopy()
			behind.Status.ObservedGeneration = live.Status.ObservedGeneration
			if res, err := send(behind); err == nil {
				if raw, err := slurp(res); err == nil {
					_ = json.Unmarshal(raw, &behind)
				}
				o.ResourceVersion = behind.ResourceVersion
			}
		}
	case t.is(LieSecretInDetail) && o.Spec.Kind == v1alpha1.KindBucketCredential && o.Status.Phase.Done():
		t.mu.Lock()
		o.Status.Detail = "issued with key " + t.key
		t.mu.Unlock()
	case t.is(LieLongDetail) && o.Status.Phase == v1alpha1.PhaseFailed:
		o.Status.Detail += "\x1b[31m" + strings.Repeat(" and so on", 1000)
	}
	return send(o)
}

// secret lies about Secrets.
func (t *lyingTransport) secret(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		return t.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	send := func(method, path, contentType string, body []byte) (*http.Response, error) {
		again := r.Clone(r.Context())
		u := *r.URL
		u.Path = path
		again.URL, again.Method = &u, method
		again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		again.Header.Set("Content-Type", contentType)
		return t.next.RoundTrip(again)
	}
	if t.is(LieReissues) && r.Method == http.MethodPatch && bytes.Contains(body, []byte(v1alpha1.EntrySecretKey)) {
		res, err := send(http.MethodPatch, r.URL.Path, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"rotated":"yes"}}}`))
		return res, err
	}
	res, err := send(r.Method, r.URL.Path, r.Header.Get("Content-Type"), body)
	if err != nil || r.Method != http.MethodPost {
		return res, err
	}
	var s struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return res, nil //nolint:nilerr // what is no Secret is passed on
	}
	switch path := r.URL.Path + "/" + s.Metadata.Name; {
	case t.is(LieReadsSecret):
		if look, err := send(http.MethodGet, path, "", nil); err == nil {
			_ = look.Body.Close()
		}
	case t.is(LieOverwritesSecret) && res.StatusCode == http.StatusConflict:
		key, err := base64.StdEncoding.DecodeString(s.Data[v1alpha1.EntrySecretKey])
		if err != nil || len(key) == 0 {
			return res, nil //nolint:nilerr // no credential
		}
		_ = res.Body.Close()
		patch, err := json.Marshal(map[string]any{"data": s.Data})
		if err != nil {
			return nil, err
		}
		if res, err = send(http.MethodPatch, path, "application/merge-patch+json", patch); err == nil && res.StatusCode == http.StatusOK {
			res.StatusCode, res.Status = http.StatusCreated, "201 Created"
		}
		return res, err
	}
	return res, nil
}

func slurp(res *http.Response) ([]byte, error) {
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}

func withBody(res *http.Response, body []byte) *http.Response {
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Del("Content-Length")
	return res
}

func change(res *http.Response, f func(*v1alpha1.CloudResource)) (*http.Response, error) {
	body, err := slurp(res)
	if err != nil {
		return nil, err
	}
	var o v1alpha1.CloudResource
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	f(&o)
	if body, err = json.Marshal(o); err != nil {
		return nil, err
	}
	return withBody(res, body), nil
}
