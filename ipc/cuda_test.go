package ipc_test

import (
	"encoding/binary"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

func init() {
	devices = append(devices,
		device{"cuda", cupool.BackingVMM, func() (cupool.Driver, error) { return cuda.Open(0, cuda.Shareable()) }, gpuWork},
		device{"cuda segments", cupool.BackingSegments, func() (cupool.Driver, error) { return cuda.Open(0) }, gpuWork},
	)
}

// gpu works with kernels.
type gpu struct {
	kernels *gputest.Kernels
	count   cupool.Ptr // of wrong words
}

func gpuWork(c *cupool.Pool, d cupool.Driver) (worker, error) {
	k, err := gputest.Load(d.(cuda.Driver).Context())
	if err != nil {
		return nil, err
	}
	p, err := d.MemAlloc(4)
	return gpu{k, p}, err
}

func (g gpu) fill(p cupool.Ptr, n int64, value uint32, s *cupool.Stream) error {
	return g.kernels.Fill(uintptr(s.Handle()), uintptr(p), n, value)
}

func (g gpu) wrong(p cupool.Ptr, n int64, value uint32, s *cupool.Stream) (int, error) {
	if err := s.Memset(g.count, 0, 4); err != nil {
		return 0, err
	}
	if err := g.kernels.Check(uintptr(s.Handle()), uintptr(p), n, value, uintptr(g.count)); err != nil {
		return 0, err
	}
	var words [4]byte
	err := s.CopyOut(words[:], g.count)
	return int(binary.LittleEndian.Uint32(words[:])), err
}

func (g gpu) busy(s *cupool.Stream) (func(), error) { return g.kernels.Busy(uintptr(s.Handle())) }
