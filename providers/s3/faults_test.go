package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/provider"
)

// faulty stands before the store, and answers some calls in its place.
type faulty struct {
	s3, iam string
	mu      sync.Mutex
	answers map[string]http.HandlerFunc
	calls   []string
}

// answer has a call answered so: an action of IAM, or "METHOD query" of S3. nil
// is the store's own answer again.
func (f *faulty) answer(call string, h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[call] = h
}

// errorXML is an error as the APIs answer them.
func errorXML(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		text := fmt.Sprintf("<Code>%s</Code><Message>%s</Message>", code, message)
		if r.Form.Get("Action") != "" {
			fmt.Fprintf(w, "<ErrorResponse><Error><Type>Sender</Type>%s</Error><RequestId>r</RequestId></ErrorResponse>", text)
			return
		}
		fmt.Fprintf(w, "<Error>%s<RequestId>r</RequestId></Error>", text)
	}
}

func newFaulty(t *testing.T, s *store) *faulty {
	t.Helper()
	f := &faulty{answers: map[string]http.HandlerFunc{}}
	before := func(target string) string {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		proxy := &httputil.ReverseProxy{Transport: s.transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Host = r.In.Host }}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			form, _ := url.ParseQuery(string(body))
			call := strings.TrimSpace(r.Method + " " + strings.TrimSuffix(r.URL.RawQuery, "="))
			if a := form.Get("Action"); a != "" {
				call = a
			}
			f.mu.Lock()
			f.calls = append(f.calls, call)
			h := f.answers[call]
			f.mu.Unlock()
			if h == nil {
				proxy.ServeHTTP(w, r)
				return
			}
			r.Form = form
			r.Body = io.NopCloser(bytes.NewReader(body))
			h(w, r)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	f.s3, f.iam = before(s.s3URL), before(s.iamURL)
	return f
}

func (f *faulty) cloud(t *testing.T, s *store) *Cloud {
	return s.cloud(t, func(c *Config) { c.Endpoint, c.IAMEndpoint, c.CAFile = f.s3, f.iam, "" })
}

// What the store says becomes words that a member can read, and of the provider's
// own key there is nothing in them.
func TestFaults_C97_C100_C151_C152(t *testing.T) {
	s := theStore(t)
	f := newFaulty(t, s)
	c := f.cloud(t, s)
	own, err := c.own.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := newRequest("faults")
	ask := storage(t, c, r)
	bucket := func() error {
		x := newRequest("faults")
		_, _, err := c.EnsureBucket(t.Context(), x, bucketAsk(t, x))
		return err
	}
	identity := func() error {
		_, _, err := c.EnsureIdentity(t.Context(), newRequest("faults"), v1alpha1.IdentityAsk{})
		return err
	}
	issue := func() error { _, err := c.IssueCredential(t.Context(), r, ask); return err }
	const waiting, failed = v1alpha1.PhaseWaiting, v1alpha1.PhaseFailed
	for _, x := range []struct {
		call    string
		status  int
		code    string
		message string
		do      func() error
		phase   v1alpha1.Phase
		words   string
	}{
		{"PUT", 403, "AccessDenied", "Access Denied", bucket, failed, "s3:CreateBucket"},
		{"PUT", 503, "SlowDown", "Reduce your request rate", bucket, waiting, "s3:CreateBucket"},
		{"PUT", 500, "InternalError", "We encountered an internal error", bucket, waiting, "asked again"},
		{"PUT", 400, "TooManyBuckets", "You have attempted to create more buckets than allowed", bucket, failed, "at a limit of its own"},
		{"PUT", 409, "BucketAlreadyExists", "taken", bucket, failed, "someone else"},
		{"PUT", 400, "InvalidBucketName", "no", bucket, failed, "name prefix"},
		{"GET tagging", 403, "SignatureDoesNotMatch", "key AKID and SECRET do not match", bucket, failed, "does not take the provider's own key"},
		{"GET tagging", 403, "RequestTimeTooSkewed", "clocks", bucket, waiting, "clocks"},
		{"PUT", 418, "Teapot", "the key AKID with SECRET is a teapot", bucket, failed, "Teapot"},
		{"PUT", 418, "Teapot", strings.Repeat("hostile SECRET ", 1<<14), bucket, failed, "Teapot"},
		{"PUT", 507, "InsufficientStorage", "full", bucket, failed, "limit"},
		{"CreateUser", 409, "LimitExceeded", "Cannot exceed quota for UsersPerAccount: 5000", identity, failed, "iam:CreateUser"},
		{"CreateUser", 403, "AccessDenied", "no", identity, failed, "iam:CreateUser"},
		{"ListUsers", 400, "Throttling", "Rate exceeded", identity, waiting, "Throttling"},
		{"ListUsers", 403, "InvalidClientTokenId", "AKID is not valid", identity, failed, "own key"},
		{"ListUsers", 400, "InvalidAction", "Could not find operation ListUsers", identity, failed, "does not know iam:ListUsers"},
		{"CreateAccessKey", 409, "LimitExceeded", "Cannot exceed quota for AccessKeysPerUser: 2", issue, failed, "limit"},
		{"CreateAccessKey", 503, "ServiceUnavailable", "later", issue, waiting, "iam:CreateAccessKey"},
	} {
		t.Run(x.call+" "+x.code, func(t *testing.T) {
			f.answer(x.call, errorXML(x.status, x.code, strings.NewReplacer("AKID", own.AccessKeyID, "SECRET", own.SecretAccessKey).Replace(x.message)))
			defer f.answer(x.call, nil)
			err := x.do()
			wants(t, err, x.phase, x.words)
			if err != nil && (strings.Contains(err.Error(), own.AccessKeyID) || strings.Contains(err.Error(), own.SecretAccessKey)) {
				t.Error("C-100: the provider's own key stands in the words")
			}
			if err != nil && len(err.Error()) > 1024 {
				t.Errorf("C-152: %d bytes of words", len(err.Error()))
			}
			// The cause goes, and what is asked is done.
			f.answer(x.call, nil)
			if err := x.do(); err != nil {
				t.Errorf("once the cause is gone: %v", err)
			}
		})
	}
	t.Run("a refused key was never made, and what is left over of it ends", func(t *testing.T) {
		listed, err := c.ListCredentials(t.Context(), r, ask)
		if err != nil || len(listed) != 4 {
			t.Fatalf("%d, %v", len(listed), err)
		}
		for _, i := range listed {
			if err := c.EndCredential(t.Context(), r, ask, i.ID); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a store that is away", func(t *testing.T) {
		gone := s.cloud(t, func(c *Config) { c.Endpoint, c.IAMEndpoint = "https://"+freePort(), "https://"+freePort() })
		_, _, err := gone.EnsureBucket(t.Context(), r, bucketAsk(t, r))
		wants(t, err, waiting, "cannot be reached")
	})
	t.Run("a store that does not answer in time", func(t *testing.T) {
		ended := make(chan struct{})
		f.answer("GET tagging", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		})
		defer f.answer("GET tagging", nil)
		defer close(ended)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := c.OwnsBucket(ctx, r, ask.Bucket)
		wants(t, err, waiting, "in time")
	})
	t.Run("a certificate of an authority that is not named", func(t *testing.T) {
		_, _, err := s.cloud(t, func(c *Config) { c.CAFile = "" }).EnsureBucket(t.Context(), r, bucketAsk(t, r))
		wants(t, err, waiting, "--ca-file")
	})
}

// An answer that is lost is not asked for again by the SDK: a key whose answer
// was lost would be a second one.
func TestIssueOnce_C144(t *testing.T) {
	s := theStore(t)
	f := newFaulty(t, s)
	c := f.cloud(t, s)
	r := newRequest("once")
	ask := storage(t, c, r)
	f.answer("CreateAccessKey", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := c.IssueCredential(t.Context(), r, ask); err == nil {
		t.Fatal("issued")
	}
	n := 0
	for _, call := range f.calls {
		if call == "CreateAccessKey" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("CreateAccessKey was called %d times", n)
	}
}

// A store that has lifecycle rules and keys: what is asked of them is what is
// sent, and what others have set stays. The answers to these two are given here,
// since the store that the tests run has neither; all else is the store's.
func TestLifecycleAndKeys_C71(t *testing.T) {
	s := theStore(t)
	f := newFaulty(t, s)
	c := f.cloud(t, s)
	keep := func(call, absent string) *string {
		now := new(string)
		f.answer("GET "+call, func(w http.ResponseWriter, r *http.Request) {
			if *now == "" {
				errorXML(404, absent, "none")(w, r)
				return
			}
			_, _ = io.WriteString(w, *now)
		})
		f.answer("PUT "+call, func(_ http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			*now = string(raw)
		})
		f.answer("DELETE "+call, func(w http.ResponseWriter, _ *http.Request) { *now = ""; w.WriteHeader(http.StatusNoContent) })
		return now
	}
	lifecycle := keep("lifecycle", "NoSuchLifecycleConfiguration")
	encryption := keep("encryption", "ServerSideEncryptionConfigurationNotFoundError")
	r := newRequest("lifecycle")
	ask := bucketAsk(t, r)
	ensure := func() {
		t.Helper()
		must[v1alpha1.BucketAnswer, provider.Thing](t)(c.EnsureBucket(t.Context(), r, ask))
	}
	ensure()
	if *lifecycle != "" || *encryption != "" {
		t.Errorf("nothing asked: %s %s", *lifecycle, *encryption)
	}
	days := int64(30)
	ask.Versioning, ask.SoftDeleteDays, ask.NoncurrentVersionDays, ask.KMSKey = true, 7, &days, "keys/one"
	ensure()
	if !strings.Contains(*lifecycle, "<NoncurrentDays>30</NoncurrentDays>") || strings.Count(*lifecycle, "<Rule>") != 1 || !strings.Contains(*encryption, "<KMSMasterKeyID>keys/one</KMSMasterKeyID>") {
		t.Errorf("%s\n%s", *lifecycle, *encryption)
	}
	*lifecycle = strings.Replace(*lifecycle, "<Rule>", "<Rule><ID>theirs</ID><Status>Enabled</Status><Filter><Prefix>tmp/</Prefix></Filter><Expiration><Days>1</Days></Expiration></Rule><Rule>", 1)
	days = 60
	ensure()
	if !strings.Contains(*lifecycle, "<NoncurrentDays>60</NoncurrentDays>") || strings.Count(*lifecycle, "<Rule>") != 2 || !strings.Contains(*lifecycle, "theirs") {
		t.Errorf("%s", *lifecycle)
	}
	before := len(f.calls)
	ensure()
	for _, call := range f.calls[before:] {
		if strings.HasPrefix(call, "PUT") {
			t.Errorf("%s, though nothing changed", call)
		}
	}
	ask.NoncurrentVersionDays, ask.KMSKey = nil, ""
	ensure()
	if strings.Contains(*lifecycle, "Noncurrent") || !strings.Contains(*lifecycle, "theirs") || *encryption != "" {
		t.Errorf("%s\n%s", *lifecycle, *encryption)
	}
}

// A store that overlooks tags of a bucket that it makes gets them afterwards.
func TestTagsAfterwards_C148(t *testing.T) {
	s := theStore(t)
	f := newFaulty(t, s)
	c := f.cloud(t, s)
	r := newRequest("tags")
	ask := bucketAsk(t, r)
	f.answer("PUT", func(w http.ResponseWriter, _ *http.Request) { plant(t, s.S3(s.root), ask.Name, nil, r) })
	_, _, err := c.EnsureBucket(t.Context(), r, ask)
	if err != nil {
		t.Fatal(err)
	}
	if owns, err := c.OwnsBucket(t.Context(), r, ask.Name); !owns || err != nil {
		t.Errorf("%v, %v", owns, err)
	}
}
