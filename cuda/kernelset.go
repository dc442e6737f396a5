package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/kernels"
)

// kernelSet are the engine's kernels in one context.
type kernelSet struct {
	first     sync.Once
	images    kernels.Images
	modules   [kernels.Modules]kernelModule
	functions [kernels.Count]uintptr // of a module once it is loaded
}

type kernelModule struct {
	loaded atomic.Bool
	mu     sync.Mutex // held while it is loaded
	handle uintptr
}

// start says where the images are, and loads the module that every engine needs.
func (k *kernelSet) start(c *context, images kernels.Images) error {
	k.first.Do(func() { k.images = images })
	return k.load(c, kernels.Base)
}

// load loads a module, after start, unless it is loaded. Where that fails, as the device is
// full for example, the next call tries again.
func (k *kernelSet) load(c *context, m kernels.Module) error {
	module := &k.modules[m]
	if module.loaded.Load() {
		return nil
	}
	module.mu.Lock()
	defer module.mu.Unlock()
	if module.loaded.Load() {
		return nil
	}
	if module.handle == 0 {
		if err := k.loadImage(c, m); err != nil {
			return err
		}
	}
	err := k.find(c, m)
	module.loaded.Store(err == nil)
	return err
}

// loadImage loads the best image that the driver takes: one that is older than the
// machine code refuses it.
func (k *kernelSet) loadImage(c *context, m kernels.Module) error {
	var handle uintptr
	var r cudadrv.Result
	for image, err := range k.images(m, c.attribute(attrMajor), c.attribute(attrMinor)) {
		if err != nil {
			return err
		}
		handle, r = cudadrv.ModuleLoad(c.handle, image)
		if r != cudadrv.InvalidImage && r != cudadrv.NoBinary && r != cudadrv.UnsupportedPTX {
			break
		}
	}
	if r != cudadrv.Success {
		return c.fail("cuModuleLoadData", r, "the kernels")
	}
	k.modules[m].handle = handle
	return nil
}

// find finds the functions of a module that is loaded.
func (k *kernelSet) find(c *context, m kernels.Module) error {
	for i := range k.functions {
		kernel := kernels.Kernel(i)
		if kernel.Module() != m {
			continue
		}
		var r cudadrv.Result
		k.functions[i], r = cudadrv.ModuleFunction(c.handle, k.modules[m].handle, kernel.Name())
		if r == cudadrv.NotFound { // the stand-in driver, built without a C++ compiler
			return fmt.Errorf("cupool: %s: kernel %s: %w", c.name(), kernel.Name(), device.ErrNotSupported)
		}
		if r != cudadrv.Success {
			return c.fail("cuModuleGetFunction", r, kernel.Name())
		}
	}
	return nil
}

// unload is called when the last Driver of the context has closed.
func (k *kernelSet) unload(ctx uintptr) {
	for i := range k.modules {
		if handle := k.modules[i].handle; handle != 0 {
			_ = cudadrv.ModuleUnload(ctx, handle) // its memory goes with the context at the latest
		}
	}
}
