package main

// #include "internal.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/device"
)

// driver is CUDA's driver as the pool of a C program needs it. Its calls leave captures alone
// that a program has under way, on any thread: the thread's mode is relaxed meanwhile. No event
// is recorded on a stream that is captured, and nobody waits for one. It tells of segments.
type driver struct {
	cuda.Driver
	of *gpu

	sizes sync.Map // of segments, in bytes, by address
}

// relaxed relaxes the thread's capture mode until the function that it returns is called.
func relaxed() (restore func()) {
	runtime.LockOSThread()
	if C.cupool_relax() == 0 { // the end of the program's call restores it
		return runtime.UnlockOSThread
	}
	return func() {
		C.cupool_restore()
		runtime.UnlockOSThread()
	}
}

// MemAlloc is that of a segment of the device's own pool.
func (d *driver) MemAlloc(size int64) (cupool.Ptr, error) { return d.segment(size, poolID{}) }

// segment takes a segment for a pool.
func (d *driver) segment(size int64, of poolID) (cupool.Ptr, error) {
	defer relaxed()()
	p, err := d.Driver.MemAlloc(size)
	if err == nil {
		d.sizes.Store(p, size)
		d.of.tell(C.CUPOOL_SEGMENT_ALLOC, of, p, size, C.cupool_current_stream())
	}
	return p, err
}

func (d *driver) MemFree(p cupool.Ptr) error { return d.free(p, poolID{}) }

func (d *driver) free(p cupool.Ptr, of poolID) error {
	size, _ := d.sizes.LoadAndDelete(p) // before another thread gets the address
	bytes, _ := size.(int64)
	d.of.tell(C.CUPOOL_SEGMENT_FREE, of, p, bytes, 0)
	defer relaxed()()
	err := d.Driver.MemFree(p)
	if err != nil { // it is still there
		d.sizes.Store(p, bytes)
		d.of.tell(C.CUPOOL_SEGMENT_ALLOC, of, p, bytes, 0)
	}
	return err
}

func (d *driver) MemCreate(size int64) (uintptr, error) {
	defer relaxed()()
	return d.Driver.MemCreate(size)
}

func (d *driver) MemRelease(h uintptr) error {
	defer relaxed()()
	return d.Driver.MemRelease(h)
}

func (d *driver) MemMap(p cupool.Ptr, size int64, handle uintptr) error {
	defer relaxed()()
	err := d.Driver.MemMap(p, size, handle)
	if err == nil {
		d.of.tell(C.CUPOOL_SEGMENT_MAP, poolID{}, p, size, C.cupool_current_stream())
	}
	return err
}

func (d *driver) MemUnmap(p cupool.Ptr, size int64) error {
	d.of.tell(C.CUPOOL_SEGMENT_UNMAP, poolID{}, p, size, 0)
	defer relaxed()()
	err := d.Driver.MemUnmap(p, size)
	if err != nil { // it is still there
		d.of.tell(C.CUPOOL_SEGMENT_MAP, poolID{}, p, size, 0)
	}
	return err
}

func (d *driver) MemSetAccess(p cupool.Ptr, size int64) error {
	defer relaxed()()
	return d.Driver.MemSetAccess(p, size)
}

func (d *driver) AddressReserve(size int64) (cupool.Ptr, error) {
	defer relaxed()()
	return d.Driver.AddressReserve(size)
}

func (d *driver) AddressFree(p cupool.Ptr, size int64) error {
	defer relaxed()()
	return d.Driver.AddressFree(p, size)
}

func (d *driver) MemInfo() (free, total int64, err error) {
	defer relaxed()()
	return d.Driver.MemInfo()
}

// errCaptured: what was asked for would end the capture of a stream.
var errCaptured = fmt.Errorf("the stream is captured: %w", device.ErrNotSupported)

// captured fails where a stream is captured, or a call on it would touch a capture.
func (d *driver) captured(s cupool.StreamHandle) error {
	const unsupported, implicit, invalidated = 900, 906, 901 // CUDA_ERROR_STREAM_CAPTURE_...
	is, _, err := d.StreamCapture(s)
	e, ok := errors.AsType[*cuda.Error](err)
	if is || ok && (e.Code == unsupported || e.Code == implicit || e.Code == invalidated) {
		return &device.WaitError{Stream: s, Err: errCaptured} // its work is late
	}
	return nil
}

// RecordEvent fails on a stream that is captured: what waits for it waits on.
func (d *driver) RecordEvent(e cupool.EventHandle, s cupool.StreamHandle) error {
	defer relaxed()()
	if err := d.captured(s); err != nil {
		return err
	}
	if err := d.Driver.RecordEvent(e, s); err != nil {
		return err
	}
	return d.captured(s) // by another thread meanwhile: then the event may be the capture's, which nobody can ask
}

func (d *driver) SyncStream(s cupool.StreamHandle) error {
	defer relaxed()()
	if err := d.captured(s); err != nil {
		return err
	}
	return d.Driver.SyncStream(s)
}

func (d *driver) OwnsStream(s cupool.StreamHandle) error {
	defer relaxed()()
	return d.Driver.OwnsStream(s)
}

func (d *driver) NewStream() (cupool.StreamHandle, error) {
	defer relaxed()()
	return d.Driver.NewStream()
}

func (d *driver) DestroyStream(s cupool.StreamHandle) error {
	defer relaxed()()
	return d.Driver.DestroyStream(s)
}

func (d *driver) NewEvent() (cupool.EventHandle, error) {
	defer relaxed()()
	return d.Driver.NewEvent()
}

func (d *driver) DestroyEvent(e cupool.EventHandle) error {
	defer relaxed()()
	return d.Driver.DestroyEvent(e)
}

func (d *driver) QueryEvent(e cupool.EventHandle) (bool, error) {
	defer relaxed()()
	return d.Driver.QueryEvent(e)
}

func (d *driver) QueryEvents(events []cupool.EventHandle) (int, error) {
	defer relaxed()()
	return d.Driver.QueryEvents(events)
}

func (d *driver) SyncEvent(e cupool.EventHandle) error {
	defer relaxed()()
	return d.Driver.SyncEvent(e)
}

func (d *driver) CopyIn(dst cupool.Ptr, src []byte, s cupool.StreamHandle) error {
	defer relaxed()()
	return d.Driver.CopyIn(dst, src, s)
}

func (d *driver) CopyOut(dst []byte, src cupool.Ptr, s cupool.StreamHandle) error {
	defer relaxed()()
	return d.Driver.CopyOut(dst, src, s)
}

func (d *driver) Close() error {
	defer relaxed()()
	return d.Driver.Close()
}

// enablePeer lets the device touch the memory of another one.
func (d *driver) enablePeer(peer *driver) error {
	defer relaxed()()
	return d.Driver.EnablePeer(peer.Driver)
}

// EnablePeer implements device.Peers.
func (d *driver) EnablePeer(peer device.Peer) error {
	if p, ok := peer.(*driver); ok {
		return d.enablePeer(p)
	}
	return d.Driver.EnablePeer(peer)
}

// CanAccessPeer implements device.Peers.
func (d *driver) CanAccessPeer(peer device.Peer) error {
	if p, ok := peer.(*driver); ok {
		peer = p.Driver
	}
	return d.Driver.CanAccessPeer(peer)
}
