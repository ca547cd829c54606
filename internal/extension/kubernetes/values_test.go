package kubernetes

import (
	"strings"
	"testing"
)

func TestWithoutValues(t *testing.T) {
	for text, want := range map[string]string{
		`spec.type: Unsupported value: "s3cr3t": supported values: "ClusterIP"`:                    `spec.type: Unsupported value: supported values: "ClusterIP"`,
		`Invalid value: {"app":"web","s3cr3t":"a: \"s3cr3t\" b"}: field is immutable`:              `Invalid value: field is immutable`,
		`Invalid value: v1.L{M:map[string]string{"a":"s3cr3t"}, E:[]v1.R(nil)}: is immutable`:      `Invalid value: is immutable`,
		`[a: Invalid value: 7: must be less, b: Duplicate value: {"name":"s3cr3t"}]`:               `[a: Invalid value: must be less, b: Duplicate value`,
		`spec.x: Invalid value: "s3cr3t \" : s3cr3t": must be y`:                                   `spec.x: Invalid value: must be y`,
		`failed to create typed patch object (x): .spec.replicas: expected numeric, got &{s3cr3t}`: `failed to create typed patch object (x): .spec.replicas: expected numeric, got another type`,
	} {
		if got := withoutValues(text); strings.Contains(got, "s3cr3t") || got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}
