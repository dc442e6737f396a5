//go:build gpu

package cupool

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/device"
)

// A cudaContext is a CUDA context and what all Drivers over it share: which
// streams, events and addresses are known to be its own, and what made it
// lost.
type cudaContext struct {
	handle  uintptr
	device  int // ordinal; negative: not known
	lost    atomic.Pointer[error]
	streams handleSet[*cudaDriver] // by owner; nil: adopted
	events  handleSet[*cudaDriver] // by owner
	memory  addressBook
	kernels cudaKernels

	drivers int // guarded by cudaContexts
}

// cudaContexts has the contexts that Drivers are open on.
var cudaContexts struct {
	sync.Mutex
	byHandle map[uintptr]*cudaContext
}

// sharedContext returns the context of a handle, for one more Driver.
func sharedContext(handle uintptr, ordinal int) *cudaContext {
	cudaContexts.Lock()
	defer cudaContexts.Unlock()
	c := cudaContexts.byHandle[handle]
	if c == nil {
		c = &cudaContext{handle: handle, device: ordinal}
		if cudaContexts.byHandle == nil {
			cudaContexts.byHandle = make(map[uintptr]*cudaContext)
		}
		cudaContexts.byHandle[handle] = c
	}
	c.drivers++
	return c
}

// leave is called for every Driver that closes. A context that is opened
// again starts anew, and is not lost.
func (c *cudaContext) leave() {
	cudaContexts.Lock()
	defer cudaContexts.Unlock()
	if c.drivers--; c.drivers == 0 {
		c.unloadKernels()
		delete(cudaContexts.byHandle, c.handle)
	}
}

func (c *cudaContext) name() string {
	if c.device < 0 {
		return "cuda"
	}
	return fmt.Sprintf("cuda:%d", c.device)
}

// usable returns nil, or what made the context lost.
func (c *cudaContext) usable() error {
	if e := c.lost.Load(); e != nil {
		return *e
	}
	return nil
}

// fail returns the error of a call that failed. The first error that means
// the end of the context is kept, and is what every call returns from then
// on. An out of memory error leaves nothing behind to clear: only the CUDA
// runtime keeps a last error, the driver does not.
func (c *cudaContext) fail(call string, r cudadrv.Result, detail string) error {
	if err := c.usable(); err != nil {
		return err
	}
	e := &CUDAError{Device: c.name(), Call: call, Detail: detail, Code: int(r), Err: meaning(r)}
	if r == cudadrv.Missing {
		e.Text = fmt.Sprintf("it needs a driver for CUDA %v or newer, this one is for %v", cudadrv.Needs(call), cudadrv.DriverVersion())
		return e
	}
	e.Name, e.Text = r.Name(), r.Text()
	if !r.Lost() {
		return e
	}
	err := error(e)
	c.lost.CompareAndSwap(nil, &err)
	return *c.lost.Load()
}

// failRange is fail for a call on addresses, where an invalid value means
// that they are not what the call takes.
func (c *cudaContext) failRange(call string, r cudadrv.Result, detail string) error {
	err := c.fail(call, r, detail)
	if e, ok := err.(*CUDAError); ok && r == cudadrv.InvalidValue {
		e.Err = device.ErrInvalidRange
	}
	return err
}

func meaning(r cudadrv.Result) error {
	switch r {
	case cudadrv.OutOfMemory:
		return device.ErrOutOfMemory
	case cudadrv.InvalidHandle:
		return device.ErrInvalidHandle
	case cudadrv.NotSupported, cudadrv.Missing, cudadrv.StubLibrary, cudadrv.CallNeedsNewer:
		return device.ErrNotSupported
	}
	if r.Lost() {
		return device.ErrDeviceLost
	}
	return nil
}

// handleSet holds handles with a value each. Looking one up is on every
// path, so the set is cut into shards with a lock each. The zero handleSet is
// empty.
type handleSet[V any] [64]struct {
	sync.RWMutex
	m map[uintptr]V
	_ [32]byte // a cache line each
}

func (s *handleSet[V]) shard(h uintptr) int {
	return int(uint64(h>>4) * 0x9E3779B97F4A7C15 >> 58) // handles are 16-byte aligned addresses or small numbers
}

func (s *handleSet[V]) has(h uintptr) bool {
	_, ok := s.get(h)
	return ok
}

func (s *handleSet[V]) get(h uintptr) (v V, ok bool) {
	sh := &s[s.shard(h)]
	sh.RLock()
	v, ok = sh.m[h]
	sh.RUnlock()
	return v, ok
}

func (s *handleSet[V]) put(h uintptr, v V) {
	sh := &s[s.shard(h)]
	sh.Lock()
	defer sh.Unlock()
	if sh.m == nil {
		sh.m = make(map[uintptr]V)
	}
	sh.m[h] = v
}

// take removes h. Of several callers with the same h one gets it.
func (s *handleSet[V]) take(h uintptr) (v V, ok bool) {
	sh := &s[s.shard(h)]
	sh.Lock()
	defer sh.Unlock()
	v, ok = sh.m[h]
	delete(sh.m, h)
	return v, ok
}

// takeAll removes the handles whose values pass.
func (s *handleSet[V]) takeAll(pass func(V) bool) []uintptr {
	var hs []uintptr
	for i := range s {
		s[i].Lock()
		for h, v := range s[i].m {
			if pass(v) {
				hs = append(hs, h)
				delete(s[i].m, h)
			}
		}
		s[i].Unlock()
	}
	return hs
}
