package program

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// ordered is the nodes of a graph that have to be computed, in the order of
// the tape machine, but for scalars at the end.
type ordered struct {
	nodes    gorgonia.Nodes
	children map[*gorgonia.Node]gorgonia.Nodes
	read     map[*gorgonia.Node]bool // a node reads it that is no statement
	forward  map[*gorgonia.Node]bool // a node reads it that is no statement and no gradient
	late     map[*gorgonia.Node]bool // it comes last (scalarsLast)
}

func order(g *gorgonia.ExprGraph, w *Wants) (*ordered, error) {
	sorted, err := gorgonia.Sort(g)
	if err != nil {
		return nil, fmt.Errorf("gorgoniavm: sorting the graph: %w", err)
	}
	o := &ordered{nodes: sorted, children: make(map[*gorgonia.Node]gorgonia.Nodes),
		read: make(map[*gorgonia.Node]bool), forward: make(map[*gorgonia.Node]bool), late: make(map[*gorgonia.Node]bool)}
	for _, n := range sorted {
		for children := g.From(n.ID()); children.Next(); {
			child := children.Node().(*gorgonia.Node)
			o.children[n] = append(o.children[n], child)
			if !isStatement(n) {
				o.read[child] = true
				o.forward[child] = o.forward[child] || !isGradient(n)
			}
		}
	}
	o.prune(w)
	slices.Reverse(o.nodes)
	o.scalarsLast()
	return o, nil
}

// prune leaves out nodes whose values are not used. Gorgonia derives a cost by
// all that it depends on, the input images too. A program that names the nodes
// whose gradients it wants does not want the other gradients, unless nodes of
// the graph read them. A node comes before those that it reads.
func (o *ordered) prune(w *Wants) {
	if len(w.BindOnly) == 0 && len(w.Grads) == 0 || w.KeepAll {
		return
	}
	needed := make(map[*gorgonia.Node]bool)
	o.nodes = slices.DeleteFunc(o.nodes, func(n *gorgonia.Node) bool {
		if !needed[n] && !o.wanted(n, w) {
			return true
		}
		for _, child := range o.children[n] {
			needed[child] = true
		}
		return false
	})
}

// wanted reports whether a program may want a node's value for its own sake:
// it says so, or the node is a root of what it made itself. A tensor that only
// gradients read is one of those that Gorgonia makes on the way to them.
func (o *ordered) wanted(n *gorgonia.Node, w *Wants) bool {
	return isStatement(n) || slices.ContainsFunc(n.DerivOf(), w.BindOnly.Contains) || slices.ContainsFunc(n.DerivOf(), w.Grads.Contains) ||
		w.Keep.Contains(n) || w.BindOnly.Contains(n) || !o.forward[n] && !isGradient(n) && (n.IsScalar() || !o.read[n])
}

// scalarsLast moves operations among scalars to the end, unless a tensor
// depends on them. To read a sum off the device waits for all that was
// submitted, so all else is submitted first.
func (o *ordered) scalarsLast() {
	early := make(map[*gorgonia.Node]bool) // nodes that keep their places
	for _, n := range slices.Backward(o.nodes) {
		if !early[n] && o.amongScalars(n) {
			o.late[n] = true
			continue
		}
		early[n] = true
		for _, child := range o.children[n] {
			early[child] = true
		}
	}
	slices.SortStableFunc(o.nodes, func(a, b *gorgonia.Node) int {
		switch {
		case o.late[a] == o.late[b]:
			return 0
		case o.late[b]:
			return -1
		}
		return 1
	})
}

// amongScalars reports whether a node is a scalar, or a statement, and has
// nothing but scalars for operands.
func (o *ordered) amongScalars(n *gorgonia.Node) bool {
	if n.Op() == nil || !isStatement(n) && !n.IsScalar() {
		return false
	}
	return !slices.ContainsFunc(o.children[n], func(c *gorgonia.Node) bool { return !c.IsScalar() })
}
