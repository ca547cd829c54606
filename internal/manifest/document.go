package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/schema"
	"go.yaml.in/yaml/v3"
)

// Limits of one document.
const (
	maxSize   = 4 << 20 // bytes
	maxValues = 200_000 // after anchors are expanded
	maxDepth  = 100
)

// decode reads one YAML or JSON document into JSON values (numbers as
// json.Number, keys as strings). Duplicate keys are faults, not the last one's
// luck.
func decode(data []byte) (any, []core.Error) {
	if len(data) > maxSize {
		return nil, []core.Error{*core.Errorf(core.CodeTooLarge, "the manifest has %d bytes; at most %d are read", len(data), maxSize)}
	}
	d := &decoder{}
	if t := bytes.TrimLeft(data, " \t\r\n"); len(t) > 0 && t[0] == '{' && json.Valid(t) {
		dec := json.NewDecoder(bytes.NewReader(t))
		dec.UseNumber()
		v := d.json(dec, "", 0)
		return v, d.faults
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var n yaml.Node
	if err := dec.Decode(&n); errors.Is(err, io.EOF) {
		return nil, []core.Error{*core.Errorf(core.CodeInvalidContent, "the manifest is empty")}
	} else if err != nil {
		return nil, []core.Error{*core.Errorf(core.CodeInvalidContent, "the manifest is neither YAML nor JSON: %s", strings.TrimPrefix(err.Error(), "yaml: "))}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, []core.Error{*core.Errorf(core.CodeInvalidContent, "the manifest holds more than one document: register one namespace at a time")}
	}
	v := d.yaml(&n, "", 0)
	return v, d.faults
}

type decoder struct {
	faults []core.Error
	values int
	full   bool
}

func (d *decoder) fault(path, format string, args ...any) {
	if len(d.faults) < maxFaults {
		d.faults = append(d.faults, *core.Errorf(core.CodeInvalidContent, format, args...).WithTarget(path))
	}
}

// take counts a value and reports whether it is within the limits.
func (d *decoder) take(path string, depth int) bool {
	d.values++
	if d.full {
		return false
	}
	if depth > maxDepth || d.values > maxValues {
		d.full = true
		d.fault(path, "the manifest is too large: at most %d values, %d deep, are read", maxValues, maxDepth)
		return false
	}
	return true
}

func (d *decoder) yaml(n *yaml.Node, path string, depth int) any {
	if !d.take(path, depth) {
		return nil
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return d.yaml(n.Content[0], path, depth)
	case yaml.AliasNode:
		return d.yaml(n.Alias, path, depth+1)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for i, c := range n.Content {
			out = append(out, d.yaml(c, index(path, i), depth+1))
		}
		return out
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind == yaml.AliasNode {
				k = k.Alias
			}
			if k.Kind != yaml.ScalarNode {
				d.fault(path, "line %d: a key must be a plain name", k.Line)
				continue
			}
			if k.Tag == "!!merge" {
				d.fault(path, "line %d: merge keys (<<) are not read", k.Line)
				continue
			}
			at := join(path, k.Value)
			if _, twice := out[k.Value]; twice {
				d.fault(at, "line %d: the key stands twice", k.Line)
			}
			out[k.Value] = d.yaml(n.Content[i+1], at, depth+1)
		}
		return out
	default:
		return d.scalar(n, path)
	}
}

func (d *decoder) scalar(n *yaml.Node, path string) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return json.Number(strconv.FormatInt(i, 10))
		}
		var u uint64
		if n.Decode(&u) == nil {
			return json.Number(strconv.FormatUint(u, 10))
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil {
			if b, err := json.Marshal(f); err == nil { // not .inf, not .nan
				return json.Number(b)
			}
		}
	case "!!str", "!!timestamp": // a date is text, as in JSON
		return n.Value
	}
	d.fault(path, "line %d: the value has no counterpart in JSON", n.Line)
	return nil
}

// json reads the next value; the text is known to be valid JSON.
func (d *decoder) json(dec *json.Decoder, path string, depth int) any {
	tok, err := dec.Token()
	if err != nil || !d.take(path, depth) {
		return nil
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return tok
	}
	if delim == '[' {
		out := []any{}
		for dec.More() {
			if d.full {
				return nil
			}
			out = append(out, d.json(dec, index(path, len(out)), depth+1))
		}
		dec.Token()
		return out
	}
	out := map[string]any{}
	for dec.More() {
		if d.full {
			return nil
		}
		k, _ := dec.Token()
		key, _ := k.(string)
		at := join(path, key)
		if _, twice := out[key]; twice {
			d.fault(at, "the key stands twice")
		}
		out[key] = d.json(dec, at, depth+1)
	}
	dec.Token()
	return out
}

// join and index write the paths of faults.
func join(path, name string) string {
	p := schema.Path(name)
	if path == "" || strings.HasPrefix(p, "[") {
		return path + p
	}
	return path + "." + p
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
