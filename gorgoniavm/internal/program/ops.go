package program

import (
	"reflect"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gorgonia's operations have no exported types and fields. This package knows
// them by name, as of gorgonia v0.9.18. An operation with another name is
// treated as one of a program's own.
const (
	opLet  = "gorgonia.letOp"
	opRead = "gorgonia.readOp"
)

// OpName returns the type of an operation; that of an input, nil, is "input".
func OpName(op gorgonia.Op) string {
	if op == nil {
		return "input"
	}
	return reflect.TypeOf(op).String()
}

// Field returns a field of an operation, which has one of that name.
func Field(op gorgonia.Op, name string) reflect.Value {
	v := reflect.Indirect(reflect.ValueOf(op))
	return v.FieldByIndex(fieldIndex(field{v.Type(), name}))
}

// field is a field of a type of operations.
type field struct {
	of   reflect.Type
	name string
}

// indexes are where fields are, which reflect searches for with maps of its own.
var indexes = struct {
	sync.RWMutex
	of map[field][]int
}{of: make(map[field][]int)}

func fieldIndex(f field) []int {
	indexes.RLock()
	index, ok := indexes.of[f]
	indexes.RUnlock()
	if ok {
		return index
	}
	found, _ := f.of.FieldByName(f.name)
	indexes.Lock()
	defer indexes.Unlock()
	indexes.of[f] = found.Index
	return found.Index
}

// Ints returns a field that is an int or a slice of them.
func Ints(op gorgonia.Op, name string) []int {
	f := Field(op, name)
	if f.CanInt() {
		return []int{int(f.Int())}
	}
	is := make([]int, f.Len())
	for i := range is {
		is[i] = int(f.Index(i).Int())
	}
	return is
}

// ReadTarget returns where a gorgonia.Read puts the value; nil: the operation
// is no Read. The place is the one field of the operation, which is not
// exported.
func ReadTarget(op gorgonia.Op) *gorgonia.Value {
	if OpName(op) != opRead {
		return nil
	}
	return (*gorgonia.Value)(reflect.ValueOf(op).FieldByName("into").UnsafePointer())
}

// Kind says what computes a node.
type Kind int

// The kinds of nodes.
const (
	Operation Kind = iota
	Variable       // the program gives it a value
	Constant
	Statement // Read or Set
)

func kindOf(op gorgonia.Op) Kind {
	switch OpName(op) {
	case "input":
		return Variable
	case "gorgonia.constantScalar", "gorgonia.constantTensor":
		return Constant
	case opLet, opRead:
		return Statement
	}
	return Operation
}

func isStatement(n *gorgonia.Node) bool { return kindOf(n.Op()) == Statement }

// isGradient reports whether gorgonia.Grad made a node for a gradient. The
// gradients of nodes that Grad was not asked for are known by their group alone.
func isGradient(n *gorgonia.Node) bool {
	group := reflect.ValueOf(n).Elem().FieldByName("group").String()
	return len(n.DerivOf()) > 0 || group == gradientGroup || group == strayGroup
}

const (
	gradientGroup = "gradients"
	strayGroup    = "undifferentiated nodes"
)

// What a linAlgBinOp has for an operator when it is one.
const (
	matrixProduct = 0
	outerProduct  = 3
)

// overwritable returns the operand of op that its result may overwrite. The
// result of a comparison may have another type than its operands.
func overwritable(op gorgonia.Op, name string) (int, bool) {
	switch name {
	case "gorgonia.elemBinOp":
		a := op.OverwritesInput()
		return a, a >= 0 && !Field(op, "retSame").Bool()
	case "gorgonia.elemUnaryOp":
		a := op.OverwritesInput()
		return a, a >= 0
	}
	return 0, false
}

// sizeAs returns a size as gorgonia has it, in the type of the elements.
func sizeAs(dt tensor.Dtype, shape tensor.Shape, axis int) (v gorgonia.Value, ok bool) {
	if axis >= len(shape) {
		return nil, false
	}
	switch dt {
	case tensor.Float64:
		return gorgonia.NewF64(float64(shape[axis])), true
	case tensor.Float32:
		return gorgonia.NewF32(float32(shape[axis])), true
	}
	return nil, false
}
