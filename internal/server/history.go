package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deployment"
	"github.com/radial-project/radial/internal/dynamic"
	"github.com/radial-project/radial/internal/store"
)

// The operations of all types are found below any namespace by their ids alone;
// clients of ours list them below System.Resources.

// operationWire is an operation on the wire.
func operationWire(op core.Operation) wire.Operation {
	out := wire.Operation{
		OperationStatus: arm.OperationStatus(op),
		ResourceID:      op.ResourceID.String(), Verb: string(op.Verb), APIVersion: op.APIVersion,
		Parent: op.Parent, Parked: op.Parked && !op.State.Terminal(), Children: op.Children, Attempts: op.Attempts,
		CancelRequested: moment(op.CancelRequested), Deadline: moment(op.Deadline),
	}
	if !out.Parked {
		out.Children = 0
	}
	return out
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// listOperations answers operations, the one accepted last first. `resource`,
// `group` (a name) and `live=true` narrow the list.
func (s *Server) listOperations(w http.ResponseWriter, r *arm.Request) error {
	page, err := r.Page()
	if err != nil {
		return err
	}
	q := store.OperationQuery{Limit: page.Limit, After: page.After}
	if v := r.Query("resource"); v != "" {
		id, err := core.ParseID(v)
		if err != nil {
			return err
		}
		if t, ok := s.types.Canonical(id.Type()); ok {
			id = id.WithType(t)
		}
		q.Resource = id
	}
	if v := r.Query("group"); v != "" {
		q.Group = core.GroupID(v).Key() // as operations are grouped for fairness
	}
	if v := r.Query("live"); v != "" {
		if q.Live, err = strconv.ParseBool(v); err != nil {
			return core.Errorf(core.CodeBadRequest, "live is %q: it must be true or false", v)
		}
	}
	found, err := s.o.Store.Operations(r.Context(), q)
	if err != nil {
		return err
	}
	list := struct {
		Value    []wire.Operation `json:"value"`
		NextLink string           `json:"nextLink,omitempty"`
	}{Value: []wire.Operation{}, NextLink: r.NextLink(found.Next)}
	visible := auth.Viewer(r.Context())
	for _, op := range found.Operations {
		if visible(op.ResourceID) {
			list.Value = append(list.Value, operationWire(op))
		}
	}
	return arm.WriteJSON(w, http.StatusOK, list)
}

// operationMessages answers the log of an operation above `after`. With
// `Prefer: wait=<seconds>` an empty answer is held until there is a message or
// the operation has ended.
func (s *Server) operationMessages(w http.ResponseWriter, r *arm.Request) error {
	id := r.Vars["operation"]
	var after int64
	if v := r.Query("after"); v != "" {
		var err error
		if after, err = strconv.ParseInt(v, 10, 64); err != nil || after < 0 {
			return core.Errorf(core.CodeBadRequest, "after is %q: it must be the seq of a message", v)
		}
	}
	found, err := s.awaitMessages(r, id, after)
	if err != nil {
		return err
	}
	list := make([]wire.OperationMessage, len(found))
	for i, m := range found {
		text, event := deployment.SplitLine(m.Text)
		list[i] = wire.OperationMessage{Seq: m.Seq, Time: m.Time.UTC(), Text: text, Event: event}
	}
	w.Header().Set("Cache-Control", "no-store")
	return writeList(w, list)
}

func (s *Server) awaitMessages(r *arm.Request, id string, after int64) ([]store.Message, error) {
	wait := r.Wait()
	if wait == 0 {
		return s.o.Store.Messages(r.Context(), id, after, 0)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	// Both are registered before the first look: nothing between is missed.
	more, stopMessages := s.o.Feed.Alert(store.ChangeMessages, id)
	defer stopMessages()
	ended, stopEnd := s.o.Feed.Operation(id)
	defer stopEnd()
	for {
		found, err := s.o.Store.Messages(r.Context(), id, after, 0)
		if err != nil || len(found) > 0 {
			return found, err
		}
		op, err := s.o.Store.Operation(r.Context(), id)
		if err != nil {
			return nil, err
		}
		if op.State.Terminal() { // its last lines came before its end
			return s.o.Store.Messages(r.Context(), id, after, 0)
		}
		select {
		case <-more:
		case <-ended:
		case <-s.stopping:
			return nil, nil
		case <-ctx.Done():
			return nil, r.Context().Err()
		}
	}
}

// cancelOperation asks for the end of an operation (D-20): 202 with the
// operation as it is then, 409 once it has ended.
func (s *Server) cancelOperation(w http.ResponseWriter, r *arm.Request) error {
	op, err := s.o.Store.Cancel(r.Context(), store.Cancel{
		Operation: r.Vars["operation"], Error: core.Errorf(core.CodeCanceled, "the operation was canceled on request"), Now: s.o.Now(),
	})
	if err != nil {
		return err
	}
	arm.SetAsync(w, r, op.ResourceID, op.ID)
	return arm.WriteJSON(w, http.StatusAccepted, operationWire(op))
}

// retryOperation does again what an operation did not bring to its end: 202 with
// the new operation. It is a change of the resource that changes nothing, so
// that sensitive values stay; or its deletion once more.
func (s *Server) retryOperation(w http.ResponseWriter, r *arm.Request) error {
	op, err := s.o.Store.Operation(r.Context(), r.Vars["operation"])
	if err != nil {
		return err
	}
	refuse := func(why string) error {
		return core.Errorf(core.CodeConflict, "operation %s %s: there is nothing to retry", op.ID, why).WithTarget(op.ID)
	}
	switch {
	case deployment.IsDeployment(op.ResourceID), deployment.IsStack(op.ResourceID):
		return core.Errorf(core.CodeConflict, "operation %s is of a deployment or a stack, whose inputs are not kept: send it again", op.ID).WithTarget(op.ID)
	case !op.State.Terminal():
		return refuse("is in progress (" + string(op.State) + ")")
	case op.State == core.StateSucceeded:
		return refuse("has succeeded")
	}
	newest, err := s.o.Store.Operations(r.Context(), store.OperationQuery{Resource: op.ResourceID, Limit: 1})
	if err != nil {
		return err
	}
	if len(newest.Operations) > 0 && newest.Operations[0].ID != op.ID {
		return refuse("was followed by operation " + newest.Operations[0].ID)
	}
	stored, _, err := s.o.Store.Get(r.Context(), op.ResourceID)
	if err != nil {
		return err
	}
	req := dynamic.Request{ID: stored.ID, APIVersion: stored.APIVersion, Preconditions: arm.Preconditions{IfMatch: stored.ETag}}
	var a dynamic.Answer
	if op.Verb == core.VerbDelete {
		a, err = s.provider.Delete(short(r), req, "")
	} else {
		a, err = s.provider.Patch(short(r), req, map[string]any{})
	}
	if err != nil {
		return err
	}
	again, err := s.o.Store.Operation(r.Context(), a.Operation)
	if err != nil {
		return err
	}
	arm.SetAsync(w, r, again.ResourceID, again.ID)
	return arm.WriteJSON(w, http.StatusAccepted, operationWire(again))
}
