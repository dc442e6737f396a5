package program

import (
	"slices"

	"gorgonia.org/tensor"
)

// fuser replaces instructions of a program. Until ordered, a slot is the number
// that its instruction has in instrs.
type fuser struct {
	instrs  []Instr
	readers [][]int // of each slot
	gone    []bool  // instructions that are taken away
	taken   []bool  // gradients of weights that belong to a layer
}

// hidden reports whether the program cannot want to see a result.
func (f *fuser) hidden(i int) bool {
	in := &f.instrs[i]
	return !in.Keep && len(in.DerivOf) == 0
}

// onlyFor reports whether reader alone reads a result.
func (f *fuser) onlyFor(i, reader int) bool {
	return f.hidden(i) && len(f.readers[i]) == 1 && f.readers[i][0] == reader
}

// What gorgonia calls the operations that are looked for.
const (
	mulOp      = "⊙ false"
	addOp      = "+ false"
	positiveOp = ">= true"
)

// is reports whether an instruction is an operation of gorgonia's by its type
// and text, and reads these slots if any are given.
func (f *fuser) is(i int, name, op string, in ...int) bool {
	at := &f.instrs[i]
	return at.Name == name && at.Op.String() == op && (len(in) == 0 || slices.Equal(at.In, in))
}

func (f *fuser) isReshape(i int) bool {
	return f.instrs[i].Name == "gorgonia.reshapeOp" && !f.fused(i)
}

func (f *fuser) isTranspose(i int, axes ...int) bool {
	return f.instrs[i].Name == "gorgonia.transposeOp" && !f.fused(i) && slices.Equal(f.instrs[i].Axes, axes)
}

func isFloat(in *Instr) bool { return in.Dtype == tensor.Float32 || in.Dtype == tensor.Float64 }

func (f *fuser) isProduct(i int, op string, in ...int) bool {
	return f.is(i, "gorgonia.linAlgBinOp", op, in...) && len(f.instrs[i].Shape) == 2
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

// remove takes instructions away. Others compute what they did.
func (f *fuser) remove(is ...int) {
	for _, i := range is {
		f.gone[i] = true
		for _, from := range f.instrs[i].In {
			f.stopReading(from, i)
		}
	}
}

// sweep takes away what has lost its readers, and what has then.
func (f *fuser) sweep(is ...int) {
	for _, i := range is {
		if in := &f.instrs[i]; in.Kind == Operation && !f.fused(i) && f.hidden(i) && len(f.readers[i]) == 0 {
			f.remove(i)
			f.sweep(in.In...)
		}
	}
}

// become has an instruction computed otherwise, of other slots.
func (f *fuser) become(i int, step Step, slots ...int) {
	for _, from := range f.instrs[i].In {
		f.stopReading(from, i)
	}
	f.instrs[i].replace(step, slots...)
	for _, from := range slots {
		f.readers[from] = append(f.readers[from], i)
	}
}

// replace has an instruction computed otherwise, of other slots.
func (in *Instr) replace(step Step, slots ...int) { in.Step, in.In = step, slots }

// fused reports whether an instruction is taken away or computed otherwise.
func (f *fuser) fused(i int) bool { return f.gone[i] || f.instrs[i].Fused() }

// ordered returns the instructions that are left, under new numbers. Each comes
// after those whose results it reads; otherwise their order stays.
func (f *fuser) ordered() []Instr {
	order := make([]int, len(f.instrs))
	for i := range order {
		order[i] = i
	}
	return f.orderedAs(order)
}

// orderedAs is ordered for another order.
func (f *fuser) orderedAs(order []int) []Instr {
	left := make([]Instr, 0, len(f.instrs))
	slot := make([]int, len(f.instrs))
	for i := range slot {
		slot[i] = -1
	}
	var put func(i int)
	put = func(i int) {
		if slot[i] >= 0 {
			return
		}
		for _, from := range f.instrs[i].In {
			put(from)
		}
		slot[i] = len(left)
		left = append(left, f.instrs[i])
	}
	for _, i := range order {
		if !f.gone[i] {
			put(i)
		}
	}
	for i := range left {
		in := &left[i]
		in.Out = i
		for _, slots := range [][]int{in.In, in.Parts} {
			for j, from := range slots {
				if from >= 0 {
					slots[j] = slot[from]
				}
			}
		}
	}
	return left
}
