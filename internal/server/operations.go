package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	wire "github.com/radial-project/radial/api/arm"
	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/auth"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// operationStatus answers an operation. With `Prefer: wait=<seconds>` the
// answer is held until the operation has ended or the time is over (D-21).
func (s *Server) operationStatus(w http.ResponseWriter, r *arm.Request) error {
	op, err := s.await(r)
	if err != nil {
		return err
	}
	if wait := r.Wait(); wait > 0 {
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
	}
	if !op.State.Terminal() {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Cache-Control", "no-store")
	return arm.WriteJSON(w, http.StatusOK, operationWire(op))
}

// operationResult answers 202 while the operation runs and 204 once it ended.
func (s *Server) operationResult(w http.ResponseWriter, r *arm.Request) error {
	op, err := s.await(r)
	if err != nil {
		return err
	}
	if op.State.Terminal() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	arm.SetAsync(w, r, op.ResourceID, op.ID)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// await reads an operation, and where the client is ready to wait, again when it
// has ended.
func (s *Server) await(r *arm.Request) (core.Operation, error) {
	id := r.Vars["operation"]
	wait := r.Wait()
	if wait == 0 {
		return s.o.Store.Operation(short(r), id)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	// Registered before the first look: an end between the two is not missed.
	ended, stop := s.o.Feed.Operation(id)
	defer stop()
	op, err := s.o.Store.Operation(short(r), id)
	if err != nil || op.State.Terminal() {
		return op, err
	}
	select {
	case <-ended:
	case <-s.stopping:
	case <-ctx.Done():
		if err := r.Context().Err(); err != nil {
			return op, err
		}
	}
	return s.o.Store.Operation(short(r), id)
}

// mediaEvents is the media type of server-sent events.
const mediaEvents = "text/event-stream"

// watch streams changes as newline-delimited JSON, or as server-sent events to
// who accepts them, until the client goes away or
// the server stops. `since` takes it up where an earlier stream of the same
// process ended.
func (s *Server) watch(w http.ResponseWriter, r *arm.Request) error {
	events := strings.Contains(r.Header.Get("Accept"), mediaEvents)
	var since int64
	v := r.Query("since")
	if last := r.Header.Get("Last-Event-ID"); v == "" && events {
		v = last // how a browser takes a stream up again
	}
	if v != "" {
		var err error
		if since, err = strconv.ParseInt(v, 10, 64); err != nil || since < 0 {
			return core.Errorf(core.CodeBadRequest, "since is %q: it must be the seq of a change", v)
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()

	defer s.o.Metrics.Streaming()()
	subscription := s.o.Feed.Subscribe(since)
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	if events {
		w.Header().Set("Content-Type", mediaEvents)
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	// A client that does not read is cut off, so that it holds nothing.
	send := func(changes ...wire.Change) error {
		_ = control.SetWriteDeadline(time.Now().Add(heartbeat))
		for _, c := range changes {
			if events {
				if _, err := fmt.Fprintf(w, "id: %d\ndata: ", c.Seq); err != nil {
					return err
				}
			}
			if err := out.Encode(c); err != nil { // which ends the line
				return err
			}
			if events {
				if _, err := io.WriteString(w, "\n"); err != nil {
					return err
				}
			}
		}
		return control.Flush()
	}
	if since > 0 { // the first line comes at once, whatever happens next
		if err := send(wire.Change{Seq: since}); err != nil {
			return nil
		}
	}
	for {
		next, done := context.WithTimeout(ctx, heartbeat)
		batch, err := subscription.Next(next)
		done()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			err = send(wire.Change{Seq: subscription.Seq()})
		case batch.Reset:
			err = send(wire.Change{Reset: true, Seq: batch.Seq})
		default:
			visible := auth.Viewer(ctx)
			lines := make([]wire.Change, 0, len(batch.Changes))
			for _, c := range batch.Changes {
				if c.Kind == store.ChangeManifests || visible(c.ID) {
					lines = append(lines, changeLine(c))
				}
				if c.Kind == store.ChangeManifests {
					// Who is told of a type asks for it next, and here.
					if err := s.syncTypes(ctx, c.Seq); err != nil {
						return nil // the client comes back, and finds a Reset
					}
				}
			}
			err = send(lines...)
		}
		if err != nil {
			return nil // the client is gone
		}
	}
}

func changeLine(c store.Change) wire.Change {
	return wire.Change{Seq: c.Seq, ID: c.ID.String(), Operation: c.Operation, State: string(c.State), Deleted: c.Deleted}
}
