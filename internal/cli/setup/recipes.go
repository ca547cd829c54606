package setup

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/oci"
	"github.com/radial-project/radial/recipes"
)

// WriteRecipes writes the templates of the local recipes into a folder, over what an earlier release wrote, and
// returns how to register them from there.
func WriteRecipes(dir string) ([]Registration, error) {
	var all []Registration
	for _, r := range recipes.Local() {
		path := filepath.Join(dir, r.File)
		if err := os.WriteFile(path, r.Content, 0o644); err != nil {
			return nil, fmt.Errorf("cannot write the local recipes: %w", err)
		}
		file := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
		all = append(all, Registration{ResourceType: r.Type, Name: r.Name, Template: Template{Kind: "template", Path: file.String()}})
	}
	return all, nil
}

// PublishRecipes pushes the templates of the local recipes below a repository of a registry, each under its own
// name and tagged with this release, and returns how to register them from there: by digest, so that what is
// registered stays what it is.
func PublishRecipes(ctx context.Context, p *oci.Publisher, repository string, plainHTTP bool) ([]Registration, error) {
	repository = strings.TrimSuffix(strings.TrimPrefix(repository, "oci://"), "/")
	published := map[string]string{}
	var all []Registration
	for _, r := range recipes.Local() {
		path, ok := published[r.File]
		if !ok {
			path = repository + "/" + strings.TrimSuffix(r.File, ".json") + ":" + tag(core.Version)
			digest, err := p.Publish(ctx, oci.Reference{Path: path, PlainHTTP: plainHTTP}, r.Content, true)
			if err != nil {
				return nil, fmt.Errorf("cannot publish the local recipes: %w", err)
			}
			path += "@" + digest
			published[r.File] = path
		}
		all = append(all, Registration{ResourceType: r.Type, Name: r.Name, Template: Template{Kind: "template", Path: path, PlainHTTP: plainHTTP}})
	}
	return all, nil
}

var noTag = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// tag makes a tag of a version.
func tag(version string) string {
	t := strings.TrimLeft(noTag.ReplaceAllString(version, "-"), ".-")
	if t == "" {
		return "latest"
	}
	return t[:min(len(t), 128)]
}
