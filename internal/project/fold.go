package project

import (
	"bytes"
	"encoding/json"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
)

// Folding is pure: from what the operator reports to what the rows say.

// observed is a status as a resource shows it: without conditions, which say the
// same for Kubernetes' own tools, and with every text cleaned, since providers
// write some of them.
func observed(status any) (map[string]any, error) {
	raw, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	delete(out, "conditions")
	if len(out) == 0 {
		return nil, nil
	}
	return clean(out).(map[string]any), nil
}

// shownToMembers leaves out by which key a keyring is wrapped: the key's name is
// for owners of organizations, and the installation's to show (C-32).
func shownToMembers(st v1alpha1.AnkkaProjectStatus) v1alpha1.AnkkaProjectStatus {
	if st.Keyring != nil {
		keyring := *st.Keyring
		keyring.Key, st.Keyring = "", &keyring
	}
	return st
}

func clean(v any) any {
	switch v := v.(type) {
	case string:
		return v1alpha1.Clean(v)
	case map[string]any:
		for k, e := range v {
			v[k] = clean(e)
		}
	case []any:
		for i, e := range v {
			v[i] = clean(e)
		}
	}
	return v
}

// gone is observed of a service whose object somebody deleted in the cluster.
func gone() map[string]any {
	return map[string]any{"lifecycle": string(v1alpha1.LifecycleNotDeployed), "detail": "it was removed from the cluster by somebody else; apply it again"}
}

// parts are the rows of a subject's storage: what the graph shows between a
// service and its credential. nil where there is none.
type parts struct{ bucket, credential *core.Resource }

type bucketFacts struct {
	Purpose   string         `json:"purpose"`
	Phase     v1alpha1.Phase `json:"phase,omitempty"`
	Detail    string         `json:"detail,omitempty"`
	Bucket    string         `json:"bucket,omitempty"`
	Endpoint  string         `json:"endpoint,omitempty"`
	Region    string         `json:"region,omitempty"`
	Location  string         `json:"location,omitempty"`
	Recovered bool           `json:"recovered,omitempty"`
	// Credential names the row that the bucket's edge leads to: the row changes
	// when that comes or goes.
	Credential string `json:"credential,omitempty"`
}

type credentialFacts struct {
	Phase      v1alpha1.Phase `json:"phase,omitempty"`
	Detail     string         `json:"detail,omitempty"`
	SecretName string         `json:"secretName,omitempty"`
	Generation int64          `json:"generation,omitempty"`
	ReportedAt string         `json:"reportedAt,omitempty"`
}

func serviceParts(a *v1alpha1.AnkkaService) (parts, error) {
	subject := v1alpha1.Subject{Project: a.Spec.ProjectID, Service: a.Name}
	st := a.Status.ObjectStorage
	if st == nil || st.Phase == v1alpha1.PhaseSupplied {
		return parts{}, nil
	}
	b := bucketFacts{Purpose: "service", Phase: st.Phase, Detail: st.Detail, Bucket: st.Bucket, Endpoint: st.Endpoint, Region: st.Region, Location: st.Location, Recovered: st.Recovered}
	var c *credentialFacts
	if sc := a.Status.StorageCredential; sc != nil {
		c = &credentialFacts{Phase: sc.Phase, Detail: sc.Detail, SecretName: sc.SecretName, Generation: sc.Generation}
		if sc.ReportedAt != nil {
			c.ReportedAt = sc.ReportedAt.UTC().Format("2006-01-02T15:04:05Z")
		}
	}
	return partsOf(subject, b, c)
}

func projectParts(a *v1alpha1.AnkkaProject) (parts, error) {
	st := a.Status.Backups
	if st == nil {
		return parts{}, nil
	}
	b := bucketFacts{Purpose: "backup", Phase: st.Phase, Detail: st.Detail, Bucket: st.Bucket, Endpoint: st.Endpoint, Region: st.Region, Recovered: st.Recovered}
	var c *credentialFacts
	if st.SecretName != "" || st.CredentialGeneration > 0 {
		c = &credentialFacts{SecretName: st.SecretName, Generation: st.CredentialGeneration, Phase: v1alpha1.PhaseReady}
	}
	return partsOf(v1alpha1.Subject{Project: a.Spec.ProjectID}, b, c)
}

func partsOf(subject v1alpha1.Subject, b bucketFacts, c *credentialFacts) (parts, error) {
	if c != nil {
		b.Credential = partName(subject)
	}
	bucket, err := partRow(bucketID(subject), b.Phase, b)
	if err != nil || c == nil {
		return parts{bucket: bucket}, err
	}
	credential, err := partRow(credentialID(subject), c.Phase, *c)
	return parts{bucket, credential}, err
}

func partRow(id core.ID, phase v1alpha1.Phase, facts any) (*core.Resource, error) {
	raw, err := json.Marshal(facts)
	if err != nil {
		return nil, err
	}
	props := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&props); err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(clean(props)); err != nil {
		return nil, err
	}
	state := core.StateSucceeded
	switch phase {
	case v1alpha1.PhaseFailed:
		state = core.StateFailed
	case v1alpha1.PhaseWaiting, "":
		state = core.StateUpdating
	}
	return &core.Resource{ID: id, APIVersion: APIVersion, Location: "global", Properties: raw, State: state}, nil
}

// edges of a bucket: to its credential, and to the request that asked for it.
func (p parts) edges(cluster string, subject v1alpha1.Subject) (bucket, credential []core.Edge) {
	if p.bucket == nil {
		return nil, nil
	}
	namespace := v1alpha1.Namespace(subject.Project)
	request := func(suffix, suffixOfProject string) core.ID {
		name := v1alpha1.ServiceRequestName(subject.Service, suffix)
		if subject.Service == "" {
			name = v1alpha1.ProjectRequestName(subject.Project, suffixOfProject)
		}
		return core.KubernetesID(cluster, namespace, v1alpha1.Group, "CloudResource", name)
	}
	bucket = []core.Edge{{From: p.bucket.ID, To: request(v1alpha1.SuffixBucket, v1alpha1.SuffixBackupBucket), Kind: core.EdgeReference}}
	if p.credential == nil {
		return bucket, nil
	}
	bucket = append(bucket, core.Edge{From: p.bucket.ID, To: p.credential.ID, Kind: core.EdgeConnection, Name: "credential"})
	credential = []core.Edge{
		{From: p.credential.ID, To: request(v1alpha1.SuffixStorageCredential, v1alpha1.SuffixBackupCredential), Kind: core.EdgeReference},
		{From: p.credential.ID, To: core.KubernetesID(cluster, namespace, "", "Secret", v1alpha1.StorageSecretName(subject)), Kind: core.EdgeReference},
	}
	return bucket, credential
}

// folded is the row of a service or project with what is observed of it, and
// whether that is other than what it said.
func folded(r core.Resource, seen map[string]any) (core.Resource, bool, error) {
	st, err := values(r)
	if err != nil {
		return r, false, err
	}
	before, err := json.Marshal(st.ComputedValues[valueObserved])
	if err != nil {
		return r, false, err
	}
	if seen == nil {
		delete(st.ComputedValues, valueObserved)
	} else {
		st.ComputedValues[valueObserved] = seen
	}
	after, err := json.Marshal(st.ComputedValues[valueObserved])
	if err != nil || bytes.Equal(before, after) {
		return r, false, err
	}
	r, err = withValues(r, dynamic.Status{ComputedValues: st.ComputedValues})
	return r, true, err
}
