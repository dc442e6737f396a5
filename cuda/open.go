package cuda

// Open opens a GPU by its ordinal, on its primary context, which the CUDA
// runtime, cuBLAS and other libraries use too. Several Drivers of one GPU, of
// the same or other kinds of memory, share the context; each has to be
// closed. It fails with an *Error, or with cupool.ErrNotSupported when there is
// no driver or no GPU, or when the GPU does not have the kind of memory.
func Open(ordinal int, opts ...Option) (Driver, error) { return open(ordinal, opts) }

// OpenContext opens a GPU over a CUcontext that the program already has, and
// may go on using; 0 is the one that is current on the calling thread, which
// then has to be locked (runtime.LockOSThread). The context stays the
// program's: it must outlive the Driver. Streams of the context can be used
// with the Driver as they are. cupool.CUContext returns the handle of a context
// of gorgonia.org/cu. OpenContext fails with an *Error, or with
// cupool.ErrNotSupported when the GPU does not have the kind of memory.
func OpenContext(context uintptr, opts ...Option) (Driver, error) { return openContext(context, opts) }
