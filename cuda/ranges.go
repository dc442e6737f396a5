//go:build gpu

package cuda

import (
	"fmt"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/device"
)

// checkRange returns nil when the n bytes at p are inside one allocation or
// reservation that work in this context may use. Addresses that no Driver
// handed out are the program's own: checkRange asks the driver about them.
func (c *context) checkRange(p Ptr, n int64) error {
	start, size, ok := c.memory.find(p)
	if !ok {
		i, r := cudadrv.Pointer(c.handle, uintptr(p))
		switch {
		case r != cudadrv.Success:
			return c.fail("cuPointerGetAttributes", r, p.String())
		case !i.Known:
			return fmt.Errorf("cupool: %s: %w: %v is not memory that CUDA knows", c.name(), device.ErrInvalidRange, p)
		case !i.Host && !i.Managed && i.Device != c.device:
			return fmt.Errorf("cupool: %s: %w: %v is memory of cuda:%d", c.name(), device.ErrForeignPointer, p, i.Device)
		case i.Size == 0 || i.Start == 0: // the driver does not say, as of pools in the host's memory
			return nil
		}
		start, size = Ptr(i.Start), i.Size
	}
	if n < 0 || n > size-int64(p-start) {
		return fmt.Errorf("cupool: %s: %w: %d bytes at %v do not fit the %d bytes at %v", c.name(), device.ErrInvalidRange, n, p, size, start)
	}
	return nil
}
