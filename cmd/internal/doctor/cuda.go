package doctor

import (
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/device"
)

// orHere returns c with this computer's answers for what is nil.
func (c CUDA) orHere() CUDA {
	if c.Version == nil {
		c.Version = cuda.Version
	}
	if c.Devices == nil {
		c.Devices = cuda.Devices
	}
	if c.CuBLAS == nil {
		c.CuBLAS = func() (Library, error) { return Library{}, device.ErrNotSupported }
	}
	if c.NCCL == nil {
		c.NCCL = func() (Library, error) { return Library{}, device.ErrNotSupported }
	}
	return c
}
