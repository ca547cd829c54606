// Package project keeps organizations, projects and services, and projects them
// to the operator.
//
// They are resources like any other, of namespace Radial.Services: organizations
// at the plane, a project with its services in resource group ankka-<project>.
// So they stand in catalogue, audit, operations and graph, and a template may
// write them. Beside the ARM wire there are plain routes (/organizations,
// /projects, /services, /installation) for the members of organizations.
//
// A write of a project or service ends when the cluster has taken its
// AnkkaProject or AnkkaService, by server-side apply; what the operator reports
// of it is folded back into the resource by a watch, with the bucket and the
// credential that a service was given as resources of their own.
//
// # Guarantees
//
//   - The control plane never owns storageCredentialGeneration or
//     backupCredentialGeneration (C-130): applying leaves them as they are set.
//   - An organization has an owner at any moment.
//   - The id of an organization or project is not given out again.
//   - No value of a project secret is stored, logged or answered; it goes into
//     one Secret of the cluster, by a patch whose answer holds no value.
//   - To whoever is no member, an organization and what is in it does not exist.
package project

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/store"
)

// The types, and the one version of them.
const (
	Namespace        = "Radial.Services"
	TypeOrganization = Namespace + "/organizations"
	TypeProject      = Namespace + "/projects"
	TypeService      = Namespace + "/services"
	TypeBucket       = Namespace + "/buckets"
	TypeCredential   = Namespace + "/credentials"
	TypeRetired      = Namespace + "/retiredNames"
	APIVersion       = "2026-10-01-preview"
)

// Installation is what there must be for organizations, projects and services:
// without it, a control plane has none.
type Installation struct {
	Settings cloud.Settings
	// Config reaches the cluster that services run in, and Cluster is its name in
	// ids.
	Config  *rest.Config
	Cluster string
}

// Options of a Service. Store, Feed and Types are required; Installation nil
// refuses everything.
type Options struct {
	Store        store.Store
	Feed         *feed.Broker
	Installation *Installation
	Log          *slog.Logger
	Now          func() time.Time
	// Stopping ends answers that are held.
	Stopping <-chan struct{}
}

// Service answers for organizations, projects and services. It is safe for
// concurrent use.
type Service struct {
	o        Options
	provider *dynamic.Provider
	cluster  *cluster
}

// New makes a service. Use is to be called before anything else.
func New(o Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o}
	if o.Installation != nil {
		var err error
		if s.cluster, err = connect(o.Installation.Config); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Use says through what resources are written.
func (s *Service) Use(p *dynamic.Provider) { s.provider = p }

// Register makes the service the controller of its types.
func (s *Service) Register(r *operation.Registry) {
	for t, c := range map[string]struct{ put, remove operation.ControllerFunc }{
		TypeOrganization: {s.putOrganization, s.removeOrganization},
		TypeProject:      {s.putProject, s.removeProject},
		TypeService:      {s.putService, s.removeService},
	} {
		r.Register(t, core.VerbPut, c.put)
		r.Register(t, core.VerbPatch, c.put)
		r.Register(t, core.VerbDelete, c.remove)
	}
}

// errOff is the answer where there is no installation.
func errOff() error {
	return core.Errorf(core.CodeNotFound, "this control plane keeps no organizations, projects and services: it was started without %s, as developer mode is", cloud.EnvProvider)
}

func plane() core.ID { return core.ID{Plane: core.Segment{Type: "radius", Name: "local"}} }

// OrganizationID, GroupID, ProjectID and ServiceID are where things are kept.
func OrganizationID(name string) core.ID { return plane().Resource(TypeOrganization, name) }

// GroupID is the resource group of a project. It is called as its namespace is.
func GroupID(project string) core.ID { return core.GroupID(v1alpha1.Namespace(project)) }

// ProjectID is the id of a project.
func ProjectID(project string) core.ID { return GroupID(project).Resource(TypeProject, project) }

// ServiceID is the id of a service.
func ServiceID(project, name string) core.ID { return GroupID(project).Resource(TypeService, name) }

// bucketID and credentialID are named as their subject: a service's by its name,
// a project's by a name that is no service's.
func bucketID(s v1alpha1.Subject) core.ID {
	return GroupID(s.Project).Resource(TypeBucket, partName(s))
}

func credentialID(s v1alpha1.Subject) core.ID {
	return GroupID(s.Project).Resource(TypeCredential, partName(s))
}

func partName(s v1alpha1.Subject) string {
	if s.Service == "" {
		return s.Project + ".backup"
	}
	return s.Service
}

// projectOf is the project that a group is of, by its name.
func projectOf(id core.ID) (string, bool) {
	project, ok := strings.CutPrefix(strings.ToLower(id.Group()), v1alpha1.NamespacePrefix)
	return project, ok && project != "" && len(id.Scopes) == 1
}

func retiredID(kind, name string) core.ID { return plane().Resource(TypeRetired, kind+"."+name) }

// retired says whether the id of an organization or project was given out before.
func (s *Service) retired(ctx context.Context, kind, name string) (bool, error) {
	_, _, err := s.o.Store.Get(ctx, retiredID(kind, name))
	if core.IsCode(err, core.CodeNotFound) {
		return false, nil
	}
	return err == nil, err
}

// retire keeps an id from being given out again.
func (s *Service) retire(ctx context.Context, kind, name string, by core.SystemData) error {
	now := s.o.Now().UTC()
	_, err := s.o.Store.Accept(ctx, store.Write{Resource: core.Resource{
		ID: retiredID(kind, name), APIVersion: APIVersion, Location: "global", Properties: []byte("{}"), State: core.StateSucceeded,
		SystemData: core.SystemData{CreatedBy: by.LastModifiedBy, CreatedByType: by.LastModifiedByType, CreatedAt: now, LastModifiedAt: now},
	}, Expect: "*", Now: now})
	return err
}
