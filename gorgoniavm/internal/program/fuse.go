package program

// To start operations one by one takes most of the time of a small graph on a
// device. Gorgonia builds a dense layer of seven operations and its gradients of
// five more; the engine has one step for each of the two (layers.go), and for
// convolutions (convs.go) and batch normalizations (norms.go). It builds a cross
// entropy of five, which are one step too (losses.go), and Rectify of two
// (rectify.go). fuse puts these steps in the place of the operations. It takes away
// only results that have no other reader and that the program cannot want to see.

// fuse returns the instructions with fused steps among them.
func fuse(instrs []Instr) []Instr {
	f := newFuser(instrs)
	f.sizes()
	f.scales()
	f.losses()
	f.convs()
	f.norms()
	f.leaveSums()
	layers := f.layers()
	for i := range layers {
		f.putForward(&layers[i])
		f.putBack(&layers[i])
	}
	f.rectified()
	return f.ordered()
}

func newFuser(instrs []Instr) *fuser {
	f := &fuser{instrs: instrs, readers: make([][]int, len(instrs)), gone: make([]bool, len(instrs)), taken: make([]bool, len(instrs))}
	for i := range instrs {
		for _, from := range instrs[i].In {
			f.readers[from] = append(f.readers[from], i)
		}
	}
	return f
}

// sizes makes numbers of the sizes of tensors, so that no tensor is kept or
// computed for its size.
func (f *fuser) sizes() {
	for i := range f.instrs {
		in := &f.instrs[i]
		if in.Name != "gorgonia.sizeOp" || f.instrs[in.In[0]].Scalar {
			continue
		}
		of := &f.instrs[in.In[0]]
		axis := Ints(in.Op, "axis")[0]
		v, ok := sizeAs(of.Dtype, of.Shape, axis)
		if !ok {
			continue
		}
		f.become(i, Number)
		in.Number = v
	}
}

// scales finds products of a tensor with one that is a scalar, repeated: the
// gradients of a mean.
func (f *fuser) scales() {
	for i := range f.instrs {
		if !f.is(i, "gorgonia.elemBinOp", mulOp) || f.instrs[i].Scalar {
			continue
		}
		for arg, from := range f.instrs[i].In {
			if f.instrs[f.instrs[i].In[1-arg]].Scalar {
				continue // the repeated one is the only tensor
			}
			if scalar, chain := f.repeated(from, i); scalar >= 0 {
				f.remove(chain...)
				f.become(i, Scale, f.instrs[i].In[1-arg], scalar)
				break
			}
		}
	}
}

// repeated returns the scalar that a tensor for one reader is made of, by
// reshaping and repeating it, and how; or -1.
func (f *fuser) repeated(slot, reader int) (scalar int, chain []int) {
	for !f.instrs[slot].Scalar {
		in := &f.instrs[slot]
		if in.Name != "*gorgonia.repeatOp" && in.Name != "gorgonia.reshapeOp" || !f.onlyFor(slot, reader) {
			return -1, nil
		}
		chain = append(chain, slot)
		slot, reader = in.In[0], slot
	}
	if len(chain) == 0 {
		return -1, nil
	}
	return slot, chain
}
