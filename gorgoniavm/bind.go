package gorgoniavm

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/cupool/cupool"
)

// Let gives an input of the graph a value, as gorgonia.Let does: Gorgonia's
// tape machine has such a method. It fails with a *cupool.ConfigError for a
// node that is not the graph's, and with gorgonia's error for a value that does
// not fit it or a node that is no input.
func (m *VM) Let(n *gorgonia.Node, be any) error {
	if err := m.has("Let", n); err != nil {
		return err
	}
	return gorgonia.Let(n, be)
}

// Set gives input a the value that node b has from the last RunAll, as the tape
// machine's method does. Both nodes have the same tensor then, which lasts as
// long as a has it. It fails as Let does, and with ErrNoValue for a b whose
// value was not kept.
func (m *VM) Set(a, b *gorgonia.Node) error {
	if err := m.has("Set", a, b); err != nil {
		return err
	}
	if b.Value() == nil {
		return fmt.Errorf("gorgoniavm: Set: %s: %w; Keep makes it last", nameOf(b), ErrNoValue)
	}
	return gorgonia.Let(a, b.Value())
}

// has fails for nodes that are not the graph's.
func (m *VM) has(method string, nodes ...*gorgonia.Node) error {
	for _, n := range nodes {
		if n == nil || n.Graph() != m.home {
			return &cupool.ConfigError{Field: method, Value: n, Reason: "the node is not one of the graph"}
		}
	}
	return nil
}

// homeOf returns the graph that the nodes of a graph say they are in: of one that
// ExprGraph.SubgraphRoots has made, that is the whole.
func homeOf(g *gorgonia.ExprGraph) *gorgonia.ExprGraph {
	if all := g.AllNodes(); len(all) > 0 {
		return all[0].Graph()
	}
	return g
}
