// Package sigv4 signs requests by AWS' signature version 4, which Cloud
// Storage's S3 API takes with HMAC keys, and verifies them.
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Key is what a request is signed with, and for where.
type Key struct{ Access, Secret, Region, Service string }

const (
	algorithm = "AWS4-HMAC-SHA256"
	stamp     = "20060102T150405Z"
	// Skew is how far a signature's time may be from the verifier's.
	Skew = 15 * time.Minute
	// empty is the hash of no body.
	empty      = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	headerDate = "X-Amz-Date"
	headerHash = "X-Amz-Content-Sha256"
)

// Sign signs a request. The body is the hash in X-Amz-Content-Sha256, or none.
func Sign(r *http.Request, k Key, at time.Time) {
	r.Header.Set(headerDate, at.UTC().Format(stamp))
	if r.Header.Get(headerHash) == "" {
		r.Header.Set(headerHash, empty)
	}
	var signed []string
	for name := range r.Header {
		if name = strings.ToLower(name); name == "range" || strings.HasPrefix(name, "x-amz-") {
			signed = append(signed, name)
		}
	}
	signed = append(signed, "host")
	slices.Sort(signed)
	scope := at.UTC().Format("20060102") + "/" + k.Region + "/" + k.Service + "/aws4_request"
	r.Header.Set("Authorization", algorithm+" Credential="+k.Access+"/"+scope+",SignedHeaders="+strings.Join(signed, ";")+
		",Signature="+signature(r, k.Secret, scope, r.Header.Get(headerDate), signed))
}

// The errors of Verify.
var (
	ErrUnsigned  = errors.New("the request has no signature of version 4")
	ErrUnknown   = errors.New("the access key is not known")
	ErrSkewed    = errors.New("the request's time is too far away")
	ErrSignature = errors.New("the signature does not match")
)

// Verify answers by which access key a request is signed, if it rightly is.
// secret answers the secret of one.
func Verify(r *http.Request, now time.Time, secret func(access string) (string, bool)) (string, error) {
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), algorithm+" ")
	if !ok {
		return "", ErrUnsigned
	}
	parts := map[string]string{}
	for _, p := range strings.Split(rest, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		parts[k] = v
	}
	access, scope, ok := strings.Cut(parts["Credential"], "/")
	at, err := time.Parse(stamp, r.Header.Get(headerDate))
	signed := strings.Split(parts["SignedHeaders"], ";")
	if !ok || err != nil || !slices.Contains(signed, "host") || strings.Count(scope, "/") != 3 || !strings.HasPrefix(scope, at.Format("20060102")+"/") {
		return "", ErrUnsigned
	}
	key, ok := secret(access)
	switch {
	case !ok:
		return "", ErrUnknown
	case now.Sub(at).Abs() > Skew:
		return "", ErrSkewed
	case !hmac.Equal([]byte(signature(r, key, scope, r.Header.Get(headerDate), signed)), []byte(parts["Signature"])):
		return "", ErrSignature
	}
	return access, nil
}

func signature(r *http.Request, secret, scope, date string, signed []string) string {
	var headers strings.Builder
	for _, name := range signed {
		value := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			if value = r.Host; value == "" {
				value = r.URL.Host
			}
		}
		headers.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	path := escape(r.URL.Path, true)
	if path == "" {
		path = "/"
	}
	canonical := strings.Join([]string{r.Method, path, query(r.URL), headers.String(), strings.Join(signed, ";"), r.Header.Get(headerHash)}, "\n")
	text := strings.Join([]string{algorithm, date, scope, digest(canonical)}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range strings.Split(scope, "/") {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, text))
}

func query(u *url.URL) string {
	var out []string
	for k, values := range u.Query() {
		for _, v := range values {
			out = append(out, escape(k, false)+"="+escape(v, false))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "&")
}

func escape(s string, slash bool) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~", c) >= 0 || slash && c == '/' {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}
