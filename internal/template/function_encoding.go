package template

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"net/url"
	"strconv"
	"strings"
)

func encodingFunctions() []function {
	return []function{
		{name: "base64", min: 1, max: 1, eval: func(e *evaluator, args []any) (any, error) {
			s, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			return base64.StdEncoding.EncodeToString([]byte(s)), e.charge(2 * len(s))
		}},
		{name: "base64ToString", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) { return unbase64(args) }},
		{name: "base64ToJson", min: 1, max: 1, eval: func(e *evaluator, args []any) (any, error) {
			s, err := unbase64(args)
			if err != nil {
				return nil, err
			}
			return fromJSON(e, s)
		}},
		{name: "json", min: 1, max: 1, eval: func(e *evaluator, args []any) (any, error) {
			s, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			return fromJSON(e, s)
		}},
		{name: "uniqueString", min: 1, max: -1, eval: func(_ *evaluator, args []any) (any, error) {
			s, err := hashed(args)
			return uniqueString(s), err
		}},
		{name: "guid", min: 1, max: -1, eval: func(_ *evaluator, args []any) (any, error) {
			s, err := hashed(args)
			return nameGUID(s), err
		}},
		{name: "uriComponent", min: 1, max: 1, eval: onString(escapeURI)},
		{name: "uriComponentToString", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			s, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			v, err := url.PathUnescape(s)
			if err != nil {
				return nil, failf("the text is not percent-encoded")
			}
			return v, nil
		}},
		{name: "uri", min: 2, max: 2, eval: func(_ *evaluator, args []any) (any, error) {
			base, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			relative, err := argString(args, 1)
			if err != nil {
				return nil, err
			}
			b, err := url.Parse(base)
			if err != nil || !b.IsAbs() {
				return nil, failf("argument 1 is not an absolute URI")
			}
			r, err := url.Parse(relative)
			if err != nil {
				return nil, failf("argument 2 is not a URI")
			}
			if b.Path == "" {
				b.Path = "/"
			}
			return b.ResolveReference(r).String(), nil
		}},
		{name: "parseUri", min: 1, max: 1, eval: parseURI},
		{name: "buildUri", min: 1, max: 1, eval: buildURI},
		{name: "dataUri", min: 1, max: 1, eval: func(e *evaluator, args []any) (any, error) {
			s := toText(args[0])
			return "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(s)), e.charge(2 * len(s))
		}},
		{name: "dataUriToString", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			s, err := argString(args, 0)
			if err != nil {
				return nil, err
			}
			head, data, ok := strings.Cut(s, ",")
			if !ok || !foldPrefix(head, "data:") {
				return nil, failf("the text is not a data URI")
			}
			if foldSuffix(head, ";base64") {
				return unbase64([]any{data})
			}
			v, err := url.PathUnescape(data)
			if err != nil {
				return nil, failf("the text is not a data URI")
			}
			return v, nil
		}},
	}
}

func unbase64(args []any) (string, error) {
	s, err := argString(args, 0)
	if err != nil {
		return "", err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return "", failf("the text is not base64")
	}
	return string(b), nil
}

func fromJSON(e *evaluator, s string) (any, error) {
	if err := e.charge(4 * len(s)); err != nil {
		return nil, err
	}
	n, err := parseJSON(s, e.p.t.limits)
	if err != nil {
		return nil, failf("the text is not JSON")
	}
	return n.raw(), nil
}

// escapeURI escapes everything but letters, digits and - . _ ~.
func escapeURI(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := range len(s) {
		if c := s[i]; isUnreserved(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		}
	}
	return b.String()
}

const upperHex = "0123456789ABCDEF"

// isUnreserved reports whether a byte stands for itself in a URI.
func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// unescapeURI undoes escapeURI.
func unescapeURI(s string) (string, bool) {
	v, err := url.PathUnescape(s)
	return v, err == nil
}

// parseURI answers the parts of a URI.
func parseURI(_ *evaluator, args []any) (any, error) {
	s, err := argString(args, 0)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(s)
	if err != nil || !u.IsAbs() || u.Host == "" {
		return nil, failf("the text is not an absolute URI")
	}
	o := NewObject()
	o.Set("scheme", strings.ToLower(u.Scheme))
	o.Set("host", strings.ToLower(u.Hostname()))
	port := map[string]int64{"http": 80, "https": 443, "ftp": 21, "ws": 80, "wss": 443}[strings.ToLower(u.Scheme)]
	if u.Port() != "" {
		if port, err = strconv.ParseInt(u.Port(), 10, 64); err != nil || port > 65535 {
			return nil, failf("the port of the URI is not a number up to 65535")
		}
	}
	if port != 0 {
		o.Set("port", port)
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	o.Set("path", path)
	query := ""
	if u.RawQuery != "" {
		query = "?" + u.RawQuery
	}
	o.Set("query", query)
	return o, nil
}

// buildURI joins what parseURI answers; a port that the scheme implies is left
// out.
func buildURI(_ *evaluator, args []any) (any, error) {
	o, err := argObject(args, 0)
	if err != nil {
		return nil, err
	}
	text := map[string]string{}
	for _, k := range []string{"scheme", "host", "path", "query"} {
		v, ok := o.Get(k)
		if !ok || v == nil {
			continue
		}
		s, ok := v.(string)
		if !ok {
			return nil, failf("the part %q must be a string, it is of type %s", k, typeName(v))
		}
		text[k] = s
	}
	if text["scheme"] == "" || text["host"] == "" {
		return nil, failf("a URI has a scheme and a host")
	}
	host := text["host"]
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	if v, ok := o.Get("port"); ok && v != nil {
		port, ok := v.(int64)
		if !ok || port < -1 || port > 65535 {
			return nil, failf("the port must be an int up to 65535")
		}
		implied := map[string]int64{"http": 80, "https": 443, "ftp": 21, "ws": 80, "wss": 443}[strings.ToLower(text["scheme"])]
		if port > 0 && port != implied {
			host += ":" + strconv.FormatInt(port, 10)
		}
	}
	path := text["path"]
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	query := text["query"]
	if query != "" && !strings.HasPrefix(query, "?") {
		query = "?" + query
	}
	return strings.ToLower(text["scheme"]) + "://" + host + path + query, nil
}

// hashed is the text that uniqueString and guid hash: the arguments joined.
func hashed(args []any) (string, error) {
	parts := make([]string, len(args))
	for i := range args {
		s, err := argString(args, i)
		if err != nil {
			return "", err
		}
		parts[i] = s
	}
	return strings.Join(parts, "-"), nil
}

// guidNamespace is the namespace of the language's guid(), a UUID of version 5.
var guidNamespace = [16]byte{0x11, 0xfb, 0x06, 0xfb, 0x71, 0x2d, 0x4d, 0xdd, 0x98, 0xc7, 0xe7, 0x1b, 0xbd, 0x58, 0x88, 0x30}

func nameGUID(s string) string {
	h := sha1.New()
	h.Write(guidNamespace[:])
	h.Write([]byte(s))
	u := h.Sum(nil)[:16]
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	x := hex.EncodeToString(u)
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

// uniqueString writes a 64-bit hash as thirteen characters of five bits.
func uniqueString(s string) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	h := hash64([]byte(s))
	var out [13]byte
	for i := range out {
		out[i] = alphabet[h>>59]
		h <<= 5
	}
	return string(out[:])
}

// hash64 is the two-lane hash behind uniqueString: 32-bit lanes over blocks of
// eight bytes, mixed as Murmur 3 does.
func hash64(b []byte) uint64 {
	const m1, m2 uint32 = 597399067, 2869860233
	var h1, h2 uint32
	n := uint32(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h1 ^= bits.RotateLeft32(binary.LittleEndian.Uint32(b)*m1, 15) * m2
		h1 = (bits.RotateLeft32(h1, 19)+h2)*5 + 1444728091
		h2 ^= bits.RotateLeft32(binary.LittleEndian.Uint32(b[4:])*m2, 17) * m1
		h2 = (bits.RotateLeft32(h2, 13)+h1)*5 + 197830471
	}
	if len(b) > 0 {
		var tail [8]byte
		copy(tail[:], b)
		h1 ^= bits.RotateLeft32(binary.LittleEndian.Uint32(tail[:])*m1, 15) * m2
		if len(b) > 4 {
			h2 ^= bits.RotateLeft32(binary.LittleEndian.Uint32(tail[4:])*m2, 17) * m1
		}
	}
	h1 ^= n
	h2 ^= n
	h1 += h2
	h2 += h1
	h1, h2 = finish(h1), finish(h2)
	h1 += h2
	h2 += h1
	return uint64(h2)<<32 | uint64(h1)
}

func finish(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}
