package deploy

import (
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/template"
)

// providerKubernetes is the extension whose objects have an id of a plane too.
const providerKubernetes = "Kubernetes"

// Translate leads from either id of an object of Kubernetes to the other: the
// one that deployments and stacks answer (S-12), and the one that inventory and
// graph have (S-15), which names the cluster:
//
//	/planes/Kubernetes/import.namespace/demo/type/apps%2FDeployment/properties.metadata.name/web
//	/planes/kubernetes/local/namespaces/demo/providers/apps/Deployment/web
//
// cluster is the name of the cluster, for the second form. It is an error when
// id is neither.
func Translate(id, cluster string) (string, error) {
	if x, err := template.ParseExtensionID(id); err == nil && strings.EqualFold(x.Provider, providerKubernetes) && x.Get(template.KeyName) != "" {
		group, kind, _ := strings.Cut(x.Get(template.KeyType), "/")
		if kind == "" {
			group, kind = "core", group
		}
		if strings.EqualFold(group, "core") {
			group = ""
		}
		return core.KubernetesID(cluster, x.Get(template.KeyNamespace), group, kind, x.Get(template.KeyName)).String(), nil
	}
	o, err := core.ParseID(id)
	if err != nil || !strings.EqualFold(o.Plane.Type, "kubernetes") || len(o.Types) != 1 || !o.IsResource() || len(o.Scopes) > 1 {
		return "", core.Errorf(core.CodeBadRequest, "%q is not the id of an object of Kubernetes", id)
	}
	x := template.ExtensionID{Provider: providerKubernetes}
	if len(o.Scopes) == 1 {
		x.Parts = append(x.Parts, template.IDPart{Key: template.KeyNamespace, Value: o.Scopes[0].Name})
	}
	x.Parts = append(x.Parts, template.IDPart{Key: template.KeyType, Value: o.Provider + "/" + o.Types[0].Type},
		template.IDPart{Key: template.KeyName, Value: o.Types[0].Name})
	return x.String(), nil
}
