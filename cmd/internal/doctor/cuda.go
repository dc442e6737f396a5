package doctor

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/nccl"
)

// CUDA is what the module opens when it runs. A function that is nil asks this
// computer.
type CUDA struct {
	Version      func() (cuda.Versions, error)
	Devices      func() ([]cuda.Device, error)
	CuBLAS, NCCL func() (Library, error)
}

// A Library is one that was opened.
type Library struct {
	Name    string // the name or path that it was opened by
	Version string
}

// orHere returns c with this computer's answers for what is nil.
func (c CUDA) orHere() CUDA {
	if c.Version == nil {
		c.Version = cuda.Version
	}
	if c.Devices == nil {
		c.Devices = cuda.Devices
	}
	if c.CuBLAS == nil {
		c.CuBLAS = findBLAS
	}
	if c.NCCL == nil {
		c.NCCL = findNCCL
	}
	return c
}

var errMissing = errors.New("not found")

// findBLAS makes a handle on the first GPU, as a cuBLAS for another driver fails
// there, and gives it back.
func findBLAS() (l Library, err error) {
	if l.Name, err = cublas.Find(); err != nil {
		return l, errMissing
	}
	d, err := cuda.Open(0)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	h, err := cublas.New(d.(cuda.Handles).Context())
	if err != nil {
		return l, err
	}
	l.Version = fmt.Sprintf("%d.%d.%d", h.Version/10000, h.Version/100%100, h.Version%100)
	return l, h.Close()
}

func findNCCL() (l Library, err error) {
	l.Name = "libnccl.so.2"
	if l.Version, err = nccl.Version(""); errors.Is(err, device.ErrNotSupported) {
		err = errMissing
	}
	return l, err
}
