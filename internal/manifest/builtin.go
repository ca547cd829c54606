package manifest

import (
	"embed"
	"fmt"
	"sync"
)

//go:embed builtin/*.yaml
var builtinFiles embed.FS

// Builtin returns the manifests of the types that every installation knows.
// They are parsed once.
func Builtin() []*Manifest { return append([]*Manifest(nil), loadBuiltin()...) }

var loadBuiltin = sync.OnceValue(func() []*Manifest {
	entries, err := builtinFiles.ReadDir("builtin")
	if err != nil {
		panic(err) // embedded
	}
	var out []*Manifest
	for _, e := range entries {
		data, err := builtinFiles.ReadFile("builtin/" + e.Name())
		if err != nil {
			panic(err)
		}
		m, err := parse(data, true)
		if err != nil {
			panic(fmt.Sprintf("built-in manifest %s: %v", e.Name(), err)) // the tests parse every one
		}
		out = append(out, m)
	}
	return out
})
