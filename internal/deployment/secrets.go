package deployment

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/template"
)

// put seals a value under a name among a row's secrets.
func (s *Service) put(r *core.Resource, name string, v any) error {
	sealed, err := s.o.Sealer.Seal(r.ID, seal.SecretPath(name), v)
	if err != nil {
		return err
	}
	if r.Secrets == nil {
		r.Secrets = map[string]json.RawMessage{}
	}
	r.Secrets[name] = sealed
	return nil
}

// open reads what put sealed into v; false when there is none.
func (s *Service) open(r core.Resource, name string, v any) (bool, error) {
	raw, ok := r.Secrets[name]
	if !ok {
		return false, nil
	}
	plain, err := s.o.Sealer.Open(r.ID, seal.SecretPath(name), raw)
	if err != nil {
		return true, err
	}
	text, err := json.Marshal(plain)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return true, core.Errorf(core.CodeInternal, "what deployment %s keeps sealed cannot be read", r.ID)
	}
	return true, nil
}

// maxTemplate bounds a template, in bytes.
const maxTemplate = 4 << 20

// putTemplate seals a template, compressed: templates say much more than once.
func (s *Service) putTemplate(r *core.Resource, text []byte) error {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return s.put(r, secretTemplate, base64.StdEncoding.EncodeToString(b.Bytes()))
}

func (s *Service) template(r core.Resource) ([]byte, error) {
	var packed string
	found, err := s.open(r, secretTemplate, &packed)
	if err != nil {
		return nil, err
	}
	lost := core.Errorf(core.CodeInternal, "the template of deployment %s is not kept any more", r.ID)
	if !found {
		return nil, lost
	}
	raw, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return nil, lost
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, lost
	}
	text, err := io.ReadAll(io.LimitReader(z, maxTemplate+1))
	if err != nil {
		return nil, lost
	}
	return text, nil
}

// templateHash names a template whatever the order of its members and its space.
func templateHash(text []byte) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) == nil {
		if canonical, err := json.Marshal(v); err == nil {
			text = canonical
		}
	}
	sum := sha256.Sum256(text)
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8]), 10)
}

// isKubeConfig reports whether a text is, or holds in base64, the configuration
// of a Kubernetes client. It is a guess for texts that nobody named so, and on the
// safe side.
func isKubeConfig(text string) bool {
	if len(text) < 40 {
		return false
	}
	if strings.Contains(text, "clusters") && strings.Contains(text, "users") && strings.Contains(text, "contexts") {
		return true
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	return err == nil && bytes.Contains(plain, []byte("clusters")) && bytes.Contains(plain, []byte("users")) && bytes.Contains(plain, []byte("contexts"))
}

// isKubeConfigObject reports whether an object is such a configuration, read
// already.
func isKubeConfigObject(m map[string]any) bool {
	found := 0
	for name := range m {
		switch strings.ToLower(name) {
		case "clusters", "users", "contexts":
			found++
		}
	}
	return found == 3
}

// findKubeConfig returns the path of what is a kubeConfig, "" for none.
func findKubeConfig(path string, v any) string {
	switch v := v.(type) {
	case string:
		if isKubeConfig(v) {
			return path
		}
	case map[string]any:
		if isKubeConfigObject(v) {
			return path
		}
		for k, e := range v {
			if at := findKubeConfig(path+"."+k, e); at != "" {
				return at
			}
		}
	case []any:
		for i, e := range v {
			if at := findKubeConfig(path+"["+strconv.Itoa(i)+"]", e); at != "" {
				return at
			}
		}
	}
	return ""
}

// asksKubeConfig reports whether a template, or one nested in it, has a
// configuration with a kubeConfig that is not empty, in any spelling.
func asksKubeConfig(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if strings.EqualFold(k, "kubeConfig") {
				if text, ok := e.(string); !ok && e != nil || text != "" {
					return true
				}
			}
			if asksKubeConfig(e) {
				return true
			}
		}
	case []any:
		for _, e := range v {
			if asksKubeConfig(e) {
				return true
			}
		}
	case string:
		return strings.EqualFold(v, template.ScopeUserOwned)
	}
	return false
}

// markOf is equal for requests that are the same but for their kubeConfigs. It
// tells nothing of what it is made of to who has not the seed.
func markOf(seed []byte, hash string, in inputs) string {
	mac := hmac.New(sha256.New, seed)
	write := func(v any) {
		raw, err := json.Marshal(blank(v))
		if err != nil {
			raw = []byte("?")
		}
		mac.Write(raw)
		mac.Write([]byte{0})
	}
	mac.Write([]byte(hash))
	write(in.Parameters)
	configs := map[string]any{}
	for alias, c := range in.ExtensionConfigs {
		configs[alias] = c
	}
	write(configs)
	write(in.ExternalInputs)
	return hex.EncodeToString(mac.Sum(nil))
}

// blank copies a value without its kubeConfigs.
func blank(v any) any {
	switch v := v.(type) {
	case string:
		if isKubeConfig(v) {
			return "kubeConfig"
		}
	case map[string]any:
		if isKubeConfigObject(v) {
			return "kubeConfig"
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = blank(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = blank(e)
		}
		return out
	}
	return v
}

// secureKey is that of the secure inputs among the values of a context.
type secureKey struct{}

// concealInputs registers the secret ones among inputs with the run of ctx. The
// context that it returns knows the values of secure parameters by themselves.
func concealInputs(ctx context.Context, t *template.Template, in inputs) context.Context {
	secure := new(conceal.Values)
	for _, p := range t.Parameters() {
		if !p.Secure {
			continue
		}
		for name, v := range in.Parameters {
			if strings.EqualFold(name, p.Name) {
				conceal.Add(ctx, v)
				secure.Add(v)
			}
		}
	}
	for _, entries := range in.ExtensionConfigs {
		for name, v := range entries {
			if strings.EqualFold(name, "kubeConfig") {
				conceal.Add(ctx, v)
				secure.Add(v)
			}
		}
	}
	return context.WithValue(ctx, secureKey{}, secure)
}

// holdsSecure reports whether the value of a secure parameter of the run stands in
// a value: a template may pass it on to where nobody said that it is one.
func holdsSecure(ctx context.Context, v any) bool {
	secure, ok := ctx.Value(secureKey{}).(*conceal.Values)
	if !ok || v == nil {
		return false
	}
	raw, err := json.Marshal(v)
	return err != nil || secure.Text(string(raw)) != string(raw)
}
