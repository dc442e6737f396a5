package hostdev

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cupool/cupool/internal/device"
)

// Stream-ordered pools, with the rules of CUDA's (cuMemAllocAsync, cuMemPool*).
//
// A pool keeps what was freed and hands it out again whole: on the stream that
// freed it at once, on another when the work before the free is done
// (opportunistic reuse), or after making that stream wait for it (internal
// dependencies). That a program's own events order the streams is not looked
// at, as the rule allows that reuse and does not demand it.

// pool is one of them. Device.mu guards it.
type pool struct {
	max      int64     // bytes in use; 0: no limit
	file     *physical // of a shareable pool and an imported one; else nil
	imported bool
	gone     bool // destroyed; its memory goes as it is freed
	attrs    [device.PoolUsedHigh + 1]uint64
	idle     []idleBlock
}

// idleBlock is memory that was freed on a stream after its job number seq.
type idleBlock struct {
	pooled
	p   device.Ptr
	on  *stream
	seq uint64
}

// pooled is a block of a pool, in whole pages.
type pooled struct {
	pool *pool
	size int64
	off  int64 // in the pool's file
}

// pools are those of a device.
type pools struct {
	byHandle         map[device.Pool]*pool
	last             device.Pool
	byDefault, first device.Pool // the current one and the default
	live             map[device.Ptr]pooled
}

func (b *idleBlock) isDone() bool { return b.on.completed.Load() >= b.seq }

// AllocAsync returns memory of a pool, or of the current one for 0, for work on
// the stream. Sizes count in whole pages. It fails with ErrOutOfMemory,
// ErrInvalidHandle, ErrInvalidRange for a size that is not positive, and
// ErrNotSupported for a pool that was imported.
func (d *Device) AllocAsync(size int64, h device.Pool, sh device.Stream) (device.Ptr, error) {
	s, err := d.stream("AllocAsync", sh)
	if err != nil {
		return 0, err
	}
	if size <= 0 {
		return 0, fmt.Errorf("hostdev: AllocAsync: %w: size %d is not positive", device.ErrInvalidRange, size)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.poolLocked("AllocAsync", h)
	if err != nil {
		return 0, err
	}
	if p.imported {
		return 0, fmt.Errorf("hostdev: AllocAsync: %w: the pool is another process's", device.ErrNotSupported)
	}
	used := int64(p.attrs[device.PoolUsedCurrent])
	if size > d.capacity || p.max > 0 && roundPage(size) > p.max-used {
		return 0, fmt.Errorf("hostdev: AllocAsync: %w: %d bytes asked for, %d of the pool's %d in use", device.ErrOutOfMemory, size, used, p.max)
	}
	b, err := d.takeLocked(p, roundPage(size), s)
	if err != nil {
		return 0, err
	}
	d.space.AddAlloc(b.p, b.size)
	d.pools.live[b.p] = b.pooled
	p.raise(device.PoolUsedCurrent, b.size)
	return b.p, nil
}

// raise adds to a current value, and raises the high one after it.
func (p *pool) raise(current device.PoolAttribute, n int64) {
	p.attrs[current] += uint64(n)
	p.attrs[current+1] = max(p.attrs[current+1], p.attrs[current])
}

// takeLocked returns an idle block of about the size, or a new one.
func (d *Device) takeLocked(p *pool, size int64, s *stream) (idleBlock, error) {
	if i := p.fit(size, s); i >= 0 {
		b := p.idle[i]
		if b.on != s && !b.isDone() {
			if _, err := s.submit("AllocAsync", job{kind: jobWait, on: b.on, n: b.seq}); err != nil {
				return idleBlock{}, err
			}
		}
		p.idle = slices.Delete(p.idle, i, i+1)
		return b, nil
	}
	if d.roomLocked("AllocAsync", size) != nil {
		for _, other := range d.pools.byHandle {
			d.shrinkLocked(other, 0)
		}
	}
	if err := d.roomLocked("AllocAsync", size); err != nil {
		return idleBlock{}, err
	}
	b := idleBlock{pooled: pooled{pool: p, size: size}}
	err := error(nil)
	if p.file == nil {
		b.p, err = memAlloc(size)
	} else if b.off, err = p.file.create(size); err == nil {
		b.p, err = p.file.mapNew(b.off, size)
	}
	if err != nil {
		return idleBlock{}, fmt.Errorf("hostdev: AllocAsync of %d bytes: %w: %w", size, device.ErrOutOfMemory, err)
	}
	d.used += size
	p.raise(device.PoolReservedCurrent, size)
	return b, nil
}

// fit returns the smallest idle block that the policies allow the stream, at
// most a quarter larger than asked for, or -1.
func (p *pool) fit(size int64, s *stream) int {
	best := -1
	for i := range p.idle {
		b := &p.idle[i]
		if b.size < size || b.size > size+size/4 || best >= 0 && b.size >= p.idle[best].size {
			continue
		}
		if b.on == s || p.attrs[device.PoolReuseInternalDependency] != 0 || p.attrs[device.PoolReuseOpportunistic] != 0 && b.isDone() {
			best = i
		}
	}
	return best
}

// FreeAsync gives memory back to its pool in the order of the stream. It fails
// with ErrInvalidRange for memory that is no pool's.
func (d *Device) FreeAsync(p device.Ptr, sh device.Stream) error {
	s, err := d.stream("FreeAsync", sh)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.pools.live[p]
	if !ok {
		return d.failure("FreeAsync", fmt.Errorf("%w: %v is no allocation of a pool", device.ErrInvalidRange, p))
	}
	if _, err := d.space.RemoveAlloc(p); err != nil {
		return d.failure("FreeAsync", err)
	}
	delete(d.pools.live, p)
	b.pool.attrs[device.PoolUsedCurrent] -= uint64(b.size)
	b.pool.idle = append(b.pool.idle, idleBlock{pooled: b, p: p, on: s, seq: s.submitted.Load()})
	return nil
}

// shrinkLocked gives idle memory back, as far as the work before its free is
// done, until at most keep bytes are reserved.
func (d *Device) shrinkLocked(p *pool, keep uint64) {
	if p.gone || p.imported {
		keep = 0
	}
	p.idle = slices.DeleteFunc(p.idle, func(b idleBlock) bool {
		if p.attrs[device.PoolReservedCurrent] <= keep || !b.isDone() {
			return false
		}
		_ = memFree(b.p, b.size) // what the system keeps, it keeps
		if p.file != nil && !p.imported {
			_ = p.file.release(b.off, b.size)
		}
		if !p.imported {
			d.used -= b.size
		}
		p.attrs[device.PoolReservedCurrent] -= uint64(b.size)
		return true
	})
	if p.gone && p.attrs[device.PoolReservedCurrent] == 0 && p.file != nil {
		_ = p.file.close()
		p.file = nil
	}
}

// shrinkPools has all pools give back what is beyond their thresholds, as a
// synchronization does.
func (d *Device) shrinkPools() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for h, p := range d.pools.byHandle {
		d.shrinkLocked(p, p.attrs[device.PoolReleaseThreshold])
		if p.gone && p.attrs[device.PoolReservedCurrent] == 0 {
			delete(d.pools.byHandle, h)
		}
	}
}

// closePoolsLocked gives back what is idle; what is live goes with all other
// allocations.
func (d *Device) closePoolsLocked() {
	for _, p := range d.pools.byHandle {
		p.gone = true
		d.shrinkLocked(p, 0)
		if p.file != nil {
			_ = p.file.close()
		}
	}
	d.pools = pools{}
}

func (d *Device) addPoolLocked(p *pool) device.Pool {
	for a := device.PoolReuseFollowEvents; a <= device.PoolReuseInternalDependency; a++ {
		p.attrs[a] = 1
	}
	if d.pools.byHandle == nil {
		d.pools.byHandle, d.pools.live = map[device.Pool]*pool{}, map[device.Ptr]pooled{}
	}
	d.pools.last++
	d.pools.byHandle[d.pools.last] = p
	d.pooling.Store(true)
	return d.pools.last
}

// poolLocked returns a pool, which the default one is made for.
func (d *Device) poolLocked(op string, h device.Pool) (*pool, error) {
	if d.closed.Load() {
		return nil, fmt.Errorf("hostdev: %s: %w", op, device.ErrClosed)
	}
	if d.pools.first == 0 {
		d.pools.first = d.addPoolLocked(&pool{})
		d.pools.byDefault = d.pools.first
	}
	if h == 0 {
		h = d.pools.byDefault
	}
	if p := d.pools.byHandle[h]; p != nil && !p.gone {
		return p, nil
	}
	return nil, fmt.Errorf("hostdev: %s: %w: pool %#x", op, device.ErrInvalidHandle, uintptr(h))
}

// withPool calls f for a pool with the device's lock held.
func (d *Device) withPool(op string, h device.Pool, f func(*pool) error) error {
	if err := d.usable(op); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.poolLocked(op, h)
	if err == nil {
		err = f(p)
	}
	return err
}

// DefaultNativePool returns the pool that is always there.
func (d *Device) DefaultNativePool() (h device.Pool, err error) {
	err = d.withPool("DefaultNativePool", 0, func(*pool) error { h = d.pools.first; return nil })
	return h, err
}

// CurrentNativePool returns the pool that 0 stands for.
func (d *Device) CurrentNativePool() (h device.Pool, err error) {
	err = d.withPool("CurrentNativePool", 0, func(*pool) error { h = d.pools.byDefault; return nil })
	return h, err
}

// SetCurrentNativePool changes which one that is.
func (d *Device) SetCurrentNativePool(h device.Pool) error {
	return d.withPool("SetCurrentNativePool", h, func(*pool) error {
		if h != 0 {
			d.pools.byDefault = h
		}
		return nil
	})
}

// NewNativePool makes a pool. A shareable one needs memory that can be mapped
// twice, and fails with ErrNotSupported without; so do other locations than
// device 0.
func (d *Device) NewNativePool(cfg device.PoolConfig) (h device.Pool, err error) {
	const op = "NewNativePool"
	if l := cfg.Location; l != (device.Location{}) && l != (device.Location{Kind: 1}) {
		return 0, fmt.Errorf("hostdev: %s: %w: a pool at location %d of kind %d", op, device.ErrNotSupported, l.ID, l.Kind)
	}
	if cfg.MaxSize < 0 {
		return 0, fmt.Errorf("hostdev: %s: %w: maximum size %d", op, device.ErrInvalidRange, cfg.MaxSize)
	}
	p := &pool{max: cfg.MaxSize}
	if cfg.Shareable {
		if p.file, err = openPhysical(); err != nil {
			return 0, fmt.Errorf("hostdev: %s: shareable: %w", op, err)
		}
	}
	err = d.withPool(op, 0, func(*pool) error { h = d.addPoolLocked(p); return nil })
	if err != nil && p.file != nil {
		_ = p.file.close()
	}
	return h, err
}

// DestroyNativePool ends a pool; memory that is live stays valid until it is
// freed. The default pool cannot be destroyed.
func (d *Device) DestroyNativePool(h device.Pool) error {
	err := d.withPool("DestroyNativePool", h, func(p *pool) error {
		if h == 0 || h == d.pools.first {
			return fmt.Errorf("hostdev: DestroyNativePool: %w: the default pool", device.ErrInvalidHandle)
		}
		p.gone = true
		if d.pools.byDefault == h {
			d.pools.byDefault = d.pools.first
		}
		return nil
	})
	if err == nil {
		d.shrinkPools()
	}
	return err
}

// TrimNativePool gives memory back until keep bytes are reserved.
func (d *Device) TrimNativePool(h device.Pool, keep int64) error {
	return d.withPool("TrimNativePool", h, func(p *pool) error {
		d.shrinkLocked(p, uint64(max(keep, 0)))
		return nil
	})
}

// NativePoolAttribute reads an attribute.
func (d *Device) NativePoolAttribute(h device.Pool, a device.PoolAttribute) (v uint64, err error) {
	err = d.withPool("NativePoolAttribute", h, func(p *pool) error {
		if a < device.PoolReuseFollowEvents || a > device.PoolUsedHigh {
			return fmt.Errorf("hostdev: NativePoolAttribute: %w: attribute %d", device.ErrInvalidRange, a)
		}
		v = p.attrs[a]
		return nil
	})
	return v, err
}

// SetNativePoolAttribute sets an attribute; the high marks can be reset only.
func (d *Device) SetNativePoolAttribute(h device.Pool, a device.PoolAttribute, v uint64) error {
	return d.withPool("SetNativePoolAttribute", h, func(p *pool) error {
		switch {
		case a >= device.PoolReuseFollowEvents && a <= device.PoolReuseInternalDependency && v <= 1, a == device.PoolReleaseThreshold:
			p.attrs[a] = v
		case (a == device.PoolReservedHigh || a == device.PoolUsedHigh) && v == 0:
			p.attrs[a] = p.attrs[a-1]
		default:
			return fmt.Errorf("hostdev: SetNativePoolAttribute: %w: attribute %d to %d", device.ErrInvalidRange, a, v)
		}
		return nil
	})
}

// NativePoolAccess returns what device 0, the only one, may do.
func (d *Device) NativePoolAccess(h device.Pool, ordinal int) (device.Access, error) {
	return device.ReadWriteAccess, d.withPool("NativePoolAccess", h, func(*pool) error { return onlyDevice("NativePoolAccess", ordinal) })
}

// SetNativePoolAccess accepts what is so already.
func (d *Device) SetNativePoolAccess(h device.Pool, ordinal int, a device.Access) error {
	const op = "SetNativePoolAccess"
	return d.withPool(op, h, func(*pool) error {
		if a != device.ReadWriteAccess {
			return fmt.Errorf("hostdev: %s: %w: the pool's own device always has access", op, device.ErrInvalidRange)
		}
		return onlyDevice(op, ordinal)
	})
}

func onlyDevice(op string, ordinal int) error {
	if ordinal != 0 {
		return fmt.Errorf("hostdev: %s: %w: there is no device %d", op, device.ErrInvalidRange, ordinal)
	}
	return nil
}

// ExportNativePool returns a file descriptor for other processes.
func (d *Device) ExportNativePool(h device.Pool) (fd int, err error) {
	err = d.withPool("ExportNativePool", h, func(p *pool) error {
		if p.file == nil || p.imported {
			return fmt.Errorf("hostdev: ExportNativePool: %w: the pool was not made shareable", device.ErrNotSupported)
		}
		fd, err = p.file.dup()
		return err
	})
	return fd, err
}

// ImportNativePool makes a pool of another process known by its descriptor,
// which stays the caller's.
func (d *Device) ImportNativePool(fd int) (h device.Pool, err error) {
	const op = "ImportNativePool"
	err = d.withPool(op, 0, func(*pool) error {
		f, err := reopenPhysical(fd)
		if err != nil {
			return fmt.Errorf("hostdev: %s: descriptor %d: %w", op, fd, err)
		}
		h = d.addPoolLocked(&pool{file: f, imported: true})
		return nil
	})
	return h, err
}

// pointerMagic begins every PoolPointer of a host device.
const pointerMagic = 0x6c6f6f70_74736f68 // "hostpool"

// ExportNativePointer describes an allocation of a shareable pool.
func (d *Device) ExportNativePointer(p device.Ptr) (data device.PoolPointer, err error) {
	const op = "ExportNativePointer"
	err = d.withPool(op, 0, func(*pool) error {
		b, ok := d.pools.live[p]
		if !ok || b.pool.file == nil || b.pool.imported {
			return fmt.Errorf("hostdev: %s: %w: %v is no allocation of a shareable pool", op, device.ErrInvalidRange, p)
		}
		for i, v := range []uint64{pointerMagic, uint64(b.off), uint64(b.size)} {
			binary.LittleEndian.PutUint64(data[8*i:], v)
		}
		return nil
	})
	return data, err
}

// ImportNativePointer maps an allocation of a pool that was imported.
func (d *Device) ImportNativePointer(h device.Pool, data device.PoolPointer) (at device.Ptr, err error) {
	const op = "ImportNativePointer"
	err = d.withPool(op, h, func(p *pool) error {
		b := pooled{pool: p, off: int64(binary.LittleEndian.Uint64(data[8:])), size: int64(binary.LittleEndian.Uint64(data[16:]))}
		if !p.imported || binary.LittleEndian.Uint64(data[:]) != pointerMagic || b.size <= 0 || b.off < 0 || b.size%pageSize != 0 || b.off%pageSize != 0 {
			return fmt.Errorf("hostdev: %s: %w: not a pointer for this pool", op, device.ErrInvalidRange)
		}
		if at, err = p.file.mapNew(b.off, b.size); err != nil {
			return fmt.Errorf("hostdev: %s: %w", op, err)
		}
		d.space.AddAlloc(at, b.size)
		d.pools.live[at] = b
		p.raise(device.PoolReservedCurrent, b.size)
		p.raise(device.PoolUsedCurrent, b.size)
		return nil
	})
	return at, err
}
