//go:build invariants

// Package atomic is sync/atomic with a mutex. In builds with -tags invariants its
// words are those of internal/atomic/interleave, which tests stop goroutines at. In others
// they are sync/atomic's own, and what is below costs nothing.
package atomic

import "github.com/cupool/cupool/internal/atomic/interleave"

// The words.
type (
	Bool           = interleave.Bool
	Int32          = interleave.Int32
	Int64          = interleave.Int64
	Uint32         = interleave.Uint32
	Uint64         = interleave.Uint64
	Pointer[T any] = interleave.Pointer[T]
	Mutex          = interleave.Mutex
)

// Invariants says whether this build checks the allocator's rules after every change of
// its books (-tags invariants), and has words that tests stop goroutines at.
const Invariants = true

// DelayInt64 stores v as a plain store does on amd64, in a schedule of
// internal/atomic/interleave, and else reports false.
func DelayInt64(p *Int64, v int64) bool { return p.Delay(v) }

// DelayUint64 is DelayInt64 for its type.
func DelayUint64(p *Uint64, v uint64) bool { return p.Delay(v) }

// DelayUint32 is DelayInt64 for its type.
func DelayUint32(p *Uint32, v uint32) bool { return p.Delay(v) }

// AwaitZero waits until a word is 0, in a schedule, where a loop would not end, and
// else reports false.
func AwaitZero(p *Uint32) bool { return p.AwaitZero() }

// Barrier is membarrier(2) in a schedule, and else reports that it is not ok.
func Barrier() (done, ok bool) { return interleave.Barrier() }

// StopWorld waits for all pinned goroutines in a schedule, and else reports false.
func StopWorld() bool { return interleave.StopWorld() }

// Pin keeps the other goroutines of the caller's processor from it until Unpin, in a
// schedule, and else reports that it is not ok.
func Pin() (processor int, ok bool) { return interleave.Pin() }

// Unpin ends Pin, and reports whether it did.
func Unpin() bool { return interleave.Unpin() }
