package scope_test

import (
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/fuzztest"
	"github.com/radial-project/radial/internal/scope"
)

// FuzzReadKubeconfig holds what a kubeconfig of somebody else may never make the
// server do, whatever its text is.
func FuzzReadKubeconfig(f *testing.F) {
	const whole = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"clusters":[{"name":"k","cluster":{"server":"https://h"}}],"users":[{"name":"u","user":{"token":"t"}}]}`
	f.Add([]byte(whole), "")
	f.Add([]byte(strings.Replace(whole, `"token":"t"`, `"token":"t","exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"/bin/x"}`, 1)), "c")
	f.Add([]byte(strings.Replace(whole, `"token":"t"`, `"token":"t","tokenFile":"/etc/passwd","client-certificate":"/x","client-key":"/y","auth-provider":{"name":"p"}`, 1)), "")
	f.Add([]byte(strings.Replace(whole, `"server":"https://h"`, `"server":"http://h","certificate-authority":"/z","proxy-url":"socks5://p"`, 1)), "d")
	f.Add([]byte("YXBpVmVyc2lvbjogdjEK"), "")
	f.Add([]byte("apiVersion: v1\nkind: Config\nusers: &a [*a]\n"), "")
	f.Fuzz(func(t *testing.T, text []byte, context string) {
		fuzztest.Bounded(t, len(text), func() {
			c, err := scope.ReadKubeconfig(text, context)
			if err != nil {
				return
			}
			if c.ExecProvider != nil || c.AuthProvider != nil {
				t.Error("a plug-in got through")
			}
			if c.BearerTokenFile+c.CAFile+c.CertFile+c.KeyFile != "" {
				t.Error("a file got through")
			}
			if c.Proxy != nil || !strings.HasPrefix(strings.ToLower(c.Host), "https://") {
				t.Errorf("the way to %q got through", c.Host)
			}
		})
	})
}
