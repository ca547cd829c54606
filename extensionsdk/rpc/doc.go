// Package rpc is the wire of extensions that run as a process of their own: the
// gRPC service of Bicep's local deploy.
package rpc

//go:generate env GOWORK=off go -C ../../tools/protogen run . ../../extensionsdk/rpc extension.proto
