package cuda

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/cudalibs"
)

var _ Driver = (*driver)(nil)

// drivers counts the Drivers that were opened.
var drivers atomic.Uint64

// Open opens a GPU by its ordinal, on its primary context, which the CUDA
// runtime, cuBLAS and other libraries use too. Several Drivers of one GPU, of
// the same or other kinds of memory, share the context; each has to be
// closed. It fails with an *Error, with cupool.ErrNotSupported when there is
// no driver or no GPU, or when the GPU does not have the kind of memory, or with a
// *cupool.ConfigError for a MemoryKind that is none.
func Open(ordinal int, opts ...Option) (Driver, error) {
	if err := initialize(fmt.Sprintf("opening cuda:%d", ordinal)); err != nil {
		return nil, err
	}
	dev, r := cudadrv.Device(ordinal)
	if r != cudadrv.Success {
		n, _ := cudadrv.DeviceCount()
		return nil, openError(ordinal, "cuDeviceGet", r, fmt.Sprintf("there are %d devices", n))
	}
	handle, r := cudadrv.RetainPrimary(dev)
	if r != cudadrv.Success {
		return nil, openError(ordinal, "cuDevicePrimaryCtxRetain", r, "")
	}
	c := sharedContext(handle, ordinal)
	return openDriver(c, func() cudadrv.Result { return cudadrv.ReleasePrimary(dev) }, opts)
}

// OpenContext opens a GPU over a CUcontext that the program already has, and
// may go on using; 0 is the one that is current on the calling thread, which
// then has to be locked (runtime.LockOSThread). The context stays the
// program's: it must outlive the Driver. Streams of the context can be used
// with the Driver as they are. cupool.CUContext, which takes the tag cu, returns
// the handle of a context of gorgonia.org/cu. OpenContext fails as
// Open does.
func OpenContext(context uintptr, opts ...Option) (Driver, error) {
	opening := fmt.Sprintf("opening CUDA context 0x%x", context)
	if context == 0 {
		opening = "opening the current CUDA context"
	}
	if err := initialize(opening); err != nil {
		return nil, err
	}
	if context == 0 {
		now, r := cudadrv.CurrentContext()
		if r != cudadrv.Success {
			return nil, openError(-1, "cuCtxGetCurrent", r, "")
		}
		if context = now; context == 0 {
			return nil, fmt.Errorf("cupool: %s: no context is current on this thread", opening)
		}
	}
	dev, r := cudadrv.ContextDevice(context)
	if r != cudadrv.Success {
		return nil, openError(-1, "cuCtxGetDevice", r, fmt.Sprintf("context 0x%x", context))
	}
	return openDriver(sharedContext(context, dev), func() cudadrv.Result { return cudadrv.Success }, opts)
}

// initialize opens the driver's library and initializes CUDA. what says what for.
func initialize(what string) error {
	if err := cudadrv.Load(); err != nil {
		return noDriver(what, err)
	}
	if r := cudadrv.Init(); r != cudadrv.Success {
		return openError(-1, "cuInit", r, what)
	}
	return nil
}

// noDriver says what is missing where the driver's library cannot be opened.
func noDriver(what string, err error) error {
	todo := "install the driver (https://www.nvidia.com/drivers), or start the container with --gpus all; cupool doctor says more"
	if path := os.Getenv(cudalibs.Driver); path != "" {
		todo = cudalibs.Driver + " names the library to open; unset it for the system's"
	} else if runtime.GOOS != "linux" && runtime.GOOS != "windows" {
		todo = "CUDA is used on linux/amd64, linux/arm64 and windows/amd64"
	}
	return fmt.Errorf("cupool: %s: %w: there is no NVIDIA driver here: %w: %s", what, device.ErrNotSupported, err, todo)
}

// openError is an error before there is a context. A negative ordinal is not
// known.
func openError(ordinal int, call string, r cudadrv.Result, detail string) error {
	c := &context{device: ordinal}
	return c.fail(call, r, detail)
}

// openDriver makes a Driver over a context, which release gives back, also
// when it fails.
func openDriver(c *context, release func() cudadrv.Result, opts []Option) (Driver, error) {
	var o options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if err := c.supports(o); err != nil {
		c.leave()
		if r := release(); r != cudadrv.Success {
			err = errors.Join(err, c.fail("cuDevicePrimaryCtxRelease", r, "opening"))
		}
		return nil, err
	}
	return &driver{id: owner(drivers.Add(1)), ctx: c, release: release, traits: c.traits(o)}, nil
}

// traits returns the traits of a Driver with options.
func (c *context) traits(o options) traits {
	k := o.kind
	name, _ := cudadrv.DeviceName(c.device)
	t := traits{
		kind:       k,
		label:      fmt.Sprintf("%s (%s, %v memory)", c.name(), name, k),
		waitCopyIn: c.attribute(attrHostPageTables) != 0,
		major:      c.attribute(attrMajor),
	}
	if k == MemoryDevice && c.attribute(attrVMM) != 0 {
		if g, r := cudadrv.Granularity(c.handle, c.device); r == cudadrv.Success {
			t.granularity = g
		}
	}
	t.ways = c.ways(o.shareable)
	return t
}

// way is how physical memory is made.
type way struct {
	handleTypes int  // by which it can be exported
	rdma        bool // network cards may register it
}

// ways are those that the device has. The system may still refuse one: fabric handles need
// a channel of the driver's (IMEX).
func (c *context) ways(shareable bool) (list []way) {
	best := way{rdma: c.attribute(attrRDMA) != 0}
	if shareable {
		best.handleTypes = cudadrv.HandleFD
		if c.attribute(attrShareFabric) != 0 {
			list = append(list, way{best.handleTypes | cudadrv.HandleFabric, best.rdma})
		}
	}
	list = append(list, best)
	if best.rdma {
		list = append(list, way{best.handleTypes, false})
	}
	return list
}

// supports returns ErrNotSupported where the GPU does not have the kind of
// memory, or has it at another address than the host, or cannot share it.
func (c *context) supports(o options) error {
	k := o.kind
	attr, lacks := attrUnifiedAddressing, "one address space for GPU and host"
	switch k {
	case MemoryDevice, MemoryPinned:
	case MemoryManaged:
		attr, lacks = attrManaged, "managed memory"
	default:
		return &device.ConfigError{Field: "Memory", Value: k, Reason: "must be MemoryDevice, MemoryManaged or MemoryPinned"}
	}
	if c.attribute(attr) == 0 {
		return fmt.Errorf("cupool: %s with %v memory: %w: the GPU lacks %s", c.name(), k, device.ErrNotSupported, lacks)
	}
	switch {
	case o.shareable && k != MemoryDevice:
		return fmt.Errorf("cupool: %s with %v memory: %w: only device memory can be Shareable", c.name(), k, device.ErrNotSupported)
	case o.shareable && c.attribute(attrShareFD) == 0:
		return fmt.Errorf("cupool: %s with Shareable memory: %w: the GPU or its driver exports no memory by file descriptor", c.name(), device.ErrNotSupported)
	}
	return nil
}
