//go:build gpu

package cupool

import (
	"fmt"

	"github.com/cupool/cupool/internal/cudadrv"
)

// CUDADevices describes the GPUs. It makes, and gives back, a context on each
// to learn how much of its memory is free.
func CUDADevices() ([]CUDADevice, error) {
	n, err := cuNumDevices()
	if err != nil {
		return nil, cuOpenError(-1, "cuDeviceGetCount", "", err)
	}
	var all []CUDADevice
	for i := range n {
		all = append(all, describeDevice(i))
	}
	return all, nil
}

func describeDevice(i int) CUDADevice {
	has := func(a deviceAttribute) bool { return cuAttribute(i, a) != 0 }
	g := CUDADevice{
		Ordinal: i, UUID: cuUUID(i), FreeBytes: -1,
		Major: cuAttribute(i, attrMajor), Minor: cuAttribute(i, attrMinor),
		Multiprocessors:         cuAttribute(i, attrMultiprocessors),
		NativePools:             has(attrNativePools),
		Managed:                 has(attrManaged),
		ConcurrentManagedAccess: has(attrConcurrentManaged),
		PageableAccess:          has(attrPageableAccess),
		ShareFD:                 has(attrShareFD),
		ShareFabric:             has(attrShareFabric),
		PoolShareFD:             cuAttribute(i, attrPoolHandles)&cudadrv.HandleFD != 0,
		IPCEvents:               has(attrIPCEvents),
	}
	g.Name, _ = cuName(i)
	g.TotalBytes, _ = cuTotal(i)
	d, err := OpenCUDA(i)
	if err != nil {
		return g
	}
	defer d.Close()
	g.VMMGranularity = d.(*cudaDriver).VMMGranularity()
	if free, total, err := d.MemInfo(); err == nil {
		g.FreeBytes, g.TotalBytes = free, total
	}
	return g
}

// CUDAVersion returns the versions of the driver and of the headers that
// this program was built with.
func CUDAVersion() (CUDAVersions, error) {
	v := CUDAVersions{Driver: int(cudadrv.DriverVersion()), Headers: int(cudadrv.HeaderVersion)}
	for _, e := range cudadrv.Entries() {
		if !e.Present && e.Since == cudadrv.Needs(e.Name) { // else an older form of the call stands in
			v.Missing = append(v.Missing, fmt.Sprintf("%s (CUDA %v)", e.Name, e.Since))
		}
	}
	return v, nil
}
