package main

import (
	"archive/tar"
	"compress/gzip"
	"io/fs"
	"os"
	"path"

	sdk "github.com/radial-project/radial/extensionsdk"
)

// archive is the type Archive: {path, folder}, a folder of the directory packed
// into a file. Packing takes its time, so that it shows how a resource tells
// that it is on its way.
type archive struct{ f *files }

// packing is an archive on its way, or one that failed.
type packing struct {
	done   chan struct{}
	failed *sdk.Error // set before done is closed
}

func (a archive) check(s sdk.Specification) (body, error) {
	p, open, err := properties(s, "path", "folder")
	if err != nil {
		return body{}, err
	}
	b := body{path: p["path"], folder: p["folder"], open: open}
	if b.path != "" {
		err = checkPath(b.path, "/properties/path")
	}
	if err == nil && b.folder != "" {
		err = checkPath(b.folder, "/properties/folder")
	}
	return b, err
}

func (a archive) preview(p *place, b body) (map[string]any, *sdk.ResourceMetadata, error) {
	m := &sdk.ResourceMetadata{ReadOnly: []string{"/properties/size"}, Immutable: []string{"/properties/path"}, Unknown: []string{"/properties/size"}, Unevaluated: b.open}
	out := map[string]any{"path": b.path}
	if b.folder != "" {
		out["folder"] = b.folder
	}
	return out, m, nil
}

// apply begins to pack; asked again while it packs, it lets that go on.
func (a archive) apply(p *place, b body) (map[string]any, string, error) {
	if info, err := p.root.Stat(b.folder); err != nil || !info.IsDir() {
		return nil, "", sdk.Errorf("FolderNotFound", "there is no folder %s to pack", b.folder).At("/properties/folder")
	}
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	key := p.id + "/" + b.path
	if at := a.f.packing[key]; at != nil {
		select {
		case <-at.done:
		default:
			return map[string]any{"path": b.path, "folder": b.folder}, "Packing", nil
		}
	}
	root, err := p.root.OpenRoot(".") // of its own: it outlives the call
	if err != nil {
		return nil, "", err
	}
	at := &packing{done: make(chan struct{})}
	a.f.packing[key] = at
	go func() {
		defer close(at.done)
		defer root.Close()
		if err := pack(root, b.folder, b.path); err != nil {
			at.failed = sdk.Errorf("PackingFailed", "%s could not be packed: %v", b.folder, err)
		}
	}()
	return map[string]any{"path": b.path, "folder": b.folder}, "Packing", nil
}

func (a archive) get(p *place, name string) (map[string]any, string, *sdk.Error, error) {
	a.f.mu.Lock()
	at := a.f.packing[p.id+"/"+name]
	a.f.mu.Unlock()
	if at != nil {
		select {
		case <-at.done:
			if at.failed != nil {
				return map[string]any{"path": name}, sdk.Failed, at.failed, nil
			}
		default:
			return map[string]any{"path": name}, "Packing", nil, nil
		}
	}
	in, err := p.root.Open(name)
	if err != nil {
		return nil, "", nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, "", nil, err
	}
	out := map[string]any{"path": name, "size": info.Size()}
	// What is not read back would be a change in every what-if, so the file itself says what was packed.
	if z, err := gzip.NewReader(in); err == nil && z.Comment != "" {
		out["folder"] = z.Comment
	}
	return out, sdk.Succeeded, nil, nil
}

func (a archive) remove(p *place, name string) error {
	a.f.mu.Lock()
	at := a.f.packing[p.id+"/"+name]
	delete(a.f.packing, p.id+"/"+name)
	a.f.mu.Unlock()
	if at != nil {
		<-at.done
	}
	return p.root.Remove(name)
}

// pack writes a folder's files into a compressed tar file.
func pack(root *os.Root, folder, name string) (err error) {
	temp := name + ".new"
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	out, err := root.Create(temp)
	if err != nil {
		return err
	}
	defer out.Close()
	z := gzip.NewWriter(out)
	if latin1(folder) { // all that the header of gzip takes
		z.Comment = folder
	}
	t := tar.NewWriter(z)
	from, err := root.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := t.AddFS(regular{from.FS()}); err != nil {
		return err
	}
	for _, end := range []func() error{t.Close, z.Close, out.Close} {
		if err := end(); err != nil {
			return err
		}
	}
	return root.Rename(temp, name)
}

func latin1(s string) bool {
	for _, r := range s {
		if r == 0 || r > 0xff {
			return false
		}
	}
	return true
}

// regular leaves out what is neither a file nor a directory: a link may lead
// anywhere.
type regular struct{ fs.FS }

func (r regular) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(r.FS, name)
	var out []fs.DirEntry
	for _, e := range all {
		if e.IsDir() || e.Type().IsRegular() {
			out = append(out, e)
		}
	}
	return out, err
}
