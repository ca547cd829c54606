package service

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/ankkatest"
	radial "github.com/radial-project/radial/internal/client"
	"github.com/radial-project/radial/internal/cloud"
	renderer "github.com/radial-project/radial/internal/container"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/kubernetes"
	"github.com/radial-project/radial/internal/identity"
	"github.com/radial-project/radial/internal/manifest"
	"github.com/radial-project/radial/internal/recipe"
	"github.com/radial-project/radial/internal/scope"
	"github.com/radial-project/radial/internal/server"
	"github.com/radial-project/radial/internal/servertest"
)

// rendering is a control plane that renders containers, under the grants that it
// is shipped with, into the namespace of a stage.
type rendering struct {
	*stage
	api *radial.Client
	env string
}

func (s *stage) renders() *rendering {
	s.t.Helper()
	config := s.w.As(s.t, ankkatest.ControlPlane)
	resolver := scope.NewResolver(map[string]scope.Connect{core.LocalCluster: func(context.Context) (*kubernetes.Cluster, error) {
		return kubernetes.New(core.LocalCluster, config, kubernetes.Options{ReadyTimeout: ankkatest.Limit})
	}})
	p := servertest.StartWith(s.t, func(o *server.Options) {
		o.Types = manifest.NewRegistry(manifest.Builtin()...)
		o.Recipes = recipe.NewEngine(recipe.Options{
			Canonical: o.Types.Canonical,
			Rendered:  renderer.Drivers(renderer.NewRenderer(renderer.RendererOptions{Resolver: resolver})),
		})
	})
	r := &rendering{s, radial.New(p.URL, radial.Options{}), core.GroupID("default").Resource("Applications.Core/environments", "project").String()}
	p.Put(r.env, servertest.APIVersion, `{"properties":{"compute":{"kind":"kubernetes","namespace":"`+s.ns+`"},"allowedNamespaces":["elsewhere-`+s.project+`"]}}`)
	p.Put(r.application(), servertest.APIVersion, `{"properties":{"environment":"`+r.env+`"}}`)
	return r
}

func (r *rendering) application() string {
	return core.GroupID("default").Resource("Applications.Core/applications", "shop").String()
}

func (r *rendering) id(name string) core.ID {
	return core.GroupID("default").Resource(renderer.Type, name)
}

// put writes a container with properties in JSON and answers the warnings of its
// operation.
func (r *rendering) put(name, more string) string {
	r.t.Helper()
	properties := map[string]any{"application": r.application(), "container": map[string]any{"image": "registry.example.com/web:1"}}
	var given map[string]any
	if err := json.Unmarshal([]byte(more), &given); err != nil {
		r.t.Fatal(err)
	}
	maps.Copy(properties, given)
	a, err := r.api.Put(r.t.Context(), r.id(name), servertest.APIVersion, arm.Put{Resource: arm.Resource{Properties: properties}})
	if err == nil {
		err = r.api.Wait(r.t.Context(), a.Token)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	said, err := r.api.Messages(r.t.Context(), radial.OperationName(a.Token), 0, false)
	if err != nil {
		r.t.Fatal(err)
	}
	var warnings []string
	for _, m := range said {
		if strings.HasPrefix(m.Text, "warning: ") {
			warnings = append(warnings, m.Text)
		}
	}
	return strings.Join(warnings, "\n")
}

// A rendered container asks for an identity by its property, exactly as an
// adopted Deployment does by its annotation: the same operator asks the provider
// and binds the container's own ServiceAccount.
func TestRenderedContainerGetsAnIdentity_K34_K20_C66_C89(t *testing.T) {
	s := newStage(t, nil)
	s.provide()()
	s.operate()
	r := s.renders()
	r.put("web", `{"identity":{"kind":"systemAssigned"}}`)

	report, d := s.reported("web", ReasonReady)
	request := s.asked("web-identity")
	if diff := cmp.Diff(map[string]string{"serviceAccount": "web"}, request.Spec.Parameters); diff != "" || request.Spec.Subject != (v1alpha1.Subject{Project: s.project, Service: "web"}) {
		t.Errorf("C-66: %+v\n%s", request.Spec.Subject, diff)
	}
	if o := metav1.GetControllerOf(request); o == nil || o.Kind != "Deployment" || o.UID != d.UID {
		t.Errorf("the request is %+v's", o)
	}
	if d.Spec.Template.Spec.ServiceAccountName != "web" || d.Annotations["radapp.io/enabled"] != "" || report.Identity != request.Status.Outputs["identity"] {
		t.Errorf("K-34: it runs as %q, is annotated %v and is told %+v", d.Spec.Template.Spec.ServiceAccountName, d.Annotations, report)
	}
	bound := get(s, "web", &corev1.ServiceAccount{})
	if got := bound.Annotations["scripted.example/identity"]; got != "web" {
		t.Errorf("C-89: the ServiceAccount has %v", bound.Annotations)
	}
	t.Run("another run leaves what the operator has bound", func(t *testing.T) {
		r.put("web", `{"identity":{"kind":"systemAssigned"},"container":{"image":"registry.example.com/web:2"}}`)
		if got := get(s, "web", &corev1.ServiceAccount{}); got.UID != bound.UID || got.Annotations["scripted.example/identity"] != "web" {
			t.Errorf("the ServiceAccount has %v", got.Annotations)
		}
	})
	t.Run("a container that no longer asks has no account of its own", func(t *testing.T) {
		r.put("web", `{}`)
		s.gone(&corev1.ServiceAccountList{}, "web")
		s.deployment("web", "not reported", func(d *appsv1.Deployment) bool {
			return d.Annotations[identity.AnnotationStatus] == "" && d.Spec.Template.Spec.ServiceAccountName == identity.DefaultAccount
		})
	})
}

// Where there is no identity to be had the operator says why, on the Deployment
// and in the container's operation once it was said, and nothing is held.
func TestRenderedContainerWithoutIdentity_K34(t *testing.T) {
	t.Run("no provider", func(t *testing.T) {
		s := newStage(t, func(c *cloud.Settings) { *c = cloud.Settings{Provider: cloud.None} })
		s.operate()
		r := s.renders()
		r.put("web", `{"identity":{"kind":"systemAssigned"}}`)
		if _, d := s.reported("web", ReasonNoProvider); d.Spec.Paused || d.Status.ReadyReplicas != 1 {
			t.Errorf("K-34: it is held: paused %v, ready %d", d.Spec.Paused, d.Status.ReadyReplicas)
		}
		// By now it is said.
		if said := r.put("web", `{"identity":{"kind":"systemAssigned"}}`); !strings.Contains(said, ReasonNoProvider) {
			t.Errorf("K-34: the operation says %q", said)
		}
		s.absent(&v1alpha1.CloudResource{}, "web-identity")
	})
	t.Run("no project", func(t *testing.T) {
		s := newStage(t, nil)
		elsewhere := "elsewhere-" + s.project
		s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}})
		s.others = []string{elsewhere}
		s.operate()
		r := s.renders()
		r.put("web", `{"identity":{"kind":"systemAssigned"},"extensions":[{"kind":"kubernetesNamespace","namespace":"`+elsewhere+`"}]}`)
		far := &stage{t: t, w: s.w, admin: s.admin, ns: elsewhere}
		if report, d := far.reported("web", ReasonNoProject); d.Spec.Paused || report.Identity != "" {
			t.Errorf("K-34: it is told %+v, paused %v", report, d.Spec.Paused)
		}
		far.absent(&v1alpha1.CloudResource{}, "web-identity")
	})
}
