package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Texts that are part of the contract.
const (
	// DetailMoved is said of a request whose thing was made under other
	// settings (C-102, C-103).
	DetailMoved = "made in another account or location"
	// DetailBackupIdentity is said of a backup bucket's credential asked for
	// another identity (C-78).
	DetailBackupIdentity = "a backup bucket is granted only to its project's database"
	// DetailNoReason stands in for a Failed without words.
	DetailNoReason = "the provider gave no reason"
)

// DetailNotImplemented is said of a kind that a provider does not know
// (C-101).
func DetailNotImplemented(kind, providerVersion string) string {
	return fmt.Sprintf("kind %s is not implemented by %s", Clean(kind), providerVersion)
}

// DetailUnanswered is said of a request that nobody has acknowledged for the
// bound (C-112).
func DetailUnanswered(provider string) string {
	return "no provider for " + provider + " has answered"
}

// DetailBehind is said of a request whose present generation is not answered.
func DetailBehind(generation int64) string {
	return fmt.Sprintf("waiting on the provider for generation %d", generation)
}

// MaxDetail bounds a detail, in bytes (C-152).
const MaxDetail = 1024

// Clean makes any text fit for a status: control and formatting characters,
// invalid UTF-8 and line ends become single spaces, and what is over MaxDetail
// bytes is cut off with an ellipsis. Clean of what it answers is the same.
func Clean(text string) string {
	const mark = "…"
	// Looking at more than can stay is work that hostile text would choose.
	if len(text) > 4*MaxDetail {
		text = text[:4*MaxDetail] + mark
	}
	var b strings.Builder
	space := false
	for _, r := range text {
		if r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			space = b.Len() > 0
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	s := b.String()
	if len(s) <= MaxDetail {
		return s
	}
	end := 0
	for i := range s {
		if i > MaxDetail-len(mark) {
			break
		}
		end = i
	}
	return strings.TrimRight(s[:end], " ") + mark
}

// ReportTime is t as credentialReportedAt and the journal hold it: RFC 3339 has
// whole seconds here, and one cut off would end a credential before its grace
// is over. It is the next whole second.
func ReportTime(t time.Time) metav1.Time {
	s := t.Truncate(time.Second)
	if s.Before(t) {
		s = s.Add(time.Second)
	}
	return metav1.NewTime(s.UTC())
}

// AskedAt is when the present spec was written: the last write by a manager
// that owns spec fields, else the creation. The acknowledgement bound counts
// from it for every generation (C-146).
func AskedAt(r *CloudResource) time.Time {
	t, _ := lastWrite(r, "", "f:spec")
	return t
}

// skew is by how much reportedAt may be after the write that it came with: it
// is the next whole second, and the API server notes the one before.
const skew = 2 * time.Second

// SaidAt is when the provider last changed phase or detail: reportedAt, or for
// a provider that does not write it the last write of the status. It is never
// after that write, whatever the provider's clock says: words from the future
// would have no age for as long. Zero if there is no status.
func SaidAt(r *CloudResource) time.Time {
	wrote, known := lastWrite(r, "status", "f:status")
	switch at := r.Status.ReportedAt; {
	case at != nil && known && at.Time.After(wrote.Add(skew)):
		return wrote
	case at != nil:
		return at.Time
	case r.Status.ObservedGeneration == 0:
		return time.Time{}
	}
	return wrote
}

func lastWrite(r *CloudResource, subresource, field string) (last time.Time, known bool) {
	last = r.CreationTimestamp.Time
	for _, m := range r.ManagedFields {
		if m.Subresource != subresource || m.Time == nil || m.FieldsV1 == nil || known && !m.Time.After(last) {
			continue
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, ok := fields[field]; ok {
			last, known = m.Time.Time, true
		}
	}
	if last.Before(r.CreationTimestamp.Time) {
		last = r.CreationTimestamp.Time
	}
	return last, known
}
