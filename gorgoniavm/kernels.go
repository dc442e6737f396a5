package gorgoniavm

import (
	"gorgonia.org/gorgonia"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// kernel computes an operation on values of the engine. Its result is new, or
// lies in one of the operands.
type kernel func(m *VM, in *program.Instr, args []gorgonia.Value) (gorgonia.Value, error)

// kernels are the operations that the engine computes, on its device. Gorgonia
// computes all others by itself (foreign).
var kernels = map[string]kernel{
	"gorgonia.elemBinOp":      elementwise,
	"gorgonia.elemUnaryOp":    function,
	"gorgonia.linAlgBinOp":    product,
	"*gorgonia.softmaxOp":     toDestination,
	"*gorgonia.softmaxDiffOp": toDestination,
	"gorgonia.sumOp":          reduce,
	"*gorgonia.maxOp":         reduce,
	"*gorgonia.repeatOp":      repeat,
	"gorgonia.reshapeOp":      reshape,
	"gorgonia.transposeOp":    transpose,
	"gorgonia.concatOp":       plain,
	"gorgonia.tensordotOp":    contract,
	"gorgonia.minBetween":     plain,
	"gorgonia.maxBetween":     plain,
	"*gorgonia.byIndicesOp":   plain,
	"*gorgonia.dropoutOp":     dropout,
	"*gorgonia.dropoutDiffOp": dropoutBack,
	"gorgonia.randomOp":       random,
	"*gorgonia.sliceOp":       slice,
	"gorgonia.sliceIncrOp":    addToSlice,
	"gorgonia.sizeOp":         plain,
	"gorgonia.Iop":            plain,

	// Where the CPU can touch the memory, gorgonia computes these.
	"gorgonia.im2colOp":             floatsOnDevice(im2col),
	"gorgonia.col2imOp":             floatsOnDevice(col2im),
	"*gorgonia.maxPoolOp":           floatsOnDevice(maxPool),
	"*gorgonia.maxPoolDiffOp":       floatsOnDevice(maxPoolBack),
	"*gorgonia.avgPoolOp":           floatsOnDevice(avgPool),
	"*gorgonia.avgPoolDiffOp":       floatsOnDevice(avgPoolBack),
	"*gorgonia.globalAveragePoolOp": floatsOnDevice(globalAvgPool),
	"*gorgonia.upsampleOp":          floatsOnDevice(upsample),
	"*gorgonia.upsampleDiffOp":      floatsOnDevice(upsampleBack),
	"*gorgonia.byIndicesOpDiffOp":   onDevice(plain),
	"*gorgonia.sparsemaxOp":         onDevice(sparsemax),
	"*gorgonia.sparsemaxDiffOp":     onDevice(sparsemaxBack),
	"gorgonia.diagFlatOp":           floatsOnDevice(diagFlat),
	"gorgonia.atOp":                 onDevice(elementAt),
	"*gorgonia.dtConvOp":            onDevice(convert),
	"*gorgonia.BatchNormOp":         floatsOnDevice(batchNorm),
	"*gorgonia.batchnormDiffOp":     floatsOnDevice(batchNormBack),
	"*gorgonia.GroupNormOp":         floatsOnDevice(groupNorm),
	"*gorgonia.groupNormDiffOp":     floatsOnDevice(groupNormBack),
	"*gorgonia.ctcLossOp":           onDevice(ctcLoss),
	"*gorgonia.ctcLossDiffOp":       onDevice(ctcLossBack),
	"*gorgonia.yoloOp":              onDevice(yolo),
}

// kernelsOf returns the kernels of a program's instructions.
func kernelsOf(p *program.Program) []kernel {
	ks := make([]kernel, len(p.Instrs))
	for i := range p.Instrs {
		ks[i] = kernelOf(&p.Instrs[i])
	}
	return ks
}

func kernelOf(in *program.Instr) kernel {
	switch in.Step {
	case program.Number:
		return number
	case program.Scale:
		return scale
	case program.Linear:
		return linear
	case program.LinearBack:
		return linearBack
	case program.ConvForward:
		return conv
	case program.ConvBack:
		return convBack
	case program.NormForward:
		return scaledNorm
	case program.NormBack:
		return scaledNormBack
	case program.Rectify:
		return rectify
	case program.RectifyBack:
		return rectifyBack
	case program.LossBack:
		return lossBack
	case program.Elementwise:
		return group
	case program.Room:
		return room
	case program.Whole:
		return whole
	case program.Product:
		return partsProduct
	}
	if k, ok := kernels[in.Name]; ok {
		return k
	}
	return foreign
}
