package gorgoniavm

import (
	"fmt"
	"reflect"
	"slices"

	"gorgonia.org/gorgonia"
)

// ordered is the nodes of a graph that have to be computed, in the order of
// the tape machine, but for scalars at the end.
type ordered struct {
	nodes    gorgonia.Nodes
	children map[*gorgonia.Node]gorgonia.Nodes
	read     map[*gorgonia.Node]bool // by another node than a statement
	forward  map[*gorgonia.Node]bool // and than a gradient
	late     map[*gorgonia.Node]bool // see scalarsLast
}

func order(g *gorgonia.ExprGraph, c *config) (*ordered, error) {
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
	o.prune(c)
	slices.Reverse(o.nodes)
	o.scalarsLast()
	return o, nil
}

// prune leaves out what is of use to nobody. Gorgonia derives a cost by all
// that it depends on, the input images too; whoever names the nodes whose
// gradients are wanted does not want the others, unless nodes of the
// graph read them. The nodes are sorted with those that read before those
// that are read.
func (o *ordered) prune(c *config) {
	if len(c.bindOnly) == 0 && len(c.grads) == 0 || c.keepAll {
		return
	}
	needed := make(map[*gorgonia.Node]bool)
	o.nodes = slices.DeleteFunc(o.nodes, func(n *gorgonia.Node) bool {
		if !needed[n] && !o.wanted(n, c) {
			return true
		}
		for _, child := range o.children[n] {
			needed[child] = true
		}
		return false
	})
}

// wanted reports whether a program may want a node's value for its own sake:
// it says so, or the node is a root of what it made itself.
func (o *ordered) wanted(n *gorgonia.Node, c *config) bool {
	return isStatement(n) || slices.ContainsFunc(n.DerivOf(), c.bindOnly.Contains) || slices.ContainsFunc(n.DerivOf(), c.grads.Contains) ||
		c.keep.Contains(n) || c.bindOnly.Contains(n) || !o.forward[n] && !isGradient(n)
}

// isGradient reports whether gorgonia.Grad made a node for a gradient. Those of
// nodes that it was not asked for are known by their group alone.
func isGradient(n *gorgonia.Node) bool {
	group := reflect.ValueOf(n).Elem().FieldByName("group").String()
	return len(n.DerivOf()) > 0 || group == gradientGroup || group == strayGroup
}

const (
	gradientGroup = "gradients"
	strayGroup    = "undifferentiated nodes"
)

// scalarsLast moves operations among scalars to the end, unless a tensor
// depends on them: to read a sum off the device waits for all that was
// submitted, which is best done once the rest of the run is.
func (o *ordered) scalarsLast() {
	early := make(map[*gorgonia.Node]bool) // what has to be computed in its place
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
