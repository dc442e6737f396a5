package program

import (
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Program is a graph in the order in which it runs.
type Program struct {
	Instrs  []Instr
	Uses    []int32          // how often each instruction's result is read
	Targets []*gorgonia.Node // whose gradients are bound
	Late    int              // the first of the instructions that come last, which compute scalars

	training []gorgonia.TrainModeOp
	cuts     []cut // slices that groups were made with
}

// Instr computes a node. Its result is in the slot of its own number.
type Instr struct {
	Node    *gorgonia.Node
	Kind    Kind
	Op      gorgonia.Op // nil: an input
	Name    string      // the operation's type
	Stock   bool        // the operation is gorgonia's own
	Step    Step        // what computes it
	Rectify bool        // of Linear, ConvForward and their gradients: with Rectify behind the sum, which the layer before has. Of the gradient of max pooling: its input is rectified

	In    []int // the slots it reads
	Dead  []int // of those, the ones that nobody reads after it, once each
	Out   int
	Parts []int // slots that it fills beside its own; -1: none

	Shape      tensor.Shape
	Dtype      tensor.Dtype // of no type: a statement
	Axes       []int        // of operations along axes
	OtherAxes  []int        // of the second operand
	Outer      bool         // an outer product
	MatMul     bool         // a product of matrices
	Transposed [2]bool      // its operands are
	Conv       Conv         // of convolutions and what they are made of
	Scalar     bool
	Number     gorgonia.Value // of the step Number
	Group      *Group         // of the step Elementwise
	Views      [2]View        // of the step Product
	Offset     int            // of a room in the room that it lies in
	Zero       bool           // a room is zeroed
	Losses     bool           // the device has the losses of the rows, whose sum with the other sign is the value

	Fixed   bool             // a number that is the same in every run
	Late    bool             // it comes last
	InPlace int              // the operand that the result may overwrite, or -1
	Keep    bool             // the node has the value after a run
	DerivOf []*gorgonia.Node // the nodes to whose gradients the result is added
}

// Step says what computes an instruction.
type Step int

// The steps. All but Own are fused.
const (
	Own         Step = iota // the node's operation
	Number                  // nothing: it is Instr.Number
	Scale                   // a tensor times a scalar
	Linear                  // x·w + bias, of x, w and the bias, if there is one
	LinearBack              // the gradient of Linear by w, of x, w and dz; its Parts are those by x and by the bias
	ConvForward             // the convolution of x and w, + bias if there is one
	ConvBack                // the gradient of ConvForward by w, of x, w and dz; its Parts are those by x and by the bias
	NormForward             // the batch normalization of x, times a scale, + a bias
	NormBack                // the gradient of NormForward by x, of x, dy, the scale and, if it is rectified, the result; its Parts are those by scale and bias
	Rectify                 // max(x, 0)
	RectifyBack             // the gradient of Rectify, of its result and the gradient by that
	LossBack                // the gradient of a cross entropy by z, of z, y and a scale; its Part is the loss
	PartOf                  // nothing: another instruction has filled the slot
	Elementwise             // several elementwise operations (Instr.Group)
	Room                    // nothing: it is memory, of its own or in the room that it reads
	Whole                   // nothing: it is the room that it reads, which others have filled
	Product                 // aᵀ·b, of Instr.Views of the two slots that it reads
)

// Fused reports whether other operations than the node's own compute it.
func (in *Instr) Fused() bool { return in.Step != Own }

// describe fills in what depends on the node alone.
func (in *Instr) describe() {
	in.Kind = kindOf(in.Op)
	in.Name = OpName(in.Op)
	in.Stock = strings.HasPrefix(strings.TrimPrefix(in.Name, "*"), "gorgonia.")
	if in.Kind == Statement {
		return
	}
	in.Shape = in.Node.Shape()
	in.Dtype = in.Node.Dtype()
	in.Scalar = in.Node.IsScalar()
	switch in.Name {
	case "gorgonia.sumOp", "*gorgonia.maxOp", "*gorgonia.repeatOp", "*gorgonia.sliceOp", "gorgonia.sliceIncrOp":
		in.Axes = Ints(in.Op, "along")
	case "gorgonia.transposeOp":
		in.Axes = Ints(in.Op, "pattern")
	case "gorgonia.im2colOp", "gorgonia.col2imOp":
		in.Conv = convOf(in)
	case "gorgonia.tensordotOp":
		in.Axes, in.OtherAxes = Ints(in.Op, "aAxes"), Ints(in.Op, "bAxes")
	case "gorgonia.linAlgBinOp":
		operator := Field(in.Op, "āBinaryOperator").Uint()
		in.Outer, in.MatMul = operator == outerProduct, operator == matrixProduct
		in.Transposed = [2]bool{Field(in.Op, "transA").Bool(), Field(in.Op, "transB").Bool()}
	}
}
