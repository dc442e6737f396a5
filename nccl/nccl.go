// Package nccl moves memory of cupool's pools between GPUs with NVIDIA's NCCL:
// it implements dist.Comm.
//
//	c, err := nccl.New(ctx, pool, nccl.Config{Rank: 3, Size: 8, Address: "first:29500", Token: secret}) // one process a GPU
//	cs, err := nccl.NewLocal(ctx, pools, nccl.Config{})                                                 // one process, several GPUs
//
// NCCL 2.14 or newer, libnccl.so.2, is opened when a program asks for it. It is looked
// for as the system looks for libraries, then in the directories of toolkits, pip and
// conda (pip install nvidia-nccl-cu12 has it); Config.Library names another one. Where
// there is none, New, NewLocal and Version fail with cupool.ErrNotSupported and say
// what to do.
//
// NCCL allocates device memory of its own, some hundred MiB a communicator. Leave
// it what it needs (cupool.Config.Limit), or make the Comm first.
//
// Calls may be captured (cupool.Engine.Capture). Each call has to be made once
// outside a capture before, as the first one connects the ranks. The graphs have
// to be closed before the Comm.
package nccl

import (
	"fmt"

	"github.com/cupool/cupool/internal/ncclapi"
)

// A library is an NCCL that is loaded, by the calls of ncclapi.Library.
type library interface {
	Version() (int, ncclapi.Result)
	NewID() (ncclapi.ID, ncclapi.Result)
	Text(r ncclapi.Result) string
	Init(ctx uintptr, ranks int, id *ncclapi.ID, rank int) (communicator, ncclapi.Result)
}

// A communicator is one of NCCL's, by the calls of ncclapi.Comm.
type communicator interface {
	State() ncclapi.Result
	Run(tasks []ncclapi.Task) ncclapi.Result
	Finalize() ncclapi.Result
	Destroy() ncclapi.Result
	Abort() ncclapi.Result
	Register(p uintptr, size int64) (handle uintptr, r ncclapi.Result)
	Deregister(handle uintptr) ncclapi.Result
	LastError() string
}

// Version returns the version of the NCCL that Config.Library names ("":
// libnccl.so.2), as 2.27.3. It fails with cupool.ErrNotSupported.
func Version(path string) (string, error) {
	l, err := load(path)
	if err != nil {
		return "", err
	}
	return versionOf(l)
}

func versionOf(l library) (string, error) {
	v, r := l.Version()
	if r != ncclapi.Success {
		return "", newError("ncclGetVersion", r, 0, 0, l.Text(r), "")
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100), nil
}
