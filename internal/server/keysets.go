package server

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/seal"
	"github.com/radial-project/radial/internal/store"
)

// KeyOptions say how the data keysets are looked after; zero is the default of
// each field of [seal.KeeperOptions].
type KeyOptions struct {
	Beat   time.Duration
	MaxAge time.Duration
	Grace  time.Duration
	Rate   int
}

// keepKeysets begins this process's part in the care of the data keysets, which
// ends with ctx.
func (s *Server) keepKeysets(ctx context.Context) {
	changed, stop := s.o.Feed.Alert(store.ChangeKeysets, "")
	k := s.o.Keys
	s.keeper = seal.NewKeeper(seal.KeeperOptions{
		Store: s.o.Store, Sealer: s.o.Sealer, Changed: changed, Name: uuid.NewString(),
		Beat: k.Beat, MaxAge: k.MaxAge, Grace: k.Grace, Rate: k.Rate, Now: s.o.Now, Log: s.o.Log,
	})
	go func() {
		defer stop()
		s.keeper.Run(ctx)
	}()
}

// listKeysets answers the versions of the data keyset: numbers, states and
// times, nothing of a key.
func (s *Server) listKeysets(w http.ResponseWriter, r *arm.Request) error {
	status, err := s.keeper.Status(r.Context())
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, http.StatusOK, status)
}

// rotateKeysets begins a rotation and answers 202: the rest goes on behind it.
func (s *Server) rotateKeysets(w http.ResponseWriter, r *arm.Request) error {
	if _, err := s.keeper.Rotate(r.Context()); err != nil {
		return err
	}
	status, err := s.keeper.Status(r.Context())
	if err != nil {
		return err
	}
	return arm.WriteJSON(w, http.StatusAccepted, status)
}
