// Package v1alpha1 holds the kinds of group ankka.thinkmorestupidless.com and
// the pure part of the contract between the operator, which asks, and a cloud
// provider, which answers: names, the closed parameter sets of the six kinds,
// how values are written as text, and the texts that are fixed.
//
// It depends on apimachinery alone, so that a provider or an operator written
// elsewhere can be built on it. Nothing here speaks a cloud's words (C-9).
// docs/cloud/protocol.md is the reference in prose.
//
// +kubebuilder:object:generate=true
// +groupName=ankka.thinkmorestupidless.com
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object paths=.

// Group of the kinds.
const Group = "ankka.thinkmorestupidless.com"

// GroupVersion is the group and its one version.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// Kinds of owners of a request, besides the workloads of C-143.
const (
	CloudResourceKind = "CloudResource"
	AnkkaServiceKind  = "AnkkaService"
	AnkkaProjectKind  = "AnkkaProject"
)

// SchemeBuilder registers the kinds.
var SchemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&CloudResource{}, &CloudResourceList{},
		&AnkkaService{}, &AnkkaServiceList{},
		&AnkkaProject{}, &AnkkaProjectList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the kinds.
var AddToScheme = SchemeBuilder.AddToScheme
