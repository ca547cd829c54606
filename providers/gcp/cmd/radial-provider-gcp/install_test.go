package main

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/radial-project/radial/internal/clustertest"
)

// runMain makes the test binary be the provider that answers to the variable's
// value, so that what is tried and killed is its real process.
const runMain = "RADIAL_TEST_RUN_PROVIDER_GCP"

func TestMain(m *testing.M) {
	if name := os.Getenv(runMain); name != "" {
		asProvider(name)
	}
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m)
}
