package nccl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/ncclapi"
)

// Error is what NCCL says, or that a rank waited for longer than Config.Timeout.
type Error struct {
	Call       string // of NCCL
	Code       int    // ncclResult_t
	Name       string // such as ncclRemoteError
	Rank, Size int
	Text       string // NCCL's words, and what it noted last
	Err        error  // dist.ErrRank, cupool.ErrOutOfMemory, ...; or nil
}

// Error implements error. It ends with what to do.
func (e *Error) Error() string {
	s := fmt.Sprintf("nccl: rank %d of %d: %s: %s", e.Rank, e.Size, e.Call, e.Name)
	if e.Text != "" {
		s += " (" + e.Text + ")"
	}
	if e.Err != nil {
		s += ": " + strings.ReplaceAll(e.Err.Error(), "\n", ", ")
	}
	return s + "; " + e.advice()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) advice() string {
	switch {
	case errors.Is(e.Err, cupool.ErrOutOfMemory):
		return "leave NCCL memory: a smaller cupool.Config.Limit, or EmptyCache before New"
	case errors.Is(e.Err, context.DeadlineExceeded):
		return "see whether all ranks run and make the same calls, or raise Config.Timeout"
	}
	switch ncclapi.Result(e.Code) {
	case ncclapi.RemoteError:
		return "another rank is gone, whose own error says why; close this Comm and make a new one"
	case ncclapi.InvalidArgument, ncclapi.InvalidUsage:
		return "see that each rank has a GPU of its own, and that all make the same calls with the same counts"
	case ncclapi.SystemError:
		return "see the network and /dev/shm; NCCL_DEBUG=WARN tells more"
	}
	return "NCCL_DEBUG=WARN in the environment tells more"
}

// newError is the error of a result.
func newError(call string, r ncclapi.Result, rank, size int, text, last string) *Error {
	if last != "" && last != text {
		text = strings.TrimPrefix(text+": "+last, ": ")
	}
	return &Error{Call: call, Code: int(r), Name: r.Name(), Rank: rank, Size: size, Text: text, Err: meaning(r, text)}
}

func meaning(r ncclapi.Result, text string) error {
	switch {
	case r == ncclapi.RemoteError:
		return dist.ErrRank
	case r == ncclapi.Missing:
		return cupool.ErrNotSupported
	case strings.Contains(text, "out of memory"):
		return cupool.ErrOutOfMemory
	}
	return nil
}

// late is the error of a rank that waited too long.
func late(call string, rank, size int, text string, cause error) *Error {
	return &Error{Call: call, Code: int(ncclapi.TimedOut), Name: ncclapi.TimedOut.Name(), Rank: rank, Size: size, Text: text,
		Err: errors.Join(dist.ErrRank, cause)}
}
