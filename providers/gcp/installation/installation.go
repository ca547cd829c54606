// Package installation holds the manifests of the provider of Google Cloud: its
// Deployment, and the annotation that binds its ServiceAccount.
package installation

import "embed"

// Files are the manifests, a component for kustomize.
//
//go:embed *.yaml
var Files embed.FS
