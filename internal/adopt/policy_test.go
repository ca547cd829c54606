package adopt

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/connection"
)

// change edits a Deployment in a case of the table.
type change func(*appsv1.Deployment)

func connect(name, recipe string) change { return set(AnnotationConnection+name, recipe) }

func set(key, value string) change {
	return func(d *appsv1.Deployment) {
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		d.Annotations[key] = value
	}
}

func unset(key string) change { return func(d *appsv1.Deployment) { delete(d.Annotations, key) } }

func noAnnotations(d *appsv1.Deployment) { d.Annotations = nil }

func pause(d *appsv1.Deployment)  { d.Spec.Paused = true }
func resume(d *appsv1.Deployment) { d.Spec.Paused = false }

var (
	mark    = set(AnnotationHeld, "true")
	markOff = unset(AnnotationHeld)
)

func image(tag string) change {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:" + tag }
}

func replicas(n int32) change { return func(d *appsv1.Deployment) { d.Spec.Replicas = &n } }

func deployment(changes ...change) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "app:1"}}},
			},
		},
	}
	for _, c := range changes {
		c(d)
	}
	return d
}

type admission struct {
	name   string
	reason string
	// old is nil for a create.
	old []change
	// write is made on the old object; for a create on a plain one.
	write        []change
	byController bool
	want         Verdict
}

func held(more ...change) []change {
	return append([]change{connect("redis", "db"), mark, pause}, more...)
}

// rendered is the stamp of what the control plane made for a container.
var rendered = set(radapp.AnnotationOwner, "/planes/radius/local/resourceGroups/g/providers/Applications.Core/containers/web")

func users(more ...change) []change { return append([]change{connect("redis", "db"), pause}, more...) }
func free(more ...change) []change  { return append([]change{connect("redis", "db")}, more...) }

// admissions is the table of docs/holding.md. TestAdmit runs the Go side of
// it, TestAdmission_K25 the admission policy on a real API server.
var admissions = []admission{
	{name: "create with a connection", write: free(), want: Hold,
		reason: "K-23: no pod starts without its variables"},
	{name: "create with a connection by the controller", write: free(), byController: true, want: Leave,
		reason: "the controller releases by writing"},
	{name: "create without a connection", write: []change{set(AnnotationEnabled, "true")}, want: Leave,
		reason: "K-1: enabling changes nothing of the workload"},
	{name: "create with nothing of ours", write: []change{noAnnotations}, want: Leave,
		reason: "unrelated objects never notice"},
	{name: "create switched off", write: free(set(AnnotationEnabled, "false")), want: Leave,
		reason: "K-2: 'false' wins"},
	{name: "create switched off, otherwise spelled", write: free(set(AnnotationEnabled, "False")), want: Leave,
		reason: "the case of the value does not matter"},
	{name: "create paused", write: users(), want: Leave,
		reason: "K-24: paused by its user from the start"},
	{name: "create a copy of a held object", write: held(), want: Hold,
		reason: "a mark is a hint: the copy is held until the facts are there"},
	{name: "create with a copied mark, not paused", write: free(mark), want: Hold,
		reason: "the mark proves nothing"},

	{name: "create what the control plane rendered", write: free(rendered), want: Leave, reason: "K-20: it has the data before it is made"},
	{name: "a rendered one is annotated by hand", old: []change{rendered}, write: []change{connect("redis", "db"), image("2")}, want: Leave,
		reason: "K-20: nobody would release it"},
	{name: "a Deployment of a recipe", write: free(set(radapp.AnnotationOwner, "/planes/radius/local/resourceGroups/g/providers/Applications.Datastores/redisCaches/c")), want: Hold,
		reason: "only what stands for a container is its renderer's alone"},

	{name: "nothing changed", old: free(), want: Leave, reason: "nothing to hold"},
	{name: "a label", old: free(), write: []change{func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }}, want: Leave,
		reason: "labels of the Deployment roll nothing"},
	{name: "another annotation", old: free(), write: []change{set("example.com/a", "b")}, want: Leave,
		reason: "not ours"},
	{name: "scaled through the object", old: free(), write: []change{replicas(3)}, want: Leave,
		reason: "scaling never notices"},
	{name: "template changed", old: free(), write: []change{image("2")}, want: Hold, reason: "K-23"},
	{name: "restarted", old: free(), write: []change{func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	}}, want: Hold, reason: "a restart is a rollout like any other"},
	{name: "template changed by the controller", old: free(), write: []change{image("2")}, byController: true, want: Leave,
		reason: "an injection is no user's change"},
	{name: "template changed, no connection", old: []change{set(AnnotationEnabled, "true")}, write: []change{image("2")}, want: Leave,
		reason: "nothing to wait for"},
	{name: "connection added to an enabled one", old: []change{set(AnnotationEnabled, "true")}, write: []change{connect("redis", "db")}, want: Hold,
		reason: "K-23: a change of a connection"},
	{name: "connection added to one without annotations", old: []change{noAnnotations}, write: []change{connect("redis", "db")}, want: Hold,
		reason: "K-2"},
	{name: "second connection", old: free(), write: []change{connect("queue", "mq")}, want: Hold, reason: "K-23"},
	{name: "connection to another Recipe", old: free(), write: []change{connect("redis", "cache")}, want: Hold, reason: "K-23"},
	{name: "one of two connections removed", old: free(connect("queue", "mq")), write: []change{unset(AnnotationConnection + "queue")}, want: Hold, reason: "K-23"},
	{name: "last connection removed", old: free(set("example.com/a", "b")), write: []change{unset(AnnotationConnection + "redis")}, want: Hold,
		reason: "what was injected goes in the same rollout"},
	{name: "last annotation removed", old: free(), write: []change{noAnnotations}, want: Hold,
		reason: "the mark needs annotations that are not there"},
	{name: "last connection removed with a new image", old: free(), write: []change{noAnnotations, image("2")}, want: Hold,
		reason: "one ReplicaSet, not two"},
	{name: "switched off", old: free(), write: []change{set(AnnotationEnabled, "false")}, want: Leave,
		reason: "the way out works without a controller"},
	{name: "switched off with a new image", old: free(), write: []change{set(AnnotationEnabled, "false"), image("2")}, want: Leave,
		reason: "the way out"},
	{name: "switched on again", old: free(set(AnnotationEnabled, "false")), write: []change{set(AnnotationEnabled, "true")}, want: Hold,
		reason: "connections begin to count"},
	{name: "connection of a switched off one removed", old: free(set(AnnotationEnabled, "false")), write: []change{noAnnotations}, want: Leave,
		reason: "it never counted"},
	{name: "application", old: free(), write: []change{set(AnnotationApplication, "shop")}, want: Hold, reason: "another application is another set of data"},
	{name: "environment", old: free(), write: []change{set(AnnotationEnvironment, "prod")}, want: Hold, reason: "so is another environment"},
	{name: "containers", old: free(), write: []change{set(AnnotationContainers, "web")}, want: Hold, reason: "K-9: who gets the data"},
	{name: "paused by its user", old: free(), write: []change{pause}, want: Leave, reason: "K-24"},
	{name: "paused by its user with a new image", old: free(), write: []change{pause, image("2")}, want: Leave,
		reason: "K-24: it does not roll until its user resumes it"},
	{name: "paused by its user under a stale mark", old: free(mark), write: []change{pause}, want: Unmark,
		reason: "a mark left over must not make the pause ours"},
	{name: "written under a stale mark", old: free(mark), write: []change{replicas(2)}, want: Unmark, reason: "a mark without a pause stands for nothing"},
	{name: "marked by hand", old: free(), write: []change{mark}, want: Unmark, reason: "a mark is admission's to set"},
	{name: "new image under a stale mark", old: free(mark), write: []change{image("2")}, want: Hold, reason: "K-23"},
	{name: "replaced by a held copy", old: free(), write: []change{pause, mark}, want: Hold, reason: "both came together, so the pause is a hold's"},
	{name: "rolled back to a template and a mark", old: free(), write: []change{image("0"), mark}, want: Hold,
		reason: "K-46: kubectl rollout undo brings annotations back"},

	{name: "a user's pause, new image", old: users(), write: []change{image("2")}, want: Leave, reason: "K-24: stays paused, stays the user's"},
	{name: "a user's pause, connection added", old: users(), write: []change{connect("queue", "mq")}, want: Leave, reason: "K-24"},
	{name: "a user's pause, copied mark", old: users(), write: []change{mark}, want: Unmark, reason: "K-24: a copied mark does not make it ours"},
	{name: "a user's pause ends", old: users(), write: []change{resume}, want: Hold, reason: "what gathered during the pause is looked at before it rolls"},
	{name: "a user's pause ends with a new image", old: users(), write: []change{resume, image("2")}, want: Hold, reason: "K-23"},
	{name: "a user's pause ends by the controller", old: users(), write: []change{resume}, byController: true, want: Leave, reason: "it never does, and admission is not what keeps it"},

	{name: "a held one resumed by hand", old: held(), write: []change{resume}, want: Hold, reason: "K-23: not before its data is there"},
	{name: "a held one replaced by a file that knows neither", old: held(), write: []change{resume, markOff}, want: Hold, reason: "a re-apply does not release"},
	{name: "a held one whose mark is taken off", old: held(), write: []change{markOff}, want: Hold, reason: "else nobody would ever release it"},
	{name: "a held one with a new image", old: held(), write: []change{image("2")}, want: Hold, reason: "K-23"},
	{name: "a held one resumed with a new image", old: held(), write: []change{resume, image("2")}, want: Hold, reason: "K-23"},
	{name: "a held one scaled", old: held(), write: []change{replicas(3)}, want: Hold, reason: "stays as it is"},
	{name: "a held one released", old: held(), write: []change{resume, markOff}, byController: true, want: Leave, reason: "only the controller releases"},
	{name: "a held one loses its connection", old: held(), write: []change{unset(AnnotationConnection + "redis")}, want: Hold, reason: "the controller hands it back and releases"},
	{name: "a held one without connection resumed", old: []change{mark, pause, set(AnnotationEnabled, "true")}, write: []change{resume}, want: Leave,
		reason: "the way out without a controller: no connection, then resume"},
	{name: "a held one switched off", old: held(), write: []change{set(AnnotationEnabled, "false")}, want: Leave, reason: "the controller releases; without it, resume by hand"},
	{name: "a held and switched off one resumed", old: held(set(AnnotationEnabled, "false")), write: []change{resume}, want: Leave, reason: "the way out without a controller"},
}

// objects builds the two sides of a case.
func (a admission) objects() (old, object *appsv1.Deployment) {
	if a.old != nil {
		old = deployment(a.old...)
	}
	return old, deployment(append(slices.Clone(a.old), a.write...)...)
}

// expected is the object as a verdict leaves it.
func expected(v Verdict, object *appsv1.Deployment) (paused, marked bool) {
	_, marked = object.Annotations[AnnotationHeld]
	switch v {
	case Hold:
		return true, true
	case Unmark:
		return object.Spec.Paused, false
	}
	return object.Spec.Paused, marked
}

func TestAdmit(t *testing.T) {
	for _, a := range admissions {
		t.Run(a.name, func(t *testing.T) {
			old, object := a.objects()
			if got := Admit(a.byController, old, object); got != a.want {
				t.Errorf("Admit = %s, want %s: %s", got, a.want, a.reason)
			}
		})
	}
	t.Run("an object on its way out", func(t *testing.T) {
		d := deployment(free(image("2"))...)
		d.DeletionTimestamp = &metav1.Time{}
		if got := Admit(false, deployment(free()...), d); got != Leave {
			t.Errorf("Admit = %s, want leave: nothing of it rolls any more", got)
		}
	})
}

// TestAdmit_K24_declared: an apply that begins to declare the pause of a held
// object makes it the user's; one that declared it before, or a patch, does not.
func TestAdmit_K24_declared(t *testing.T) {
	applies := func(manager, operation, fields string) change {
		return func(d *appsv1.Deployment) {
			d.ManagedFields = append(d.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: manager, Operation: metav1.ManagedFieldsOperationType(operation), FieldsV1: metav1.NewFieldsV1(fields)})
		}
	}
	const declared, silent = `{"f:spec":{"f:paused":{}}}`, `{"f:spec":{"f:replicas":{}}}`
	cases := map[string]struct {
		old, write []change
		want       Verdict
	}{
		"begins to declare it":           {held(applies("helm", "Apply", silent)), []change{applies("helm", "Apply", declared)}, Unmark},
		"declared it before":             {held(applies("helm", "Apply", declared)), []change{image("2")}, Hold},
		"declares false":                 {held(), []change{applies("helm", "Apply", declared), resume}, Hold},
		"another manager begins":         {held(applies("helm", "Apply", declared)), []change{applies("kubectl", "Apply", declared)}, Unmark},
		"an update, which declares none": {held(), []change{applies("kubectl", "Update", declared)}, Hold},
	}
	for name, c := range cases {
		if got := Admit(false, deployment(c.old...), deployment(append(slices.Clone(c.old), c.write...)...)); got != c.want {
			t.Errorf("%s: Admit = %s, want %s", name, got, c.want)
		}
	}
}

func TestTrim(t *testing.T) {
	d := deployment(set("example.com/a", "b"))
	d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	if _, err := Trim(d); err != nil || d.Name != "web" || d.Annotations != nil || len(d.Spec.Template.Spec.Containers) > 0 {
		t.Errorf("of a Deployment that is not adopted the cache keeps %s", show(d))
	}
	for name, d := range map[string]*appsv1.Deployment{
		"adopted": deployment(free()...),
		"left by an adoption": deployment(func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{AnnotationHash: "x"}
		}),
		"with our finalizer": deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{Finalizer} }),
	} {
		want := d.DeepCopy()
		d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		if _, err := Trim(d); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, d); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func ref(secret, name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: name}}}
}

func TestPlan(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "migrate"}},
		Containers: []corev1.Container{
			{Name: "web", Env: []corev1.EnvVar{{Name: "CONNECTION_REDIS_HOST", Value: "mine"}, ref("web-connections-old", "CONNECTION_REDIS_URL")}},
			{Name: "proxy"},
		},
	}}
	data := map[string]string{"CONNECTION_REDIS_HOST": "h", "CONNECTION_REDIS_URL": "u"}
	both := []string{"CONNECTION_REDIS_HOST", "CONNECTION_REDIS_URL"}
	cases := map[string]struct {
		reason string
		in     Intent
		want   Injection
	}{
		"K-9 every container and init container": {
			reason: "absent radapp.io/containers means all of them",
			in:     Intent{Connections: []Connection{{"redis", "db"}}},
			want: Injection{Secret: "web-connections-x", Hash: "x",
				Variables:  map[string][]string{"migrate": both, "web": {"CONNECTION_REDIS_URL"}, "proxy": both},
				Overridden: []string{"web: CONNECTION_REDIS_HOST"}},
		},
		"K-9 named containers only": {
			reason: "an unknown name is told and keeps nothing from the known",
			in:     Intent{Connections: []Connection{{"redis", "db"}}, Containers: []string{"proxy", "sidecar"}},
			want: Injection{Secret: "web-connections-x", Hash: "x",
				Variables: map[string][]string{"proxy": both}, Unknown: []string{"sidecar"}},
		},
		"K-9 no named container is there": {
			reason: "data that nothing would get is no data",
			in:     Intent{Connections: []Connection{{"redis", "db"}}, Containers: []string{"sidecar"}},
			want: Injection{Secret: "web-connections-x", Hash: "x",
				Variables: map[string][]string{}, Unknown: []string{"sidecar"}, Missed: true},
		},
		"no connection": {reason: "K-1: then the template holds nothing of ours", in: Intent{Adopted: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Plan("web", c.in, &template, data, "x")); diff != "" {
				t.Errorf("%s\n(-want +got)\n%s", c.reason, diff)
			}
		})
	}
}

func TestHolds(t *testing.T) {
	inj := Injection{Secret: "web-connections-x", Hash: "x", Variables: map[string][]string{"web": {"A", "B"}}}
	template := func(hash string, env ...corev1.EnvVar) *corev1.PodTemplateSpec {
		p := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Env: env}}}}
		if hash != "" {
			p.Annotations = map[string]string{AnnotationHash: hash}
		}
		return p
	}
	mine := corev1.EnvVar{Name: "OWN", Value: "1"}
	a, b := ref("web-connections-x", "A"), ref("web-connections-x", "B")
	cases := map[string]struct {
		template *corev1.PodTemplateSpec
		want     bool
	}{
		"complete":                       {template("x", mine, b, a), true},
		"nothing yet":                    {template(""), false},
		"hash without entries":           {template("x", mine), false},
		"entries without hash":           {template("", a, b), false},
		"one missing":                    {template("x", a), false},
		"one too many":                   {template("x", a, b, ref("web-connections-x", "C")), false},
		"an old Secret":                  {template("x", a, ref("web-connections-w", "B")), false},
		"a rolled back hash":             {template("w", a, b), false},
		"a Secret of the user's":         {template("x", a, ref("redis-secret", "B")), false},
		"another Deployment's Secret":    {template("x", a, ref("webshop-connections-x", "B")), false},
		"a user's Secret reference, too": {template("x", a, b, ref("redis-secret", "URL")), true},
	}
	for name, c := range cases {
		if got := inj.Holds("web", c.template); got != c.want {
			t.Errorf("%s: Holds = %v, want %v", name, got, c.want)
		}
	}
	if !(Injection{}).Holds("web", template("", mine)) || (Injection{}).Holds("web", template("", a)) {
		t.Error("an empty injection holds in templates without entries of ours, and in no other")
	}
}

func TestInjectedBefore_K25(t *testing.T) {
	in := Intent{Connections: []Connection{{"redis", "db"}}}
	with := deployment()
	with.Spec.Template.Annotations = map[string]string{AnnotationHash: "old"}
	with.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{ref("web-connections-old", "A")}
	if !injectedBefore("web", in, &with.Spec.Template) {
		t.Error("a template with older data counts as one written without admission: its running pods would be paused on every new value")
	}
	if injectedBefore("web", in, &deployment().Spec.Template) {
		t.Error("a template with nothing of ours counts as injected: its pods would start without their variables")
	}
	forged := deployment()
	forged.Spec.Template.Annotations = map[string]string{AnnotationHash: "old"}
	if injectedBefore("web", in, &forged.Spec.Template) {
		t.Error("a hash alone is believed")
	}
	none := deployment()
	none.Spec.Template.Annotations = map[string]string{AnnotationHash: connection.None}
	if !injectedBefore("web", in, &none.Spec.Template) {
		t.Error("connections that carried nothing left nothing but their hash, and that is complete")
	}
}

func TestParseIntent(t *testing.T) {
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		want        Intent
	}{
		"K-1 enabled": {
			reason:      "enabled alone adopts",
			annotations: map[string]string{AnnotationEnabled: "true"},
			want:        Intent{Adopted: true},
		},
		"K-2 a connection adopts by itself": {
			annotations: map[string]string{"radapp.io/connection-redis": "db"},
			want:        Intent{Adopted: true, Connections: []Connection{{"redis", "db"}}},
		},
		"K-2 'false' wins": {
			annotations: map[string]string{"radapp.io/connection-redis": "db", AnnotationEnabled: "false"},
			want:        Intent{},
		},
		"K-3 K-4 overrides": {
			annotations: map[string]string{AnnotationEnabled: "True", AnnotationApplication: "shop", AnnotationEnvironment: " prod "},
			want:        Intent{Adopted: true, Application: "shop", Environment: "prod"},
		},
		"connections are sorted": {
			reason:      "the order of a map must not reach anything",
			annotations: map[string]string{"radapp.io/connection-b": "2", "radapp.io/connection-a": "1"},
			want:        Intent{Adopted: true, Connections: []Connection{{"a", "1"}, {"b", "2"}}},
		},
		"K-9 containers": {
			annotations: map[string]string{AnnotationEnabled: "true", AnnotationContainers: "web, proxy,,web"},
			want:        Intent{Adopted: true, Containers: []string{"web", "proxy"}},
		},
		"misspelt connection": {
			annotations: map[string]string{"radapp.io/conection-redis": "db"},
			want: Intent{Faults: []Fault{{"radapp.io/conection-redis",
				"radapp.io/conection-redis is not an annotation that Radial knows; did you mean radapp.io/connection-redis?"}}},
		},
		"misspelt enabled": {
			annotations: map[string]string{"radapp.io/enable": "true"},
			want: Intent{Faults: []Fault{{"radapp.io/enable",
				"radapp.io/enable is not an annotation that Radial knows; did you mean radapp.io/enabled?"}}},
		},
		"connection without a name": {
			annotations: map[string]string{"radapp.io/connection": "db"},
			want: Intent{Faults: []Fault{{"radapp.io/connection",
				"radapp.io/connection is not an annotation that Radial knows; did you mean radapp.io/connection-<name>?"}}},
		},
		"enabled with another word": {
			annotations: map[string]string{AnnotationEnabled: "yes"},
			want:        Intent{Faults: []Fault{{AnnotationEnabled, `radapp.io/enabled is "yes"; it must be 'true' or 'false'`}}},
		},
		"what others own": {
			reason:      "our own answers and other prefixes say nothing",
			annotations: map[string]string{AnnotationStatus: "{", AnnotationHeld: "true", "example.com/enabled": "true", "radapp.io/protect": "true"},
			want:        Intent{},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, ParseIntent(c.annotations)); diff != "" {
				t.Errorf("%s\n(-want +got)\n%s", c.reason, diff)
			}
		})
	}
}

func TestObservedHash_K28(t *testing.T) {
	base := deployment(free()...)
	if ObservedHash(deployment(free(set(AnnotationStatus, "x"), mark, pause, replicas(4))...)) != ObservedHash(base) {
		t.Error("the hash moves with our own answers, the pause or the replicas")
	}
	for name, c := range map[string]change{"template": image("2"), "connection": connect("redis", "other"), "application": set(AnnotationApplication, "a")} {
		if ObservedHash(deployment(free(c)...)) == ObservedHash(base) {
			t.Errorf("the hash does not cover the %s", name)
		}
	}
}
