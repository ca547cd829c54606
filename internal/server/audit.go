package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// listAudit answers the records of the audit log, the newest first. `principal`,
// `id` (what was asked at or below it), `since` and `until` (RFC 3339; the first
// is included, the second is not) and `refused=true` narrow the list.
func (s *Server) listAudit(w http.ResponseWriter, r *arm.Request) error {
	page, err := r.Page()
	if err != nil {
		return err
	}
	q := store.AuditQuery{Principal: r.Query("principal"), Limit: page.Limit, After: page.After}
	if v := r.Query("id"); v != "" {
		id, err := core.ParseID(v)
		if err != nil {
			return err
		}
		q.Target = id.String()
	}
	for name, at := range map[string]*time.Time{"since": &q.From, "until": &q.To} {
		if v := r.Query(name); v != "" {
			if *at, err = time.Parse(time.RFC3339, v); err != nil {
				return core.Errorf(core.CodeBadRequest, "%s is %q: it must be a time such as 2026-01-31T12:00:00Z", name, v).WithTarget(name)
			}
		}
	}
	if v := r.Query("refused"); v != "" {
		if q.Refused, err = strconv.ParseBool(v); err != nil {
			return core.Errorf(core.CodeBadRequest, "refused is %q: it must be true or false", v).WithTarget("refused")
		}
	}
	found, err := s.o.Store.AuditRecords(r.Context(), q)
	if err != nil {
		return err
	}
	list := struct {
		Value    []store.AuditRecord `json:"value"`
		NextLink string              `json:"nextLink,omitempty"`
	}{Value: found.Records, NextLink: r.NextLink(found.Next)}
	if list.Value == nil {
		list.Value = []store.AuditRecord{}
	}
	w.Header().Set("Cache-Control", "no-store")
	return arm.WriteJSON(w, http.StatusOK, list)
}
