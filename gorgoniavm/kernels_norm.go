package gorgoniavm

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/nn"
)

// statsOf returns the statistics of an operation and what they are used for now.
func (m *VM) statsOf(in *program.Instr) nn.BatchStats {
	n := m.norms[keyOf(in)]
	s := n.stats
	s.Evaluate = n.batch != nil && !isTraining(n.batch)
	return s
}

// isTraining reports whether an operation is in the mode of training.
func isTraining(op *gorgonia.BatchNormOp) bool { return program.Field(op, "training").Bool() }

// batchNorm is *gorgonia.BatchNormOp. The scale and the bias are operations of
// their own.
func batchNorm(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	return toResult(m, in, args, func(x, y *tensor.Dense) error {
		return nn.BatchNorm(m.e, x, nil, nil, y, m.statsOf(in), nn.NoActivation)
	})
}

// batchNormBack is *gorgonia.batchnormDiffOp, of the input and the gradient by
// the result. Where it evaluates images, gorgonia takes deviations of batches
// for those that it has normalized with, which gives another gradient.
func batchNormBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dy, err := dense(args[1])
	if err != nil {
		return nil, err
	}
	return toResult(m, in, args, func(x, dx *tensor.Dense) error {
		return nn.BatchNormBack(m.e, x, nil, dy, nil, dx, nil, nil, m.statsOf(in), nn.NoActivation)
	})
}

// scaledNorm is act(batchNorm(x)·scale + bias).
func scaledNorm(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	scale, bias, err := pair(args[1:])
	if err != nil {
		return nil, err
	}
	return toResult(m, in, args, func(x, y *tensor.Dense) error {
		return nn.BatchNorm(m.e, x, scale, bias, y, m.statsOf(in), activationOf(in))
	})
}

// scaledNormBack makes the gradients of scaledNorm, of x, the gradient by the
// result, the scale and, where it is rectified, the result. That by x is its result;
// those by the scale and the bias, where they are wanted, are its parts.
func scaledNormBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dy, scale, err := pair(args[1:])
	if err != nil {
		return nil, err
	}
	var y tensor.Tensor
	if in.Rectify {
		if y, err = dense(args[3]); err != nil {
			return nil, err
		}
	}
	parts, err := m.parts(in)
	if err != nil {
		return nil, err
	}
	return toResult(m, in, args, func(x, dx *tensor.Dense) error {
		return nn.BatchNormBack(m.e, x, y, dy, scale, dx, parts[0], parts[1], m.statsOf(in), activationOf(in))
	})
}

// groupNorm is *gorgonia.GroupNormOp. Of groups of 264 elements and more,
// gorgonia puts the moments together wrongly, and has other numbers.
func groupNorm(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	s := m.statsOf(in)
	return toResult(m, in, args, func(x, y *tensor.Dense) error {
		return nn.GroupNorm(m.e, x, y, s.Mean, s.Inverse, groupsOf(in.Op), s.Epsilon)
	})
}

// groupNormBack is *gorgonia.groupNormDiffOp, of the input and the gradient by the
// result.
func groupNormBack(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error) {
	dy, err := dense(args[1])
	if err != nil {
		return nil, err
	}
	s := m.statsOf(in)
	return toResult(m, in, args, func(x, dx *tensor.Dense) error {
		return nn.GroupNormBack(m.e, x, dy, dx, s.Mean, s.Inverse, groupsOf(in.Op))
	})
}

func groupsOf(op gorgonia.Op) int { return int(program.Field(op, "numGroups").Int()) }
