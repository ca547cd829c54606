package rules

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Drawing puts a [store.Graph] together from rows, nodes before what belongs to
// them. It holds little for each, since there may be very many.
type Drawing struct {
	g     store.Graph
	keys  []string         // of the nodes
	at    map[string]int32 // nodes by key, made when the first is looked for
	words map[string]string
	lower []byte // the key looked for, so that none is kept to look
}

// NewDrawing returns an empty one.
func NewDrawing() *Drawing { return &Drawing{words: map[string]string{}} }

// word keeps one of many equal short texts.
func (d *Drawing) word(s string) string {
	w, ok := d.words[s]
	if !ok {
		w = strings.Clone(s)
		d.words[w] = w
	}
	return w
}

// Len is how many nodes there are.
func (d *Drawing) Len() int { return len(d.keys) }

// Node adds a resource and returns its place; false if it was there before the
// last edge was added: what is added in one go differs.
func (d *Drawing) Node(key, id, state string, properties json.RawMessage) (place int32, added bool) {
	if at, ok := d.at[key]; ok {
		return at, false
	}
	place = int32(len(d.keys))
	d.keys = append(d.keys, key)
	d.g.Nodes = append(d.g.Nodes, store.Node{ID: id, State: core.State(d.word(state)), Properties: properties})
	return place, true
}

// Edge adds an edge that leaves the node at a place.
func (d *Drawing) Edge(from int32, toID, kind, name string) {
	e := store.GraphEdge{From: from, To: d.to(toID), Kind: core.EdgeKind(d.word(kind)), Name: d.word(name)}
	if e.To < 0 {
		e.ToID = toID
	}
	d.g.Edges = append(d.g.Edges, e)
}

// Output adds an output of the node at a place, in the order planned.
func (d *Drawing) Output(of int32, id string) {
	n := &d.g.Nodes[of]
	n.Outputs = append(n.Outputs, id)
}

// to is the place of the node of an id, -1 where there is none.
func (d *Drawing) to(id string) int32 {
	if d.at == nil {
		d.at = make(map[string]int32, len(d.keys)) // grown step by step it takes twice the time
	}
	for i := len(d.at); i < len(d.keys); i++ {
		d.at[d.keys[i]] = int32(i)
	}
	d.lower = d.lower[:0]
	for i := range len(id) {
		c := id[i]
		if c >= utf8.RuneSelf {
			d.lower = append(d.lower[:0], strings.ToLower(id)...)
			break
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		d.lower = append(d.lower, c)
	}
	if at, ok := d.at[string(d.lower)]; ok {
		return at
	}
	return -1
}

// Beyond are the keys to which edges lead that are no nodes yet.
func (d *Drawing) Beyond() []string {
	var keys []string
	for _, e := range d.g.Edges {
		if e.To < 0 {
			keys = append(keys, strings.ToLower(e.ToID))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Graph is what was drawn, in its order. It ends the drawing.
func (d *Drawing) Graph() store.Graph {
	for i := range d.g.Edges {
		if e := &d.g.Edges[i]; e.To < 0 {
			if at := d.to(e.ToID); at >= 0 {
				e.To, e.ToID = at, ""
			}
		}
	}
	if !slices.IsSorted(d.keys) {
		d.sortNodes()
	}
	leads := func(e store.GraphEdge) string {
		if e.To >= 0 {
			return d.keys[e.To]
		}
		return strings.ToLower(e.ToID)
	}
	byEnds := func(a, b store.GraphEdge) int {
		if a.From != b.From {
			return cmp.Compare(a.From, b.From)
		}
		return cmp.Or(cmp.Compare(leads(a), leads(b)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	}
	if !slices.IsSortedFunc(d.g.Edges, byEnds) {
		slices.SortFunc(d.g.Edges, byEnds)
	}
	if d.g.Edges == nil {
		d.g.Edges = []store.GraphEdge{}
	}
	return d.g
}

// sortNodes brings the nodes into the order of their keys, and the edges along.
func (d *Drawing) sortNodes() {
	order := make([]int32, len(d.keys)) // where what is at a place was
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(d.keys[a], d.keys[b]) })
	nodes, keys, place := make([]store.Node, len(order)), make([]string, len(order)), make([]int32, len(order))
	for i, was := range order {
		nodes[i], keys[i], place[was] = d.g.Nodes[was], d.keys[was], int32(i)
	}
	d.g.Nodes, d.keys = nodes, keys
	for i := range d.g.Edges {
		e := &d.g.Edges[i]
		e.From = place[e.From]
		if e.To >= 0 {
			e.To = place[e.To]
		}
	}
}
