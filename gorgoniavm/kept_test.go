package gorgoniavm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// What lies in the memory of an input is the program's, whatever the VM does with
// its own: neither the next run nor Close empties it.
func TestAliasesOfInputsStay(t *testing.T) {
	aliases := map[string]func(x *G.Node) *G.Node{
		"reshape": func(x *G.Node) *G.Node { return G.Must(G.Reshape(x, tensor.Shape{6, 2})) },
		"reshape of reshape": func(x *G.Node) *G.Node {
			return G.Must(G.Reshape(G.Must(G.Reshape(x, tensor.Shape{12})), tensor.Shape{2, 6}))
		},
		"concat of one": func(x *G.Node) *G.Node { return G.Must(G.Concat(0, x)) },
		"flatten":       func(x *G.Node) *G.Node { return G.Must(G.Reshape(x, tensor.Shape{1, 12})) },
	}
	everywhere(t, func(t *testing.T, d device) {
		for name, alias := range aliases {
			for _, inPool := range []bool{false, true} {
				t.Run(fmt.Sprint(name, inPool), func(t *testing.T) {
					e, a := d.open(t)
					g := G.NewGraph()
					v := values(1, 3, 4)
					want := v.Clone().(*tensor.Dense).Data()
					if inPool {
						var err error
						v, err = e.FromHost(v)
						require.NoError(t, err)
					}
					x := G.NewMatrix(g, tensor.Float32, G.WithShape(3, 4), G.WithName("x"), G.WithValue(v))
					y := alias(x)
					G.Must(G.Square(y))
					vm := d.vm(t, g, e, gorgoniavm.Keep(y))
					var given []*tensor.Dense
					for range 3 {
						require.NoError(t, vm.RunAll())
						given = append(given, y.Value().(*tensor.Dense))
					}
					require.NoError(t, vm.Close())
					require.Equal(t, want, y.Value().Data())
					for i, v := range given {
						if !e.AllocAccessible() && !inPool {
							require.Zero(t, v.MemSize(), "it was the VM's")
						} else {
							require.Equal(t, want, data(t, e, v), "run %d", i)
						}
					}
					if inPool {
						require.NoError(t, e.FreeTensor(v))
						_, err := e.ToHost(given[0])
						require.ErrorIs(t, err, cupool.ErrUseAfterFree)
					}
					require.Zero(t, a.live)
				})
			}
		}
	})
}
