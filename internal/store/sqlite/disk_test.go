package sqlite_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// effect is one thing that SQLite is about to do to a file.
type effect struct {
	kind string // write, sync, truncate
	path string
	// half does the first half of a write.
	half func()
}

// disk stands between SQLite and its files: it hands every effect on a file
// below a watched directory to that directory's rule first. A result code other
// than SQLITE_OK is what SQLite gets instead of the effect.
//
// SQLite reaches files through tables of C functions. Ours are copies of the
// system's with three entries replaced, so that everything else stays real.
var disk struct {
	install sync.Once
	mu      sync.Mutex
	rules   map[string]func(effect) int32 // by directory
	paths   map[uintptr]string            // of open files
	methods map[uintptr]uintptr           // the system's tables and our copies
	keep    []any                         // the functions that C tables point to
}

type (
	openFunc     = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	writeFunc    = func(tls *libc.TLS, file, from uintptr, n int32, offset int64) int32
	truncateFunc = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFunc     = func(tls *libc.TLS, file uintptr, flags int32) int32
)

// watchDisk sets the rule for files below dir until the test ends (t may be nil
// in a child process).
func watchDisk(t *testing.T, dir string, rule func(effect) int32) {
	disk.install.Do(installDisk)
	disk.mu.Lock()
	defer disk.mu.Unlock()
	disk.rules[dir] = rule
	if t != nil {
		t.Cleanup(func() {
			disk.mu.Lock()
			defer disk.mu.Unlock()
			delete(disk.rules, dir)
		})
	}
}

func installDisk() {
	disk.rules, disk.paths = map[string]func(effect) int32{}, map[uintptr]string{}
	disk.methods = map[uintptr]uintptr{}
	tls := libc.NewTLS()
	defer tls.Close()
	if rc := lib.Xsqlite3_initialize(tls); rc != lib.SQLITE_OK {
		panic("sqlite3_initialize")
	}
	vfs := at[lib.Tsqlite3_vfs](lib.Xsqlite3_vfs_find(tls, 0))
	system := goFunc[openFunc](vfs.FxOpen)
	vfs.FxOpen = cFunc(func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
		rc := system(tls, vfs, name, file, flags, out)
		if rc == lib.SQLITE_OK && name != 0 {
			wrapFile(tls, file, libc.GoString(name))
		}
		return rc
	})
}

// wrapFile gives a file of a watched directory our methods.
func wrapFile(tls *libc.TLS, file uintptr, path string) {
	disk.mu.Lock()
	defer disk.mu.Unlock()
	if disk.rules[filepath.Dir(path)] == nil {
		return
	}
	disk.paths[file] = path
	f := at[lib.Tsqlite3_file](file)
	table := disk.methods[f.FpMethods]
	if table == 0 {
		system := at[lib.Tsqlite3_io_methods](f.FpMethods)
		// In C's memory, as SQLite expects it; files use it until the process ends.
		table = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(*system)))
		ours := at[lib.Tsqlite3_io_methods](table)
		*ours = *system
		ours.FxWrite = cFunc(func(tls *libc.TLS, file, from uintptr, n int32, offset int64) int32 {
			write := goFunc[writeFunc](system.FxWrite)
			if rc := before(file, "write", func() { write(tls, file, from, n/2, offset) }); rc != lib.SQLITE_OK {
				return rc
			}
			return write(tls, file, from, n, offset)
		})
		ours.FxTruncate = cFunc(func(tls *libc.TLS, file uintptr, size int64) int32 {
			if rc := before(file, "truncate", func() {}); rc != lib.SQLITE_OK {
				return rc
			}
			return goFunc[truncateFunc](system.FxTruncate)(tls, file, size)
		})
		ours.FxSync = cFunc(func(tls *libc.TLS, file uintptr, flags int32) int32 {
			if rc := before(file, "sync", func() {}); rc != lib.SQLITE_OK {
				return rc
			}
			return goFunc[syncFunc](system.FxSync)(tls, file, flags)
		})
		disk.methods[f.FpMethods] = table
	}
	f.FpMethods = table
}

// before asks the rule of a file.
func before(file uintptr, kind string, half func()) int32 {
	disk.mu.Lock()
	path := disk.paths[file]
	rule := disk.rules[filepath.Dir(path)]
	disk.mu.Unlock()
	if rule == nil || strings.HasSuffix(path, "-shm") {
		return lib.SQLITE_OK
	}
	return rule(effect{kind: kind, path: path, half: half})
}

// at is the C structure at an address.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// goFunc is the function behind a pointer in a C table.
func goFunc[F any](p uintptr) F {
	s := struct{ p uintptr }{p}
	return *(*F)(unsafe.Pointer(&s))
}

// cFunc is the pointer to put into a C table; the function is never freed.
func cFunc[F any](f F) uintptr {
	disk.keep = append(disk.keep, f)
	return *(*uintptr)(unsafe.Pointer(&f))
}
