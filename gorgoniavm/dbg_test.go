package gorgoniavm_test

import (
	"testing"

	G "gorgonia.org/gorgonia"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

func TestDbg(t *testing.T) {
	m := newGRULayer(4, 8, 8, 10, 5)
	p, err := program.Compile(m.g, &program.Wants{Grads: G.Nodes(m.weights), Fuse: true, Group: true})
	if err != nil {
		t.Fatal(err)
	}
	program.Dump(p)
}
