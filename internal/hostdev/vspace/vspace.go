// Package vspace keeps the books of a device's address space: which ranges
// were allocated, which were only reserved, which physical handles exist and
// where each is mapped. It knows the rules (those of CUDA's virtual memory
// calls) and touches no memory, so the host device and the simulated device
// share it.
package vspace

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool/device"
)

// Granularity is the size in bytes that reservations, handles and mappings
// are multiples of, and that they are aligned to. It is CUDA's on every GPU
// of today.
const Granularity int64 = 2 << 20

// A Space is the books of one device. It has no lock: a mutation needs its
// owner's exclusive lock, Check needs a shared one. The zero Space is ready.
//
// Methods that change something take a function do, which may be nil. It
// runs after all checks and before any change of the books, and does the
// same to real memory; its error is returned and leaves the books as they
// were.
//
// Rules:
//
//	V1  allocs and reserved are ordered by address; no two ranges overlap
//	V2  a granule of a reservation points to the mapping that covers it, or nil
//	V3  a handle's maps counts the mappings that name it
//	V4  handles holds those not released; the memory of a released handle is
//	    handed back when maps is 0, not earlier
type Space struct {
	allocs   []span
	reserved []*reservation
	handles  map[uintptr]*handle
	last     uintptr // the handle given out last; never reused
	mappings int
}

// A span is the addresses [start, start+size).
type span struct {
	start device.Ptr
	size  int64
}

func (r span) contains(p device.Ptr, n int64) bool {
	off := uint64(p) - uint64(r.start)
	return p >= r.start && off <= uint64(r.size) && uint64(n) <= uint64(r.size)-off
}

// Counts says how much a Space holds; Handles are those not yet released.
type Counts struct {
	Allocations, Reservations, Handles, Mappings int
}

// Counts returns the number of everything held.
func (s *Space) Counts() Counts {
	return Counts{len(s.allocs), len(s.reserved), len(s.handles), s.mappings}
}

// AddAlloc enters an allocation. The range must overlap no other (V1).
func (s *Space) AddAlloc(p device.Ptr, size int64) {
	i, _ := s.findAlloc(p)
	s.allocs = slices.Insert(s.allocs, i, span{p, size})
}

// RemoveAlloc takes out the allocation that starts at p and returns its size
// in bytes. It returns ErrInvalidRange when none starts there.
func (s *Space) RemoveAlloc(p device.Ptr) (int64, error) {
	i, ok := s.findAlloc(p)
	if !ok {
		return 0, fmt.Errorf("%w: no allocation starts at %v", device.ErrInvalidRange, p)
	}
	size := s.allocs[i].size
	s.allocs = slices.Delete(s.allocs, i, i+1)
	return size, nil
}

// AllocOf returns the allocation that p is in.
func (s *Space) AllocOf(p device.Ptr) (start device.Ptr, size int64, ok bool) {
	i, exact := s.findAlloc(p)
	if !exact {
		i--
	}
	if i < 0 || !s.allocs[i].contains(p, 1) {
		return 0, 0, false
	}
	return s.allocs[i].start, s.allocs[i].size, true
}

// EachAlloc calls f for every allocation, in address order.
func (s *Space) EachAlloc(f func(p device.Ptr, size int64)) {
	for _, a := range s.allocs {
		f(a.start, a.size)
	}
}

// Check returns nil when all n bytes at p may be read and written: they lie
// inside one allocation, or inside one reservation and are mapped with access
// set. Otherwise it returns ErrInvalidRange. No bytes are always fine, a
// negative number never.
func (s *Space) Check(p device.Ptr, n int64) error {
	if n == 0 {
		return nil
	}
	if n < 0 {
		return fmt.Errorf("%w: negative size %d at %v", device.ErrInvalidRange, n, p)
	}
	i, ok := s.findAlloc(p)
	if !ok {
		i--
	}
	if i >= 0 && s.allocs[i].contains(p, n) {
		return nil
	}
	if r := s.reservationOf(p, n); r != nil {
		return r.checkAccess(p, n)
	}
	if i >= 0 && s.allocs[i].contains(p, 1) {
		return fmt.Errorf("%w: %d bytes at %v run past the end of the allocation of %d bytes at %v",
			device.ErrInvalidRange, n, p, s.allocs[i].size, s.allocs[i].start)
	}
	return fmt.Errorf("%w: %d bytes at %v are not inside one allocation", device.ErrInvalidRange, n, p)
}

func (s *Space) findAlloc(p device.Ptr) (int, bool) {
	lo, hi := 0, len(s.allocs)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if s.allocs[mid].start < p {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(s.allocs) && s.allocs[lo].start == p
}
