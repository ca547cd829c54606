package arm

import (
	"encoding/json"

	wire "github.com/radial-project/radial/api/arm"
)

// appendJSON adds v to b as [json.Marshal] writes it. Nodes of a graph come by
// the ten thousand and are made of short texts: they are written without
// reflection.
func appendJSON(b []byte, v any) ([]byte, error) {
	if node, ok := v.(wire.GraphResource); ok {
		return appendNode(b, &node), nil
	}
	raw, err := json.Marshal(v)
	return append(b, raw...), err
}

func appendNode(b []byte, n *wire.GraphResource) []byte {
	b = appendText(append(b, `{"id":`...), n.ID)
	b = appendText(append(b, `,"name":`...), n.Name)
	b = appendText(append(b, `,"type":`...), n.Type)
	b = appendText(append(b, `,"provisioningState":`...), n.ProvisioningState)
	b = appendList(append(b, `,"connections":`...), n.Connections, func(b []byte, c *wire.GraphConnection) []byte {
		b = appendText(append(b, `{"id":`...), c.ID)
		b = appendText(append(b, `,"direction":`...), c.Direction)
		if c.Kind != "" {
			b = appendText(append(b, `,"kind":`...), c.Kind)
		}
		if c.Name != "" {
			b = appendText(append(b, `,"name":`...), c.Name)
		}
		return append(b, '}')
	})
	b = appendList(append(b, `,"outputResources":`...), n.OutputResources, func(b []byte, o *wire.GraphOutput) []byte {
		b = appendText(append(b, `{"id":`...), o.ID)
		b = appendText(append(b, `,"type":`...), o.Type)
		b = appendText(append(b, `,"name":`...), o.Name)
		return append(b, '}')
	})
	return append(b, '}')
}

// appendList adds a list, null where there is none.
func appendList[T any](b []byte, list []T, one func([]byte, *T) []byte) []byte {
	if list == nil {
		return append(b, `null`...)
	}
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, &list[i])
	}
	return append(b, ']')
}

// appendText adds a string. What may have to be escaped is left to [json.Marshal].
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			raw, _ := json.Marshal(s) // a string is always JSON
			return append(b, raw...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
