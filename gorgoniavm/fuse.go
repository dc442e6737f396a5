package gorgoniavm

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// On a device, what takes the time of a small graph is to start its operations
// one by one. Gorgonia builds a dense layer of seven, and of five more to go
// back through it, for which the engine has one step each (Engine.Linear and
// LinearBack), and a cross entropy of five (fuse_loss.go). fuse finds them among
// the instructions and puts those in their place. It takes away only what has no
// other reader and what the program cannot want to see.

// fuser replaces instructions of a program that has not been compiled to the
// end. Slots are the numbers of instructions before anything is replaced.
type fuser struct {
	instrs  []instr
	readers [][]int // of each slot
	gone    []bool  // instructions that others do the work of
	taken   []bool  // gradients of weights that a layer has
}

// fuse returns the instructions with fused steps among them.
func fuse(instrs []instr) []instr {
	f := &fuser{instrs: instrs, readers: make([][]int, len(instrs)), gone: make([]bool, len(instrs)), taken: make([]bool, len(instrs))}
	for i := range instrs {
		for _, from := range instrs[i].in {
			f.readers[from] = append(f.readers[from], i)
		}
	}
	f.sizes()
	f.scales()
	f.losses()
	layers := f.layers()
	f.matchRectified(layers)
	for i := range layers {
		f.putForward(&layers[i])
		f.putBack(&layers[i])
	}
	return f.ordered()
}

// hidden reports whether nobody wants to see what an instruction computes.
func (f *fuser) hidden(i int) bool {
	in := &f.instrs[i]
	return !in.keep && len(in.derivOf) == 0
}

// onlyFor reports whether a result is for one reader.
func (f *fuser) onlyFor(i, reader int) bool {
	return f.hidden(i) && len(f.readers[i]) == 1 && f.readers[i][0] == reader
}

// is reports whether an instruction is an operation of gorgonia's, on slots if
// there are any.
func (f *fuser) is(i int, name, op string, in ...int) bool {
	at := &f.instrs[i]
	return at.name == name && at.op.String() == op && (len(in) == 0 || slices.Equal(at.in, in))
}

func (f *fuser) isProduct(i int, op string, in ...int) bool {
	return f.is(i, "gorgonia.linAlgBinOp", op, in...) && len(f.instrs[i].shape) == 2
}

// reader returns the reader of a slot that fits, or -1.
func (f *fuser) reader(slot int, fits func(i int) bool) int {
	if i := slices.IndexFunc(f.readers[slot], fits); i >= 0 {
		return f.readers[slot][i]
	}
	return -1
}

// stopReading takes a reader from a slot.
func (f *fuser) stopReading(slot, reader int) {
	f.readers[slot] = slices.DeleteFunc(f.readers[slot], func(i int) bool { return i == reader })
}

// sizes makes numbers of the sizes of tensors, so that no tensor is kept or
// computed for its size.
func (f *fuser) sizes() {
	for i := range f.instrs {
		in := &f.instrs[i]
		if in.name != "gorgonia.sizeOp" || f.instrs[in.in[0]].scalar {
			continue
		}
		of := &f.instrs[in.in[0]]
		axis := intsOf(in.op, "axis")[0]
		v, err := sizeAs(of.dt, of.shape, axis)
		if err != nil {
			continue
		}
		f.stopReading(in.in[0], i)
		in.replace(func(*VM, *instr, []gorgonia.Value) (gorgonia.Value, error) { return v, nil })
	}
}

// sizeAs returns a size as gorgonia has it, in the type of the elements.
func sizeAs(dt tensor.Dtype, shape tensor.Shape, axis int) (gorgonia.Value, error) {
	if axis < len(shape) {
		switch dt {
		case tensor.Float64:
			return gorgonia.NewF64(float64(shape[axis])), nil
		case tensor.Float32:
			return gorgonia.NewF32(float32(shape[axis])), nil
		}
	}
	return nil, ErrOperand
}

// scales finds products of a tensor with one that is a scalar, repeated: the
// gradients of a mean.
func (f *fuser) scales() {
	for i := range f.instrs {
		if !f.is(i, "gorgonia.elemBinOp", mulOp) || f.instrs[i].scalar {
			continue
		}
		for arg, from := range f.instrs[i].in {
			if f.instrs[f.instrs[i].in[1-arg]].scalar {
				continue // the repeated one is the only tensor
			}
			if scalar, chain := f.repeated(from, i); scalar >= 0 {
				f.remove(chain...)
				f.instrs[i].replace(scale, f.instrs[i].in[1-arg], scalar)
				f.readers[scalar] = append(f.readers[scalar], i)
				break
			}
		}
	}
}

// repeated returns the scalar that a tensor for one reader is made of, by
// reshaping and repeating it, and how; or -1.
func (f *fuser) repeated(slot, reader int) (scalar int, chain []int) {
	for !f.instrs[slot].scalar {
		in := &f.instrs[slot]
		if in.name != "*gorgonia.repeatOp" && in.name != "gorgonia.reshapeOp" || !f.onlyFor(slot, reader) {
			return -1, nil
		}
		chain = append(chain, slot)
		slot, reader = in.in[0], slot
	}
	if len(chain) == 0 {
		return -1, nil
	}
	return slot, chain
}

const (
	mulOp      = "⊙ false"
	addOp      = "+ false"
	positiveOp = ">= true"
)

// remove takes instructions away, which are computed by others.
func (f *fuser) remove(is ...int) {
	for _, i := range is {
		f.gone[i] = true
		for _, from := range f.instrs[i].in {
			f.stopReading(from, i)
		}
	}
}

// replace has an instruction computed otherwise, of other slots.
func (in *instr) replace(k kernel, slots ...int) {
	in.run, in.in, in.fused = k, slots, true
}

// ordered returns the instructions that are left, each after those whose
// results it reads, otherwise in the order as before, under new numbers.
func (f *fuser) ordered() []instr {
	left := make([]instr, 0, len(f.instrs))
	slot := make([]int, len(f.instrs))
	for i := range slot {
		slot[i] = -1
	}
	var put func(i int)
	put = func(i int) {
		if slot[i] >= 0 {
			return
		}
		for _, from := range f.instrs[i].in {
			put(from)
		}
		slot[i] = len(left)
		left = append(left, f.instrs[i])
	}
	for i := range f.instrs {
		if !f.gone[i] {
			put(i)
		}
	}
	for i := range left {
		in := &left[i]
		in.out = i
		for _, slots := range [][]int{in.in, in.parts} {
			for j, from := range slots {
				if from >= 0 {
					slots[j] = slot[from]
				}
			}
		}
	}
	return left
}
