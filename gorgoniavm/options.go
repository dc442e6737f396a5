package gorgoniavm

import (
	"fmt"
	"log/slog"

	"gorgonia.org/gorgonia"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// Option is an option of New. A nil one changes nothing.
type Option func(*config)

type config struct {
	wants    program.Wants
	watch    gorgonia.Nodes
	watchAll bool
	watchNaN bool
	watchInf bool
	eval     bool
	replay   bool
	log      *slog.Logger
	seed     *uint64 // of random numbers; nil: none is given
}

// BindDualValues adds the gradients of the graph to those of the nodes that
// they belong to, as solvers need it: n.Grad() is the sum over RunAlls since a
// solver zeroed it. Without nodes it does so for all inputs that gorgonia.Grad
// was asked for. On a device whose memory the CPU cannot touch, RunAll moves
// the values of these nodes to the pool, and Close brings them back.
//
// Without this option n.Grad() is the gradient of the last RunAll.
func BindDualValues(nodes ...*gorgonia.Node) Option {
	return func(c *config) {
		c.wants.Bind = true
		c.wants.BindOnly = append(c.wants.BindOnly, nodes...)
	}
}

// Gradients names the nodes whose gradients the program wants: n.Grad() is that
// of the last RunAll. As with BindDualValues, gradients of other nodes that
// nothing reads are not computed, but none is added to another or has to be
// zeroed, which a solver need not do then (KeepGradients). The values of the nodes
// stay where they are: for a solver on a device, ToPool moves them.
func Gradients(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.wants.Grads = append(c.wants.Grads, nodes...) }
}

// Keep makes the values of nodes outlast RunAll, until the next one or Close.
// Inputs, roots of the graph, scalars and gradients need no Keep.
func Keep(nodes ...*gorgonia.Node) Option {
	return func(c *config) { c.wants.Keep = append(c.wants.Keep, nodes...) }
}

// TraceValues is Keep for all nodes: as much memory as the graph has values.
func TraceValues() Option {
	return func(c *config) { c.wants.KeepAll = true }
}

// EvalMode puts the operations that know of training (dropout, batch
// normalization) in evaluation mode. Without it they train. The operations are
// the graph's: like the tape machine, the VM that was made last decides for
// all VMs of the graph.
func EvalMode() Option {
	return func(c *config) { c.eval = true }
}

// WithLogger makes the VM log every operation with its node, at slog's debug
// level. Without it, and with nil, no operation is logged, and warnings go to the
// pool's logger (cupool.Config.Logger). The one warning there is names, once for
// each type, an operation that is computed on copies in host memory (VM.Fallbacks).
func WithLogger(l *slog.Logger) Option {
	return func(c *config) { c.log = l }
}

// Watch logs the values of nodes, or of all without any, at slog's info
// level, to the logger of WithLogger. It copies them to Go's heap, which waits
// for the device.
func Watch(nodes ...*gorgonia.Node) Option {
	return func(c *config) {
		c.watchAll = c.watchAll || len(nodes) == 0
		c.watch = append(c.watch, nodes...)
	}
}

// WatchNaN makes RunAll fail at the first operation whose result has a NaN. It
// looks at all results on the CPU, which is slow.
func WatchNaN() Option {
	return func(c *config) { c.watchNaN = true }
}

// WatchInf is WatchNaN for infinities.
func WatchInf() Option {
	return func(c *config) { c.watchInf = true }
}

// looks reports whether the VM looks at every value as it is computed.
func (c *config) looks() bool { return c.log != nil || c.watchNaN || c.watchInf }

// validate checks that all nodes are of the graph home.
func (c *config) validate(home *gorgonia.ExprGraph) error {
	for _, l := range []struct {
		option string
		nodes  gorgonia.Nodes
	}{{"BindDualValues", c.wants.BindOnly}, {"Gradients", c.wants.Grads}, {"Keep", c.wants.Keep}, {"Watch", c.watch}} {
		for _, n := range l.nodes {
			if n == nil || n.Graph() != home {
				return notOfGraph(l.option, n)
			}
		}
	}
	return nil
}

// noName is what Gorgonia calls an input that has no name: a nil operation, printed.
const noName = "%!s(<nil>)()"

// nameOf names a node for errors and logs.
func nameOf(n *gorgonia.Node) string {
	name := n.Name()
	if name == noName {
		name = "unnamed"
	}
	return fmt.Sprintf("%s (node %d)", name, n.ID())
}

// notOfGraph is the error for a node that is nil or another graph's.
func notOfGraph(field string, n *gorgonia.Node) error {
	e := &cupool.ConfigError{Field: field, Reason: "the node is not one of the graph"}
	if n != nil {
		e.Value = nameOf(n)
	}
	return e
}
