//go:build !invariants

// Package atomic is sync/atomic with a mutex. In builds with -tags invariants its
// words are those of internal/atomic/interleave, which tests stop goroutines at. In others
// they are sync/atomic's own, and what is below costs nothing.
package atomic

import (
	"sync"
	"sync/atomic"
)

// The words.
type (
	Bool           = atomic.Bool
	Int32          = atomic.Int32
	Int64          = atomic.Int64
	Uint32         = atomic.Uint32
	Uint64         = atomic.Uint64
	Pointer[T any] = atomic.Pointer[T]
	Mutex          = sync.Mutex
)

// Invariants says whether this build checks the allocator's rules after every change of
// its books (-tags invariants), and has words that tests stop goroutines at.
const Invariants = false

// DelayInt64 stores v as a plain store does on amd64, in a schedule of
// internal/atomic/interleave, and else reports false.
func DelayInt64(*Int64, int64) bool { return false }

// DelayUint64 is DelayInt64 for its type.
func DelayUint64(*Uint64, uint64) bool { return false }

// DelayUint32 is DelayInt64 for its type.
func DelayUint32(*Uint32, uint32) bool { return false }

// AwaitZero waits until a word is 0, in a schedule, where a loop would not end, and
// else reports false.
func AwaitZero(*Uint32) bool { return false }

// Barrier is membarrier(2) in a schedule, and else reports that it is not ok.
func Barrier() (done, ok bool) { return false, false }

// StopWorld waits for all pinned goroutines in a schedule, and else reports false.
func StopWorld() bool { return false }

// Go's compiler inlines a method of another package's type where that package is
// imported, or a package that is imported calls the method. So this one calls all
// that the others do.
var _ = func(m *Mutex, b *Bool, i *Int32, j *Int64, u *Uint32, v *Uint64) bool {
	b.Store(b.Load() || b.Swap(true) || b.CompareAndSwap(true, false))
	i.Store(i.Load() + i.Add(1) + i.Swap(1))
	j.Store(j.Load() + j.Add(1) + j.Swap(1))
	u.Store(u.Load() + u.Add(1) + u.Swap(1))
	v.Store(v.Load() + v.Add(1) + v.Swap(1))
	m.Lock()
	defer m.Unlock()
	return m.TryLock() || i.CompareAndSwap(0, 0) || j.CompareAndSwap(0, 0) || u.CompareAndSwap(0, 0) || v.CompareAndSwap(0, 0)
}
