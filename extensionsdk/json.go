package extensionsdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Unmarshal reads one JSON value into v, which is one of this package's types
// or a map. Whole numbers become int64, others float64, so that an identifier of
// nineteen digits stays what it is.
func Unmarshal(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON value")
	}
	switch v := v.(type) {
	case *map[string]any:
		plain(*v)
	case *Specification:
		plain(v.Properties, v.Config)
	case *Reference:
		plain(v.Identifiers, v.Config)
	case *Resource:
		plain(v.Identifiers, v.Properties, v.Config)
		v.Error.plain()
	case *Operation:
		plain(v.Handle, v.Identifiers)
		v.Error.plain()
	case *Error:
		v.plain()
	}
	return nil
}

func (e *Error) plain() {
	if e != nil {
		plain(e.Inner)
	}
}

func plain(maps ...map[string]any) {
	for _, m := range maps {
		for k, v := range m {
			m[k] = number(v)
		}
	}
}

func number(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case map[string]any:
		plain(v)
	case []any:
		for i := range v {
			v[i] = number(v[i])
		}
	}
	return v
}
