package project

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Follow folds what the operator reports into the resources until ctx ends. It
// watches the two kinds and looks at nothing on a timer, but to come back to a
// cluster or store that was away. Several processes may follow: a row is written
// only when it says something else.
func (s *Service) Follow(ctx context.Context) {
	if s.cluster == nil {
		return
	}
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longPause) {
		if err := s.follow(ctx); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("the cluster's services and projects cannot be followed; tried again", "error", err.Error())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// key is an object that is to be looked at.
type key struct {
	project         bool
	namespace, name string
}

func (s *Service) follow(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := cache.New(s.cluster.config, cache.Options{Scheme: scheme, ReaderFailOnMissingInformer: true})
	if err != nil {
		return err
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstPause, longPause))
	defer queue.ShutDown()
	for _, o := range []client.Object{&v1alpha1.AnkkaService{}, &v1alpha1.AnkkaProject{}} {
		i, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		_, ofProject := o.(*v1alpha1.AnkkaProject)
		add := func(v any) {
			if d, ok := v.(clientcache.DeletedFinalStateUnknown); ok {
				v = d.Obj
			}
			if o, ok := v.(client.Object); ok {
				queue.Add(key{ofProject, o.GetNamespace(), o.GetName()})
			}
		}
		if _, err := i.AddEventHandler(clientcache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, v any) { add(v) }, DeleteFunc: add}); err != nil {
			return err
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	go func() { <-ctx.Done(); queue.ShutDown() }()
	if !c.WaitForCacheSync(ctx) {
		return <-ended
	}
	// What was removed while nobody followed is told by no event.
	kept, err := s.kept(ctx)
	if err != nil {
		return err
	}
	for _, k := range kept {
		queue.Add(k)
	}
	for {
		k, shutdown := queue.Get()
		if shutdown {
			return <-ended
		}
		busy, err := s.fold(ctx, c, k)
		queue.Done(k)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.o.Log.Warn("what the operator reports could not be kept; tried again", "namespace", k.namespace, "name", k.name, "error", err.Error())
			queue.AddRateLimited(k)
		case busy != "":
			// An operation holds the row: its end is what is waited for.
			go func() {
				if s.o.Feed.WaitOperation(ctx, busy) == nil {
					queue.Add(k)
				}
			}()
		default:
			queue.Forget(k)
		}
	}
}

// kept are the objects of all rows that the cluster has taken once.
func (s *Service) kept(ctx context.Context) ([]key, error) {
	var out []key
	for _, t := range []string{TypeProject, TypeService} {
		rows, err := s.all(ctx, plane(), t)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			st, err := values(r)
			if err != nil {
				return nil, err
			}
			if project, ok := projectOf(r.ID); ok && (st.ComputedValues[valueGeneration] != nil || st.ComputedValues[valueNamespace] != nil) {
				out = append(out, key{t == TypeProject, v1alpha1.Namespace(project), r.ID.Name()})
			}
		}
	}
	return out, nil
}

// fold brings the rows of one object up to date. busy is the operation that
// holds its row, "" for none.
func (s *Service) fold(ctx context.Context, c client.Reader, k key) (busy string, err error) {
	at := client.ObjectKey{Namespace: k.namespace, Name: k.name}
	var o client.Object = &v1alpha1.AnkkaService{}
	if k.project {
		o = &v1alpha1.AnkkaProject{}
	}
	err = c.Get(ctx, at, o)
	there := err == nil
	if err = client.IgnoreNotFound(err); err != nil {
		return "", err
	}
	project, ok := projectOf(core.GroupID(k.namespace))
	if !ok {
		return "", nil // in no project's namespace
	}
	subject, id := v1alpha1.Subject{Project: project}, ProjectID(project)
	var status any
	var stands parts
	switch o := o.(type) {
	case *v1alpha1.AnkkaService:
		subject.Service, id, status = k.name, ServiceID(project, k.name), o.Status
		if there && o.Spec.ProjectID == project {
			stands, err = serviceParts(o)
		}
	case *v1alpha1.AnkkaProject:
		if k.name != project {
			return "", nil
		}
		if status = shownToMembers(o.Status); there {
			stands, err = projectParts(o)
		}
	}
	if err != nil {
		return "", err
	}
	seen := gone()
	if there {
		if seen, err = observed(status); err != nil {
			return "", err
		}
	}
	stored, live, err := s.o.Store.Get(ctx, id)
	switch {
	case core.IsCode(err, core.CodeNotFound):
		return "", nil // of nobody here
	case err != nil:
		return "", err
	case live != nil:
		return s.held(ctx, live.ID)
	}
	if err := s.foldParts(ctx, stored, subject, stands); err != nil {
		return "", err
	}
	r, changed, err := folded(stored, seen)
	if err != nil || !changed {
		return "", err
	}
	props := map[string]any{}
	if err := arm.Decode(stored.Properties, &props); err != nil {
		return "", err
	}
	edges := serviceEdges(id, props)
	if k.project {
		edges = s.projectEdges(id, props)
	}
	_, err = s.o.Store.Accept(ctx, store.Write{Resource: r, Edges: edges, Expect: stored.ETag, Now: s.o.Now()})
	if core.IsCode(err, store.Changed) || core.IsCode(err, core.CodeConflict) || core.IsCode(err, core.CodeNotFound) {
		// Written meanwhile: looked at again, now or when that operation has ended.
		return s.again(ctx, c, k)
	}
	return "", err
}

// held is an operation that holds a row, unless it has ended by now.
func (s *Service) held(ctx context.Context, operation string) (string, error) {
	op, err := s.o.Store.Operation(ctx, operation)
	if core.IsCode(err, core.CodeNotFound) || err == nil && op.State.Terminal() {
		return "", core.Errorf(core.CodeConflict, "the operation that held the resource has just ended")
	}
	return operation, err
}

func (s *Service) again(ctx context.Context, c client.Reader, k key) (string, error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return s.fold(ctx, c, k)
}

// foldParts writes, or removes, the rows of a subject's storage.
func (s *Service) foldParts(ctx context.Context, of core.Resource, subject v1alpha1.Subject, p parts) error {
	bucketEdges, credentialEdges := p.edges(s.o.Installation.Cluster, subject)
	for _, part := range []struct {
		id    core.ID
		r     *core.Resource
		edges []core.Edge
	}{{credentialID(subject), p.credential, credentialEdges}, {bucketID(subject), p.bucket, bucketEdges}} {
		stored, _, err := s.o.Store.Get(ctx, part.id)
		if err != nil && !core.IsCode(err, core.CodeNotFound) {
			return err
		}
		exists := err == nil
		switch {
		case part.r == nil && exists:
			_, err := s.o.Store.AcceptDelete(ctx, store.Delete{ID: part.id, Expect: "*", Now: s.o.Now()})
			if err != nil && !core.IsCode(err, core.CodeNotFound) {
				return err
			}
		case part.r == nil, exists && stored.State == part.r.State && same(stored.Properties, part.r.Properties):
		default:
			now := s.o.Now().UTC()
			r := *part.r
			r.Application, r.Environment = of.Application, of.Environment
			r.SystemData = core.SystemData{CreatedBy: fieldManager, CreatedByType: "Application", CreatedAt: now, LastModifiedBy: fieldManager, LastModifiedByType: "Application", LastModifiedAt: now}
			if _, err := s.o.Store.Accept(ctx, store.Write{Resource: r, Edges: part.edges, Expect: "*", Now: now}); err != nil {
				return err
			}
		}
	}
	return nil
}

// same compares JSON by what it says: a store may write it in another way.
func same(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
