// Package compat holds the tests that play what clients of the peer, the
// Radius control plane, send and expect: its recorded pairs of requests and
// answers, its manifests, its command line, and the pollers of the Azure SDK.
//
// Nothing of the peer lies in this repository. Its files are read from
// checkouts that variables name, and a test skips where its variable is unset:
//
//	RADIUS_CHECKOUT   a checkout of the control plane's repository
//	CONTRIB_CHECKOUT  a checkout of the repository of contributed types
//	RADIUS_CLI        a built rad program
//	RADIUS_COMPILED   a directory of checkouts (radius, recipes, samples,
//	                  resource-types-contrib) whose Bicep is compiled
//
// What we answer differently, and why, is testdata/differences.yaml, for compiled
// Bicep testdata/compiled.yaml, and docs/compatibility.md. A difference that is not listed fails the test, and so
// does a listed one that no longer occurs.
package compat
