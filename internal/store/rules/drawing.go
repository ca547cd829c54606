package rules

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/store"
)

// Drawing puts a [store.Graph] together from rows, nodes before what belongs to
// them. It holds little for each, since there may be very many.
type Drawing struct {
	g     store.Graph
	keys  []string         // of the nodes
	at    map[string]int32 // nodes by key
	words map[string]string
}

// NewDrawing returns an empty one.
func NewDrawing() *Drawing { return &Drawing{at: map[string]int32{}, words: map[string]string{}} }

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

// At is the place of a node until the graph is made, -1 where there is none.
func (d *Drawing) At(key string) int {
	if at, ok := d.at[key]; ok {
		return int(at)
	}
	return -1
}

// Node adds a resource, once.
func (d *Drawing) Node(key, id, state string, properties json.RawMessage) {
	if d.At(key) >= 0 {
		return
	}
	d.at[key] = int32(len(d.keys))
	d.keys = append(d.keys, key)
	d.g.Nodes = append(d.g.Nodes, store.Node{ID: id, State: core.State(d.word(state)), Properties: properties})
}

// Edge adds an edge that leaves a node.
func (d *Drawing) Edge(from, to, toID, kind, name string) {
	e := store.GraphEdge{From: d.at[from], To: int32(d.At(to)), Kind: core.EdgeKind(d.word(kind)), Name: d.word(name)}
	if e.To < 0 {
		e.ToID = toID
	}
	d.g.Edges = append(d.g.Edges, e)
}

// Output adds an output of a node, in the order planned.
func (d *Drawing) Output(key, id string) {
	n := &d.g.Nodes[d.at[key]]
	n.Outputs = append(n.Outputs, id)
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
			if at := d.At(strings.ToLower(e.ToID)); at >= 0 {
				e.To, e.ToID = int32(at), ""
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
