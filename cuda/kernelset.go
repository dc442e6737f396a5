//go:build gpu

package cuda

import (
	"fmt"
	"sync"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/device"
	"github.com/cupool/cupool/internal/kernels"
)

// kernelSet are the engine's kernels in one context.
type kernelSet struct {
	once      sync.Once
	err       error
	module    uintptr
	functions [kernels.Count]uintptr
}

// load loads the kernels once. fail returns the error of a call that failed.
func (k *kernelSet) load(ctx uintptr, name string, fail func(call string, r cudadrv.Result, detail string) error) error {
	k.once.Do(func() { k.err = k.loadOnce(ctx, name, fail) })
	return k.err
}

func (k *kernelSet) loadOnce(ctx uintptr, name string, fail func(call string, r cudadrv.Result, detail string) error) error {
	module, r := cudadrv.ModuleLoad(ctx, kernels.PTX)
	if r != cudadrv.Success {
		return fail("cuModuleLoadData", r, "the kernels")
	}
	k.module = module
	for i := range k.functions {
		kernel := kernels.Kernel(i).Name()
		k.functions[i], r = cudadrv.ModuleFunction(ctx, module, kernel)
		if r == cudadrv.NotFound { // the stand-in driver, built without a C++ compiler
			return fmt.Errorf("cupool: %s: kernel %s: %w", name, kernel, device.ErrNotSupported)
		}
		if r != cudadrv.Success {
			return fail("cuModuleGetFunction", r, kernel)
		}
	}
	return nil
}

// unload is called when the last Driver of the context has closed.
func (k *kernelSet) unload(ctx uintptr) {
	if k.module != 0 {
		_ = cudadrv.ModuleUnload(ctx, k.module) // its memory goes with the context at the latest
	}
}
