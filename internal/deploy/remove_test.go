package deploy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

const configMapID = "/planes/Kubernetes/import.namespace/ns/type/core%2FConfigMap/properties.metadata.name/"

// gone is an entry of deletedResources.
func gone(name, more string) string {
	return fmt.Sprintf(`{"import":"k","id":%q%s}`, configMapID+name, more)
}

func deleted(list []Affected) string {
	var out []string
	for _, a := range list {
		text := a.ID[strings.LastIndex(a.ID, "/")+1:]
		if a.Unverified {
			text += " unverified"
		}
		if a.Error != nil {
			text += " failed"
		}
		if a.Note != "" {
			text += " noted"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestDeletedResources(t *testing.T) {
	abc := doc(`"resources":{` + cm("a", `{}`, "") + `,` + cm("b", `{}`, `"dependsOn":["a"]`) + `,` + cm("c", `{}`, "") + `}`)
	known := func(name string) string {
		return fmt.Sprintf(`,"identity":{"configId":"main","uid":"uid-%s-1"}`, name)
	}
	after := func(t *testing.T) *seat {
		s := newSeat(t)
		s.must(abc)
		s.base.Run = "run-2"
		s.w.take()
		return s
	}
	t.Run("S-28 listed in the answer, dependants first", func(t *testing.T) {
		s := after(t)
		res := s.must(doc(`"resources":{},"deletedResources":[` + gone("a", known("a")) + `,` + gone("b", known("b")+`,"dependsOn":[`+fmt.Sprintf("%q", configMapID+"a")+`]`) + `]`))
		if got := s.w.names(); got != "main/ns/c" || deleted(res.Deleted) != "a, b" {
			t.Errorf("left %q, answered %q", got, deleted(res.Deleted))
		}
		if calls := s.w.calls("delete"); strings.Join(calls, ", ") != "delete main/ns/b, delete main/ns/a" {
			t.Errorf("deleted in the order %v", calls)
		}
	})
	t.Run("S-29 removed, retained, added", func(t *testing.T) {
		s := after(t)
		res := s.must(doc(`"resources":{` + cm("b", `{}`, "") + `,` + cm("d", `{}`, "") + `},"deletedResources":[` + gone("a", known("a")) + `]`))
		if got := s.w.names(); got != "main/ns/b main/ns/c main/ns/d" || s.w.objects["main/ns/b"].uid != "uid-b-1" || ids(res.Resources) != "b d" {
			t.Errorf("left %q, answered %q", got, ids(res.Resources))
		}
	})
	t.Run("S-30 already gone", func(t *testing.T) {
		s := after(t)
		delete(s.w.objects, "main/ns/a")
		if res := s.must(doc(`"resources":{},"deletedResources":[` + gone("a", known("a")) + `]`)); deleted(res.Deleted) != "a" {
			t.Errorf("answered %q", deleted(res.Deleted))
		}
	})
	t.Run("another object of that name", func(t *testing.T) {
		s := after(t)
		s.w.objects["main/ns/a"].uid = "another"
		s.must(doc(`"resources":{},"deletedResources":[` + gone("a", known("a")) + `]`))
		if got := s.w.names(); !strings.HasPrefix(got, "main/ns/a ") {
			t.Errorf("left %q: what is not the very object stays", got)
		}
	})
	t.Run("S-28 the seed's bare entry is unverified", func(t *testing.T) {
		s := after(t)
		res := s.must(doc(`"resources":{},"deletedResources":[` + gone("a", "") + `]`))
		if deleted(res.Deleted) != "a unverified" || len(res.Warnings) != 1 || s.w.names() != "main/ns/b main/ns/c" {
			t.Errorf("answered %q, warned %v, left %q", deleted(res.Deleted), res.Warnings, s.w.names())
		}
	})
	t.Run("S-31 the owner is gone", func(t *testing.T) {
		s := after(t)
		res := s.must(`{"contentVersion":"1.0.0.0","languageVersion":"2.0","imports":{"k":{"provider":"Kubernetes","version":"1.0.0","config":{"scope":{"type":"AzureResourceManager","id":"/subscriptions/s/gone"}}}},
		 "resources":{},"deletedResources":[` + gone("a", `,"identity":{"configId":"x","uid":"y"}`) + `]}`)
		if deleted(res.Deleted) != "a noted" || res.Deleted[0].Scope.ID != "/subscriptions/s/gone" {
			t.Errorf("answered %q, %+v", deleted(res.Deleted), res.Deleted)
		}
	})
	t.Run("S-32 another place behind the same scope", func(t *testing.T) {
		s := after(t)
		s.w.places[""] = "recreated"
		s.w.objects["recreated/ns/a"] = &object{uid: "uid-a-1"}
		res, err := s.deploy(doc(`"resources":{},"deletedResources":[` + gone("a", known("a")) + `]`))
		if !core.IsCode(err, CodeFailed) || deleted(res.Deleted) != "a failed" || !core.IsCode(res.Deleted[0].Error, extension.CodeWrongTarget) {
			t.Errorf("got %v, %q", err, deleted(res.Deleted))
		}
		if got := s.w.names(); !strings.Contains(got, "recreated/ns/a") || len(s.w.calls("delete")) > 0 {
			t.Errorf("left %q, calls %v", got, s.w.log)
		}
	})
	t.Run("S-33 both, and one in both", func(t *testing.T) {
		s := after(t)
		s.must(doc(`"resources":{` + cm("d", `{}`, "") + `},"deletedResources":[` + gone("a", known("a")) + `]`))
		log := strings.Join(s.w.take(), " ")
		if strings.Index(log, "apply main/ns/d") > strings.Index(log, "delete main/ns/a") {
			t.Errorf("created first, then deleted: %s", log)
		}
		s.base.Run = "run-3"
		s.refused(doc(`"resources":{`+cm("b", `{}`, "")+`},"deletedResources":[`+gone("b", known("b"))+`]`), "a resource is deployed or deleted, not both")
		if len(s.w.take()) > 0 {
			t.Error("something was done before it was refused")
		}
		// In a nested deployment it shows only when that is planned: nothing of it
		// is deleted.
		inner := doc(`"resources":{` + cm("b", `{}`, "") + `}`)
		_, err := s.deploy(doc(`"resources":{` + module("m", `{}`, inner, "") + `},"deletedResources":[` + gone("b", known("b")) + `]`))
		if err == nil || !strings.Contains(err.Error(), "is deployed too, by m/b") || len(s.w.calls("delete")) > 0 {
			t.Errorf("got %v, calls %v", err, s.w.log)
		}
	})
	t.Run("S-54 a failed deployment deletes nothing", func(t *testing.T) {
		s := after(t)
		s.w.before = func(call string) error {
			if call == "apply main/ns/d" {
				return core.Errorf(core.CodeForbidden, "no")
			}
			return nil
		}
		res, err := s.deploy(doc(`"resources":{` + cm("d", `{}`, "") + `},"deletedResources":[` + gone("a", known("a")) + `]`))
		if err == nil || len(res.Deleted) > 0 || len(s.w.calls("delete")) > 0 {
			t.Errorf("got %v, %v", err, s.w.log)
		}
	})
	t.Run("S-53 what fails keeps what it needs, the rest goes", func(t *testing.T) {
		s := after(t)
		s.w.before = func(call string) error {
			if call == "delete main/ns/b" {
				return core.Errorf(core.CodeForbidden, "a finalizer holds it")
			}
			return nil
		}
		res, err := s.deploy(doc(`"resources":{},"deletedResources":[` + gone("a", known("a")) + `,` + gone("c", known("c")) + `,` +
			gone("b", known("b")+`,"dependsOn":[`+fmt.Sprintf("%q", configMapID+"a")+`]`) + `]`))
		if err == nil || !strings.Contains(err.Error(), configMapID+"b was not deleted: a finalizer holds it") || deleted(res.Deleted) != "a failed, b failed, c" {
			t.Errorf("got %v, %q", err, deleted(res.Deleted))
		}
		if d := core.AsError(err).Details; len(d) != 1 {
			t.Errorf("details: %+v", d)
		}
	})
	t.Run("detached", func(t *testing.T) {
		s := newSeat(t)
		s.base.Owner = owner
		s.must(abc)
		s.base.Run = "run-2"
		s.must(doc(`"resources":{},"deletedResources":[` + gone("a", known("a")+`,"unmanage":"detach"`) + `]`))
		if o := s.w.objects["main/ns/a"]; o == nil || !o.owner.IsZero() {
			t.Errorf("a is %+v: it stays, without its owner's mark", o)
		}
		if e := s.events[len(s.events)-1]; e.Operation != "Detach" || e.State != "Succeeded" {
			t.Errorf("the last step is told as %s %s", e.Operation, e.State)
		}
	})
	t.Run("the control plane's own", func(t *testing.T) {
		s := newSeat(t)
		s.must(doc(`"resources":{"q":{"type":"Test.X/sync","apiVersion":"1","name":"q"}}`))
		s.base.Run = "run-2"
		id := "/planes/radius/local/resourceGroups/g/providers/Test.X/sync/q"
		res := s.must(doc(fmt.Sprintf(`"resources":{},"deletedResources":[{"id":%q,"apiVersion":"1"}]`, id)))
		if len(s.w.own) != 0 || deleted(res.Deleted) != "q" || res.Deleted[0].Scope != nil {
			t.Errorf("left %v, answered %+v", s.w.own, res.Deleted)
		}
	})
}
