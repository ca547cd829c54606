package conceal

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"pgregory.net/rapid"
)

func TestText_D24(t *testing.T) {
	const secret = "p@ss \"word\"\\\n<&>/é+canary"
	for name, tc := range map[string]struct {
		values     any
		text, want string
	}{
		"plain":             {"hunter2", "login with hunter2 failed", "login with [secret] failed"},
		"within":            {"hunter2", "redis://:hunter2@db", "redis://:[secret]@db"},
		"quoted":            {secret, fmt.Sprintf("Invalid value: %q: no", secret), `Invalid value: "[secret]": no`},
		"base64":            {secret, "data: " + base64.StdEncoding.EncodeToString([]byte(secret)), "data: [secret]"},
		"in a URL":          {secret, "GET /x?p=" + url.QueryEscape(secret), "GET /x?p=[secret]"},
		"password of a URL": {"redis://u:s3cr3t@db:6379/0", "auth s3cr3t refused by db:6379", "auth [secret] refused by db:6379"},
		"nested":            {map[string]any{"a": []any{map[string]any{"b": "hunter2"}}}, "hunter2", "[secret]"},
		"a number":          {json.Number("123456"), "port 123456", "port [secret]"},
		"short":             {"ab", `cannot be "ab" about`, `cannot be "[secret]" about`},
		"cut at the end":    {"abcdefghijklmnopqrstuvwxyz", "found near abcdefghijklmnop...", "found near [secret]..."},
		"cut at the start":  {"abcdefghijklmnopqrstuvwxyz", "...klmnopqrstuvwxyz here", "...[secret] here"},
		"a line of a key":   {"-----BEGIN KEY-----\nMIIEvQIBADANBgkqhk\n-----END KEY-----\n", "bad line MIIEvQIBADANBgkqhk", "bad line [secret]"},
		"one in another":    {[]any{"canary", "canary-long"}, "canary-long canary", "[secret] [secret]"},
		"nothing":           {nil, "fine", "fine"},
		"empty":             {"", "fine", "fine"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, values := With(context.Background())
			Add(ctx, tc.values)
			if got := values.Text(tc.text); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	Add(context.Background(), "outside a run") // no effect, no panic
}

func TestError_D24(t *testing.T) {
	var s Values
	s.Add("hunter2")
	plain := core.Errorf(core.CodeConflict, "no secret: %w", context.Canceled)
	if got := s.Error(plain); got != error(plain) || !errors.Is(got, context.Canceled) {
		t.Errorf("an error without secrets was changed: %v", got)
	}
	e := core.Errorf(core.CodeRecipeDeployment, "bad hunter2").WithTarget("x.hunter2").WithDetails(core.Error{Code: "A", Message: "also hunter2",
		Info: []core.ErrorInfo{{Type: "t", Info: map[string]any{"v": "hunter2"}}}})
	got := s.Error(fmt.Errorf("around hunter2: %w", e))
	raw, err := json.Marshal(got)
	if err != nil || strings.Contains(string(raw), "hunter2") || strings.Contains(got.Error(), "hunter2") || core.CodeOf(got) != core.CodeRecipeDeployment {
		t.Errorf("%s, %v", raw, err)
	}
	if n := strings.Count(string(raw), Mark); n != 5 {
		t.Errorf("%d marks: %s", n, raw)
	}
}

func TestAnySpelling_D24(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringN(short, 40, -1).Filter(func(s string) bool { return strings.TrimSpace(s) != "" && !strings.Contains(Mark, s) }).Draw(t, "secret")
		raw, err := json.Marshal(secret)
		if err != nil {
			t.Skip()
		}
		if len(secret) < short {
			t.Skip()
		}
		var s Values
		s.Add(map[string]any{"x": secret})
		for _, text := range []string{secret, strings.Trim(string(raw), `"`), url.PathEscape(secret), base64.URLEncoding.EncodeToString([]byte(secret))} {
			got := s.Text("before " + text + " after")
			if rest := strings.ReplaceAll(got, Mark, ""); strings.Contains(rest, text) {
				t.Fatalf("%q shows in %q", text, got)
			}
		}
	})
}
