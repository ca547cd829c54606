package radapp

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Recipe asks for a resource of a type, provisioned by the recipe that the
// environment registered for it.
//
// +kubebuilder:object:root=true
type Recipe struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RecipeSpec   `json:"spec"`
	Status RecipeStatus `json:"status,omitempty"`
}

// RecipeSpec is what is asked for.
type RecipeSpec struct {
	// Type of the resource as Namespace/type, such as
	// Applications.Datastores/redisCaches.
	Type string `json:"type"`
	// SecretName is the Secret, in the Recipe's namespace, that gets values and
	// secrets under their property names. Absent: none.
	SecretName string `json:"secretName,omitempty"`
	// Application is a name or a resource id. Absent: the namespace's name.
	Application string `json:"application,omitempty"`
	// Environment is a name, of an environment in group default, or a resource
	// id. Absent: "default".
	Environment string `json:"environment,omitempty"`
	// Recipe is the name of the registered recipe. Absent: "default".
	Recipe string `json:"recipe,omitempty"`
	// Parameters is a JSON object. A member that the type's schema declares
	// becomes that property of the resource, any other a parameter of the
	// recipe.
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// AllowedNamespaces may connect to this Recipe besides its own; "*" is all.
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`
}

// RecipeStatus is what is. Losing it loses nothing: ids are deterministic.
type RecipeStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, and while they are true Reconciling and Stalled.
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Environment, Application and Scope (the resource group) as resolved ids.
	Environment string `json:"environment,omitempty"`
	Application string `json:"application,omitempty"`
	Scope       string `json:"scope,omitempty"`
	// Resource is the id of the paired resource. It is set before the first
	// PUT: only condition Ready says that the resource is there.
	Resource string `json:"resource,omitempty"`
	// Operation is the asynchronous operation in flight.
	Operation *Operation `json:"operation,omitempty"`
	// Pairing is what the controller remembers of the resource.
	Pairing *Pairing `json:"pairing,omitempty"`
	// Secret is the Secret that was written last.
	Secret *SecretStatus `json:"secret,omitempty"`
}

// Operation is an asynchronous operation of the control plane.
type Operation struct {
	ResumeToken string `json:"resumeToken"`
	// OperationKind is PUT or DELETE.
	OperationKind string      `json:"operationKind"`
	Hash          string      `json:"hash,omitempty"`
	Target        string      `json:"target,omitempty"`
	Started       metav1.Time `json:"started,omitempty"`
}

// Pairing compares the wanted resource with the live one.
type Pairing struct {
	// Requested is the id as asked for; Resource is the server's spelling.
	Requested   string   `json:"requested,omitempty"`
	APIVersion  string   `json:"apiVersion,omitempty"`
	Previous    []Former `json:"previous,omitempty"`
	AppliedHash string   `json:"appliedHash,omitempty"`
	LiveHash    string   `json:"liveHash,omitempty"`
	Failure     *Failure `json:"failure,omitempty"`
}

// Former is a resource that a Recipe stood for before, still to be deleted.
type Former struct {
	ID         string `json:"id"`
	APIVersion string `json:"apiVersion,omitempty"`
}

// Failure is the last failed attempt.
type Failure struct {
	Hash    string      `json:"hash,omitempty"`
	RetryOn string      `json:"retryOn,omitempty"`
	Code    string      `json:"code"`
	Message string      `json:"message"`
	Count   int         `json:"count"`
	RetryAt metav1.Time `json:"retryAt"`
}

// SecretStatus names what was written; never what it holds.
type SecretStatus struct {
	Name string   `json:"name"`
	Keys []string `json:"keys,omitempty"`
}

// Condition types. Reconciling and Stalled are there only while true.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
)

// Reasons of condition Ready.
const (
	ReasonReady                = "Ready"
	ReasonProvisioning         = "Provisioning"
	ReasonDeleting             = "Deleting"
	ReasonDeletionFailed       = "DeletionFailed"
	ReasonInvalidSpec          = "InvalidSpec"
	ReasonTypeNotFound         = "ResourceTypeNotFound"
	ReasonEnvironmentNotFound  = "EnvironmentNotFound"
	ReasonEnvironmentAmbiguous = "EnvironmentAmbiguous"
	ReasonEnvironmentRefused   = "EnvironmentRefused"
	ReasonRecipeNotFound       = "RecipeNotFound"
	ReasonProvisioningFailed   = "ProvisioningFailed"
	ReasonNameConflict         = "NameConflict"
	ReasonSecretConflict       = "SecretConflict"
	ReasonSecretFailed         = "SecretFailed"
	ReasonServerUnavailable    = "ServerUnavailable"
)

// RecipeFinalizer keeps a Recipe until the control plane has deleted its
// resource.
const RecipeFinalizer = "radapp.io/recipe-finalizer"

// RecipeList is a list of Recipes.
//
// +kubebuilder:object:root=true
type RecipeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Recipe `json:"items"`
}
