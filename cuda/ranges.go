package cuda

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// checkRange returns nil when the n bytes at p are inside one allocation or
// reservation that work in this context may use.
func (c *context) checkRange(p Ptr, n int64) error {
	o, err := c.whose(p, n)
	if err != nil {
		return err
	}
	return c.mayTouch(o, p)
}

// mayTouch returns nil when work in this context may touch p, memory of the
// context o, or of all devices when o is nil.
func (c *context) mayTouch(o *context, p Ptr) error {
	if o == nil || o == c || c.reach.has(uintptr(o.device)) {
		return nil
	}
	return fmt.Errorf("cupool: %s: %w: %v is memory of %s; EnablePeer lets work of one device touch that of another", c.name(), device.ErrForeignPointer, p, o.name())
}

// whose returns the context whose device memory the n bytes at p are, when they
// are inside one allocation or reservation: c for what c may use as its own, nil
// for memory that all devices use. Addresses that no Driver handed out are the
// program's own: whose asks the driver about them.
func (c *context) whose(p Ptr, n int64) (o *context, err error) {
	o = c
	start, size, kind, ok := c.memory.find(p)
	if !ok {
		o, start, size, kind, ok = c.elsewhere(p)
	}
	if ok && (kind == spanPinned || kind == spanManaged) {
		o = nil
	}
	if !ok {
		i, r := cudadrv.Pointer(c.handle, uintptr(p))
		switch {
		case r != cudadrv.Success:
			return nil, c.fail("cuPointerGetAttributes", r, p.String())
		case !i.Known:
			return nil, fmt.Errorf("cupool: %s: %w: %v is not memory that CUDA knows", c.name(), device.ErrInvalidRange, p)
		case i.Host || i.Managed:
			o = nil
		case i.Device == c.device:
			o = c
		default:
			if o = contextOn(i.Device); o == nil {
				return nil, fmt.Errorf("cupool: %s: %w: %v is memory of cuda:%d", c.name(), device.ErrForeignPointer, p, i.Device)
			}
		}
		if i.Size == 0 || i.Start == 0 { // the driver does not say, as of pools in the host's memory
			return o, nil
		}
		start, size = Ptr(i.Start), i.Size
	}
	if n < 0 || n > size-int64(p-start) {
		return nil, fmt.Errorf("cupool: %s: %w: %d bytes at %v do not fit the %d bytes at %v", c.name(), device.ErrInvalidRange, n, p, size, start)
	}
	return o, nil
}

// elsewhere finds p in the books of the other contexts. Those of the same
// device share its addresses.
func (c *context) elsewhere(p Ptr) (o *context, start Ptr, size int64, kind spanKind, ok bool) {
	contexts.Lock()
	defer contexts.Unlock()
	for _, o := range contexts.byHandle {
		if o == c {
			continue
		}
		if start, size, kind, ok = o.memory.find(p); ok {
			if o.device == c.device {
				o = c
			}
			return o, start, size, kind, true
		}
	}
	return nil, 0, 0, 0, false
}

// contextOn returns a context of a device that a Driver is open on, or nil.
func contextOn(device int) *context {
	contexts.Lock()
	defer contexts.Unlock()
	for _, o := range contexts.byHandle {
		if o.device == device {
			return o
		}
	}
	return nil
}
