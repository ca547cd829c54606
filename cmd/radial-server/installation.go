package main

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/project"
)

// installation is what the environment says of an installation with services
// and, perhaps, a cloud. None of its variables set: there is none, as in
// developer mode; anything wrong with one stops the start by its name (C-24 to
// C-27).
func installation(c options) (*project.Installation, error) {
	if !cloud.Present(os.LookupEnv) {
		return nil, nil
	}
	settings, err := cloud.Load(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if !c.hasCluster() {
		return nil, fmt.Errorf("%s is set, and services need a cluster to run in: name it by --kubeconfig", cloud.EnvProvider)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the cluster that services run in cannot be used: %w", err)
	}
	tuned(config)
	return &project.Installation{Settings: settings, Config: config, Cluster: c.cluster}, nil
}
