// Package installation holds the manifests that make a cluster one of
// Radial's: kinds, admission policy, namespace, ServiceAccounts and grants. One
// file is one concern; none holds a workload, since where the processes run
// differs (developer mode starts them beside the cluster).
//
// The same files serve kubectl:
//
//	kubectl apply --server-side -f installation/
package installation

import "embed"

// Files are the manifests, at the root.
//
//go:embed *.yaml
var Files embed.FS

// What the manifests name.
const (
	// Namespace of Radial's own objects.
	Namespace = "radial-system"
	// ControllerAccount and ServerAccount are ServiceAccounts in Namespace.
	ControllerAccount = "radial-controller"
	ServerAccount     = "radial-server"
)
