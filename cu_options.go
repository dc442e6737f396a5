package cupool

import (
	"fmt"
	"strings"
)

// MemoryKind says which memory MemAlloc of a CUDA Driver returns.
type MemoryKind int

const (
	// MemoryDevice is the GPU's own. The host cannot touch it.
	MemoryDevice MemoryKind = iota
	// MemoryManaged moves between GPU and host as they touch it. The host
	// sees what work on a stream has written after synchronizing with it.
	MemoryManaged
	// MemoryPinned is page-locked host memory, which the GPU reaches over
	// its bus. Copies from and to it are fast and asynchronous.
	MemoryPinned
)

// String returns "device", "managed" or "pinned".
func (k MemoryKind) String() string {
	switch k {
	case MemoryDevice:
		return "device"
	case MemoryManaged:
		return "managed"
	case MemoryPinned:
		return "pinned"
	}
	return fmt.Sprintf("MemoryKind(%d)", int(k))
}

// CUDAOption is an option of OpenCUDA and OpenCUDAContext.
type CUDAOption func(*cudaOptions)

type cudaOptions struct{ kind MemoryKind }

// CUDAMemory selects the kind of memory; MemoryDevice without it.
func CUDAMemory(k MemoryKind) CUDAOption { return func(o *cudaOptions) { o.kind = k } }

// CUDAManaged is CUDAMemory(MemoryManaged).
func CUDAManaged() CUDAOption { return CUDAMemory(MemoryManaged) }

// CUDAPinned is CUDAMemory(MemoryPinned).
func CUDAPinned() CUDAOption { return CUDAMemory(MemoryPinned) }

// openCUDA is OpenCUDA with the options as Open has them: "managed",
// "pinned", "device" or "".
func openCUDA(ordinal int, options string) (Driver, error) {
	var opts []CUDAOption
	for _, o := range strings.FieldsFunc(options, func(r rune) bool { return r == ',' }) {
		switch o {
		case "device":
			opts = append(opts, CUDAMemory(MemoryDevice))
		case "managed":
			opts = append(opts, CUDAManaged())
		case "pinned":
			opts = append(opts, CUDAPinned())
		default:
			return nil, &ConfigError{Field: "device", Value: options, Reason: "options of a CUDA device are device, managed and pinned"}
		}
	}
	return OpenCUDA(ordinal, opts...)
}

// CUDADevice describes a GPU, for reports.
type CUDADevice struct {
	Ordinal                 int
	Name                    string
	UUID                    string
	Major, Minor            int   // compute capability
	Multiprocessors         int   // SMs
	FreeBytes, TotalBytes   int64 // Free is -1 where no context could be made
	VMMGranularity          int64 // bytes; 0: no virtual memory calls
	NativePools             bool  // cuMemAllocAsync
	Managed                 bool  // managed memory
	ConcurrentManagedAccess bool  // host and GPU may touch it at once
	PageableAccess          bool  // the GPU reads any host memory
	ShareFD                 bool  // VMM memory as a file descriptor
	ShareFabric             bool  // VMM memory between nodes
	PoolShareFD             bool  // native pools as a file descriptor
	IPCEvents               bool  // events for other processes
}

// CUDAVersions are versions as CUDA writes them, 1000*major + 10*minor.
type CUDAVersions struct {
	Driver  int      // the newest CUDA that the driver serves
	Headers int      // the headers that this program was built with
	Missing []string // calls that the driver lacks in every form, with the version that has them
}
