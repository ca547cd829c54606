package azure

import (
	"context"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/radial-project/radial/internal/conceal"
	"github.com/radial-project/radial/internal/core"
)

// kubelogin is the plug-in by which the kubeconfigs of clusters with Entra ID sign
// in. It asks Entra ID for a token of the cluster's API servers, which are one
// application there, named by --server-id.
const kubelogin = "kubelogin"

var applicationID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// serverID is the application that a user signs in to by kubelogin, "" for one
// that signs in by other means.
func serverID(u *clientcmdapi.AuthInfo) string {
	if u == nil || u.Exec == nil || u.Exec.Command != kubelogin {
		return ""
	}
	for i, arg := range u.Exec.Args {
		id, ok := strings.CutPrefix(arg, "--server-id=")
		if arg == "--server-id" && i+1 < len(u.Exec.Args) {
			id, ok = u.Exec.Args[i+1], true
		}
		if ok && applicationID.MatchString(id) {
			return id
		}
	}
	return ""
}

// signIn puts a token in the place of kubelogin, where a kubeconfig that ARM has
// answered signs in by it: what that program would do, done without running it, as
// who the calls of ARM are made by. Any other is returned as it is.
func signIn(ctx context.Context, as As, kubeconfig []byte, text string) ([]byte, error) {
	k, err := clientcmd.Load(kubeconfig)
	if err != nil || k.Contexts[k.CurrentContext] == nil {
		return kubeconfig, nil // whoever reads it says what is wrong with it
	}
	user := k.Contexts[k.CurrentContext].AuthInfo
	id := serverID(k.AuthInfos[user])
	if id == "" {
		return kubeconfig, nil
	}
	token, err := as.Credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{id + "/.default"}})
	if err != nil {
		return nil, core.Errorf(core.CodeTarget, "the cluster %s has its users sign in with Entra ID, and no token was issued for that: %s: see the server's identity and its tenant", text, firstLines(err)).WithTarget(text)
	}
	conceal.Add(ctx, token.Token)
	k.AuthInfos = map[string]*clientcmdapi.AuthInfo{user: {Token: token.Token}}
	out, err := clientcmd.Write(*k)
	if err != nil {
		return nil, core.Errorf(core.CodeTarget, "the credentials of %s cannot be used: their kubeconfig cannot be written", text).WithTarget(text)
	}
	return out, nil
}
