package hostdev

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
)

// What can be asked of pools.

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
	if cfg.Win32 {
		return 0, fmt.Errorf("hostdev: %s: %w: Win32 handles are Windows'", op, device.ErrNotSupported)
	}
	if cfg.MaxSize < 0 {
		return 0, fmt.Errorf("hostdev: %s: %w: maximum size %d", op, device.ErrInvalidRange, cfg.MaxSize)
	}
	p := &pool{max: cfg.MaxSize}
	if cfg.Shareable {
		if p.file, err = sysmem.NewFile(); err != nil {
			return 0, fmt.Errorf("hostdev: %s: shareable: %w", op, err)
		}
	}
	err = d.withPool(op, 0, func(*pool) error { h = d.addPoolLocked(p); return nil })
	if err != nil && p.file != nil {
		_ = p.file.Close()
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
