package schema

import "strings"

// Items is the segment that stands for every item of an array and every value
// of a map in the paths of this package.
const Items = "[*]"

// member appends a property's name to a path: a.b, or a["b.c"] where the name
// could be mistaken for something else. Two different names never give one
// path.
func member(path, name string) string {
	plain := name != ""
	for i := 0; i < len(name) && plain; i++ {
		c := name[i]
		plain = c == '_' || c == '-' || c == '$' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	if !plain {
		return path + `["` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"]`
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// Member is the path of the property name of the value at path.
func Member(path, name string) string { return member(path, name) }

// Path writes the names as one path, in the form that every fault of this
// package uses.
func Path(names ...string) string {
	p := ""
	for _, n := range names {
		p = member(p, n)
	}
	return p
}
