package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/scope/azure"
	"github.com/radial-project/radial/internal/store"
	"github.com/radial-project/radial/internal/telemetry"
)

// places resolves where the resources of templates go: the clusters that the
// server was told of, and those that it finds by the scopes of imports. Recipes
// and deployments share it.
func places(c options, kept store.Reader) (extension.Resolver, error) {
	if c.kubeconfig != "" {
		if err := checkKubeconfig("--kubeconfig", c.kubeconfig); err != nil {
			return nil, err
		}
	}
	r := scope.NewResolver(nil)
	if c.hasCluster() {
		// Without a kubeconfig, the cluster that the pod runs in.
		r.Member(c.cluster, scope.File(c.cluster, c.kubeconfig, kubernetes.Options{}, tuned))
	}
	for _, text := range c.members {
		name, path, err := scope.ParseMember(text)
		if err != nil {
			return nil, fmt.Errorf("--member-cluster: %w", err)
		}
		if slices.Contains(r.Members(), strings.ToLower(name)) {
			return nil, fmt.Errorf("--member-cluster: the name %q stands twice, or is that of --cluster", name)
		}
		if err := checkKubeconfig("--member-cluster "+name, path); err != nil {
			return nil, err
		}
		r.Member(name, scope.File(name, path, kubernetes.Options{}, tuned))
	}
	r.Type(scope.TypeUserOwned, scope.UserOwned{Tune: tuned})
	r.Type(scope.TypeRadial, scope.Radial{Load: func(ctx context.Context, id core.ID) (core.Resource, error) {
		found, _, err := kept.Get(ctx, id)
		return found, err
	}})
	if len(c.azureScopes) > 0 {
		o := azure.Options{Cloud: azure.Endpoint(c.azureEndpoint, ""), Tune: tuned}
		if !slices.Contains(c.azureScopes, "*") {
			o.Allow = c.azureScopes
		}
		if u, err := url.Parse(c.azureEndpoint); c.azureEndpoint != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
			return nil, fmt.Errorf("--azure-endpoint %q is no URL that begins with https://", c.azureEndpoint)
		}
		r.Type(scope.TypeAzure, azure.New(o))
	}
	return r, nil
}

// checkKubeconfig reads a file once at the start, so that one that cannot be used
// is said then; it is read again for the connection, which comes with the first
// resource.
func checkKubeconfig(flag, path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s cannot be read: %w", flag, err)
	}
	if _, err := clientcmd.LoadFromFile(path); err != nil {
		return fmt.Errorf("%s %s cannot be used: %w", flag, path, err)
	}
	return nil
}

// tuned gives a connection what all of this process have.
func tuned(config *rest.Config) {
	config.Wrap(telemetry.Transport)
	config.UserAgent = "radial-server/" + core.Version
}
