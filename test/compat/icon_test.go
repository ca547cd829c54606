package compat

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIcons registers a type with an icon, as rad does for every contributed
// type, and reads it by the hash that the type names.
func TestIcons(t *testing.T) {
	const svg = `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`
	sum := sha256.Sum256([]byte(svg))
	hash := hex.EncodeToString(sum[:])
	p := start(t)
	p.must("PUT", testProvider+ucpVersion, map[string]any{"location": "global", "properties": map[string]any{}})
	read := func(hash string) answer { return p.fetch(testType + "/icons/" + hash + ucpVersion) }
	p.must("PUT", testType+ucpVersion, map[string]any{"properties": map[string]any{"icon": svg, "defaultApiVersion": "2025-01-01"}})
	for _, target := range []string{testType, "/planes/radius/local/providers/Applications.Test"} {
		if a := p.request("GET", target+ucpVersion, nil); !strings.Contains(a.raw, `"iconHash":"`+hash+`"`) {
			t.Errorf("GET %s names no icon %s: %s", target, hash, a.raw)
		}
	}
	a := read(hash)
	if a.status != 200 || a.raw != svg || a.header.Get("Content-Type") != "image/svg+xml" ||
		!strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("the icon is %d %v %s", a.status, a.header, a.raw)
	}
	if a := read(strings.Repeat("0", 64)); a.status != 404 {
		t.Errorf("another hash: %d", a.status)
	}
	if a := p.request("PUT", testType+ucpVersion, map[string]any{"properties": map[string]any{"icon": strings.Repeat("x", 33<<10)}}); a.status != 400 {
		t.Errorf("an icon of 33 KiB: %d %s", a.status, a.raw)
	}
	p.must("PUT", testType+ucpVersion, map[string]any{"properties": map[string]any{"defaultApiVersion": "2025-01-01"}})
	if a := read(hash); a.status != 404 {
		t.Errorf("the icon of a type that was registered again without one: %d", a.status)
	}
}

// TestContributedIcons sends the contributed icons by rad.
func TestContributedIcons(t *testing.T) {
	files := contributed(t)
	p := start(t)
	r := newRad(t, p.URL)
	for path := range files {
		icon := strings.TrimSuffix(path, ".yaml") + ".svg"
		raw, err := os.ReadFile(icon)
		if err != nil {
			continue
		}
		if out, exit := r.run("resource-type", "create", "-f", path, "--icon", icon, "-o", "json"); exit != 0 {
			t.Errorf("rad resource-type create --icon %s: exit %d:\n%s", icon, exit, out)
			continue
		}
		sum := sha256.Sum256(raw)
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if a := p.request("GET", "/planes/radius/local/providers"+ucpVersion, nil); !strings.Contains(a.raw, hex.EncodeToString(sum[:])) {
			t.Errorf("no type has the icon of %s", name)
		}
	}
}
