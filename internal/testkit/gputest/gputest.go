package gputest

import (
	_ "embed"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cupool/cupool/internal/cudadrv"
)

//go:embed kernels.ptx
var ptx string

// threads in a block; the kernels loop, so that any grid does.
const threads = 256

// Kernels are the test kernels in one context.
type Kernels struct {
	ctx, module                   uintptr
	spin, hold, fill, check, plus uintptr

	flags uintptr // of uint32, in pinned memory
	busy  atomic.Uint64
}

// maxBusy is how many streams can be busy at once, and holdTime how long if
// they are not released: a kernel cannot be stopped.
const (
	maxBusy  = 1 << 14
	holdTime = time.Minute
)

// Load loads the kernels into a context (cuda.Handles) and runs
// each of them once: the driver loads a kernel when it is first launched,
// which may have to wait for all that runs, as page-locking memory may.
func Load(ctx uintptr) (*Kernels, error) {
	m, r := cudadrv.ModuleLoad(ctx, append([]byte(ptx), 0))
	if r != cudadrv.Success {
		return nil, fmt.Errorf("gputest: loading the kernels: %v", r)
	}
	k := &Kernels{ctx: ctx, module: m}
	if k.flags, r = cudadrv.HostAlloc(ctx, 4*maxBusy); r != cudadrv.Success {
		return nil, fmt.Errorf("gputest: page-locked memory for flags: %v", r)
	}
	for name, f := range map[string]*uintptr{
		"cupool_spin": &k.spin, "cupool_hold": &k.hold, "cupool_fill": &k.fill, "cupool_check": &k.check, "add": &k.plus,
	} {
		if *f, r = cudadrv.ModuleFunction(ctx, m, name); r != cudadrv.Success {
			return nil, fmt.Errorf("gputest: kernel %s: %v", name, r)
		}
	}
	return k, errors.Join(k.Spin(0, 0), k.holdFor(0, k.flags, 0), k.Fill(0, 0, 0, 0), k.Check(0, 0, 0, 0, 0), k.Add(0, 0, 0, 0),
		result("synchronize", cudadrv.StreamSync(ctx, 0)))
}

// Close unloads the kernels.
func (k *Kernels) Close() error {
	return errors.Join(result("free", cudadrv.HostFree(k.ctx, k.flags)), result("unload", cudadrv.ModuleUnload(k.ctx, k.module)))
}

// Spin keeps a stream busy for d.
func (k *Kernels) Spin(stream uintptr, d time.Duration) error {
	return result("spin", cudadrv.Launch(k.ctx, k.spin, 1, 1, stream, uint64(d.Nanoseconds())))
}

// Busy keeps a stream busy until release is called, or for a minute.
func (k *Kernels) Busy(stream uintptr) (release func(), err error) {
	p := k.flags + uintptr(4*(k.busy.Add(1)%maxBusy))
	flag := *(**atomic.Uint32)(unsafe.Pointer(&p))
	flag.Store(0)
	return func() { flag.Store(1) }, k.holdFor(stream, p, holdTime)
}

// holdFor keeps a stream busy until the word at flag is not 0 any more, but no
// longer than d.
func (k *Kernels) holdFor(stream, flag uintptr, d time.Duration) error {
	return result("hold", cudadrv.Launch(k.ctx, k.hold, 1, 1, stream, uint64(flag), uint64(d.Nanoseconds())))
}

// Fill writes a pattern, which value selects, to n bytes, a multiple of 4.
func (k *Kernels) Fill(stream, p uintptr, n int64, value uint32) error {
	return result("fill", cudadrv.Launch(k.ctx, k.fill, grid(n), threads, stream, uint64(p), uint64(n/4), uint64(value)))
}

// Check adds to the uint32 at wrong how many words are not as Fill writes
// them.
func (k *Kernels) Check(stream, p uintptr, n int64, value uint32, wrong uintptr) error {
	return result("check", cudadrv.Launch(k.ctx, k.check, grid(n), threads, stream, uint64(p), uint64(n/4), uint64(value), uint64(wrong)))
}

// Add adds value to every word of n bytes.
func (k *Kernels) Add(stream, p uintptr, n int64, value uint32) error {
	return result("add", cudadrv.Launch(k.ctx, k.plus, grid(n), threads, stream, uint64(p), uint64(n/4), uint64(value)))
}

func grid(n int64) int { return int(max(1, min(1024, (n/4+threads-1)/threads))) }

func result(what string, r cudadrv.Result) error {
	if r != cudadrv.Success {
		return fmt.Errorf("gputest: %s: %v", what, r)
	}
	return nil
}
