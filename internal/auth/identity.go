package auth

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Method is how a caller proved who they are.
type Method string

// The methods.
const (
	MethodToken       Method = "token"       // reviewed by the cluster
	MethodOIDC        Method = "oidc"        // signed by a configured issuer
	MethodCertificate Method = "certificate" // a client certificate
	MethodFrontProxy  Method = "front-proxy" // said by a proxy that proved itself
)

// Identity is a caller who proved who they are.
type Identity struct {
	// Name is the user's name, as the cluster spells it; those of OIDC issuers
	// carry the issuer's prefix.
	Name   string
	UID    string
	Groups []string
	Method Method
	// extra is what the cluster added, handed back to it with a review.
	extra map[string][]string
}

const serviceAccountPrefix = "system:serviceaccount:"

// ServiceAccount returns namespace and name when the caller is a
// ServiceAccount of the cluster.
func (i Identity) ServiceAccount() (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(i.Name, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != ""
}

// Principal names the caller as an assignment would: what to ask a role for.
func (i Identity) Principal() Principal {
	if namespace, name, ok := i.ServiceAccount(); ok {
		return Principal{Kind: KindServiceAccount, Name: namespace + "/" + name}
	}
	return Principal{Kind: KindUser, Name: i.Name}
}

// Is reports whether the caller is a principal, or in it.
func (i Identity) Is(p Principal) bool { return slices.Contains(i.keys(), p.key()) }

// CreatedByType is the kind of caller in the words of ARM's systemData.
func (i Identity) CreatedByType() string {
	if _, _, ok := i.ServiceAccount(); ok {
		return "Application"
	}
	return "User"
}

func identityOf(u user.Info, m Method) Identity {
	return Identity{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Method: m, extra: u.GetExtra()}
}

// info is the identity in the words of k8s.io.
func (i Identity) info() user.Info {
	return &user.DefaultInfo{Name: i.Name, UID: i.UID, Groups: i.Groups, Extra: i.extra}
}
