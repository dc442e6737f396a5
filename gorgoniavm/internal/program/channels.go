package program

import (
	"slices"

	"gorgonia.org/tensor"
)

// Images have channels for their second axis. Gorgonia repeats a tensor of one
// number for each channel along the other axes, one after the other, and adds up its
// gradient along them.

// channels returns the tensor of one number for each channel that images of a shape
// are made of, by repeating and reshaping it; or -1.
func (f *fuser) channels(slot int, shape tensor.Shape) int {
	if len(shape) < 2 || !f.instrs[slot].Shape.Eq(shape) {
		return -1
	}
	n, first := shape[1], slot
	for {
		in := &f.instrs[slot]
		switch size := in.Shape.TotalSize(); {
		case f.isReshape(slot) && size == n:
		case f.isRepeat(slot, len(shape)) && size >= n:
		case slot != first && size == n && !in.Scalar:
			return slot
		default:
			return -1
		}
		slot = in.In[0]
	}
}

// isRepeat reports whether an instruction repeats images of so many axes, not their
// channels.
func (f *fuser) isRepeat(i, axes int) bool {
	in := &f.instrs[i]
	if in.Name != "*gorgonia.repeatOp" || f.fused(i) || len(in.Shape) != axes || in.Axes[0] == 1 {
		return false
	}
	from := f.instrs[in.In[0]].Shape
	return len(from) == axes && from[in.Axes[0]] == 1
}

// channelSums finds the sums of images along all axes but the channels', and the
// sums on the way; or -1.
func (f *fuser) channelSums(images int) (sums int, chain []int) {
	left := make([]int, len(f.instrs[images].Shape))
	for i := range left {
		left[i] = i
	}
	for slot := images; len(left) > 1; slot = sums {
		sums = f.reader(slot, func(i int) bool { return f.instrs[i].Name == "gorgonia.sumOp" && !f.fused(i) && !f.instrs[i].Scalar })
		if sums < 0 || slot != images && !f.onlyFor(slot, sums) {
			return -1, nil
		}
		for _, axis := range slices.Backward(slices.Sorted(slices.Values(f.instrs[sums].Axes))) {
			left = slices.Delete(left, axis, axis+1)
		}
		if len(f.instrs[sums].Shape) != len(left) {
			return -1, nil
		}
		chain = append(chain, sums)
	}
	if len(left) != 1 || left[0] != 1 {
		return -1, nil
	}
	return sums, chain[:len(chain)-1]
}
