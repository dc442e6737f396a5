//go:build gpu

package cupool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/device"
	"github.com/cupool/cupool/internal/kernels"
)

var _ computer = (*cudaDriver)(nil)

// cudaKernels are the engine's kernels in one context.
type cudaKernels struct {
	once      sync.Once
	err       error
	module    uintptr
	functions [kernels.Count]uintptr
}

// cudaBlas are the cuBLAS handles of a Driver, one for each stream, so that
// streams do not wait for each other's calls. Those of streams that are gone
// serve new ones: to destroy one waits for the device.
type cudaBlas struct {
	mu       sync.Mutex
	byStream map[StreamHandle]*cublas.Handle
	idle     []*cublas.Handle
}

// loadKernels implements computer. The driver compiles the PTX for the GPU the
// first time, and keeps the result in the user's cache directory.
func (d *cudaDriver) loadKernels() error {
	if err := d.usable(); err != nil {
		return err
	}
	if d.kind != MemoryDevice {
		return fmt.Errorf("cupool: %s: the CPU computes: %w", d.label, device.ErrNotSupported)
	}
	k := &d.ctx.kernels
	k.once.Do(func() { k.err = d.ctx.loadKernels() })
	return k.err
}

func (c *cudaContext) loadKernels() error {
	k := &c.kernels
	module, r := cudadrv.ModuleLoad(c.handle, kernels.PTX)
	if r != cudadrv.Success {
		return c.fail("cuModuleLoadData", r, "the kernels")
	}
	k.module = module
	for i := range k.functions {
		name := kernels.Kernel(i).Name()
		k.functions[i], r = cudadrv.ModuleFunction(c.handle, module, name)
		if r == cudadrv.NotFound { // the stand-in driver, built without a C++ compiler
			return fmt.Errorf("cupool: %s: kernel %s: %w", c.name(), name, device.ErrNotSupported)
		}
		if r != cudadrv.Success {
			return c.fail("cuModuleGetFunction", r, name)
		}
	}
	return nil
}

// unloadKernels is called when nobody uses the context any more.
func (c *cudaContext) unloadKernels() {
	if c.kernels.module != 0 && c.usable() == nil {
		_ = cudadrv.ModuleUnload(c.handle, c.kernels.module) // its memory goes with the context at the latest
	}
}

// launch implements computer.
func (d *cudaDriver) launch(l kernels.Launch, s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	r := cudadrv.LaunchStruct(d.ctx.handle, d.ctx.kernels.functions[l.Kernel], l.X, l.Y, l.Block, uintptr(s), l.Args)
	if r != cudadrv.Success {
		return d.ctx.fail("cuLaunchKernel", r, fmt.Sprintf("%s, %d×%d blocks of %d, %s", l.Kernel.Name(), l.X, l.Y, l.Block, stream(s)))
	}
	return nil
}

// multiply implements computer.
func (d *cudaDriver) multiply(p *cublas.Product, of, s StreamHandle) error {
	h, err := d.blasHandle(of)
	if err == nil {
		err = h.Gemm(uintptr(s), p)
	}
	switch {
	case err == nil, errors.Is(err, cublas.ErrSize):
		return err
	case errors.Is(err, cublas.ErrMissing):
		return fmt.Errorf("cupool: %s: %w: %w", d.label, device.ErrNotSupported, err)
	}
	return fmt.Errorf("cupool: %s: product of %d×%d and %d×%d matrices on %s: %w", d.label, p.A.Rows, p.A.Cols, p.B.Rows, p.B.Cols, stream(s), err)
}

// blasHandle returns the handle for a stream.
func (d *cudaDriver) blasHandle(s StreamHandle) (*cublas.Handle, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	d.blas.mu.Lock()
	defer d.blas.mu.Unlock()
	if h := d.blas.byStream[s]; h != nil {
		return h, nil
	}
	h, err := d.blas.unusedLocked(d.ctx.handle)
	if err != nil {
		return nil, err
	}
	if d.blas.byStream == nil {
		d.blas.byStream = make(map[StreamHandle]*cublas.Handle)
	}
	d.blas.byStream[s] = h
	return h, nil
}

func (b *cudaBlas) unusedLocked(ctx uintptr) (*cublas.Handle, error) {
	if n := len(b.idle); n > 0 {
		h := b.idle[n-1]
		b.idle = b.idle[:n-1]
		return h, nil
	}
	return cublas.New(ctx)
}

// leave makes the handle of a stream that is gone idle.
func (b *cudaBlas) leave(s StreamHandle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.byStream[s]; h != nil {
		delete(b.byStream, s)
		b.idle = append(b.idle, h)
	}
}

// closeBlas destroys the handles.
func (d *cudaDriver) closeBlas() error {
	d.blas.mu.Lock()
	defer d.blas.mu.Unlock()
	var errs []error
	for _, h := range append(slices.Collect(maps.Values(d.blas.byStream)), d.blas.idle...) {
		errs = append(errs, h.Close())
	}
	d.blas.byStream, d.blas.idle = nil, nil
	if d.ctx.usable() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// workspace implements computer: what cuBLAS' documentation recommends.
func (d *cudaDriver) workspace() int64 {
	const hopper = 9
	if d.major >= hopper {
		return 32 << 20
	}
	return 4 << 20
}
