package front

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestCheck_D46_D48: what would leave the server open, or with nobody who could
// use it, ends the start under the flag's name.
func TestCheck_D46_D48(t *testing.T) {
	tests := map[string]struct {
		args      string
		developer bool
		cluster   bool
		says      string
	}{
		"D-48 plain on every address":       {"", false, true, "--tls-cert-file"},
		"D-48 plain on loopback":            {"", false, true, "--developer-mode"},
		"D-46 self-made, by the cluster":    {"--tls-self-made=secret:radial-system/tls", false, true, ""},
		"D-46 self-made in a directory":     {"--tls-self-made=/d", false, true, ""},
		"D-46 files":                        {"--tls-cert-file=c --tls-key-file=k", false, true, ""},
		"D-46 half of the files":            {"--tls-cert-file=c", false, true, "go together"},
		"D-46 both":                         {"--tls-cert-file=c --tls-key-file=k --tls-self-made=d", false, true, "two certificates"},
		"D-46 Secret without a name":        {"--tls-self-made=secret:tls", false, true, "NAMESPACE/NAME"},
		"D-46 Secret without a cluster":     {"--tls-self-made=secret:a/b --oidc-issuer=https://i --roots=user:a", false, false, "needs a cluster"},
		"D-46 nobody to ask":                {"--tls-self-made=d", false, false, "nobody could authenticate"},
		"D-46 nobody is root":               {"--tls-self-made=d --oidc-issuer=https://i", false, false, "nobody would be root"},
		"D-46 not by the cluster":           {"--tls-self-made=d --authenticate-by-cluster=false", false, true, "nobody could authenticate"},
		"D-46 OIDC alone":                   {"--tls-self-made=d --oidc-issuer=https://i --roots=group:oidc:ops", false, false, ""},
		"D-46 odd root":                     {"--tls-self-made=d --roots=alice", false, true, "user:NAME"},
		"D-46 odd account":                  {"--tls-self-made=d --roots=serviceAccount:alice", false, true, "NAMESPACE/NAME"},
		"D-46 a controller":                 {"--tls-self-made=d --controllers=local=serviceAccount:a/b,east=user:oidc:x", false, true, ""},
		"D-46 a controller of no cluster":   {"--tls-self-made=d --controllers=serviceAccount:a/b", false, true, "CLUSTER=PRINCIPAL"},
		"D-46 aggregated":                   {"--tls-self-made=secret:a/b --aggregate=radial-system/radial-server:443", false, true, ""},
		"D-46 aggregated without authority": {"--tls-cert-file=c --tls-key-file=k --aggregate=a/b:1", false, true, "--tls-self-made"},
		"D-46 odd Service":                  {"--tls-self-made=d --aggregate=b:1", false, true, "NAMESPACE/NAME"},
		"D-46 odd port":                     {"--tls-self-made=d --aggregate=a/b:x", false, true, "no port"},
		"D-46 every audience":               {"--tls-self-made=d --token-audiences=", false, true, "--token-audiences"},
		"D-48 developer mode":               {"", true, false, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var f Flags
			set := pflag.NewFlagSet("x", pflag.ContinueOnError)
			f.Add(set)
			if err := set.Parse(strings.Fields(tc.args)); err != nil {
				t.Fatal(err)
			}
			listen := "127.0.0.1:0"
			if strings.Contains(name, "every address") {
				listen = ":443"
			}
			err := f.Check(listen, tc.developer, tc.cluster)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
		})
	}
}

func TestIssuers_D46(t *testing.T) {
	path := filepath.Join(t.TempDir(), "issuers.yaml")
	read := func(content string) error {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f := Flags{IssuerFile: path}
		_, err := f.issuers()
		return err
	}
	for content, says := range map[string]string{
		"- {issuer: https://a, audience: x, prefix: 'a:'}\n- {issuer: https://b, audience: x, prefix: 'b:'}": "",
		"- {issuer: https://a, audience: x}\n- {issuer: https://b, audience: x}":                             "users of one would be users of the other",
		"- {issuer: https://a, audience: x, prefix: 'a:'}\n- {issuer: https://a, audience: y, prefix: 'b:'}": "twice",
		"- {issuer: https://a, audiences: x}":                                                                "unknown field",
		"issuer: https://a":                                                                                  "no list",
	} {
		err := read(content)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("D-46 %s: %v, want %q", content, err, says)
		}
	}
}
