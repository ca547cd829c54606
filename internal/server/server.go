// Package server is the HTTP surface of the control plane and puts its rooms
// together: one [Server] is a whole control plane in one process, for the
// program, for tests and for developer mode alike.
package server

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/application"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/container"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deployment"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/operation"
	"github.com/radial-project/radial/internal/project"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/stack"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/telemetry"
	"github.com/radial-project/radial/internal/template"
)

// APIVersion is the version of planes, resource groups and registrations.
const APIVersion = "2023-10-01-preview"

// heartbeat is how often a silent change stream says that it lives.
const heartbeat = 15 * time.Second

// Options of a Server. Store, Feed, Sealer and Recipes are required; Feed must
// be the store's listener.
type Options struct {
	Store  store.Store
	Feed   *feed.Broker
	Sealer *seal.Sealer
	// Recipes runs recipes. It is called by the workers only.
	Recipes dynamic.Recipes
	// Types are the registered types; nil is a registry of the built-in ones.
	// The server adds those that the store keeps.
	Types *manifest.Registry
	// Loopback is developer mode: Host and Origin of every request are checked,
	// since a page of some web site must not reach it through the browser (D-48),
	// and templates of recipes may be files of this machine.
	Loopback bool
	// HealthOnly answers nothing but health and version: the process is there
	// for its workers (D-2).
	HealthOnly bool
	// Workless says that Work is not run: other processes work on the operations
	// that this one accepts.
	Workless bool
	Log      *slog.Logger
	// Metrics counts; nil counts nothing.
	Metrics *telemetry.Metrics
	// Probes answer health and readiness; the server adds its own checks. nil
	// are those alone.
	Probes *telemetry.Probes
	Now    func() time.Time
	// Workers bounds the operations that run at a time, Lease is how long a
	// killed worker's operation waits; zero is the default of each.
	Workers int
	Lease   time.Duration
	// Deadline of operations; zero is 24 hours.
	Deadline time.Duration
	// RecipeDeadline of one run of a recipe; zero is 12 hours.
	RecipeDeadline time.Duration
	// KeepOperations and KeepAudit are how long operations that ended and records
	// of the audit stay, Expire and Sweep how often is looked; zero is the default
	// of each.
	KeepOperations, KeepAudit time.Duration
	Expire, Sweep             time.Duration
	// Keys say how the data keysets are looked after.
	Keys KeyOptions
	// Deployments say what deployments of templates are run with.
	Deployments DeploymentOptions
	// Installation is what organizations, projects and services need; nil has
	// none of them.
	Installation *project.Installation
}

// DeploymentOptions are those of package deployment that the program has.
type DeploymentOptions struct {
	// Resolver finds the targets of extensions; nil refuses their resources.
	Resolver extension.Resolver
	// Base is where resources go whose import names no scope.
	Base extension.Scope
	// Link fetches linked templates; nil refuses them.
	Link func(ctx context.Context, l template.Link) ([]byte, error)
	// Authorize decides for who asked for a deployment; nil is developer mode.
	Authorize func(ctx context.Context, who auth.Identity, act auth.Act) error
}

// Server is a control plane. It implements [http.Handler]; Work runs its
// workers.
type Server struct {
	o        Options
	types    *manifest.Registry
	provider *dynamic.Provider
	// deployments answer for Microsoft.Resources/deployments.
	deployments *deployment.Service
	// projects answer for organizations, projects and services.
	projects *project.Service
	workers  *operation.Pool
	routes   arm.Routes
	keeper   *seal.Keeper
	// registering serialises changes of registered types. typesRaw are the
	// manifests that are registered here, as stored, by namespace in lower case;
	// typesSeq is the change up to which they are.
	registering sync.Mutex
	typesRaw    map[string]string
	typesSeq    int64
	// stopping is closed when answers that are held must be given.
	stopping chan struct{}
	stopOnce sync.Once
}

// New puts a control plane together over a store: it makes the local plane
// where it is missing and loads the registered types, which it follows until ctx
// ends.
func New(ctx context.Context, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Types == nil {
		o.Types = manifest.NewRegistry(manifest.Builtin()...)
	}
	if o.Probes == nil {
		o.Probes = &telemetry.Probes{}
	}
	s := &Server{o: o, types: o.Types, stopping: make(chan struct{}), typesRaw: map[string]string{}}
	if err := s.loadTypes(ctx); err != nil {
		return nil, err
	}
	if err := s.ensurePlane(ctx); err != nil {
		return nil, err
	}
	var err error
	s.projects, err = project.New(project.Options{Store: o.Store, Feed: o.Feed, Installation: o.Installation, Log: o.Log, Now: o.Now, Stopping: s.stopping})
	if err != nil {
		return nil, err
	}
	rules := application.New(o.Store, s.types)
	kinds := rules.Kinds()
	maps.Copy(kinds, container.New(o.Store, o.Deployments.Base.Cluster).Kinds())
	maps.Copy(kinds, auth.Kinds())
	maps.Copy(kinds, s.projects.Kinds())
	if !o.Loopback {
		application.RefuseFiles(kinds)
	}
	s.provider = dynamic.New(dynamic.Options{
		Store: o.Store, Types: s.types, Sealer: o.Sealer, Members: rules, Kinds: kinds, Now: o.Now, Deadline: o.Deadline, RecipeDeadline: o.RecipeDeadline,
		Ended: o.Feed.Operation, RecipeMay: recipeMay,
	})
	s.projects.Use(s.provider)
	s.deployments = deployment.New(deployment.Options{
		Store: o.Store, Feed: o.Feed, Sealer: o.Sealer, Provider: s.provider, Resolver: o.Deployments.Resolver, Base: o.Deployments.Base,
		Link: o.Deployments.Link, Authorize: o.Deployments.Authorize, Deadline: o.Deadline, Log: o.Log, Now: o.Now,
		Workless: o.Workless,
	})
	controllers := operation.NewRegistry(dynamic.NewController(s.provider, o.Recipes, o.Log))
	controllers.Register(typeCascade, core.VerbDelete, operation.ControllerFunc(s.cascade))
	s.projects.Register(controllers)
	controllers.Register(deployment.Type, core.VerbPut, s.deployments)
	controllers.Register(stack.Type, core.VerbPut, s.deployments.Stacks())
	controllers.Register(stack.Type, core.VerbDelete, s.deployments.Stacks())
	s.workers = operation.New(operation.Options{
		Queue: o.Store, Controllers: controllers, Work: o.Feed.Work(), Worker: uuid.NewString(), Operation: o.Store.Operation,
		Canceled:    func(id string) (<-chan struct{}, func()) { return o.Feed.Alert(store.ChangeCancel, id) },
		Concurrency: o.Workers, Lease: o.Lease, Log: o.Log, Metrics: o.Metrics, Now: o.Now, Renew: o.Sealer.Renew,
	})
	o.Probes.Ready("plane", s.answers)
	s.addRoutes()
	go s.followTypes(ctx)
	s.keepKeysets(ctx)
	return s, nil
}

// recipeMay says what the recipe of a resource may do in the control plane: read
// and write its own group, but for what decides over others, and read what it
// belongs to. Its template is the environment's owner's, its parameters may be
// anybody's.
func recipeMay(_ context.Context, of core.Resource, a dynamic.Access, id core.ID) error {
	switch {
	case a == dynamic.AccessRead && (id.Equal(of.Environment) || id.Equal(of.Application) || id.Equal(of.ID.Scope())):
		return nil
	case !id.Scope().Equal(of.ID.Scope()):
		return core.Errorf(core.CodeForbidden, "a recipe may use resources of its resource's own group %s, and %s is in another", of.ID.Scope(), id).WithTarget(id.String())
	case (a == dynamic.AccessWrite || a == dynamic.AccessDelete) && (auth.Governs(id.Type()) || deployment.IsDeployment(id)):
		return core.Errorf(core.CodeForbidden, "a recipe may not write %s: resources of type %s decide over others, or have routes of their own", id, id.Type()).WithTarget(id.String())
	}
	return nil
}

// Types are the types that this control plane knows.
func (s *Server) Types() *manifest.Registry { return s.types }

// Work runs the workers until ctx ends and every controller has returned.
func (s *Server) Work(ctx context.Context) {
	var keeping sync.WaitGroup
	keeping.Go(func() {
		operation.Keep(ctx, operation.KeepOptions{
			Store: s.o.Store, Operations: s.o.KeepOperations, Audit: s.o.KeepAudit, Expire: s.o.Expire, Sweep: s.o.Sweep, Log: s.o.Log, Now: s.o.Now,
		})
	})
	keeping.Go(func() { s.deployments.Keep(ctx, s.o.Sweep) })
	keeping.Go(func() { s.projects.Follow(ctx) })
	s.workers.Run(ctx)
	keeping.Wait()
}

// Working reports what is wrong with the workers; see [operation.Pool.Working].
func (s *Server) Working() error { return s.workers.Working() }

// Stop makes held answers (long polls, change streams) end at once. Call it
// when the HTTP server begins to shut down.
func (s *Server) Stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

func (s *Server) addRoutes() {
	const plane = "planes/{planeType}/{plane}"
	const registered = plane + "/providers/System.Resources/resourceproviders"
	type methods = map[string]arm.Handler
	ucp := func(h arm.Handler) arm.Handler { return versioned("System.Resources", h) }
	add := s.routes.Handle

	add("healthz", methods{"GET": s.healthz})
	add("readyz", methods{"GET": s.readyz})
	add("version", methods{"GET": s.version})
	if s.o.HealthOnly {
		return
	}
	add("", methods{"GET": s.discovery})
	add("openapi/v3", methods{"GET": s.openAPIIndex})
	add(strings.TrimPrefix(openAPIPath, "/"), methods{"GET": s.openAPIDocument})
	add("watch/changes", methods{"GET": s.watch})

	add("planes", methods{"GET": ucp(s.listPlanes)})
	add("planes/{planeType}", methods{"GET": ucp(s.listPlanes)})
	add(plane, methods{"GET": ucp(s.getScope), "PUT": ucp(s.putPlane), "DELETE": ucp(s.deleteScope)})
	add(plane+"/resourcegroups", methods{"GET": ucp(s.listGroups)})
	add(plane+"/resourcegroups/{group}", methods{"GET": ucp(s.getScope), "PUT": ucp(s.putGroup), "DELETE": ucp(s.deleteScope)})
	add(plane+"/resourcegroups/{group}/resources", methods{"GET": ucp(s.listResources)})
	add(plane+"/resources", methods{"GET": ucp(s.listResources)})

	add(plane+"/providers", methods{"GET": ucp(s.listSummaries)})
	add(registered, methods{"GET": ucp(s.listProviders)})
	add(registered+"/{namespace}", methods{"GET": ucp(s.getProvider), "PUT": ucp(s.putProvider), "DELETE": ucp(s.deleteProvider)})
	add(registered+"/{namespace}/manifest", methods{"GET": ucp(s.getManifest), "PUT": ucp(s.putManifest)})
	add(registered+"/{namespace}/locations", methods{"GET": ucp(s.listLocations)})
	add(registered+"/{namespace}/locations/{location}", methods{"GET": ucp(s.getLocation), "PUT": ucp(s.putLocation), "DELETE": ucp(s.deleteLocation)})
	add(registered+"/{namespace}/resourcetypes", methods{"GET": ucp(s.listTypes)})
	add(registered+"/{namespace}/resourcetypes/{type}", methods{"GET": ucp(s.getType), "PUT": ucp(s.putType), "DELETE": ucp(s.deleteType)})
	add(registered+"/{namespace}/resourcetypes/{type}/icons/{hash}", methods{"GET": ucp(s.getIcon)})
	add(registered+"/{namespace}/resourcetypes/{type}/apiversions", methods{"GET": ucp(s.listVersions)})
	add(registered+"/{namespace}/resourcetypes/{type}/apiversions/{version}", methods{"GET": ucp(s.getVersion), "PUT": ucp(s.putVersion), "DELETE": ucp(s.deleteVersion)})
	add(plane+"/providers/System.Resources/keysets", methods{"GET": ucp(s.listKeysets)})
	add(plane+"/providers/System.Resources/keysets/rotate", methods{"POST": ucp(s.rotateKeysets)})
	add(plane+"/providers/System.Resources/auditrecords", methods{"GET": ucp(s.listAudit)})
	add(plane+"/providers/{namespace}", methods{"GET": ucp(s.getSummary)})

	const statuses = plane + "/providers/{namespace}/locations/{location}/operationstatuses"
	add(statuses, methods{"GET": s.listOperations})
	add(statuses+"/{operation}", methods{"GET": s.operationStatus})
	add(statuses+"/{operation}/messages", methods{"GET": s.operationMessages})
	add(statuses+"/{operation}/cancel", methods{"POST": s.cancelOperation})
	add(statuses+"/{operation}/retry", methods{"POST": s.retryOperation})
	add(plane+"/providers/{namespace}/locations/{location}/operationresults/{operation}", methods{"GET": s.operationResult})

	s.projects.Routes(add)
	s.deployments.Routes(add)
	s.deployments.StackRoutes(add)

	// Every registered type, at the scope of a plane or of a group (D-3).
	generic := methods{"GET": s.get, "PUT": s.put, "PATCH": s.patch, "DELETE": s.delete, "POST": s.action}
	add(plane+"/providers/{rest...}", generic)
	add(plane+"/resourcegroups/{group}/providers/{rest...}", generic)
}

// versioned checks the api-version of the control plane's own routes.
func versioned(what string, h arm.Handler) arm.Handler {
	return func(w http.ResponseWriter, r *arm.Request) error {
		if r.APIVersion != APIVersion {
			return core.Errorf(core.CodeInvalidAPIVersion, "API version '%s' for type '%s' is not supported. The supported api-versions are '%s'.", r.APIVersion, what, APIVersion)
		}
		return h(w, r)
	}
}
