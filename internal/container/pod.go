package container

import (
	"encoding/base64"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/radial-project/radial/internal/identity"
)

// defaultProbeTimeout is the API's; the rest is as Kubernetes has it.
const defaultProbeTimeout = 5

// pod fills in the pod of the container, over the one of its base.
func (w *work) pod(spec *corev1.PodSpec) error {
	// Variables of every Service of the namespace are no part of what a container
	// is connected to.
	if spec.EnableServiceLinks == nil {
		links := false
		spec.EnableServiceLinks = &links
	}
	if w.p.RestartPolicy != "" {
		spec.RestartPolicy = corev1.RestartPolicy(w.p.RestartPolicy)
	}
	switch {
	case w.asksIdentity() || w.base.account != nil:
		spec.ServiceAccountName = w.name
	case spec.ServiceAccountName == "":
		// Said, since the API server keeps the former one where none is.
		spec.ServiceAccountName = identity.DefaultAccount
	}
	at := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return strings.EqualFold(c.Name, w.name) })
	if at < 0 {
		spec.Containers = append([]corev1.Container{{Name: w.name}}, spec.Containers...)
		at = 0
	}
	c, p := &spec.Containers[at], w.p.Container
	c.Image = p.Image
	if p.ImagePullPolicy != "" {
		c.ImagePullPolicy = corev1.PullPolicy(p.ImagePullPolicy)
	}
	if len(p.Command) > 0 {
		c.Command = p.Command
	}
	if len(p.Args) > 0 {
		c.Args = p.Args
	}
	if p.WorkingDir != "" {
		c.WorkingDir = p.WorkingDir
	}
	containerPorts(c, p.Ports)
	var err error
	if p.ReadinessProbe != nil {
		if c.ReadinessProbe, err = p.ReadinessProbe.render("container.readinessProbe"); err != nil {
			return err
		}
	}
	if p.LivenessProbe != nil {
		if c.LivenessProbe, err = p.LivenessProbe.render("container.livenessProbe"); err != nil {
			return err
		}
	}
	if err := w.volumes(spec, c); err != nil {
		return err
	}
	return w.variables(c)
}

// variables are those of the connections, then the user's own, which may refer
// to them by $(NAME).
func (w *work) variables(c *corev1.Container) error {
	users := map[string]bool{}
	for _, e := range c.Env {
		users[e.Name] = true
	}
	for name := range w.p.Container.Env {
		users[name] = true
	}
	taken := w.connections(users)
	stored := map[string]string{} // variable → its value, for the Secret
	var own []corev1.EnvVar
	for _, name := range sorted(w.p.Container.Env) {
		at := "container.env." + name
		if faults := validation.IsEnvVarName(name); len(faults) > 0 {
			return fault(at, "that is no name of a variable: %s", strings.Join(faults, "; "))
		}
		v := w.p.Container.Env[name]
		switch {
		case v.Value != nil && v.ValueFrom != nil:
			return fault(at, "it has both value and valueFrom: take one of them out")
		case v.Value != nil:
			own = append(own, corev1.EnvVar{Name: name, Value: *v.Value})
		case v.ValueFrom == nil || v.ValueFrom.SecretRef == nil:
			return fault(at, "it has neither value nor valueFrom.secretRef: give it one")
		case strings.HasPrefix(v.ValueFrom.SecretRef.Source, "/"):
			ref := v.ValueFrom.SecretRef
			value, secret, err := w.storeValue(at+".valueFrom.secretRef", ref.Source, ref.Key)
			if err != nil {
				return err
			}
			if faults := validation.IsConfigMapKey(name); len(faults) > 0 {
				return fault(at, "a variable from a secret store is kept under its name in a Secret: %s", strings.Join(faults, "; "))
			}
			if secret != "" {
				own = append(own, fromSecret(name, secret, ref.Key))
				continue
			}
			stored[name] = value
		default:
			ref := v.ValueFrom.SecretRef
			if faults := validation.IsDNS1123Subdomain(ref.Source); len(faults) > 0 {
				return fault(at+".valueFrom.secretRef.source", "it must be the name of a Secret in the container's namespace, or the id of a resource of type %s", typeStores)
			}
			own = append(own, fromSecret(name, ref.Source, ref.Key))
		}
	}
	for name, v := range stored {
		w.data[name] = v
	}
	var injected []corev1.EnvVar
	if len(w.data) > 0 {
		for _, name := range taken {
			injected = append(injected, fromSecret(name, w.secretName(), name))
		}
		for name := range stored {
			own = append(own, fromSecret(name, w.secretName(), name))
		}
		slices.SortFunc(own, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	}
	// What the container sets takes the place of its base's variable.
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { _, set := w.p.Container.Env[e.Name]; return set })
	c.Env = slices.Concat(injected, c.Env, own)
	return nil
}

func fromSecret(name, secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key}}}
}

func plainValue(v, encoding string) (string, error) {
	if encoding != "base64" {
		return v, nil
	}
	raw, err := base64.StdEncoding.DecodeString(v)
	return string(raw), err
}

// volumes are what the container mounts: storage that goes with the pod.
func (w *work) volumes(spec *corev1.PodSpec, c *corev1.Container) error {
	for _, name := range sorted(w.p.Container.Volumes) {
		v := w.p.Container.Volumes[name]
		at := "container.volumes." + name
		switch {
		case v.Kind != "ephemeral":
			return fault(at+".kind", "volumes of kind %s are of resources that Radial does not provision: make a PersistentVolumeClaim, and mount it by properties.runtimes.kubernetes.pod", v.Kind)
		case len(validation.IsDNS1123Label(name)) > 0:
			return fault(at, "a volume's name is at most 63 of a-z, 0-9 and hyphens: rename it")
		case !strings.HasPrefix(v.MountPath, "/"):
			return fault(at+".mountPath", "it must be an absolute path: say where the volume is mounted")
		case slices.ContainsFunc(spec.Volumes, func(o corev1.Volume) bool { return o.Name == name }):
			return fault(at, "properties.runtimes.kubernetes.base has a volume of that name: rename one of them")
		}
		medium := corev1.StorageMediumDefault
		if v.ManagedStore == "memory" {
			medium = corev1.StorageMediumMemory
		}
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: v.MountPath})
	}
	return nil
}

func (p port) protocol() corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return corev1.Protocol(p.Protocol)
}

func (p port) outside() int32 {
	if p.Port != 0 {
		return p.Port
	}
	return p.ContainerPort
}

func containerPorts(c *corev1.Container, ports map[string]port) {
	for _, name := range sorted(ports) {
		p := ports[name]
		if !slices.ContainsFunc(c.Ports, func(o corev1.ContainerPort) bool {
			return o.ContainerPort == p.ContainerPort && (o.Protocol == p.protocol() || o.Protocol == "" && p.protocol() == corev1.ProtocolTCP)
		}) {
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: p.ContainerPort, Protocol: p.protocol()})
		}
	}
}

// servicePorts puts the ports onto a Service; one of the base gives way to that
// of the container with its name or its number.
func servicePorts(s *corev1.ServiceSpec, ports map[string]port) error {
	type number struct {
		port     int32
		protocol corev1.Protocol
	}
	for i, o := range s.Ports { // of the base, as the API server would default it
		if o.TargetPort == (intstr.IntOrString{}) {
			s.Ports[i].TargetPort = intstr.FromInt32(o.Port)
		}
	}
	taken := map[number]string{}
	for _, key := range sorted(ports) {
		p, name := ports[key], strings.ToLower(key)
		at := "container.ports." + key
		n := number{p.outside(), p.protocol()}
		switch {
		case len(validation.IsDNS1123Label(name)) > 0:
			return fault(at, "a port's name is at most 63 of a-z, 0-9 and hyphens: rename it")
		case taken[n] != "":
			return fault(at+".port", "it is %d/%s, as that of port %s is: give one of them another", n.port, n.protocol, taken[n])
		}
		taken[n] = key
		made := corev1.ServicePort{Name: name, Port: n.port, Protocol: n.protocol, TargetPort: intstr.FromInt32(p.ContainerPort)}
		if p.Scheme != "" {
			if len(validation.IsQualifiedName(p.Scheme)) > 0 {
				return fault(at+".scheme", "it must be the scheme of a URL, such as http")
			}
			scheme := strings.ToLower(p.Scheme)
			made.AppProtocol = &scheme
		}
		s.Ports = slices.DeleteFunc(s.Ports, func(o corev1.ServicePort) bool {
			return strings.EqualFold(o.Name, name) || o.Port == n.port && (o.Protocol == n.protocol || o.Protocol == "" && n.protocol == corev1.ProtocolTCP)
		})
		s.Ports = append(s.Ports, made)
	}
	return nil
}

// render is the probe as Kubernetes has it.
func (p probe) render(at string) (*corev1.Probe, error) {
	out := &corev1.Probe{TimeoutSeconds: defaultProbeTimeout}
	for _, n := range []struct {
		name string
		from *float64
		to   *int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds, &out.InitialDelaySeconds}, {"failureThreshold", p.FailureThreshold, &out.FailureThreshold},
		{"periodSeconds", p.PeriodSeconds, &out.PeriodSeconds}, {"timeoutSeconds", p.TimeoutSeconds, &out.TimeoutSeconds},
	} {
		if n.from == nil {
			continue
		}
		if *n.from != math.Trunc(*n.from) || *n.from < 0 || *n.from > math.MaxInt32 {
			return nil, fault(at+"."+n.name, "Kubernetes takes whole numbers only: round it")
		}
		*n.to = int32(*n.from)
	}
	switch p.Kind {
	case "httpGet":
		get := &corev1.HTTPGetAction{Path: p.Path, Port: intstr.FromInt32(p.ContainerPort)}
		for _, name := range sorted(p.Headers) {
			get.HTTPHeaders = append(get.HTTPHeaders, corev1.HTTPHeader{Name: name, Value: p.Headers[name]})
		}
		out.HTTPGet = get
	case "tcp":
		out.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(p.ContainerPort)}
	case "exec":
		command := strings.Fields(p.Command)
		if len(command) == 0 {
			return nil, fault(at+".command", "it is empty: say what is run")
		}
		out.Exec = &corev1.ExecAction{Command: command}
	default:
		return nil, fault(at+".kind", "it must be httpGet, tcp or exec")
	}
	return out, nil
}
