// Package radapp holds the kinds of group radapp.io.
//
// The CustomResourceDefinition (installation/crd.yaml) serves them as v1alpha3,
// which is stored, and as v1, with one schema; Go programs use v1alpha3.
//
// +kubebuilder:object:generate=true
// +groupName=radapp.io
package radapp

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object paths=.

// GroupVersion is the group and the stored version.
var GroupVersion = schema.GroupVersion{Group: "radapp.io", Version: "v1alpha3"}

var builder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Recipe{}, &RecipeList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the kinds.
var AddToScheme = builder.AddToScheme
