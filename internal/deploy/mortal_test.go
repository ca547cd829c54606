package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// mortal ends the process, so to say, around the n-th call of a real target or of
// the journal: nothing works after that.
type mortal struct {
	mu    sync.Mutex
	at, n int
	late  bool
	dead  bool
}

func (m *mortal) around(call func() error) error {
	m.mu.Lock()
	m.n++
	now := m.n == m.at
	if m.dead = m.dead || now && !m.late; m.dead {
		m.mu.Unlock()
		return errKilled
	}
	m.mu.Unlock()
	err := call()
	if now {
		m.mu.Lock()
		m.dead = true
		m.mu.Unlock()
		return errKilled
	}
	return err
}

type mortalTarget struct {
	extension.Target
	m *mortal
}

func (t *mortalTarget) Apply(ctx context.Context, r extension.Resource) (s extension.State, err error) {
	err = t.m.around(func() error {
		s, err = t.Target.Apply(ctx, r)
		return err
	})
	if err == errKilled {
		return extension.State{}, err
	}
	return s, err
}

func (t *mortalTarget) Delete(ctx context.Context, ref extension.Ref) error {
	return t.m.around(func() error { return t.Target.Delete(ctx, ref) })
}

// TestKilledOnCluster_S45 is TestKilledAnywhere against the real API server, for a
// plain deployment and for one of an owner: the first has objects, when it is
// killed right after an apply, whose uid nobody has learned.
func TestKilledOnCluster_S45(t *testing.T) {
	for _, owned := range []bool{false, true} {
		t.Run(fmt.Sprintf("S-45 owned %t", owned), func(t *testing.T) {
			r := newReal(t)
			text := doc(`"parameters":{"g":{"type":"string","defaultValue":"[newGuid()]"}},"resources":{` + cm("a", `{"g":"[parameters('g')]"}`, "") + `,` +
				module("m", `{}`, doc(`"parameters":{"g":{"type":"string","defaultValue":"[newGuid()]"}},"resources":{`+
					`"s":{"import":"k","type":"core/Secret@v1","properties":{"metadata":{"name":"s","annotations":{"radapp.io/keep":"pw"}},"stringData":{"pw":"[parameters('g')]"}}}},
					"outputs":{"pw":{"type":"securestring","value":"[base64ToString(reference('s').data.pw)]"}}`), "") + `,` +
				cm("b", `{"a":"[reference('a').data.g]","pw":"[listOutputsWithSecureValues('m','2025-04-01').pw]"}`, "") + `},"deletedResources":[%s]`)
			// play runs in a namespace of its own, until an attempt survives.
			play := func(at int, late bool) (state string, calls int) {
				ns := r.namespace
				if at > 0 {
					ns = fmt.Sprintf("%s-%d-%t", r.namespace, at, late)
				}
				if at > 0 {
					if _, err := r.client.CoreV1().Namespaces().Create(t.Context(), namespaceOf(ns), metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := r.client.CoreV1().ConfigMaps(ns).Create(t.Context(), configMapOf("old"), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				m := &mortal{at: at, late: late}
				j := &journal{w: newWorld()}
				resolver := r.e.o.Resolver
				e := New(EngineOptions{Resolver: resolving(func(s extension.Scope, secrets extension.Secrets) (extension.Target, error) {
					target, err := resolver.Resolve(t.Context(), s, secrets)
					return &mortalTarget{target, m}, err
				})})
				q := Request{Template: []byte(strings.Replace(text, "%s",
					fmt.Sprintf(`{"import":"k","id":"/planes/Kubernetes/import.namespace/%s/type/core%%2FConfigMap/properties.metadata.name/old"}`, ns), 1)),
					Base: extension.Scope{Namespace: ns}, Run: "run", Seed: []byte("seed"), Parallel: 1,
					Record: func(ctx context.Context, put []core.Output, drop []core.ID) error {
						return m.around(func() error { return j.record(ctx, put, drop) })
					}}
				if owned {
					q.Owner = owner
				}
				for attempt := 1; ; attempt++ {
					q.Previous = j.previous()
					_, err := e.Deploy(t.Context(), q)
					if err == nil {
						break
					}
					if !m.dead || attempt > 1 {
						t.Fatalf("killed at call %d (late %t): attempt %d: %v", at, late, attempt, err)
					}
					m.dead, m.at = false, 0
				}
				found, err := r.client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				all := map[string]string{}
				for _, o := range found.Items {
					if o.Name != "kube-root-ca.crt" {
						all[o.Name] = fmt.Sprint(o.Data, o.Annotations["radapp.io/resource-id"])
					}
				}
				secret, err := r.client.CoreV1().Secrets(ns).Get(t.Context(), "s", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				all["s"] = string(secret.Data["pw"])
				var lines []string
				for _, k := range slices.Sorted(maps.Keys(all)) {
					lines = append(lines, k+" "+all[k])
				}
				for _, o := range j.previous() {
					h, err := readHandle(o)
					if err != nil || h.Ref.UID == "" || !h.Done {
						t.Errorf("killed at call %d (late %t): the journal has %s as %s", at, late, o.ID, o.Handle)
					}
					lines = append(lines, o.LocalID+" "+string(o.State))
				}
				slices.Sort(lines)
				return strings.Join(lines, "\n"), m.n
			}
			want, calls := play(0, false)
			if strings.Contains(want, "old") || !strings.Contains(want, "m/s Made") || calls < 8 {
				t.Fatalf("undisturbed, by %d calls: %s", calls, want)
			}
			for _, late := range []bool{false, true} {
				for at := 1; at <= calls; at++ {
					if got, n := play(at, late); n > 0 {
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("S-45 killed at call %d (late %t): %s", at, late, diff)
						}
					}
				}
			}
		})
	}
}

func namespaceOf(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func configMapOf(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
