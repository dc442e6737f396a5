//go:build !linux

package sysmem

import "github.com/cupool/cupool/device"

// File needs pages that can be mapped at several addresses, which only the
// Linux version has. Here NewFile makes none.
type File struct{}

func NewFile() (*File, error) { return nil, device.ErrNotSupported }

func OpenFile(int) (*File, error) { return nil, device.ErrNotSupported }

func (*File) Holds(int64, int64) error                { return device.ErrNotSupported }
func (*File) MapNew(int64, int64) (device.Ptr, error) { return 0, device.ErrNotSupported }
func (*File) Dup() (int, error)                       { return -1, device.ErrNotSupported }

func (*File) Close() error                         { return device.ErrNotSupported }
func (*File) Create(int64) (int64, error)          { return 0, device.ErrNotSupported }
func (*File) Release(int64, int64) error           { return device.ErrNotSupported }
func (*File) MapAt(device.Ptr, int64, int64) error { return device.ErrNotSupported }
func (*File) UnmapAt(device.Ptr, int64) error      { return device.ErrNotSupported }

func Protect(device.Ptr, int64) error   { return device.ErrNotSupported }
func Reserve(int64) (device.Ptr, error) { return 0, device.ErrNotSupported }
func Unreserve(device.Ptr, int64) error { return device.ErrNotSupported }
