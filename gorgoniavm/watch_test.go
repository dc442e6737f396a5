package gorgoniavm_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// newOwnOps is a graph with two operations of a program's own, of one type.
func newOwnOps() *G.ExprGraph {
	pass := func(args ...G.Value) (G.Value, error) { return args[0].(*tensor.Dense).Clone().(*tensor.Dense), nil }
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float32, G.WithShape(3), G.WithName("x"), G.WithInit(G.Ones()))
	for _, name := range []string{"mine", "mine too"} {
		x = G.Must(G.ApplyOp(&ownOp{name: name, arity: 1, do: pass}, x))
	}
	return g
}

// What is computed on copies is logged once for each type, to the VM's logger or
// else the pool's. In memory that the CPU can touch there are no copies.
func TestWarning(t *testing.T) {
	for _, c := range []struct {
		name      string
		far       bool
		own       bool // the VM has a logger
		vm, pools int  // warnings
	}{{"the VM's logger", true, true, 1, 0}, {"the pool's logger", true, false, 0, 1}, {"no copies", false, true, 0, 0}} {
		t.Run(c.name, func(t *testing.T) {
			var vms, pools bytes.Buffer
			e := newLoggedEngine(t, c.far, warningsTo(&pools))
			var opts []gorgoniavm.Option
			if c.own {
				opts = append(opts, gorgoniavm.WithLogger(warningsTo(&vms)))
			}
			vm, err := gorgoniavm.New(newOwnOps(), e, opts...)
			require.NoError(t, err)
			require.NoError(t, vm.RunAll())
			require.NoError(t, vm.RunAll())
			assert.Equal(t, map[string]int64{"*gorgoniavm_test.ownOp": 4}, vm.Fallbacks())
			require.NoError(t, vm.Close())
			assert.Equal(t, c.vm, strings.Count(vms.String(), "op=*gorgoniavm_test.ownOp"), vms.String())
			assert.Equal(t, c.pools, strings.Count(pools.String(), "op=*gorgoniavm_test.ownOp"), pools.String())
		})
	}
}

func warningsTo(to *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// newLoggedEngine returns an engine whose pool has a logger.
func newLoggedEngine(t *testing.T, far bool, log *slog.Logger) *cupool.Engine {
	t.Helper()
	var d cupool.Driver
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	closing := d
	t.Cleanup(func() { require.NoError(t, closing.Close()) })
	if far {
		d = pooltest.Far{Driver: d}
	}
	a, err := cupool.New(cupool.Config{Driver: d, Logger: log})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	e, err := cupool.NewEngine(a)
	require.NoError(t, err)
	return e
}
