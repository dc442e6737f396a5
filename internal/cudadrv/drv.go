package cudadrv

import (
	"fmt"

	"github.com/cupool/cupool/internal/clib"
)

// A Result is a CUresult, or Missing. It is no error by itself, so that the
// hot paths return it without an allocation.
type Result int32

// The results that callers tell apart.
const (
	Success               Result = 0
	InvalidValue          Result = 1
	OutOfMemory           Result = 2
	Deinitialized         Result = 4
	ECCUncorrectable      Result = 214
	NVLinkUncorrectable   Result = 220
	InvalidHandle         Result = 400
	InvalidImage          Result = 200
	NoBinary              Result = 209 // CUDA_ERROR_NO_BINARY_FOR_GPU
	UnsupportedPTX        Result = 222
	NoDevice              Result = 100
	NotReady              Result = 600
	NotFound              Result = 500
	IllegalAddress        Result = 700
	LaunchTimeout         Result = 702
	ContextIsDestroyed    Result = 709
	Assert                Result = 710
	HardwareStackError    Result = 714
	IllegalInstruction    Result = 715
	MisalignedAddress     Result = 716
	InvalidAddressSpace   Result = 717
	InvalidPC             Result = 718
	LaunchFailed          Result = 719
	NotPermitted          Result = 800
	NotSupported          Result = 801
	PeerUnsupported       Result = 217
	PeerEnabled           Result = 704
	TooManyPeers          Result = 711
	CaptureWasInvalidated Result = 901 // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
	StubLibrary           Result = 34
	CallNeedsNewer        Result = 36 // CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
	Contained             Result = 226
	TensorMemoryLeak      Result = 721
	MPSRPCFailure         Result = 806
	MPSClientTerminated   Result = 810
	ExternalDevice        Result = 911

	// Missing: the driver lacks the entry point. See Needs.
	Missing Result = -1
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
	if s := words(fns.getErrorName, r); s != "" {
		return s
	}
	return fmt.Sprintf("CUDA error %d", int32(r))
}

// Text returns the driver's words for r, or "".
func (r Result) Text() string { return words(fns.getErrorString, r) }

func words(fn uintptr, r Result) string {
	p, failed := bareValue(fn, 1, uintptr(r), 0)
	if failed != Success {
		return ""
	}
	return clib.GoString(p)
}

// String returns the name.
func (r Result) String() string { return r.Name() }

// Version is a CUDA version as CUDA writes it: 1000*major + 10*minor.
type Version int

// String prints it as 12.2.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Init initializes the driver, after Load.
func Init() Result { return bare(fns.init, 0) }

// DriverVersion returns the newest CUDA that the driver can serve, or 0 where there is
// no driver.
func DriverVersion() Version {
	_ = Load()
	return library.version
}

// An Entry is an entry point that is looked up at run time.
type Entry struct {
	Name    string
	Since   Version // the first CUDA that has it in the form used here
	Present bool
}

// Entries returns all of them.
func Entries() []Entry {
	_ = Load()
	var es []Entry
	for _, e := range entries {
		es = append(es, Entry{e.name, e.since, *e.fn != 0})
	}
	return es
}

// Needs returns the oldest CUDA whose driver has the named entry point, or 0
// when it is none of those that are looked up.
func Needs(call string) Version {
	var v Version
	for _, e := range entries {
		if e.name == call && (v == 0 || e.since < v) {
			v = e.since
		}
	}
	return v
}
