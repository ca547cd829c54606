package azure_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/scope/armtest"
	"github.com/radial-project/radial/internal/scope/azure"
)

// entra issues tokens for the API servers of clusters by the scope that asks, and
// the fake ARM's for all else.
type entra struct {
	azcore.TokenCredential
	mu     sync.Mutex
	tokens map[string]string
	asked  []string
}

func (e *entra) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, o.Scopes...)
	a, err := e.TokenCredential.GetToken(ctx, o)
	if token := e.tokens[o.Scopes[0]]; token != "" {
		a.Token = token
	}
	return a, err
}

// A cluster without local accounts hands out a kubeconfig that signs in by a
// plug-in of Azure's: no program is run, the server signs in for it with its own
// identity.
func TestClusterWithoutLocalAccounts_S20(t *testing.T) {
	b := newBench(t)
	const server = "6dae42f8-4368-4678-94ff-3960e28e3630"
	id := armtest.ClusterID("Entra")
	aks := b.arm.AddCluster(t, id, clustertest.Start(t).Config)
	k, err := clientcmd.Load(aks.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	var token string
	handOut := func(command string, args ...string) {
		t.Helper()
		for name, u := range k.AuthInfos {
			if token == "" {
				token = u.Token
			}
			k.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1beta1", Command: command, Args: args, InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode}}
		}
		raw, err := clientcmd.Write(*k)
		if err != nil {
			t.Fatal(err)
		}
		aks.HandOut(raw)
	}
	handOut("kubelogin", "get-token", "--environment", "AzurePublicCloud", "--server-id", server, "--client-id", "80faf920-1908-4b52-b5ef-a8e7bedfc67a", "--login", "devicecode")
	signIn := &entra{TokenCredential: b.arm.Credential(), tokens: map[string]string{server + "/.default": token}}
	resolver := func() *scope.Resolver {
		return b.newResolver(func(o *azure.Options) { o.Credentials = azure.Fixed(signIn) })
	}
	s := b.scope(id)
	s.CredentialType = "User"
	target := b.resolve(t.Context(), resolver(), s)
	if _, err := target.Apply(t.Context(), configMap("entra", map[string]any{"k": "v"})); err != nil {
		t.Fatalf("S-20: %v", err)
	}
	if !exists(t, clustertest.Start(t).Config, b.namespace, "entra") {
		t.Error("S-20: the resource is not in the cluster")
	}
	if !slices.Contains(signIn.asked, server+"/.default") {
		t.Errorf("S-20: tokens were asked for %q", signIn.asked)
	}

	// Anything but that one way to sign in stays refused.
	for name, args := range map[string][]string{"no server": {"get-token"}, "no id": {"get-token", "--server-id", "https://elsewhere.example"}} {
		handOut("kubelogin", args...)
		_, err := resolver().Resolve(t.Context(), s, nil)
		wantError(t, err, core.CodeTarget, "kubelogin", id)
		if err != nil {
			b.clean("the error of "+name, err.Error())
		}
	}
	handOut("/bin/steal", "get-token", "--server-id", server)
	_, err = resolver().Resolve(t.Context(), s, nil)
	wantError(t, err, core.CodeTarget, "/bin/steal")

	// Asked for Admin, ARM says that there are no local accounts; the remedy is User.
	b.arm.Fail(armtest.Fault{Status: 400, Times: 1, Code: "BadRequest"})
	s.CredentialType = ""
	_, err = resolver().Resolve(t.Context(), s, nil)
	wantError(t, err, core.CodeTarget, "listClusterAdminCredential", "credentialType", "User")
}
