package container

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/radial-project/radial/internal/connection"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/identity"
)

// Input is what a container is rendered from.
type Input struct {
	ID core.ID
	// Properties in plaintext.
	Properties  map[string]any
	Application *core.Resource
	Environment core.Resource
	// Namespace is where the objects go.
	Namespace string
	// Carried is what each connection carries; one that is absent carries nothing.
	Carried map[string]map[string]any
	// Stores are the secret stores that variables refer to, by [core.ID.Key], with
	// their values.
	Stores map[string]core.Resource
	// HashKey is the key by which data is hashed.
	HashKey []byte
	// Draft says that neither values of connections nor stores are known yet: all
	// that the container says itself is judged.
	Draft bool
}

// Object is one object to be made.
type Object struct {
	// Symbol tells it apart, and is its local id in the inventory.
	Symbol string
	// Type is that of the extension Kubernetes, such as apps/Deployment@v1.
	Type string
	// Body is the object without apiVersion and kind. Secret says that it holds
	// secrets.
	Body   map[string]any
	Secret bool
	// Needs are the symbols of those that are made before it.
	Needs []string
}

// Rendering is what becomes of a container.
type Rendering struct {
	Objects []Object
	// References are ids that the container names as its own, and that are
	// somebody else's.
	References []string
	// Warnings are for people.
	Warnings []string
}

// Symbols of objects.
const (
	symbolDeployment = "Deployment"
	symbolService    = "Service"
	symbolAccount    = "ServiceAccount"
	symbolSecret     = "Secret"
)

// objectName is what a Deployment and a Service may both be called.
var objectName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// work is one rendering on its way.
type work struct {
	in   Input
	p    properties
	name string
	base base
	meta marks

	out Rendering
	// data is what goes into the connection Secret, by key; needs is what the
	// Deployment waits for.
	data  map[string]string
	needs []string
}

// Render makes the objects of a container, or says which property cannot be
// rendered.
func Render(in Input) (Rendering, error) {
	w := &work{in: in, name: strings.ToLower(in.ID.Name()), data: map[string]string{}}
	if err := decode(in.Properties, &w.p); err != nil {
		return Rendering{}, err
	}
	for _, step := range []func() error{w.judge, w.readBase, w.readMarks} {
		if err := step(); err != nil {
			return Rendering{}, err
		}
	}
	d, err := w.deployment()
	if err != nil {
		return Rendering{}, err
	}
	for _, step := range []func() error{w.account, w.service, w.rest, w.secret} {
		if err := step(); err != nil {
			return Rendering{}, err
		}
	}
	if err := w.add(symbolDeployment, "apps/Deployment@v1", d, false, w.needs...); err != nil {
		return Rendering{}, err
	}
	for _, r := range w.p.Resources {
		w.out.References = append(w.out.References, r.ID)
	}
	return w.out, nil
}

// judge refuses what is nobody's step below.
func (w *work) judge() error {
	switch {
	case !objectName.MatchString(w.name):
		return core.Errorf(core.CodeInvalidContent, "container %s cannot be rendered under its name: a Deployment and a Service of that name need at most 63 of a-z, 0-9 and hyphens, beginning with a letter. Give it another name", w.in.ID).WithTarget("name")
	case w.p.Container == nil:
		return fault("container", "it is missing: give it an image, or set properties.resourceProvisioning to %q and name the workload in properties.resources", ModeManual)
	case w.p.RestartPolicy != "" && w.p.RestartPolicy != string(corev1.RestartPolicyAlways):
		return fault("restartPolicy", "the pods of a Deployment are always started again: take it out, or run a Job by your own tools")
	case len(w.p.Runtimes.ACI) > 0:
		return fault("runtimes.aci", "containers run on Kubernetes only: take it out")
	case len(w.p.Recipe) > 0:
		return fault("recipe", "a container runs no recipe: take it out, or use Radius.Compute/containers, which recipes render")
	}
	for _, name := range sorted(w.p.Connections) {
		c := w.p.Connections[name]
		at := "connections." + name
		switch {
		case len(c.IAM) > 0:
			return fault(at+".iam", "Radial gives out no roles: take it out, and give the role to the container's identity by the cloud's own means")
		case strings.HasPrefix(strings.ToLower(c.Source), "/subscriptions/"):
			return fault(at+".source", "nothing is known here of resources of Azure: connect to a resource of this control plane that stands for it (resourceProvisioning: manual), or pass its values by container.env")
		}
	}
	return w.judgeIdentity()
}

func (w *work) judgeIdentity() error {
	i := w.p.Identity
	if i == nil {
		return nil
	}
	for name, said := range map[string]bool{"oidcIssuer": i.OIDCIssuer != "", "resource": i.Resource != "", "managedIdentity": len(i.ManagedIdentity) > 0} {
		if said {
			return fault("identity."+name, "the installation's cloud provider decides that: take it out")
		}
	}
	if i.Kind != identityNone && i.Kind != identityOwn {
		return fault("identity.kind", "it is %q; it can be %q, an identity of the container's own that the installation's cloud provider makes, or %q, none", i.Kind, identityOwn, identityNone)
	}
	return nil
}

// asksIdentity says whether the container asks for an identity (K-34).
func (w *work) asksIdentity() bool { return w.p.Identity != nil && w.p.Identity.Kind == identityOwn }

// deployment is the Deployment without its connections' last word.
func (w *work) deployment() (*appsv1.Deployment, error) {
	d := w.base.deployment
	w.meta.mark(&d.ObjectMeta, w.name)
	for _, x := range w.p.Extensions {
		if x.Kind == scaling {
			d.Spec.Replicas = x.Replicas
		}
	}
	// One label that never changes: a selector cannot.
	if d.Spec.Selector == nil {
		d.Spec.Selector = &metav1.LabelSelector{}
	}
	d.Spec.Selector.MatchLabels = merge(d.Spec.Selector.MatchLabels, map[string]string{labelResource: w.name})
	t := &d.Spec.Template
	own := t.Labels
	w.meta.mark(&t.ObjectMeta, "")
	t.Labels = merge(t.Labels, d.Spec.Selector.MatchLabels, map[string]string{labelApplication: w.meta.application})
	for k, v := range d.Spec.Selector.MatchLabels {
		if had, ok := own[k]; ok && had != v {
			return nil, fault("runtimes.kubernetes.base", "the label %s of the Deployment's pods is its renderer's: take it out", k)
		}
	}
	w.dapr(t)
	if err := w.pod(&t.Spec); err != nil {
		return nil, err
	}
	if w.asksIdentity() {
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		identity.Ask(d.Annotations)
	}
	if len(w.data) > 0 {
		hash := w.hash()
		if t.Annotations == nil {
			t.Annotations = map[string]string{}
		}
		t.Annotations[connection.HashAnnotation] = hash
	}
	if err := w.patchPod(&t.Spec); err != nil {
		return nil, err
	}
	return d, nil
}

func (w *work) hash() string {
	return connection.Hash(w.in.HashKey, w.in.Namespace+"/"+w.name, w.data)
}

func (w *work) secretName() string { return connection.SecretName(w.name, w.hash()) }

// dapr has the sidecar injected by Dapr's own admission webhook.
func (w *work) dapr(t *corev1.PodTemplateSpec) {
	for _, x := range w.p.Extensions {
		if x.Kind != sidecar {
			continue
		}
		a := map[string]string{"dapr.io/enabled": "true", "dapr.io/app-id": x.AppID}
		if x.AppPort != 0 {
			a["dapr.io/app-port"] = fmt.Sprint(x.AppPort)
		}
		if x.Config != "" {
			a["dapr.io/config"] = x.Config
		}
		if x.Protocol != "" {
			a["dapr.io/app-protocol"] = x.Protocol
		}
		t.Annotations = merge(t.Annotations, a)
	}
}

// account is a ServiceAccount of the container's own: what an identity is bound
// to, and what a base brings.
func (w *work) account() error {
	sa := w.base.account
	if sa == nil {
		if !w.asksIdentity() {
			return nil
		}
		sa = &corev1.ServiceAccount{}
	}
	w.meta.mark(&sa.ObjectMeta, w.name)
	w.needs = append(w.needs, symbolAccount)
	return w.add(symbolAccount, "core/ServiceAccount@v1", sa, false)
}

// service is what others reach the container's ports by.
func (w *work) service() error {
	s := w.base.service
	if s == nil {
		if len(w.p.Container.Ports) == 0 {
			return nil
		}
		s = &corev1.Service{}
	}
	w.meta.mark(&s.ObjectMeta, w.name)
	if s.Spec.Selector == nil {
		s.Spec.Selector = map[string]string{}
	}
	s.Spec.Selector[labelResource] = w.name
	if err := servicePorts(&s.Spec, w.p.Container.Ports); err != nil {
		return err
	}
	return w.add(symbolService, "core/Service@v1", s, false)
}

// rest are the other objects of the base.
func (w *work) rest() error {
	for _, o := range w.base.rest {
		o.metadata.SetNamespace(w.in.Namespace)
		symbol := o.kind + "-" + o.metadata.GetName()
		w.needs = append(w.needs, symbol)
		if err := w.add(symbol, "core/"+o.kind+"@v1", o.object, o.kind == symbolSecret); err != nil {
			return err
		}
	}
	return nil
}

// secret holds what the connections carry: immutable, and named by its content.
func (w *work) secret() error {
	if len(w.data) == 0 {
		return nil
	}
	immutable := true
	s := &corev1.Secret{Type: corev1.SecretTypeOpaque, Immutable: &immutable, Data: map[string][]byte{}}
	s.Name, s.Labels = w.secretName(), map[string]string{labelManagedBy: managedBy}
	for k, v := range w.data {
		s.Data[k] = []byte(v)
	}
	w.needs = append(w.needs, symbolSecret)
	return w.add(symbolSecret, "core/Secret@v1", s, true)
}

// add takes an object into the rendering.
func (w *work) add(symbol, kind string, o any, secret bool, needs ...string) error {
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return core.Errorf(core.CodeInternal, "the %s of container %s cannot be written: %w", symbol, w.in.ID, err)
	}
	delete(body, "apiVersion")
	delete(body, "kind")
	delete(body, "status")
	meta, _ := body["metadata"].(map[string]any)
	meta["namespace"] = w.in.Namespace
	w.out.Objects = append(w.out.Objects, Object{Symbol: symbol, Type: kind, Body: clean(body).(map[string]any), Secret: secret, Needs: slices.Clone(needs)})
	return nil
}

// clean takes nulls out, which would claim fields that nobody set.
func clean(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e == nil {
				delete(v, k)
				continue
			}
			v[k] = clean(e)
		}
	case []any:
		for i, e := range v {
			v[i] = clean(e)
		}
	}
	return v
}

// connections are the variables of all connections, and the names of those that
// the container takes (K-17, K-18).
func (w *work) connections(users map[string]bool) []string {
	carried := map[string]map[string]any{}
	for _, name := range sorted(w.p.Connections) {
		c := w.p.Connections[name]
		if c.DisableDefaultEnvVars {
			continue
		}
		if !strings.HasPrefix(c.Source, "/") {
			carried[name] = address(c.Source)
			continue
		}
		values, near := w.in.Carried[name]
		if !near && !w.in.Draft {
			w.out.Warnings = append(w.out.Warnings, fmt.Sprintf("connection %s leads to %s, which is of another application and environment: it carries nothing", name, c.Source))
		}
		carried[name] = values
	}
	variables, collisions := connection.Merge(carried)
	for _, c := range collisions {
		w.out.Warnings = append(w.out.Warnings, c.String())
	}
	maps.Copy(w.data, variables)
	taken, overridden := connection.Share(sorted(variables), func(name string) bool { return users[name] })
	for _, name := range overridden {
		w.out.Warnings = append(w.out.Warnings, fmt.Sprintf("%s is set by container.env, which wins over the connection's", name))
	}
	return taken
}

// address is what a connection to a URL carries. Credentials in it are nobody's
// variable.
func address(source string) map[string]any {
	u, err := url.Parse(source)
	if err != nil {
		return nil
	}
	values := map[string]any{"scheme": u.Scheme, "hostname": u.Hostname()}
	if u.Port() != "" {
		values["port"] = u.Port()
	}
	return values
}

// storeValue reads a value of a secret store, which the control plane keeps.
func (w *work) storeValue(at, source, key string) (string, string, error) {
	id, err := core.ParseID(source)
	if err != nil || !strings.EqualFold(id.Type(), typeStores) {
		return "", "", fault(at+".source", "it must be the name of a Secret in the container's namespace, or the id of a resource of type %s", typeStores)
	}
	if w.in.Draft {
		return "", "", nil
	}
	r, ok := w.in.Stores[id.Key()]
	if !ok {
		return "", "", fault(at+".source", "%s is not known", id)
	}
	var kept struct {
		Resource string `json:"resource"`
		Data     map[string]struct {
			Value    *string `json:"value"`
			Encoding string  `json:"encoding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(r.Properties, &kept); err != nil {
		return "", "", core.Errorf(core.CodeInternal, "the properties of %s cannot be read", id)
	}
	entry, ok := kept.Data[key]
	if !ok {
		return "", "", fault(at+".key", "%s has no %q", id, key)
	}
	if entry.Value != nil {
		v, err := plainValue(*entry.Value, entry.Encoding)
		if err != nil {
			return "", "", fault(at+".key", "the value %q of %s is not base64, as it says it is", key, id)
		}
		return v, "", nil
	}
	ns, name, ok := strings.Cut(kept.Resource, "/")
	if !ok {
		ns, name = w.in.Namespace, kept.Resource
	}
	if name == "" || ns != w.in.Namespace {
		return "", "", fault(at+".source", "%s gives no value of %q to containers in namespace %s: it names the Secret %q, or it is of another application and environment", id, key, w.in.Namespace, kept.Resource)
	}
	return "", name, nil
}
