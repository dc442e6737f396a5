package gorgoniavm

import (
	"errors"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// To read a scalar off a device waits for all work of its stream, and most of a
// step of training comes after the cost. So a scalar is copied to page-locked
// memory right behind the operation that computes it. The VM then waits for that
// copy alone, while the device goes on.

// fetch is a scalar's way to the host, the same in every run.
type fetch struct {
	of    *program.Instr
	to    *tensor.Dense // over page-locked memory; nil: the device has none
	event *cupool.Event // behind the copy; nil: there is none to wait for
}

// begin submits the copy.
func (f *fetch) begin(s *cupool.Stream, from *tensor.Dense) (err error) {
	if f.to == nil {
		return nil
	}
	if err := s.Copy(cupool.Ptr(f.to.Uintptr()), cupool.Ptr(from.Uintptr()), int64(f.to.MemSize())); err != nil {
		return err
	}
	f.event, err = s.Record()
	return err
}

// wait waits for the copy and returns it; nil: there is no page-locked memory.
func (f *fetch) wait() (*tensor.Dense, error) {
	if f.event != nil {
		if err := f.event.Sync(); err != nil {
			return nil, err
		}
		f.end()
	}
	return f.to, nil
}

// end gives up waiting.
func (f *fetch) end() {
	if f.event != nil {
		_ = f.event.Close() // it is open
		f.event = nil
	}
}

// fetch begins to fetch the result of an instruction that is a scalar, if it is
// on the device. While a run is recorded it notes that launches are to do so.
// It returns nil where there is nothing to fetch.
func (m *VM) fetch(in *program.Instr, v gorgonia.Value) (*fetch, error) {
	d, ok := v.(*tensor.Dense)
	if !ok || m.e.AllocAccessible() || !m.e.Owns(d) {
		return nil, nil
	}
	f := m.fetches[in.Out]
	if f == nil {
		f = m.newFetch(in, d)
		m.fetches[in.Out] = f
	}
	if m.recording != nil {
		m.recording.fetches = append(m.recording.fetches, held{v: d, fetch: f})
		return f, nil
	}
	return f, f.begin(m.e.Stream(), d)
}

// pinnedMemory is the optional part of a Driver that has page-locked host
// memory: cuda.HostMemory.
type pinnedMemory interface {
	HostAlloc(size int64) (cupool.Ptr, error)
	HostFree(p cupool.Ptr) error
}

// newFetch makes a way to the host. Where the device has no memory for it, the
// scalar is read when it is needed.
func (m *VM) newFetch(in *program.Instr, d *tensor.Dense) *fetch {
	f := &fetch{of: in}
	pinned, ok := m.e.Allocator().Driver().(pinnedMemory)
	if !ok {
		return f
	}
	size := d.Shape().TotalSize() * int(d.Dtype().Size())
	if p, err := pinned.HostAlloc(int64(size)); err == nil {
		f.to = tensor.NewDense(d.Dtype(), tensor.Shape{d.Shape().TotalSize()}, tensor.FromMemory(uintptr(p), uintptr(size)))
	}
	return f
}

// fetches are the scalars of a VM, by slot. nil: the slot's value has not been
// on the device.
type fetches []*fetch

// after returns how many instructions there are up to the last one whose result
// is on its way while the device goes on.
func (fs fetches) after(instrs []program.Instr) int {
	n := len(instrs)
	for n > 0 && (fs[instrs[n-1].Out] == nil || fs[instrs[n-1].Out].to == nil) {
		n--
	}
	return n
}

// end gives up those that were not waited for.
func (fs fetches) end() {
	for _, f := range fs {
		if f != nil {
			f.end()
		}
	}
}

// close gives the memory back, once no copy is under way.
func (fs fetches) close(e *cupool.Engine) error {
	fs.end()
	var errs []error
	for _, f := range fs {
		if f != nil && f.to != nil {
			errs = append(errs, e.Sync(), e.Allocator().Driver().(pinnedMemory).HostFree(cupool.Ptr(f.to.Uintptr())))
		}
	}
	return errors.Join(errs...)
}

// scalar returns a scalar as a Go value.
func (m *VM) scalar(h held) (gorgonia.Value, error) {
	d, ok := h.v.(*tensor.Dense)
	switch {
	case !ok:
		return h.v, nil
	case h.fetch == nil:
		return m.mem.scalarOf(d)
	}
	var err error
	if h.fetch.to != nil && m.recording == nil {
		d, err = h.fetch.wait()
	} else {
		d, err = m.e.ToHost(d)
	}
	switch {
	case err != nil:
		return nil, err
	case h.fetch.of.Losses:
		return sumOfLogs(d)
	}
	return toScalar(d.Get(0))
}
