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
	nodes []drawnNode
	edges []drawnEdge
	at    map[string]int32 // nodes by key
	words map[string]string
}

type drawnNode struct {
	key string
	store.Node
}

// drawnEdge has in key where it leads until that is known as a node.
type drawnEdge struct {
	key string
	store.GraphEdge
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

// Has reports whether a resource is a node.
func (d *Drawing) Has(key string) bool {
	_, ok := d.at[key]
	return ok
}

// Node adds a resource, once.
func (d *Drawing) Node(key, id, state string, properties json.RawMessage) {
	if d.Has(key) {
		return
	}
	d.at[key] = int32(len(d.nodes))
	d.nodes = append(d.nodes, drawnNode{key, store.Node{ID: id, State: core.State(d.word(state)), Properties: properties}})
}

// Edge adds an edge that leaves a node.
func (d *Drawing) Edge(from, to, toID, kind, name string) {
	e := drawnEdge{to, store.GraphEdge{From: d.at[from], To: -1, ToID: toID, Kind: core.EdgeKind(d.word(kind)), Name: name}}
	if at, ok := d.at[to]; ok {
		e.key, e.To, e.ToID = "", at, ""
	}
	d.edges = append(d.edges, e)
}

// Output adds an output of a node, in the order planned.
func (d *Drawing) Output(key, id string) {
	n := &d.nodes[d.at[key]]
	n.Outputs = append(n.Outputs, id)
}

// Beyond are the keys to which edges lead that are no nodes yet.
func (d *Drawing) Beyond() []string {
	var keys []string
	for _, e := range d.edges {
		if e.To < 0 {
			keys = append(keys, e.key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Graph is what was drawn, in its order. It ends the drawing.
func (d *Drawing) Graph() store.Graph {
	for i, e := range d.edges {
		if at, ok := d.at[e.key]; ok && e.To < 0 {
			d.edges[i].key, d.edges[i].To, d.edges[i].ToID = "", at, ""
		}
	}
	byKey := func(a, b drawnNode) int { return cmp.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(d.nodes, byKey) {
		slices.SortFunc(d.nodes, byKey)
		place := make([]int32, len(d.nodes)) // from where it was to where it is
		for i, n := range d.nodes {
			place[d.at[n.key]] = int32(i)
		}
		for i := range d.edges {
			e := &d.edges[i]
			e.From = place[e.From]
			if e.To >= 0 {
				e.To = place[e.To]
			}
		}
	}
	leads := func(e drawnEdge) string {
		if e.To >= 0 {
			return d.nodes[e.To].key
		}
		return e.key
	}
	byEnds := func(a, b drawnEdge) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(leads(a), leads(b)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	}
	if !slices.IsSortedFunc(d.edges, byEnds) {
		slices.SortFunc(d.edges, byEnds)
	}
	g := store.Graph{Nodes: make([]store.Node, len(d.nodes)), Edges: make([]store.GraphEdge, len(d.edges))}
	for i, n := range d.nodes {
		g.Nodes[i] = n.Node
	}
	for i, e := range d.edges {
		g.Edges[i] = e.GraphEdge
	}
	return g
}
