package cuda

import (
	"fmt"

	"github.com/cupool/cupool/internal/cudadrv"
)

// Device describes a GPU, for reports.
type Device struct {
	Ordinal                 int
	Name                    string
	UUID                    string
	Major, Minor            int   // compute capability
	Multiprocessors         int   // SMs
	FreeBytes, TotalBytes   int64 // Free is -1 where no context could be made
	VMMGranularity          int64 // bytes; 0: no virtual memory calls, or no context
	NativePools             bool  // cuMemAllocAsync
	Managed                 bool  // managed memory
	ConcurrentManagedAccess bool  // host and GPU may touch it at once
	PageableAccess          bool  // the GPU reads any host memory
	ShareFD                 bool  // VMM memory as a file descriptor
	ShareFabric             bool  // VMM memory between nodes
	PoolShareFD             bool  // native pools as a file descriptor
	IPCEvents               bool  // events for other processes
}

// Devices describes the GPUs. It makes a context on each to learn how much of
// its memory is free, and gives it back. It fails with an *Error, and with
// cupool.ErrNotSupported where there is no driver.
func Devices() ([]Device, error) {
	if err := initialize("listing CUDA devices"); err != nil {
		return nil, err
	}
	n, r := cudadrv.DeviceCount()
	if r != cudadrv.Success {
		return nil, openError(-1, "cuDeviceGetCount", r, "")
	}
	var all []Device
	for i := range n {
		all = append(all, describeDevice(i))
	}
	return all, nil
}

func describeDevice(i int) Device {
	c := &context{device: i}
	has := func(a attribute) bool { return c.attribute(a) != 0 }
	g := Device{
		Ordinal: i, FreeBytes: -1,
		Major: c.attribute(attrMajor), Minor: c.attribute(attrMinor),
		Multiprocessors:         c.attribute(attrMultiprocessors),
		NativePools:             has(attrNativePools),
		Managed:                 has(attrManaged),
		ConcurrentManagedAccess: has(attrConcurrentManaged),
		PageableAccess:          has(attrPageableAccess),
		ShareFD:                 has(attrShareFD),
		ShareFabric:             has(attrShareFabric),
		PoolShareFD:             c.attribute(attrPoolHandles)&cudadrv.HandleFD != 0,
		IPCEvents:               has(attrIPCEvents),
	}
	g.Name, _ = cudadrv.DeviceName(i)
	g.TotalBytes, _ = cudadrv.DeviceMemory(i)
	if id, r := cudadrv.DeviceUUID(i); r == cudadrv.Success {
		g.UUID = "GPU-" + id
	}
	d, err := Open(i)
	if err != nil {
		return g
	}
	defer d.Close()
	g.VMMGranularity = d.VMMGranularity()
	if free, total, err := d.MemInfo(); err == nil {
		g.FreeBytes, g.TotalBytes = free, total
	}
	return g
}

// Versions are versions as CUDA writes them, 1000*major + 10*minor.
type Versions struct {
	Driver  int      // the newest CUDA that the driver serves; 0: there is no driver
	Library string   // the driver's library, by the name or path that it was opened by
	Missing []string // calls that the driver lacks in every form, with the version that has them
}

// Version returns the versions of the driver. It fails with cupool.ErrNotSupported
// where there is none.
func Version() (Versions, error) {
	if err := cudadrv.Load(); err != nil {
		return Versions{}, noDriver("CUDA's version", err)
	}
	v := Versions{Driver: int(cudadrv.DriverVersion()), Library: cudadrv.Path()}
	for _, e := range cudadrv.Entries() {
		if !e.Present && e.Since == cudadrv.Needs(e.Name) { // else an older form of the call stands in
			v.Missing = append(v.Missing, fmt.Sprintf("%s (CUDA %v)", e.Name, e.Since))
		}
	}
	return v, nil
}
