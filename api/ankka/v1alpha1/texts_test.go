package v1alpha1

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		DetailUnanswered("gcp"):                         "no provider for gcp has answered",                // C-112
		DetailNotImplemented("queue", "scripted 0.1.0"): "kind queue is not implemented by scripted 0.1.0", // C-101
		DetailMoved:          "made in another account or location",                       // C-102
		DetailBackupIdentity: "a backup bucket is granted only to its project's database", // C-78
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func checkClean(t *testing.T, text string) {
	t.Helper()
	got := Clean(text)
	if len(got) > MaxDetail || !utf8.ValidString(got) || strings.TrimSpace(got) != got || Clean(got) != got {
		t.Errorf("C-152: %.80q became %d bytes: %.200q", text, len(got), got)
	}
	for _, r := range got {
		if r != ' ' && !unicode.IsPrint(r) {
			t.Errorf("C-152: %U is left", r)
		}
	}
}

func FuzzClean_C152(f *testing.F) {
	for _, s := range []string{"plain words", "a\x00b\x1b[2Jc", "\u202eevil", "a\n\n b", "\xff\xfe", strings.Repeat("é", 3000), strings.Repeat("x", 1023) + "é", strings.Repeat(" \u200b", 2000)} {
		f.Add(s)
	}
	f.Fuzz(checkClean)
}

func TestClean_C152(t *testing.T) {
	checkClean(t, strings.Repeat("words \x07", 1<<17))
	for in, want := range map[string]string{
		"the account is closed": "the account is closed",
		"  a\x1b[31m\r\nb\t ":   "a [31m b",
		"":                      "",
		"\x00\x01":              "",
	} {
		if got := Clean(in); got != want {
			t.Errorf("C-152: %q became %q", in, got)
		}
	}
	if got := Clean(strings.Repeat("x", 1<<20)); len(got) < MaxDetail-8 || !strings.HasSuffix(got, "…") {
		t.Errorf("C-152: a cut is not shown: %d bytes", len(got))
	}
}

func TestReportTime_C124(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 1, time.FixedZone("", 3600))
	got := ReportTime(at)
	if got.Before(&metav1.Time{Time: at}) || got.Sub(at) >= time.Second || got.Nanosecond() != 0 {
		t.Errorf("C-124: %v became %v", at, got)
	}
	if whole := at.Truncate(time.Second); !ReportTime(whole).Time.Equal(whole) {
		t.Errorf("a whole second became %v", ReportTime(whole))
	}
	if b, err := got.MarshalJSON(); err != nil || string(b) != `"2026-01-02T02:04:06Z"` {
		t.Errorf("C-123: %s, %v", b, err)
	}
}

func TestAskedAt_C146(t *testing.T) {
	at := func(m int) *metav1.Time { return &metav1.Time{Time: time.Date(2026, 1, 1, 0, m, 0, 0, time.UTC)} }
	fields := func(s string) *metav1.FieldsV1 {
		f := &metav1.FieldsV1{}
		if err := f.UnmarshalJSON([]byte(s)); err != nil {
			t.Fatal(err)
		}
		return f
	}
	r := &CloudResource{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(0)}}
	if got := AskedAt(r); !got.Equal(at(0).Time) {
		t.Errorf("C-146: at creation %v", got)
	}
	r.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: FieldManagerOperator, Time: at(5), FieldsV1: fields(`{"f:metadata":{},"f:spec":{"f:kind":{}}}`)},
		{Manager: "kubectl", Time: at(9), FieldsV1: fields(`{"f:metadata":{"f:annotations":{}}}`)},
		{Manager: "provider", Subresource: "status", Time: at(7), FieldsV1: fields(`{"f:status":{"f:phase":{}}}`)},
		{Manager: "odd"},
	}
	if got := AskedAt(r); !got.Equal(at(5).Time) {
		t.Errorf("C-146: asked at %v, want that of the spec", got)
	}
	if got := SaidAt(r); !got.IsZero() {
		t.Errorf("C-146: nothing was said, and at %v", got)
	}
	r.Status.ObservedGeneration = 1
	if got := SaidAt(r); !got.Equal(at(7).Time) {
		t.Errorf("C-146: said at %v", got)
	}
	r.Status.ReportedAt = at(6)
	if got := SaidAt(r); !got.Equal(at(6).Time) {
		t.Errorf("C-146: said at %v", got)
	}
	// By a clock that is a day ahead: no word would ever have an age.
	r.Status.ReportedAt = at(24 * 60)
	if got := SaidAt(r); !got.Equal(at(7).Time) {
		t.Errorf("C-146: said at %v, after it was written", got)
	}
	next := metav1.NewTime(at(7).Add(time.Second))
	if r.Status.ReportedAt = &next; !SaidAt(r).Equal(next.Time) {
		t.Errorf("C-146: said at %v, not the next whole second", SaidAt(r))
	}
}

func TestCredentialGeneration_C142(t *testing.T) {
	var s AnkkaServiceSpec
	if s.CredentialGeneration() != 1 {
		t.Error("C-142: absent is not 1")
	}
	two := int64(2)
	s.StorageCredentialGeneration = &two
	if s.CredentialGeneration() != 2 {
		t.Error("C-142: 2")
	}
}
