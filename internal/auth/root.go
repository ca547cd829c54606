package auth

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/core"
)

// What the cluster is asked about who is root: may the caller `administer` the
// resource `planes` of group api.ucp.dev. No other verb counts, since clients
// behind the aggregation layer need the usual ones to get through it at all.
const (
	RootGroup    = "api.ucp.dev"
	RootResource = "planes"
	RootVerb     = "administer"
)

// Review answers whether a caller is root. An error means that it is not known.
type Review func(ctx context.Context, who Identity) (bool, error)

// ClusterReview asks the cluster, and believes it for as long as ttl.
func ClusterReview(cluster kubernetes.Interface, ttl time.Duration) (Review, error) {
	if ttl == 0 {
		ttl = DefaultTokenTTL
	}
	a, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: cluster.AuthorizationV1(),
		AllowCacheTTL:             ttl,
		DenyCacheTTL:              ttl,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 2},
	}.New()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, who Identity) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{
			User: who.info(), Verb: RootVerb, APIGroup: RootGroup, APIVersion: "*", Resource: RootResource, ResourceRequest: true,
		})
		if err != nil && decision != authorizer.DecisionAllow {
			return false, core.Errorf(core.CodeUnavailable, "the cluster that says who is root does not answer: %w", err)
		}
		return decision == authorizer.DecisionAllow, nil
	}, nil
}

// NamedRoots makes root those named, for a server without a cluster of its own.
func NamedRoots(roots []Principal) Review {
	keys := map[string]bool{}
	for _, p := range roots {
		keys[p.key()] = true
	}
	return func(_ context.Context, who Identity) (bool, error) {
		for _, k := range who.keys() {
			if keys[k] {
				return true, nil
			}
		}
		return false, nil
	}
}

// AnyReview makes root whom one of the reviews does. What one does not know is
// not known when no other says yes.
func AnyReview(reviews ...Review) Review {
	return func(ctx context.Context, who Identity) (bool, error) {
		var unknown error
		for _, review := range reviews {
			ok, err := review(ctx, who)
			if ok {
				return true, nil
			}
			if err != nil {
				unknown = err
			}
		}
		return false, unknown
	}
}
