package conformance

import "github.com/cupool/cupool"

// The virtual memory part of Failing, on devices that have it.

func (f *Failing) vm() cupool.VirtualMemory { return f.Driver.(cupool.VirtualMemory) }

// VMMGranularity returns 0 where the device has no virtual memory.
func (f *Failing) VMMGranularity() int64 {
	if vm, ok := f.Driver.(cupool.VirtualMemory); ok {
		return vm.VMMGranularity()
	}
	return 0
}

func (f *Failing) AddressReserve(size int64) (cupool.Ptr, error) {
	if err := f.call("AddressReserve"); err != nil {
		return 0, err
	}
	p, err := f.vm().AddressReserve(size)
	if err == nil {
		f.mu.Lock()
		f.ranges++
		f.mu.Unlock()
	}
	return p, err
}

func (f *Failing) AddressFree(p cupool.Ptr, size int64) error {
	if err := f.call("AddressFree"); err != nil {
		return err
	}
	err := f.vm().AddressFree(p, size)
	if err == nil {
		f.mu.Lock()
		f.ranges--
		f.mu.Unlock()
	}
	return err
}

func (f *Failing) MemCreate(size int64) (uintptr, error) {
	if err := f.call("MemCreate"); err != nil {
		return 0, err
	}
	if err := f.room("MemCreate", size); err != nil {
		return 0, err
	}
	h, err := f.vm().MemCreate(size)
	if err == nil {
		f.mu.Lock()
		f.handles[h] = size
		f.mu.Unlock()
	}
	return h, err
}

func (f *Failing) MemRelease(h uintptr) error {
	if err := f.call("MemRelease"); err != nil {
		return err
	}
	err := f.vm().MemRelease(h)
	if err == nil {
		f.mu.Lock()
		delete(f.handles, h)
		f.mu.Unlock()
	}
	return err
}

func (f *Failing) MemMap(p cupool.Ptr, size int64, h uintptr) error {
	if err := f.call("MemMap"); err != nil {
		return err
	}
	return f.countMapped(size, f.vm().MemMap(p, size, h))
}

func (f *Failing) MemSetAccess(p cupool.Ptr, size int64) error {
	if err := f.call("MemSetAccess"); err != nil {
		return err
	}
	return f.vm().MemSetAccess(p, size)
}

func (f *Failing) MemUnmap(p cupool.Ptr, size int64) error {
	if err := f.call("MemUnmap"); err != nil {
		return err
	}
	return f.countMapped(-size, f.vm().MemUnmap(p, size))
}

func (f *Failing) countMapped(bytes int64, err error) error {
	if err == nil {
		f.mu.Lock()
		f.mapped += bytes
		f.mu.Unlock()
	}
	return err
}

// Ranges returns the number of address ranges that were reserved and not
// given back.
func (f *Failing) Ranges() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ranges
}
