// Package deployment keeps deployments of templates as resources of the control
// plane, type Microsoft.Resources/deployments in a resource group: it answers
// their REST routes in the shapes of Azure Resource Manager, and is the
// controller that runs package deploy's engine for them.
//
// A deployment's row holds what was asked, without secrets, and what came of it.
// The template lies in it sealed. So do the values of parameters while the
// operation lives ([store.InputsSecret]): they go with its end, in the same
// transaction. A kubeConfig is in no store, not even for that time: a request
// that brings one has its secure values in this process's memory only, and ends
// as Failed (CredentialsNeeded) when the process does; the next PUT goes on.
//
// # Guarantees
//
//   - A killed worker's deployment is taken up by the next one where it was
//     (S-45): the same run, the same time and seed for utcNow() and newGuid(), and
//     what was made is not made again.
//   - What a deployment writes, it writes as whoever asked for it, by their roles
//     at that moment. What it makes by credentials of the server takes the right
//     to govern the group, as registering a recipe does.
//   - No secure parameter, secure output or kubeConfig is answered, logged or
//     stored in the clear.
package deployment

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/feed"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/template"
)

// Type is the type of deployments.
const Type = "Microsoft.Resources/deployments"

// DefaultDeadline is how long a deployment may take.
const DefaultDeadline = 24 * time.Hour

// Options of a Service. Store, Feed, Sealer and Provider are required.
type Options struct {
	Store    store.Store
	Feed     *feed.Broker
	Sealer   *seal.Sealer
	Provider *dynamic.Provider
	// Resolver finds the targets of extensions; nil refuses their resources.
	Resolver extension.Resolver
	// Base is where resources go whose import names no scope.
	Base extension.Scope
	// Link fetches what templateLink, parametersLink and linked nested templates
	// name; nil refuses them.
	Link func(ctx context.Context, l template.Link) ([]byte, error)
	// Authorize decides for whoever asked; nil is developer mode, where nobody is
	// asked who they are.
	Authorize func(ctx context.Context, who auth.Identity, act auth.Act) error
	// Deadline of one deployment; 0 is DefaultDeadline.
	Deadline time.Duration
	Parallel int
	// Workless says that other processes run what this one accepts: what comes with
	// a kubeConfig it refuses, since that reaches none of them.
	Workless bool
	Log      *slog.Logger
	Now      func() time.Time
	NewID    func() string
}

// Service answers for deployments. It is safe for concurrent use.
type Service struct {
	o Options

	mu sync.Mutex
	// held are inputs that no store may have, by operation.
	held map[string]kept
}

// kept are inputs in memory, and since when.
type kept struct {
	inputs
	since time.Time
}

// heldBefore is how long inputs are held whatever the store says of their
// operation: they are held before it is accepted.
const heldBefore = time.Minute

// New makes a service.
func New(o Options) *Service {
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	return &Service{o: o, held: map[string]kept{}}
}

// facts are the properties of a deployment's row: what was asked.
type facts struct {
	Mode         string                    `json:"mode,omitempty"`
	TemplateHash string                    `json:"templateHash,omitempty"`
	TemplateLink *contentLink              `json:"templateLink,omitempty"`
	Parameters   map[string]shownParameter `json:"parameters,omitempty"`
	// ParametersLink, ProviderConfig and Expressions are as they were sent.
	ParametersLink *contentLink    `json:"parametersLink,omitempty"`
	ProviderConfig json.RawMessage `json:"providerConfig,omitempty"`
	Expressions    json.RawMessage `json:"expressionEvaluationOptions,omitempty"`
	Providers      []provider      `json:"providers,omitempty"`
	Dependencies   []dependency    `json:"dependencies,omitempty"`
	Extensions     []shownExt      `json:"extensions,omitempty"`
	Correlation    string          `json:"correlationId,omitempty"`
	// Operation is the one that runs or ran last, Run the run that it is of.
	Operation string    `json:"operation,omitempty"`
	Run       string    `json:"run,omitempty"`
	Started   time.Time `json:"started,omitzero"`
	// Scope is the group that control-plane resources are made in, where that is
	// not the deployment's own.
	Scope string `json:"scope,omitempty"`
	// Caller is whoever asked, nil in developer mode.
	Caller *auth.Identity `json:"caller,omitempty"`
	// Withheld says that the secure values of the request are in no store.
	Withheld bool `json:"withheld,omitempty"`
	// Root and Path are of a nested deployment: the deployment that ran it, and
	// its path of names below that.
	Root string `json:"root,omitempty"`
	Path string `json:"path,omitempty"`
}

// outcome is the status of a deployment's row: what came of it.
type outcome struct {
	// Operation is the one that it is of.
	Operation string            `json:"operation,omitempty"`
	Outputs   []shownOutput     `json:"outputs,omitempty"`
	Resources []deploy.Affected `json:"resources,omitempty"`
	Deleted   []deploy.Affected `json:"deleted,omitempty"`
	Error     *core.Error       `json:"error,omitempty"`
	Ended     time.Time         `json:"ended,omitzero"`
	Warnings  []string          `json:"warnings,omitempty"`
}

// Secrets of a deployment's row, beside [store.InputsSecret].
const (
	secretTemplate = "template"
	secretOutputs  = "outputs"
	secretResume   = "resume"
)

// inputs are what a run needs and GET does not answer.
type inputs struct {
	Parameters       map[string]any            `json:"parameters,omitempty"`
	ExtensionConfigs map[string]map[string]any `json:"extensionConfigs,omitempty"`
	ExternalInputs   map[string]any            `json:"externalInputs,omitempty"`
	URI              string                    `json:"uri,omitempty"`
	// Seed is what newGuid() is derived from.
	Seed []byte `json:"seed"`
	// Mark tells whether a later request is the same, but for its kubeConfigs.
	Mark string `json:"mark,omitempty"`
	// Credentials came for the clusters of scopes that no template names: in no
	// store at all.
	Credentials map[string]extension.Secrets `json:"-"`
}

// resume is what the next PUT of a deployment that lost its credentials needs to
// go on with the same run.
type resume struct {
	Run     string    `json:"run"`
	Started time.Time `json:"started"`
	Seed    []byte    `json:"seed"`
	Mark    string    `json:"mark"`
}

// IsDeployment reports whether an id is one of a deployment.
func IsDeployment(id core.ID) bool { return strings.EqualFold(id.Type(), Type) }

func readFacts(r core.Resource) (facts, error) {
	var f facts
	if err := json.Unmarshal(r.Properties, &f); err != nil {
		return f, core.Errorf(core.CodeInternal, "the stored deployment %s cannot be read", r.ID)
	}
	return f, nil
}

func readOutcome(r core.Resource) (outcome, error) {
	var o outcome
	if len(r.Status) == 0 {
		return o, nil
	}
	if err := json.Unmarshal(r.Status, &o); err != nil {
		return o, core.Errorf(core.CodeInternal, "what came of the stored deployment %s cannot be read", r.ID)
	}
	return o, nil
}

func (s *Service) hold(operation string, in inputs) {
	s.forgetEnded()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[operation] = kept{in, s.o.Now()}
}

// forgetEnded forgets inputs of operations that ended and were not run to that end
// here: canceled before a worker took them, or run by another process. A kubeConfig
// has no business in memory after that.
func (s *Service) forgetEnded() {
	s.mu.Lock()
	var old []string
	for operation, k := range s.held {
		if s.o.Now().Sub(k.since) > heldBefore {
			old = append(old, operation)
		}
	}
	s.mu.Unlock()
	for _, operation := range old {
		op, err := s.o.Store.Operation(context.Background(), operation)
		if core.IsCode(err, core.CodeNotFound) || err == nil && op.State.Terminal() {
			s.forget(operation)
		}
	}
}

func (s *Service) holds(operation string) (inputs, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.held[operation]
	return k.inputs, ok
}

func (s *Service) forget(operation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, operation)
}

// load reads a deployment that must be there.
func (s *Service) load(ctx context.Context, id core.ID) (core.Resource, *core.Operation, error) {
	r, live, err := s.o.Store.Get(ctx, id)
	if core.IsCode(err, core.CodeNotFound) {
		return r, nil, core.Errorf(core.CodeNotFound, "deployment %s does not exist", id).WithTarget(id.String())
	}
	return r, live, err
}
