package deploy

import (
	"encoding/json"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
)

// Handle is what the inventory keeps of an output: how to find and delete it,
// and how far the run that made it came. It holds no secret.
type Handle struct {
	// Kind is that of the recipe which made it, "" for a deployment's own.
	Kind string `json:"kind,omitempty"`
	// Scope and Ref find the resource of an extension; of one of the control
	// plane Ref has id, type and version, and Scope is zero.
	Scope extension.Scope `json:"scope,omitzero"`
	Ref   extension.Ref   `json:"ref"`
	// ID is S-12's, of an extension's resource.
	ID string `json:"extensionId,omitempty"`
	// Run is the run that wrote this, Done that it has brought the resource to
	// its end, and Error how that failed.
	Run   string      `json:"run,omitempty"`
	Done  bool        `json:"done,omitempty"`
	Error *core.Error `json:"error,omitempty"`
	// Operation is the control plane's, begun by this run's write.
	Operation string `json:"operation,omitempty"`
}

// key is that of [Affected].
func (h Handle) key() string { return Affected{ID: h.ID, Scope: answeredScope(h.Scope)}.Key() }

// own reports whether the resource is one of the control plane itself.
func (h Handle) own() bool { return h.Scope.Extension == "" }

func readHandle(o core.Output) (Handle, error) {
	var h Handle
	if err := json.Unmarshal(o.Handle, &h); err != nil {
		return h, core.Errorf(core.CodeInternal, "the record of %s cannot be read: %w", o.ID, err)
	}
	return h, nil
}

// row is one entry of the journal as this run has it.
type row struct {
	out    core.Output
	handle Handle
}

// output is the row as it is kept.
func (w *row) output() core.Output {
	w.out.Handle = mustJSON(w.handle)
	return w.out
}

// mustJSON writes what is made of strings and valid JSON.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// planRow makes the row of a resource that is about to be made. What the journal
// knows of it already stays: its uid, and of this very run how far it came.
func (r *run) planRow(id core.ID, localID string, h Handle, needs []core.ID) *row {
	h.Kind, h.Run = r.q.Kind, r.q.Run
	w := &row{out: core.Output{ID: id, LocalID: localID, State: core.OutputPlanned, Managed: !r.q.Owner.IsZero(), DependsOn: needs}, handle: h}
	before, ok := r.previous[id.Key()]
	if !ok && !h.own() {
		// What the target named only when it was made has another id in the plan.
		if before, ok = r.recordedAs(h.key()); ok {
			w.out.ID = before.ID
		}
	}
	if !ok {
		return w
	}
	old, err := readHandle(before)
	if err != nil {
		return w // made anew
	}
	w.out.State = before.State
	if w.handle.Ref.UID == "" {
		w.handle.Ref.UID = old.Ref.UID
	}
	if r.q.Run != "" && old.Run == r.q.Run {
		w.handle.Done, w.handle.Error, w.handle.Operation = old.Done, old.Error, old.Operation
		if old.Ref.ConfigID != "" {
			w.handle.Ref, w.handle.Scope = old.Ref, old.Scope
		}
	}
	return w
}

// recordedAs finds what an extension made by its key. The run's lock is held.
func (r *run) recordedAs(key string) (core.Output, bool) {
	if r.recorded == nil {
		r.recorded = map[string]core.Output{}
		for _, o := range r.q.Previous {
			if h, err := readHandle(o); err == nil && !h.own() {
				r.recorded[h.key()] = o
			}
		}
	}
	o, ok := r.recorded[key]
	return o, ok
}

// taken reports whether this run has made the resource in an attempt before. A
// run without a seed makes other GUIDs in each attempt, so only what the control
// plane holds to (an operation, once begun) counts there.
func (w *row) taken(r *run) bool {
	return r.q.Run != "" && w.handle.Done && (len(r.q.Seed) > 0 || w.handle.own())
}
