package vspace

import (
	"fmt"
	"slices"
	"sort"

	"github.com/cupool/cupool/device"
)

// A reservation is a range of addresses that handles can be mapped into.
// granules has one pointer for every Granularity bytes, up to the highest
// one mapped so far, in pages made when first used: reserving far more than
// is ever mapped costs nothing.
type reservation struct {
	span
	granules []*page
	mapped   int // mappings inside
}

const pageGranules = 512

type page [pageGranules]*mapping

// A mapping is one handle at one address.
type mapping struct {
	span
	handle *handle
	access bool
}

// A handle is physical memory; off is its place in the owner's store.
type handle struct {
	off, size int64 // bytes
	maps      int
	released  bool
}

// Physical is a piece of the owner's physical memory, in bytes.
type Physical struct{ Off, Size int64 }

// CheckSize returns ErrInvalidRange unless size is a positive multiple of
// Granularity.
func CheckSize(size int64) error {
	if size <= 0 || size%Granularity != 0 {
		return fmt.Errorf("%w: size %d is not a positive multiple of the granularity %d",
			device.ErrInvalidRange, size, Granularity)
	}
	return nil
}

// AddReservation enters a range of reserved addresses. The range must be
// aligned to Granularity and overlap no other (V1).
func (s *Space) AddReservation(p device.Ptr, size int64) {
	i := s.findReservation(p)
	s.reserved = slices.Insert(s.reserved, i, &reservation{span: span{p, size}})
}

// RemoveReservation takes out a reservation, which must be given exactly as
// it was made and hold no mapping; otherwise it returns ErrInvalidRange.
func (s *Space) RemoveReservation(p device.Ptr, size int64, do func() error) error {
	i := s.findReservation(p)
	if i == len(s.reserved) || s.reserved[i].start != p || s.reserved[i].size != size {
		return fmt.Errorf("%w: no reservation of %d bytes starts at %v", device.ErrInvalidRange, size, p)
	}
	if n := s.reserved[i].mapped; n > 0 {
		return fmt.Errorf("%w: the reservation of %d bytes at %v still holds %d mappings",
			device.ErrInvalidRange, size, p, n)
	}
	if do != nil {
		if err := do(); err != nil {
			return err
		}
	}
	s.reserved = slices.Delete(s.reserved, i, i+1)
	return nil
}

// EachReservation calls f for every reservation, in address order.
func (s *Space) EachReservation(f func(p device.Ptr, size int64)) {
	for _, r := range s.reserved {
		f(r.start, r.size)
	}
}

// EachMappingOf calls f for the mappings under n bytes at p, all of which are mapped,
// with the place of each in the owner's store.
func (s *Space) EachMappingOf(p device.Ptr, n int64, f func(start device.Ptr, size, off int64)) {
	r := s.reservationOf(p, n)
	for at := p; at < p+device.Ptr(n); {
		m := r.at(r.index(at))
		f(m.start, m.size, m.handle.off)
		at = m.start + device.Ptr(m.size)
	}
}

// AddHandle enters physical memory and returns its handle, which is never 0
// and never used again.
func (s *Space) AddHandle(off, size int64) uintptr {
	if s.handles == nil {
		s.handles = make(map[uintptr]*handle)
	}
	s.last++
	s.handles[s.last] = &handle{off: off, size: size}
	return s.last
}

// Release ends the use of h for new mappings. Memory that is mapped nowhere
// is forgotten and returned with gone true: the owner may reuse it. It
// returns ErrInvalidHandle for an unknown or released handle.
func (s *Space) Release(h uintptr) (mem Physical, gone bool, err error) {
	v, err := s.lookup(h)
	if err != nil {
		return Physical{}, false, err
	}
	v.released = true
	delete(s.handles, h)
	return Physical{v.off, v.size}, v.maps == 0, nil
}

// Map maps the whole of h at p. size must be the handle's; [p, p+size) must be
// aligned, inside one reservation, and unmapped. do gets the handle's place.
// It returns ErrInvalidHandle or ErrInvalidRange.
func (s *Space) Map(p device.Ptr, size int64, h uintptr, do func(off int64) error) error {
	v, err := s.lookup(h)
	if err != nil {
		return err
	}
	if v.size != size {
		return fmt.Errorf("%w: handle %d has %d bytes and maps only as a whole, not as %d bytes",
			device.ErrInvalidRange, h, v.size, size)
	}
	r, err := s.reservationFor(p, size)
	if err != nil {
		return err
	}
	first, end := r.index(p), r.index(p)+size/Granularity
	for i := first; i < end; i++ {
		if m := r.at(i); m != nil {
			return fmt.Errorf("%w: cannot map %d bytes at %v: %d bytes are mapped at %v already",
				device.ErrInvalidRange, size, p, m.size, m.start)
		}
	}
	if do != nil {
		if err := do(v.off); err != nil {
			return err
		}
	}
	r.set(first, end, &mapping{span: span{p, size}, handle: v})
	r.mapped++
	s.mappings++
	v.maps++
	return nil
}

// SetAccess makes [p, p+size) readable and writable. The range must consist
// of whole mappings; otherwise it returns ErrInvalidRange. The number of
// mappings is returned.
func (s *Space) SetAccess(p device.Ptr, size int64, do func() error) (int, error) {
	r, n, err := s.wholeMappings(p, size)
	if err != nil {
		return 0, err
	}
	if do != nil {
		if err := do(); err != nil {
			return 0, err
		}
	}
	r.each(p, size, func(m *mapping) { m.access = true })
	return n, nil
}

// Unmap ends the mappings in [p, p+size), which must consist of whole
// mappings; otherwise it returns ErrInvalidRange. It returns the number of
// mappings, and the memory that the owner may reuse because it was released
// before and is now mapped nowhere.
func (s *Space) Unmap(p device.Ptr, size int64, do func() error) (n int, gone []Physical, err error) {
	r, n, err := s.wholeMappings(p, size)
	if err != nil {
		return 0, nil, err
	}
	if do != nil {
		if err := do(); err != nil {
			return 0, nil, err
		}
	}
	r.each(p, size, func(m *mapping) {
		first := r.index(m.start)
		r.set(first, first+m.size/Granularity, nil)
		m.handle.maps--
		if m.handle.released && m.handle.maps == 0 {
			gone = append(gone, Physical{m.handle.off, m.handle.size})
		}
	})
	r.mapped -= n
	s.mappings -= n
	return n, gone, nil
}

func (s *Space) lookup(h uintptr) (*handle, error) {
	v := s.handles[h]
	if v == nil {
		return nil, fmt.Errorf("%w: memory handle %d", device.ErrInvalidHandle, h)
	}
	return v, nil
}

// findReservation returns the index of the first reservation at or after p.
func (s *Space) findReservation(p device.Ptr) int {
	return sort.Search(len(s.reserved), func(i int) bool { return s.reserved[i].start >= p })
}

// reservationOf returns the reservation that holds all n bytes at p, or nil.
func (s *Space) reservationOf(p device.Ptr, n int64) *reservation {
	i := s.findReservation(p)
	if i == len(s.reserved) || s.reserved[i].start != p {
		i--
	}
	if i < 0 || !s.reserved[i].contains(p, n) {
		return nil
	}
	return s.reserved[i]
}

// reservationFor is reservationOf for an aligned range, with reasons.
func (s *Space) reservationFor(p device.Ptr, size int64) (*reservation, error) {
	if err := CheckSize(size); err != nil {
		return nil, err
	}
	if int64(p)%Granularity != 0 {
		return nil, fmt.Errorf("%w: address %v is not aligned to %d", device.ErrInvalidRange, p, Granularity)
	}
	r := s.reservationOf(p, size)
	if r == nil {
		return nil, fmt.Errorf("%w: %d bytes at %v are not inside one reservation", device.ErrInvalidRange, size, p)
	}
	return r, nil
}

// wholeMappings checks that [p, p+size) consists of whole mappings, and
// counts them.
func (s *Space) wholeMappings(p device.Ptr, size int64) (*reservation, int, error) {
	r, err := s.reservationFor(p, size)
	if err != nil {
		return nil, 0, err
	}
	end := p + device.Ptr(size)
	n := 0
	for at := p; at < end; n++ {
		m := r.at(r.index(at))
		if m == nil {
			return nil, 0, fmt.Errorf("%w: nothing is mapped at %v (in %d bytes at %v)",
				device.ErrInvalidRange, at, size, p)
		}
		if m.start < p || m.start+device.Ptr(m.size) > end {
			return nil, 0, fmt.Errorf("%w: %d bytes at %v cut the mapping of %d bytes at %v in two",
				device.ErrInvalidRange, size, p, m.size, m.start)
		}
		at = m.start + device.Ptr(m.size)
	}
	return r, n, nil
}

// checkAccess returns nil when all n bytes at p are mapped and accessible.
// They lie inside r.
func (r *reservation) checkAccess(p device.Ptr, n int64) error {
	end := uint64(p) + uint64(n)
	for at := p; uint64(at) < end; {
		m := r.at(r.index(at))
		if m == nil || !m.access {
			why := "is not mapped"
			if m != nil {
				why = "is mapped without access"
			}
			return fmt.Errorf("%w: %v (in %d bytes at %v) %s", device.ErrInvalidRange, at, n, p, why)
		}
		at = m.start + device.Ptr(m.size)
	}
	return nil
}

// index returns the granule that holds p.
func (r *reservation) index(p device.Ptr) int64 { return int64(p-r.start) / Granularity }

// at returns the mapping that covers granule i, or nil.
func (r *reservation) at(i int64) *mapping {
	if n := i / pageGranules; n < int64(len(r.granules)) && r.granules[n] != nil {
		return r.granules[n][i%pageGranules]
	}
	return nil
}

// set enters m, or nil, for the granules [first, end).
func (r *reservation) set(first, end int64, m *mapping) {
	if grow := (end-1)/pageGranules + 1 - int64(len(r.granules)); grow > 0 {
		r.granules = append(r.granules, make([]*page, grow)...)
	}
	for i := first; i < end; i++ {
		pg := &r.granules[i/pageGranules]
		if *pg == nil {
			*pg = new(page)
		}
		(*pg)[i%pageGranules] = m
	}
}

// each calls f for the mappings in [p, p+size), all of them whole. f may
// take the mapping out.
func (r *reservation) each(p device.Ptr, size int64, f func(m *mapping)) {
	for end := p + device.Ptr(size); p < end; {
		m := r.at(r.index(p))
		p = m.start + device.Ptr(m.size)
		f(m)
	}
}
