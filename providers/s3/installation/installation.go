// Package installation holds what is applied to install the provider, and the
// rights that its own user needs in the object store.
package installation

import "embed"

// Files are the manifests.
//
//go:embed *.yaml policy.json
var Files embed.FS

// Policy is the IAM policy of the provider's own user, with INSTALLATION and
// PREFIX to be put in.
//
//go:embed policy.json
var Policy string
