package core

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// LocalCluster is the name of a controller's cluster unless it is set.
const LocalCluster = "local"

// maxGroupName is the longest name of a resource group, in bytes.
const maxGroupName = 63

// ImplicitGroup names the resource group of an application adopted from a
// cluster (K-5): <environment>-<application>, outside cluster "local"
// <cluster>-<environment>-<application>. Where a part holds "-", or the name
// passes 63 bytes, it is cut and ends in eight hex digits of SHA-256 over the
// parts, so that no two combinations share a group.
func ImplicitGroup(cluster, environment, application string) string {
	cluster, environment, application = strings.ToLower(cluster), strings.ToLower(environment), strings.ToLower(application)
	parts := []string{environment, application}
	if cluster != "" && cluster != LocalCluster {
		parts = append([]string{cluster}, parts...)
	}
	name := strings.Join(parts, "-")
	ambiguous := len(name) > maxGroupName
	for _, p := range parts {
		ambiguous = ambiguous || strings.Contains(p, "-")
	}
	if !ambiguous {
		return name
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	suffix := "-" + hex.EncodeToString(sum[:4])
	if cut := maxGroupName - len(suffix); len(name) > cut {
		name = strings.TrimRight(name[:cut], "-")
	}
	return name + suffix
}
