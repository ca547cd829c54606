package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path"
	"strings"
	"sync"

	sdk "github.com/radial-project/radial/extensionsdk"
)

// files is the extension. Its resources live in the file system alone, so that
// it can be killed at any time; only archives on their way are remembered.
type files struct {
	base string

	mu      sync.Mutex
	packing map[string]*packing // by mark and path
}

func newFiles(base string) *files { return &files{base: base, packing: map[string]*packing{}} }

// kind is one type of resource.
type kind interface {
	// check reads and judges the properties of a specification.
	check(s sdk.Specification) (body, error)
	// preview answers the properties that apply would make.
	preview(p *place, b body) (map[string]any, *sdk.ResourceMetadata, error)
	apply(p *place, b body) (properties map[string]any, status string, err error)
	get(p *place, name string) (properties map[string]any, status string, failure *sdk.Error, err error)
	// remove is also asked for what is not there.
	remove(p *place, name string) error
}

// body are the properties of a resource, known ones only.
type body struct {
	path, content, folder string
	open                  []string // pointers of what is not known yet
}

func (f *files) kind(name string) (kind, error) {
	switch strings.ToLower(name) {
	case "file":
		return file{}, nil
	case "archive":
		return archive{f}, nil
	}
	return nil, sdk.Errorf("UnknownResourceType", "there is no type %q: there are File and Archive", name).At("/type")
}

func (f *files) Preview(_ context.Context, s sdk.Specification) (sdk.Resource, error) {
	k, b, p, err := f.asked(s)
	if err != nil {
		return sdk.Resource{}, err
	}
	defer p.close()
	if b.path == "" {
		return sdk.Resource{}, sdk.Errorf(sdk.CodePreviewNotSupported, "the path is not known yet").At("/properties/path")
	}
	properties, about, err := k.preview(p, b)
	if err != nil {
		return sdk.Resource{}, err
	}
	r := resource(s.Type, s.APIVersion, b.path, p)
	r.Properties, r.Metadata = properties, about
	return r, nil
}

func (f *files) CreateOrUpdate(_ context.Context, s sdk.Specification) (sdk.Answer, error) {
	k, b, p, err := f.asked(s)
	if err != nil {
		return sdk.Answer{}, err
	}
	defer p.close()
	properties, status, err := k.apply(p, b)
	if err != nil {
		return sdk.Answer{}, fault(err, b.path)
	}
	r := resource(s.Type, s.APIVersion, b.path, p)
	r.Properties, r.Status = properties, status
	return sdk.Answer{Resource: &r}, nil
}

func (f *files) Get(_ context.Context, ref sdk.Reference) (sdk.Resource, error) {
	k, name, p, err := f.named(ref)
	if err != nil {
		return sdk.Resource{}, err
	}
	defer p.close()
	properties, status, failure, err := k.get(p, name)
	if err != nil {
		return sdk.Resource{}, fault(err, name)
	}
	r := resource(ref.Type, ref.APIVersion, name, p)
	r.Properties, r.Status, r.Error = properties, status, failure
	return r, nil
}

func (f *files) Delete(_ context.Context, ref sdk.Reference) (sdk.Answer, error) {
	k, name, p, err := f.named(ref)
	if err != nil {
		return sdk.Answer{}, err
	}
	defer p.close()
	if err := k.remove(p, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sdk.Answer{}, fault(err, name)
	}
	return sdk.Answer{}, nil
}

// TypeFiles implements [sdk.Typed].
func (f *files) TypeFiles(context.Context) (string, map[string]string, error) {
	out := map[string]string{}
	for _, name := range []string{"index.json", "types.json"} {
		raw, err := types.ReadFile("types/" + name)
		if err != nil {
			return "", nil, err
		}
		out[name] = string(raw)
	}
	return "index.json", out, nil
}

// asked reads a specification, and opens the directory that it is for.
func (f *files) asked(s sdk.Specification) (kind, body, *place, error) {
	k, err := f.kind(s.Type)
	if err != nil {
		return nil, body{}, nil, err
	}
	b, err := k.check(s)
	if err != nil {
		return nil, b, nil, err
	}
	p, err := f.open(s.Config, s.ConfigID)
	return k, b, p, err
}

func (f *files) named(r sdk.Reference) (kind, string, *place, error) {
	k, err := f.kind(r.Type)
	if err != nil {
		return nil, "", nil, err
	}
	name, _ := r.Identifiers["path"].(string)
	if err := checkPath(name, "/identifiers/path"); err != nil {
		return nil, "", nil, err
	}
	p, err := f.open(r.Config, r.ConfigID)
	return k, name, p, err
}

func resource(typ, apiVersion, name string, p *place) sdk.Resource {
	return sdk.Resource{Type: typ, APIVersion: apiVersion, Identifiers: map[string]any{"path": name}, Config: p.echo, ConfigID: p.id}
}

// properties reads the named properties, all of them texts. Values that are not
// known yet are left out and told.
func properties(s sdk.Specification, names ...string) (map[string]string, []string, error) {
	open := map[string]bool{}
	var pointers []string
	if s.Metadata != nil {
		for _, u := range s.Metadata.Unevaluated {
			open[u] = true
			pointers = append(pointers, u)
		}
	}
	out := map[string]string{}
	for k, v := range s.Properties {
		at := "/properties/" + k
		known := false
		for _, n := range names {
			known = known || n == k
		}
		text, ok := v.(string)
		switch {
		case !known:
			return nil, nil, sdk.Errorf(sdk.CodeInvalid, "a %s has no property %q: it has %s", s.Type, k, strings.Join(names, " and ")).At(at)
		case open[at]:
		case !ok:
			return nil, nil, sdk.Errorf(sdk.CodeInvalid, "%s must be a text", k).At(at)
		default:
			out[k] = text
		}
	}
	for _, n := range names {
		if _, ok := out[n]; !ok && !open["/properties/"+n] {
			return nil, nil, sdk.Errorf(sdk.CodeInvalid, "a %s needs %s", s.Type, n).At("/properties/" + n)
		}
	}
	return out, pointers, nil
}

func checkPath(name, at string) error {
	if name == "" || !fs.ValidPath(name) || name == "." || path.Base(name) == markFile {
		return sdk.Errorf(sdk.CodeInvalid, "%q is not the path of a file in the directory: names with / between them, without .. and without / in front", name).At(at)
	}
	return nil
}

// fault is an error of the file system as callers see it: without the path of
// the directory, which is not theirs to know.
func fault(err error, name string) error {
	var refused *sdk.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, fs.ErrNotExist):
		return sdk.Errorf(sdk.CodeNotFound, "there is no %s", name)
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return sdk.Errorf("FileFailed", "%s: %v", name, err)
}

// file is the type File: {path, content}.
type file struct{}

func (file) check(s sdk.Specification) (body, error) {
	p, open, err := properties(s, "path", "content")
	if err != nil {
		return body{}, err
	}
	b := body{path: p["path"], content: p["content"], open: open}
	if b.path != "" {
		err = checkPath(b.path, "/properties/path")
	}
	return b, err
}

func describe(name string, content []byte) map[string]any {
	sum := sha256.Sum256(content)
	return map[string]any{"path": name, "content": string(content), "size": len(content), "sha256": hex.EncodeToString(sum[:])}
}

func (file) preview(_ *place, b body) (map[string]any, *sdk.ResourceMetadata, error) {
	m := &sdk.ResourceMetadata{ReadOnly: []string{"/properties/size", "/properties/sha256"}, Immutable: []string{"/properties/path"}}
	if len(b.open) > 0 {
		m.Unevaluated, m.Unknown = b.open, m.ReadOnly
		return map[string]any{"path": b.path}, m, nil
	}
	return describe(b.path, []byte(b.content)), m, nil
}

func (file) apply(p *place, b body) (map[string]any, string, error) {
	if old, err := p.root.ReadFile(b.path); err == nil && string(old) == b.content {
		return describe(b.path, old), "", nil
	}
	if err := write(p, b.path, []byte(b.content)); err != nil {
		return nil, "", err
	}
	return describe(b.path, []byte(b.content)), "", nil
}

func (file) get(p *place, name string) (map[string]any, string, *sdk.Error, error) {
	content, err := p.root.ReadFile(name)
	if err != nil {
		return nil, "", nil, err
	}
	return describe(name, content), "", nil, nil
}

func (file) remove(p *place, name string) error { return p.root.Remove(name) }

// write replaces a file whole: whoever reads it, or kills us, sees the old or the
// new one.
func write(p *place, name string, content []byte) error {
	if dir := path.Dir(name); dir != "." {
		if err := p.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	temp := name + ".new"
	if err := p.root.WriteFile(temp, content, 0o644); err != nil {
		return err
	}
	return p.root.Rename(temp, name)
}
