// Package ankka holds the manifests of an installation with services,
// projects and a cloud provider, laid out for kustomize:
//
//	crd/                        the kinds
//	base/                       operator and control plane, and their grants
//	components/settings         copies ConfigMap ankka-platform to both
//	components/cloud-provider   all that a provider needs but its workload
//	overlays/default            an installation: platform-configmap.yaml says what it is
//
// The namespace and accounts of the control plane itself are those of package
// installation.
package ankka

import "embed"

// Files are the manifests.
//
//go:embed crd base components overlays
var Files embed.FS

// CRDs are the paths of the kinds' definitions in [Files]; OperatorGrant,
// ControlPlaneGrant and ProviderGrant those of the accounts' grants with their
// namespaces, in the order in which they apply.
var (
	CRDs              = []string{"crd/cloudresource.yaml", "crd/ankkaservice.yaml", "crd/ankkaproject.yaml"}
	OperatorGrant     = []string{"base/namespace.yaml", "base/operator-grant.yaml", "base/operator-policy.yaml"}
	ControlPlaneGrant = []string{"base/control-plane-grant.yaml"}
	ProviderGrant     = []string{"components/cloud-provider/namespace.yaml", "components/cloud-provider/grant.yaml", "components/cloud-provider/secrets-policy.yaml"}
)
