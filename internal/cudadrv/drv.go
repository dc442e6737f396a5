//go:build gpu

package cudadrv

/*
#cgo LDFLAGS: -lcuda
#cgo linux LDFLAGS: -ldl
#include "calls.h"
*/
import "C"

import "fmt"

func init() { C.cp_load() }

// A Result is a CUresult, or Missing. It is no error by itself, so that the
// hot paths return it without an allocation.
type Result int32

// The results that callers tell apart.
const (
	Success             Result = C.CUDA_SUCCESS
	InvalidValue        Result = C.CUDA_ERROR_INVALID_VALUE
	OutOfMemory         Result = C.CUDA_ERROR_OUT_OF_MEMORY
	Deinitialized       Result = C.CUDA_ERROR_DEINITIALIZED
	ECCUncorrectable    Result = C.CUDA_ERROR_ECC_UNCORRECTABLE
	NVLinkUncorrectable Result = C.CUDA_ERROR_NVLINK_UNCORRECTABLE
	InvalidImage        Result = C.CUDA_ERROR_INVALID_IMAGE
	NoBinary            Result = C.CUDA_ERROR_NO_BINARY_FOR_GPU
	InvalidHandle       Result = C.CUDA_ERROR_INVALID_HANDLE
	NoDevice            Result = C.CUDA_ERROR_NO_DEVICE
	NotReady            Result = C.CUDA_ERROR_NOT_READY
	NotFound            Result = C.CUDA_ERROR_NOT_FOUND
	IllegalAddress      Result = C.CUDA_ERROR_ILLEGAL_ADDRESS
	LaunchTimeout       Result = C.CUDA_ERROR_LAUNCH_TIMEOUT
	ContextIsDestroyed  Result = C.CUDA_ERROR_CONTEXT_IS_DESTROYED
	Assert              Result = C.CUDA_ERROR_ASSERT
	HardwareStackError  Result = C.CUDA_ERROR_HARDWARE_STACK_ERROR
	IllegalInstruction  Result = C.CUDA_ERROR_ILLEGAL_INSTRUCTION
	MisalignedAddress   Result = C.CUDA_ERROR_MISALIGNED_ADDRESS
	InvalidAddressSpace Result = C.CUDA_ERROR_INVALID_ADDRESS_SPACE
	InvalidPC           Result = C.CUDA_ERROR_INVALID_PC
	LaunchFailed        Result = C.CUDA_ERROR_LAUNCH_FAILED
	NotSupported        Result = C.CUDA_ERROR_NOT_SUPPORTED
	PeerUnsupported     Result = C.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
	PeerEnabled         Result = C.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
	TooManyPeers        Result = C.CUDA_ERROR_TOO_MANY_PEERS

	// The headers of CUDA 11.0 lack these.
	StubLibrary         Result = 34
	CallNeedsNewer      Result = 36  // CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
	UnsupportedPTX      Result = 222 // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
	Contained           Result = 226
	TensorMemoryLeak    Result = 721
	MPSRPCFailure       Result = 806
	MPSClientTerminated Result = 810
	ExternalDevice      Result = 911

	// Missing: the driver lacks the entry point. See Needs.
	Missing Result = C.CP_MISSING
)

// Lost reports whether r means that the context is gone for good: every
// further call in it fails with the same result.
func (r Result) Lost() bool {
	switch r {
	case Deinitialized, ECCUncorrectable, NVLinkUncorrectable, Contained,
		IllegalAddress, LaunchTimeout, ContextIsDestroyed, Assert,
		HardwareStackError, IllegalInstruction, MisalignedAddress,
		InvalidAddressSpace, InvalidPC, LaunchFailed, TensorMemoryLeak,
		MPSRPCFailure, MPSClientTerminated, ExternalDevice:
		return true
	}
	return false
}

// Name returns CUDA's name of r, such as "CUDA_ERROR_OUT_OF_MEMORY".
func (r Result) Name() string {
	if s := C.cp_error_name(C.int(r)); s != nil {
		return C.GoString(s)
	}
	return fmt.Sprintf("CUDA error %d", int32(r))
}

// Text returns the driver's words for r, or "".
func (r Result) Text() string {
	if s := C.cp_error_text(C.int(r)); s != nil {
		return C.GoString(s)
	}
	return ""
}

// String returns the name.
func (r Result) String() string { return r.Name() }

// Version is a CUDA version as CUDA writes it: 1000*major + 10*minor.
type Version int

// String prints it as 12.2.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// HeaderVersion is the version of the headers that this was built with.
const HeaderVersion Version = C.CUDA_VERSION

// Init initializes the driver. It returns Missing where there is none.
func Init() Result { return Result(C.cp_start()) }

// DriverVersion returns the newest CUDA that the driver can serve, or 0.
func DriverVersion() Version {
	var v C.int
	if C.cuDriverGetVersion(&v) != C.CUDA_SUCCESS {
		return 0
	}
	return Version(v)
}

// An Entry is an entry point that is looked up at run time.
type Entry struct {
	Name    string
	Since   Version // the first CUDA that has it in the form used here
	Present bool
}

// Entries returns all of them.
func Entries() []Entry {
	var es []Entry
	for i := C.int(0); ; i++ {
		e := C.cp_entry(i)
		if e.name == nil {
			return es
		}
		es = append(es, Entry{C.GoString(e.name), Version(e.since), e.present != 0})
	}
}

// Needs returns the oldest CUDA whose driver has the named entry point, or 0
// when it is none of those that are looked up.
func Needs(call string) Version {
	var v Version
	for _, e := range Entries() {
		if e.Name == call && (v == 0 || e.Since < v) {
			v = e.Since
		}
	}
	return v
}

func value(v C.cp_value) (uintptr, Result) { return uintptr(v.value), Result(v.err) }
