package hostdev

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
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
	max      int64        // bytes in use; 0: no limit
	file     *sysmem.File // of a shareable pool and an imported one; else nil
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
		b.p, err = sysmem.Alloc(size)
	} else if b.off, err = p.file.Create(size); err == nil {
		b.p, err = p.file.MapNew(b.off, size)
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
		_ = sysmem.Free(b.p, b.size) // what the system keeps, it keeps
		if p.file != nil && !p.imported {
			_ = p.file.Release(b.off, b.size)
		}
		if !p.imported {
			d.used -= b.size
		}
		p.attrs[device.PoolReservedCurrent] -= uint64(b.size)
		return true
	})
	if p.gone && p.attrs[device.PoolReservedCurrent] == 0 && p.file != nil {
		_ = p.file.Close()
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
			_ = p.file.Close()
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
