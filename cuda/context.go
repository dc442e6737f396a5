package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// A context is a CUDA context and the common part of all Drivers over it: the
// streams, events and addresses that are known to be its own, and the error that
// made it lost.
type context struct {
	handle  uintptr
	device  int // ordinal; negative: not known
	lost    atomic.Pointer[error]
	streams handleSet[owner] // nobody: adopted
	events  handleSet[owner]
	memory  addressBook
	kernels kernelSet

	reach    handleSet[struct{}] // ordinals of the other devices whose memory its work may touch
	admitted []int32             // ordinals of the devices that may touch its virtual memory, its own first; guarded by memory.mu

	drivers int // guarded by contexts
}

// An owner is the Driver that made a stream, an event or a range of addresses.
type owner uint64

// nobody owns the streams that programs bring.
const nobody owner = 0

// contexts has the contexts that Drivers are open on.
var contexts struct {
	sync.Mutex
	byHandle map[uintptr]*context
}

// sharedContext returns the context of a handle, for one more Driver.
func sharedContext(handle uintptr, ordinal int) *context {
	contexts.Lock()
	defer contexts.Unlock()
	c := contexts.byHandle[handle]
	if c == nil {
		c = &context{handle: handle, device: ordinal, admitted: []int32{int32(ordinal)}}
		if contexts.byHandle == nil {
			contexts.byHandle = make(map[uintptr]*context)
		}
		contexts.byHandle[handle] = c
	}
	c.drivers++
	return c
}

// leave takes one Driver out. Without Drivers the context is forgotten: when it
// is opened again it starts anew and is not lost.
func (c *context) leave() {
	contexts.Lock()
	defer contexts.Unlock()
	if c.drivers--; c.drivers == 0 {
		if c.usable() == nil {
			c.kernels.unload(c.handle)
		}
		delete(contexts.byHandle, c.handle)
		for _, o := range contexts.byHandle { // peer access may have ended with the context
			o.reach.take(uintptr(c.device))
		}
	}
}

func (c *context) name() string {
	if c.device < 0 {
		return "cuda"
	}
	return fmt.Sprintf("cuda:%d", c.device)
}

// usable returns nil, or the error that made the context lost.
func (c *context) usable() error {
	if e := c.lost.Load(); e != nil {
		return *e
	}
	return nil
}

// fail returns the error of a call that failed. The context keeps the first
// error that loses it, and every later call returns that error. An out of memory
// error leaves nothing to clear: only the CUDA runtime keeps a last error, the
// driver does not.
func (c *context) fail(call string, r cudadrv.Result, detail string) error {
	if err := c.usable(); err != nil {
		return err
	}
	e := &Error{Device: c.name(), Call: call, Detail: detail, Code: int(r), Err: meaning(r)}
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

// failRange is fail for a call on addresses, where an invalid value means that
// the addresses are wrong.
func (c *context) failRange(call string, r cudadrv.Result, detail string) error {
	err := c.fail(call, r, detail)
	if e, ok := err.(*Error); ok && r == cudadrv.InvalidValue {
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
	case cudadrv.NotSupported, cudadrv.NoDevice, cudadrv.Missing, cudadrv.StubLibrary, cudadrv.CallNeedsNewer,
		cudadrv.PeerUnsupported, cudadrv.TooManyPeers:
		return device.ErrNotSupported
	}
	if r.Lost() {
		return device.ErrDeviceLost
	}
	return nil
}
