package gpu

import (
	"unsafe"

	"github.com/cupool/cupool/internal/kernels"
)

// fusedBlock is a block's threads of Fused: few, so that small tensors keep
// more of a GPU busy.
const fusedBlock = 128

// Fused launches a program of elementwise operations. All operands have to be
// memory of this engine.
func (g *Ops) Fused(op string, double bool, args *kernels.FusedArgs) error {
	return g.Launch(op, kernels.Launch{Kernel: kernels.Fused.Of(double), X: Blocks(int(args.N), fusedBlock), Y: 1, Block: fusedBlock, Args: unsafe.Pointer(args)})
}
