package sigv4

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The example of the service's documentation, "GET object" with a range.
func TestSign(t *testing.T) {
	r, err := http.NewRequest(http.MethodGet, "https://examplebucket.s3.amazonaws.com/test.txt", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Range", "bytes=0-9")
	Sign(r, Key{Access: "AKIAIOSFODNN7EXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", Region: "us-east-1", Service: "s3"}, time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC))
	if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41") {
		t.Error(got)
	}
}

func TestVerify(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	secret := func(a string) (string, bool) { return "s3cret", a == "ACCESS" }
	sign := func(k Key) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "http://host.example/bucket/a%20b/c?list-type=2&prefix=x%2Fy", nil)
		Sign(r, k, now)
		return r
	}
	k := Key{"ACCESS", "s3cret", "auto", "s3"}
	if a, err := Verify(sign(k), now, secret); a != "ACCESS" || err != nil {
		t.Errorf("%q %v", a, err)
	}
	for _, c := range []struct {
		name   string
		key    Key
		change func(*http.Request)
		at     time.Time
		want   error
	}{
		{"secret", Key{"ACCESS", "other", "auto", "s3"}, nil, now, ErrSignature},
		{"access", Key{"OTHER", "s3cret", "auto", "s3"}, nil, now, ErrUnknown},
		{"path", k, func(r *http.Request) { r.URL.Path = "/other" }, now, ErrSignature},
		{"query", k, func(r *http.Request) { r.URL.RawQuery = "list-type=1" }, now, ErrSignature},
		{"host", k, func(r *http.Request) { r.Host = "other" }, now, ErrSignature},
		{"time", k, nil, now.Add(time.Hour), ErrSkewed},
		{"none", k, func(r *http.Request) { r.Header.Del("Authorization") }, now, ErrUnsigned},
		{"form", k, func(r *http.Request) { r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=x") }, now, ErrUnsigned},
	} {
		r := sign(c.key)
		if c.change != nil {
			c.change(r)
		}
		if _, err := Verify(r, c.at, secret); err != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
