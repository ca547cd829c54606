package container

import (
	"encoding/json"
	"maps"
	"slices"
)

// The shapes of the 2023-10-01-preview API, as far as they are rendered.

type properties struct {
	Connections   map[string]connectionTo `json:"connections"`
	Container     *container              `json:"container"`
	Extensions    []extensionOf           `json:"extensions"`
	Identity      *identityAsked          `json:"identity"`
	Resources     []struct{ ID string }   `json:"resources"`
	RestartPolicy string                  `json:"restartPolicy"`
	Recipe        map[string]any          `json:"recipe"`
	Runtimes      struct {
		Kubernetes struct {
			// Base are manifests that the rendered ones are laid over, in YAML.
			Base string `json:"base"`
			// Pod is a strategic merge patch of the pod's spec.
			Pod json.RawMessage `json:"pod"`
		} `json:"kubernetes"`
		ACI map[string]any `json:"aci"`
	} `json:"runtimes"`
}

type connectionTo struct {
	Source                string         `json:"source"`
	DisableDefaultEnvVars bool           `json:"disableDefaultEnvVars"`
	IAM                   map[string]any `json:"iam"`
}

type container struct {
	Image           string              `json:"image"`
	ImagePullPolicy string              `json:"imagePullPolicy"`
	Command         []string            `json:"command"`
	Args            []string            `json:"args"`
	WorkingDir      string              `json:"workingDir"`
	Env             map[string]variable `json:"env"`
	Ports           map[string]port     `json:"ports"`
	ReadinessProbe  *probe              `json:"readinessProbe"`
	LivenessProbe   *probe              `json:"livenessProbe"`
	Volumes         map[string]volume   `json:"volumes"`
}

type variable struct {
	Value     *string `json:"value"`
	ValueFrom *struct {
		SecretRef *struct {
			// Source is the name of a Secret of the namespace, or the id of a secret
			// store.
			Source string `json:"source"`
			Key    string `json:"key"`
		} `json:"secretRef"`
	} `json:"valueFrom"`
}

type port struct {
	ContainerPort int32  `json:"containerPort"`
	Port          int32  `json:"port"`
	Protocol      string `json:"protocol"`
	Scheme        string `json:"scheme"`
}

type probe struct {
	Kind          string            `json:"kind"`
	ContainerPort int32             `json:"containerPort"`
	Path          string            `json:"path"`
	Headers       map[string]string `json:"headers"`
	Command       string            `json:"command"`
	// Seconds and times, which the API lets be fractions and Kubernetes does not.
	InitialDelaySeconds *float64 `json:"initialDelaySeconds"`
	FailureThreshold    *float64 `json:"failureThreshold"`
	PeriodSeconds       *float64 `json:"periodSeconds"`
	TimeoutSeconds      *float64 `json:"timeoutSeconds"`
}

type volume struct {
	Kind         string `json:"kind"`
	MountPath    string `json:"mountPath"`
	ManagedStore string `json:"managedStore"`
}

// Kinds of extensions.
const (
	scaling   = "manualScaling"
	sidecar   = "daprSidecar"
	metadata  = "kubernetesMetadata"
	namespace = "kubernetesNamespace"
)

type extensionOf struct {
	Kind        string            `json:"kind"`
	Replicas    *int32            `json:"replicas"`
	AppID       string            `json:"appId"`
	AppPort     int32             `json:"appPort"`
	Config      string            `json:"config"`
	Protocol    string            `json:"protocol"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Namespace   string            `json:"namespace"`
}

// Kinds of identities, of those that the API knows.
const (
	identityNone = "undefined"
	identityOwn  = "systemAssigned"
)

type identityAsked struct {
	Kind            string   `json:"kind"`
	OIDCIssuer      string   `json:"oidcIssuer"`
	Resource        string   `json:"resource"`
	ManagedIdentity []string `json:"managedIdentity"`
}

// sorted are the keys of a map in order, so that equal containers render equal
// objects and the first fault is always the same.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
