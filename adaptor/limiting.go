package adaptor

import (
	"sync/atomic"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/sanitize"
)

// Limiting bounds the live bytes that were allocated through it, for instance
// those of one tenant of a shared allocator.
type Limiting struct {
	over
	limit int64
	used  atomic.Int64
}

// NewLimiting allows at most limit bytes, as requested, to be live at a time. It
// fails with a *cupool.ConfigError when limit is not positive.
func NewLimiting(a cupool.Allocator, limit int64) (*Limiting, error) {
	if limit <= 0 {
		return nil, &cupool.ConfigError{Field: "limit", Value: limit, Reason: "must be positive"}
	}
	return &Limiting{over: over{orNone(a)}, limit: limit}, nil
}

// Limit returns the bytes that may be live.
func (l *Limiting) Limit() int64 { return l.limit }

// Used returns the bytes that are live, as requested.
func (l *Limiting) Used() int64 { return l.used.Load() }

// noDevice is more memory than any device has. The allocator behind refuses such
// requests with the right error, and all requests where it is none.
const noDevice = 1 << 60

// Alloc implements cupool.Allocator. Beyond the limit it fails with a
// *cupool.OOMError, without asking the allocator.
func (l *Limiting) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	if size <= 0 || size > noDevice || l.Driver() == nil {
		return l.Unwrap().Alloc(size, s)
	}
	for {
		used := l.used.Load()
		if size > l.limit-used {
			return cupool.Block{}, l.refuse(size, used, s)
		}
		if l.used.CompareAndSwap(used, used+size) {
			break
		}
	}
	b, err := l.Unwrap().Alloc(size, s)
	if err != nil {
		l.used.Add(-size)
	}
	return b, err
}

func (l *Limiting) refuse(size, used int64, s *cupool.Stream) error {
	return &cupool.OOMError{
		Device: l.Driver().Name(), Stream: s.Handle(), Requested: size, Rounded: size, Segment: size,
		Live: used, Reserved: used, Limit: l.limit, DeviceFree: -1, DeviceTotal: -1,
		Hint:   "free what was allocated through this adaptor.Limiting, or make its limit larger",
		Reason: "limit", Settings: []string{"NewLimiting with a larger limit"},
	}
}

// Free implements cupool.Allocator.
func (l *Limiting) Free(b cupool.Block) error {
	err := l.Unwrap().Free(b)
	if sanitize.WasFreed(err) {
		l.used.Add(-b.Size())
	}
	return err
}

// FreePtr implements cupool.Allocator.
func (l *Limiting) FreePtr(p cupool.Ptr, size int64) error {
	return freePtr(l.Unwrap(), p, size, l.Free)
}
