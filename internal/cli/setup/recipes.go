package setup

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

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
