// Package sizeclass holds the arithmetic of sizes: rounding a request,
// sizing a segment, and the bins that a set of free blocks is indexed by.
// Pure functions on bytes; no state.
package sizeclass

import (
	"math"
	"math/bits"
)

const (
	// Quantum is the unit of blocks where nothing else is asked for: sizes and
	// offsets are multiples of it, so every address is aligned to it. PyTorch's
	// kMinBlockSize.
	Quantum = 1 << quantumBits
	// Least is the finest unit that can be asked for: what CUDA aligns memory to.
	Least = Quantum / 2

	quantumBits = 9
	// MaxRequest is the largest request that can be rounded and still be
	// grown into a segment without overflow. No device comes near it.
	MaxRequest = math.MaxInt64 / 4
)

// Round returns size rounded up to a multiple of Quantum, in bytes. It is
// defined for 0 < size <= MaxRequest and wastes at most Quantum-1 bytes.
func Round(size int64) int64 {
	return (size + Quantum - 1) &^ (Quantum - 1)
}

// RoundTo returns size rounded up to a multiple of unit, which need not be
// a power of two.
func RoundTo(size, unit int64) int64 {
	return (size + unit - 1) / unit * unit
}

// RoundClass returns size, a positive multiple of Least, rounded up to a
// size class: one of 1<<classBits between a power of two and the next, as
// with PyTorch's roundup_power2_divisions. With 3 it wastes less than an
// eighth, with 0, powers of two, less than half.
func RoundClass(size int64, classBits int) int64 {
	shift := bits.Len64(uint64(size-1)) - 1 - classBits
	if shift < quantumBits {
		return size
	}
	return (size + 1<<shift - 1) &^ (1<<shift - 1)
}

// subBits is the number of mantissa bits in a bin's index: 32 bins for each
// doubling, so that a bin spans 3 % of its size. Finer bins keep the trees
// below them a node or two deep even with thousands of free blocks.
const subBits = 5

// Bins is the number of bins, enough for MaxRequest.
const Bins = (63 - 9 - subBits + 1) << subBits

// Bin returns the bin of a block of size bytes, a positive multiple of Least.
// Bins ascend with size; all sizes of one bin are smaller than any size of the
// next. Small multiples of Quantum have a bin each, which they share with what is
// Least more. It has no branch, as sizes come in no order.
func Bin(size int64) int {
	units := uint64(size) / Quantum
	shift := bits.Len64(units|1<<subBits) - 1 - subBits // 0 for up to 63 units
	return shift<<subBits + int(units>>(shift&63))
}
