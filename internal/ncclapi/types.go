package ncclapi

import (
	"errors"
	"fmt"
)

// ErrMissing: there is no NCCL that could be used.
var ErrMissing = errors.New("NCCL is missing")

// Result is an ncclResult_t, or Driver less a CUresult, where the context could
// not be made current.
type Result int32

// The results. Those from -1000 down are the driver's.
const (
	Success Result = iota
	UnhandledCUDAError
	SystemError
	InternalError
	InvalidArgument
	InvalidUsage
	RemoteError
	InProgress
	TimedOut

	Driver  Result = -1000
	Missing Result = -1 // the library is too old for the call
)

var names = [...]string{"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
	"ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress", "ncclTimeout"}

// Name returns NCCL's name of r.
func (r Result) Name() string {
	switch {
	case r >= 0 && int(r) < len(names):
		return names[r]
	case r <= Driver:
		return fmt.Sprintf("CUDA error %d", Driver-r)
	}
	return fmt.Sprintf("NCCL result %d", r)
}

// ID is an ncclUniqueId: what the ranks of one group have in common.
type ID [128]byte

// Kind is a call.
type Kind int64

// The calls.
const (
	AllReduce Kind = iota
	Broadcast
	AllGather
	ReduceScatter
	Send
	Recv
)

var calls = [...]string{"ncclAllReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv"}

// String returns NCCL's name of the call.
func (k Kind) String() string { return calls[k] }

// The ncclDataType_t values in use.
const (
	Uint8   = 1
	Int32   = 2
	Int64   = 4
	Float32 = 7
	Float64 = 8
)

// The ncclRedOp_t values.
const (
	Sum = iota
	Prod
	Max
	Min
	Avg
)

// A Task is one call with its arguments.
type Task struct {
	Kind     Kind
	Dst, Src uintptr
	Count    int64 // as NCCL counts: of a part, where a rank has several
	Type     int64
	Op       int64 // of reductions
	Peer     int64 // root, receiver or sender
	Stream   uintptr
}
