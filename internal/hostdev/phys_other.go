//go:build !linux

package hostdev

import "github.com/cupool/cupool/internal/device"

// physical needs pages that can be mapped at two addresses, which only the
// Linux version has. Here none is ever opened.
type physical struct{}

func openPhysical() (*physical, error) { return nil, device.ErrNotSupported }

func reopenPhysical(int) (*physical, error) { return nil, device.ErrNotSupported }

func (*physical) mapNew(int64, int64) (device.Ptr, error) { return 0, device.ErrNotSupported }
func (*physical) dup() (int, error)                       { return -1, device.ErrNotSupported }

func (*physical) close() error                         { return device.ErrNotSupported }
func (*physical) create(int64) (int64, error)          { return 0, device.ErrNotSupported }
func (*physical) release(int64, int64) error           { return device.ErrNotSupported }
func (*physical) mapAt(device.Ptr, int64, int64) error { return device.ErrNotSupported }
func (*physical) unmapAt(device.Ptr, int64) error      { return device.ErrNotSupported }

func memProtect(device.Ptr, int64) error   { return device.ErrNotSupported }
func memReserve(int64) (device.Ptr, error) { return 0, device.ErrNotSupported }
func memUnreserve(device.Ptr, int64) error { return device.ErrNotSupported }
