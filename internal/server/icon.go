package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/radial-project/radial/internal/arm"
	"github.com/radial-project/radial/internal/manifest"
)

// iconHash names an icon by its content; "" for none.
func iconHash(t *manifest.Type) string {
	if t.Icon == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(t.Icon))
	return hex.EncodeToString(sum[:])
}

// getIcon answers a type's icon under the hash that the type names: what a
// client has kept under a hash is right for ever. The document came from
// whoever registered the type, so that a browser that is sent here runs none
// of its scripts and loads nothing for it.
func (s *Server) getIcon(w http.ResponseWriter, r *arm.Request) error {
	m, err := s.find(r.Vars["namespace"])
	if err != nil {
		return err
	}
	name, t, err := findType(m, r.Vars["type"])
	if err != nil {
		return err
	}
	hash := iconHash(t)
	if hash == "" || !strings.EqualFold(hash, r.Vars["hash"]) {
		return notRegistered("icon", r.Vars["hash"], " for "+m.Namespace+"/"+name)
	}
	h := w.Header()
	h.Set("Content-Type", "image/svg+xml")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	h.Set("ETag", `"`+hash+`"`)
	_, _ = w.Write([]byte(t.Icon)) // a client that went away is no fault of ours
	return nil
}
