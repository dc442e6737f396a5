package gorgoniavm

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// ctcLoss is gorgonia's CTCLoss. Where lengths or classes are out of range, the
// loss is NaN, as looking at them would wait for the device. Gorgonia has the loss of
// a sample without targets with the other sign.
func ctcLoss(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	logProbs, t, err := transcripts(args)
	if err != nil {
		return nil, err
	}
	loss, err := m.empty(in.Dtype, tensor.Shape{1})
	if err != nil {
		return nil, err
	}
	mean := gorgonia.Reduction(program.Field(in.Op, "reduction").Uint()) == gorgonia.ReductionMean
	return loss, nn.CTCLoss(m.e, logProbs, t, loss, mean)
}

// ctcLossBack is its gradient: gorgonia's is that of the sum, of means as well.
// Behind a sample's length, where gorgonia has −Inf, it is 0.
func ctcLossBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	logProbs, t, err := transcripts(args)
	if err != nil {
		return nil, err
	}
	by, err := floatOf(args[4])
	if err != nil {
		return nil, err
	}
	dx, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	return dx, nn.CTCLossBack(m.e, logProbs, t, dx, by)
}

// transcripts returns the first four operands of CTCLoss and its gradient.
func transcripts(args []gorgonia.Value) (logProbs *tensor.Dense, t nn.Transcripts, err error) {
	var ds [4]*tensor.Dense
	for i := range ds {
		if ds[i], err = dense(args[i]); err != nil {
			return nil, t, err
		}
	}
	return ds[0], nn.Transcripts{Targets: ds[1], Lengths: ds[2], TargetLengths: ds[3]}, nil
}
