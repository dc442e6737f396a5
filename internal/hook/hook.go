// Package hook puts a function around every call of a Driver: to watch the
// calls, to change them, or to have them fail.
package hook

import "github.com/cupool/cupool"

// A Driver passes every call on to another Driver through Around. It has
// virtual memory and launches functions where that one does.
type Driver struct {
	cupool.Driver
	// Around makes a call by do, which fills in the results, or does not make
	// it, and returns the call's error.
	Around func(c *Call, do func() error) error
}

// A Call is a call of a Driver with its arguments and results. What a call does
// not have is 0.
type Call struct {
	Name     string // the method's
	Ptr, Src cupool.Ptr
	Size     int64 // bytes
	Handle   uintptr
	Stream   cupool.StreamHandle
	Event    cupool.EventHandle
	Value    byte
	Data     []byte
	Func     func()
	Done     bool  // what QueryEvent says
	Total    int64 // what MemInfo says, as Size is what is free
}

// memory returns the virtual memory of the device below.
func (d *Driver) memory() cupool.VirtualMemory { return d.Driver.(cupool.VirtualMemory) }

func (d *Driver) MemAlloc(size int64) (cupool.Ptr, error) {
	c := &Call{Name: "MemAlloc", Size: size}
	err := d.Around(c, func() (err error) { c.Ptr, err = d.Driver.MemAlloc(size); return err })
	return c.Ptr, err
}

func (d *Driver) MemFree(p cupool.Ptr) error {
	return d.Around(&Call{Name: "MemFree", Ptr: p}, func() error { return d.Driver.MemFree(p) })
}

func (d *Driver) MemInfo() (free, total int64, err error) {
	c := &Call{Name: "MemInfo"}
	err = d.Around(c, func() (err error) { c.Size, c.Total, err = d.Driver.MemInfo(); return err })
	return c.Size, c.Total, err
}

func (d *Driver) NewStream() (cupool.StreamHandle, error) {
	c := &Call{Name: "NewStream"}
	err := d.Around(c, func() (err error) { c.Stream, err = d.Driver.NewStream(); return err })
	return c.Stream, err
}

func (d *Driver) DestroyStream(s cupool.StreamHandle) error {
	return d.Around(&Call{Name: "DestroyStream", Stream: s}, func() error { return d.Driver.DestroyStream(s) })
}

func (d *Driver) SyncStream(s cupool.StreamHandle) error {
	return d.Around(&Call{Name: "SyncStream", Stream: s}, func() error { return d.Driver.SyncStream(s) })
}

func (d *Driver) NewEvent() (cupool.EventHandle, error) {
	c := &Call{Name: "NewEvent"}
	err := d.Around(c, func() (err error) { c.Event, err = d.Driver.NewEvent(); return err })
	return c.Event, err
}

func (d *Driver) DestroyEvent(e cupool.EventHandle) error {
	return d.Around(&Call{Name: "DestroyEvent", Event: e}, func() error { return d.Driver.DestroyEvent(e) })
}

func (d *Driver) RecordEvent(e cupool.EventHandle, s cupool.StreamHandle) error {
	return d.Around(&Call{Name: "RecordEvent", Event: e, Stream: s}, func() error { return d.Driver.RecordEvent(e, s) })
}

func (d *Driver) QueryEvent(e cupool.EventHandle) (bool, error) {
	c := &Call{Name: "QueryEvent", Event: e}
	err := d.Around(c, func() (err error) { c.Done, err = d.Driver.QueryEvent(e); return err })
	return c.Done, err
}

func (d *Driver) SyncEvent(e cupool.EventHandle) error {
	return d.Around(&Call{Name: "SyncEvent", Event: e}, func() error { return d.Driver.SyncEvent(e) })
}

func (d *Driver) StreamWaitEvent(s cupool.StreamHandle, e cupool.EventHandle) error {
	return d.Around(&Call{Name: "StreamWaitEvent", Stream: s, Event: e}, func() error { return d.Driver.StreamWaitEvent(s, e) })
}

func (d *Driver) Copy(dst, src cupool.Ptr, n int64, s cupool.StreamHandle) error {
	return d.Around(&Call{Name: "Copy", Ptr: dst, Src: src, Size: n, Stream: s}, func() error { return d.Driver.Copy(dst, src, n, s) })
}

func (d *Driver) CopyIn(dst cupool.Ptr, src []byte, s cupool.StreamHandle) error {
	return d.Around(&Call{Name: "CopyIn", Ptr: dst, Data: src, Stream: s}, func() error { return d.Driver.CopyIn(dst, src, s) })
}

func (d *Driver) CopyOut(dst []byte, src cupool.Ptr, s cupool.StreamHandle) error {
	return d.Around(&Call{Name: "CopyOut", Src: src, Data: dst, Stream: s}, func() error { return d.Driver.CopyOut(dst, src, s) })
}

func (d *Driver) Memset(dst cupool.Ptr, value byte, n int64, s cupool.StreamHandle) error {
	return d.Around(&Call{Name: "Memset", Ptr: dst, Value: value, Size: n, Stream: s}, func() error { return d.Driver.Memset(dst, value, n, s) })
}

// Launch fails with ErrNotSupported over a device that runs no Go functions.
func (d *Driver) Launch(s cupool.StreamHandle, f func()) error {
	return d.Around(&Call{Name: "Launch", Stream: s, Func: f}, func() error {
		if l, ok := d.Driver.(cupool.Launcher); ok {
			return l.Launch(s, f)
		}
		return cupool.ErrNotSupported
	})
}

// VMMGranularity returns 0 over a device without virtual memory.
func (d *Driver) VMMGranularity() int64 {
	if vm, ok := d.Driver.(cupool.VirtualMemory); ok {
		return vm.VMMGranularity()
	}
	return 0
}

func (d *Driver) AddressReserve(size int64) (cupool.Ptr, error) {
	c := &Call{Name: "AddressReserve", Size: size}
	err := d.Around(c, func() (err error) { c.Ptr, err = d.memory().AddressReserve(size); return err })
	return c.Ptr, err
}

func (d *Driver) AddressFree(p cupool.Ptr, size int64) error {
	return d.Around(&Call{Name: "AddressFree", Ptr: p, Size: size}, func() error { return d.memory().AddressFree(p, size) })
}

func (d *Driver) MemCreate(size int64) (uintptr, error) {
	c := &Call{Name: "MemCreate", Size: size}
	err := d.Around(c, func() (err error) { c.Handle, err = d.memory().MemCreate(size); return err })
	return c.Handle, err
}

func (d *Driver) MemRelease(h uintptr) error {
	return d.Around(&Call{Name: "MemRelease", Handle: h}, func() error { return d.memory().MemRelease(h) })
}

func (d *Driver) MemMap(p cupool.Ptr, size int64, h uintptr) error {
	return d.Around(&Call{Name: "MemMap", Ptr: p, Size: size, Handle: h}, func() error { return d.memory().MemMap(p, size, h) })
}

func (d *Driver) MemSetAccess(p cupool.Ptr, size int64) error {
	return d.Around(&Call{Name: "MemSetAccess", Ptr: p, Size: size}, func() error { return d.memory().MemSetAccess(p, size) })
}

func (d *Driver) MemUnmap(p cupool.Ptr, size int64) error {
	return d.Around(&Call{Name: "MemUnmap", Ptr: p, Size: size}, func() error { return d.memory().MemUnmap(p, size) })
}
