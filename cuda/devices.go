package cuda

// Device describes a GPU, for reports.
type Device struct {
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

// Devices describes the GPUs. It makes a context on each to learn how much of
// its memory is free, and gives it back. It fails with an *Error, and with
// cupool.ErrNotSupported where there is no driver.
func Devices() ([]Device, error) { return devices() }

// Versions are versions as CUDA writes them, 1000*major + 10*minor.
type Versions struct {
	Driver  int      // the newest CUDA that the driver serves; 0: there is no driver
	Headers int      // the headers that this program was built with
	Missing []string // calls that the driver lacks in every form, with the version that has them
}

// Version returns the versions of the driver and of the headers that
// this program was built with. It does not fail in a build with CUDA.
func Version() (Versions, error) { return version() }
