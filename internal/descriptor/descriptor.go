// Package descriptor reads what a developer says of a service: a document in
// YAML or JSON. The command line and the control plane read it by the same code,
// and each says everything that is wrong with it at once.
//
//	name: reports
//	service:
//	  image: registry.example/reports:1.4
//	  env:
//	    - {name: LOG_LEVEL, value: info}
//	    - {name: STRIPE_KEY, secretKeyRef: {name: stripe, key: API_KEY}}
//	  provisionObjectStorage: true
//
// It is pure: text in, a service or its problems out.
package descriptor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/core"
)

// Descriptor is a document.
type Descriptor struct {
	Name    string  `json:"name"`
	Service Service `json:"service"`
}

// Service is what it says of the service: the shape of properties of type
// Radial.Services/services, without what only the control plane says.
type Service struct {
	Image                       string            `json:"image"`
	Env                         []Variable        `json:"env,omitempty"`
	Labels                      map[string]string `json:"labels,omitempty"`
	Annotations                 map[string]string `json:"annotations,omitempty"`
	HTTP                        bool              `json:"http,omitempty"`
	Port                        *int32            `json:"port,omitempty"`
	Database                    string            `json:"database,omitempty"`
	ProvisionObjectStorage      bool              `json:"provisionObjectStorage,omitempty"`
	ExposeObjectStorage         bool              `json:"exposeObjectStorage,omitempty"`
	ObjectStorageOrigins        []string          `json:"objectStorageOrigins,omitempty"`
	ObjectStorageVersioning     bool              `json:"objectStorageVersioning,omitempty"`
	ObjectStorageSoftDeleteDays int64             `json:"objectStorageSoftDeleteDays,omitempty"`
	ObjectStorageVersionAgeDays *int64            `json:"objectStorageVersionAgeDays,omitempty"`
	Resources                   *Resources        `json:"resources,omitempty"`
}

// Variable is one of the container's: a value, or an entry of a project secret.
type Variable struct {
	Name         string        `json:"name"`
	Value        string        `json:"value,omitempty"`
	SecretKeyRef *SecretKeyRef `json:"secretKeyRef,omitempty"`
}

// SecretKeyRef names an entry of a secret.
type SecretKeyRef struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// Resources of an instance, and how many there are.
type Resources struct {
	CPU         string                `json:"cpu,omitempty"`
	Memory      string                `json:"memory,omitempty"`
	Autoscaling *v1alpha1.Autoscaling `json:"autoscaling,omitempty"`
}

// MaxSize bounds a document, in bytes.
const MaxSize = 1 << 20

// Parse reads one document. The error is a [core.Error] with a detail for each
// problem.
func Parse(text []byte) (Descriptor, error) {
	object, err := decode(text)
	if err != nil {
		return Descriptor{}, err
	}
	var r reader
	var d Descriptor
	r.object("", object, map[string]func(at string, v any){
		"name":    func(at string, v any) { d.Name = r.text(at, v, 63) },
		"service": func(at string, v any) { d.Service = r.service(at, v) },
	}, "name", "service")
	if d.Name != "" {
		r.check("name", v1alpha1.ValidateName("service", d.Name))
	}
	return d, r.err("the descriptor")
}

// FromProperties reads the service from the properties of a resource, of which
// the names in besides are others' concern. It refuses what [Parse] does.
func FromProperties(properties map[string]any, besides ...string) (Service, error) {
	own := make(map[string]any, len(properties))
	for k, v := range properties {
		own[k] = v
	}
	for _, name := range besides {
		delete(own, name)
	}
	var r reader
	if v, ok := own[instances]; ok {
		if _, both := own["resources"]; both {
			r.fault("resources", "is not known here; it is called "+instances)
		}
		delete(own, instances)
		own["resources"] = v
	} else if _, ok := own["resources"]; ok {
		r.fault("resources", "is not known here; it is called "+instances)
		delete(own, "resources")
	}
	s := r.service("", own)
	return s, r.err("the service")
}

// instances is what the properties of a resource call a descriptor's resources:
// there, that name has another meaning for every type.
const instances = "instances"

// Properties are the service as properties of a resource.
func (s Service) Properties() (map[string]any, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	if v, ok := out["resources"]; ok {
		delete(out, "resources")
		out[instances] = v
	}
	return out, nil
}

func unreadable(format string, args ...any) error {
	return core.Errorf(core.CodeInvalidContent, "the descriptor cannot be read: "+format, args...)
}

// decode reads YAML or JSON, which is YAML too: one document, no key twice.
func decode(text []byte) (any, error) {
	if len(text) > MaxSize {
		return nil, unreadable("it has %d bytes, and at most %d are read", len(text), MaxSize)
	}
	documents, err := count(text)
	switch {
	case err != nil:
		return nil, unreadable("%s", firstLine(err))
	case documents == 0:
		return nil, unreadable("it is empty; it has a name and a service")
	case documents > 1:
		return nil, unreadable("it holds more than one document; send each by itself")
	}
	raw, err := sigsyaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, unreadable("%s", firstLine(err))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, unreadable("%s", firstLine(err))
	}
	return v, nil
}

// count is how many documents a text holds that say anything, at most 2.
func count(text []byte) (int, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	n := 0
	for n < 2 {
		var node yaml.Node
		err := d.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if !node.IsZero() && !(len(node.Content) == 1 && node.Content[0].Tag == "!!null") {
			n++
		}
	}
	return n, nil
}

// Split parts a text into its documents, which [Parse] reads; those that say
// nothing are left out.
func Split(text []byte) ([][]byte, error) {
	if len(text) > 16*MaxSize {
		return nil, unreadable("it has %d bytes", len(text))
	}
	var out [][]byte
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var node yaml.Node
		err := d.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, unreadable("%s", firstLine(err))
		}
		if node.IsZero() || len(node.Content) == 1 && node.Content[0].Tag == "!!null" {
			continue
		}
		raw, err := yaml.Marshal(&node)
		if err != nil {
			return nil, unreadable("%s", firstLine(err))
		}
		out = append(out, raw)
	}
	if len(out) == 0 {
		return nil, unreadable("it is empty; it has a name and a service")
	}
	return out, nil
}

func firstLine(err error) string {
	s := v1alpha1.Clean(err.Error())
	return fmt.Sprintf("%.300s", s)
}
