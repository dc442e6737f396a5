//go:build gpu

package cuda

import (
	"fmt"

	"github.com/cupool/cupool/internal/cubridge"
	"github.com/cupool/cupool/internal/cudadrv"
)

func devices() ([]Device, error) {
	if err := initialize("listing CUDA devices"); err != nil {
		return nil, err
	}
	n, r := cubridge.DeviceCount()
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
	g.Name, _ = cubridge.DeviceName(i)
	g.TotalBytes, _ = cubridge.DeviceMemory(i)
	if id, r := cubridge.DeviceUUID(i); r == cudadrv.Success {
		g.UUID = "GPU-" + id
	}
	d, err := open(i, nil)
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

func version() (Versions, error) {
	v := Versions{Driver: int(cudadrv.DriverVersion()), Headers: int(cudadrv.HeaderVersion)}
	for _, e := range cudadrv.Entries() {
		if v.Driver > 0 && !e.Present && e.Since == cudadrv.Needs(e.Name) { // else an older form of the call stands in
			v.Missing = append(v.Missing, fmt.Sprintf("%s (CUDA %v)", e.Name, e.Since))
		}
	}
	return v, nil
}
