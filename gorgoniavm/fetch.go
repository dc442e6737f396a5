package gorgoniavm

import (
	"errors"

	"github.com/cupool/cupool"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// To read a scalar off a device waits for all that its stream was given, and
// most of a step of training comes after the cost. So a scalar is copied to
// page-locked memory right behind what computes it, and whoever needs it waits
// for that copy alone, while the device goes on.

// fetch is a scalar's way to the host, the same in every run.
type fetch struct {
	to    *tensor.Dense // over page-locked memory
	event *cupool.Event // behind the copy; nil: there is none to wait for
}

// begin submits the copy of a scalar of the device.
func (f *fetch) begin(s *cupool.Stream, from *tensor.Dense) (err error) {
	if err := s.Copy(cupool.Ptr(f.to.Uintptr()), cupool.Ptr(from.Uintptr()), int64(f.to.MemSize())); err != nil {
		return err
	}
	f.event, err = s.Record()
	return err
}

// value waits for the copy.
func (f *fetch) value() (gorgonia.Value, error) {
	if f.event != nil {
		if err := f.event.Sync(); err != nil {
			return nil, err
		}
		f.end()
	}
	return toScalar(f.to.Get(0))
}

// end waits for nothing any more.
func (f *fetch) end() {
	if f.event != nil {
		_ = f.event.Close() // it is open
		f.event = nil
	}
}

// fetches are those of a VM.
type fetches struct {
	places cupool.Ptr // page-locked memory, a place for each slot; 0: none yet
	none   bool       // and there will be none
	bySlot []*fetch   // nil: nobody has needed it
}

// placeSize is enough for any scalar, in bytes.
const placeSize = 8

// fetch begins to fetch the result of an instruction, if it is a scalar of the
// device. While a run is recorded it notes that launches are to do so. It
// returns nil for others, and where the device has no page-locked memory.
func (m *VM) fetch(slot int, v gorgonia.Value) (*fetch, error) {
	d, ok := v.(*tensor.Dense)
	if !ok || m.e.AllocAccessible() || d.IsNativelyAccessible() || d.Shape().TotalSize() != 1 {
		return nil, nil
	}
	f := m.fetches.bySlot[slot]
	if m.recording != nil {
		m.recording.fetch(f, d)
		return f, nil
	}
	if f == nil || f.to.Dtype() != d.Dtype() {
		if f = m.newFetch(slot, d.Dtype()); f == nil {
			return nil, nil
		}
	}
	return f, f.begin(m.e.Stream(), d)
}

// newFetch makes the way of a slot; nil: the device has no memory for it, so
// that the scalar is read when it is needed.
func (m *VM) newFetch(slot int, dt tensor.Dtype) *fetch {
	fs := &m.fetches
	if fs.places == 0 && !fs.none {
		pinned, ok := m.e.Allocator().Driver().(cupool.HostMemory)
		if ok {
			p, err := pinned.HostAlloc(int64(len(fs.bySlot)) * placeSize)
			ok, fs.places = err == nil, p
		}
		fs.none = !ok
	}
	if fs.none || dt.Size() > placeSize {
		return nil
	}
	at := fs.places + cupool.Ptr(slot*placeSize)
	fs.bySlot[slot] = &fetch{to: tensor.NewDense(dt, tensor.Shape{1}, tensor.FromMemory(uintptr(at), dt.Size()))}
	return fs.bySlot[slot]
}

// after returns how many instructions there are up to the last one whose result
// is fetched.
func (fs *fetches) after(instrs []instr) int {
	n := len(instrs)
	for n > 0 && fs.bySlot[instrs[n-1].out] == nil {
		n--
	}
	return n
}

// end ends those that nobody waited for.
func (fs *fetches) end() {
	for _, f := range fs.bySlot {
		if f != nil {
			f.end()
		}
	}
}

// close gives the memory back, once no copy is under way.
func (fs *fetches) close(e *cupool.Engine) error {
	if fs.places == 0 {
		return nil
	}
	fs.end()
	return errors.Join(e.Sync(), e.Allocator().Driver().(cupool.HostMemory).HostFree(fs.places))
}

// scalar returns a scalar as a Go value.
func (m *VM) scalar(h held) (gorgonia.Value, error) {
	d, ok := h.v.(*tensor.Dense)
	switch {
	case !ok:
		return h.v, nil
	case h.fetch != nil && m.recording == nil:
		return h.fetch.value()
	}
	return m.scalarOf(d)
}
