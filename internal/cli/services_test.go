package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/project"
	"github.com/radial-project/radial/internal/servertest"
)

var projects atomic.Int64

// TestServices runs the scripts of services, each against a control plane of its
// own on a real API server with the shipped grants.
func TestServices_C31_C109_C131(t *testing.T) {
	w := ankkatest.Start(t)
	operator := ankkatest.Connect(t, w.As(t, ankkatest.Operator))
	settings := cloud.Settings{Provider: "gcp", Account: "acme-production", Location: "Europe-West2", KMSKey: "ring/key", AcknowledgementBound: time.Minute, RotationGrace: time.Hour,
		ObjectStorage: true, Backups: true, NamePrefix: "acme"}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/services",
		Setup: func(e *testscript.Env) error {
			plane := servertest.StartServices(t, project.Installation{Settings: settings, Config: w.As(t, ankkatest.ControlPlane), Cluster: "local"})
			e.Values["plane"] = plane
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("RADIAL_SERVER", plane.URL)
			e.Setenv("PROJECT", fmt.Sprintf("shop-%d", projects.Add(1)))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			// report PROJECT SERVICE JSON writes a status as the operator does.
			"report": func(ts *testscript.TestScript, _ bool, args []string) {
				var a v1alpha1.AnkkaService
				ts.Check(operator.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace(args[0]), Name: args[1]}, &a))
				a.Status = v1alpha1.AnkkaServiceStatus{}
				ts.Check(json.Unmarshal([]byte(args[2]), &a.Status))
				a.Status.Generation, a.Status.ObservedGeneration = a.Spec.Generation, a.Generation
				ts.Check(operator.Status().Update(t.Context(), &a))
			},
			// member has /installation answered as the control plane does to a member
			// that owns nothing (package project proves that it does).
			"member": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Value("plane").(*servertest.Plane).Refuse(func(rw http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, "/installation") {
						return false
					}
					rw.Header().Set("Content-Type", "application/json")
					_, err := rw.Write([]byte(`{"platformVersion":"0.12.0","cloud":{"provider":"gcp","account":"acme-production","location":"europe-west2"}}`))
					return err == nil
				})
			},
		},
	})
}
