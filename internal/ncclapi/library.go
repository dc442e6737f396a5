//go:build gpu

package ncclapi

/*
#cgo LDFLAGS: -lcuda
#cgo linux LDFLAGS: -ldl
#cgo noescape cp_nccl_run
#cgo nocallback cp_nccl_run
#cgo noescape cp_nccl_state
#cgo nocallback cp_nccl_state
#include <stdlib.h>
#include "nccl.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// A Library is an NCCL that is loaded. It stays so until the program ends.
type Library struct{ l *C.cp_nccl }

var libraries struct {
	sync.Mutex
	byPath map[string]*Library
}

// Load loads the library at a path, or of a name that the dynamic loader looks
// for, once. It fails with ErrMissing.
func Load(path string) (*Library, error) {
	libraries.Lock()
	defer libraries.Unlock()
	if l := libraries.byPath[path]; l != nil {
		return l, nil
	}
	s := C.CString(path)
	defer C.free(unsafe.Pointer(s))
	l := new(Library)
	if why := C.cp_nccl_load(s, &l.l); why != nil {
		return nil, fmt.Errorf("%w: %s", ErrMissing, C.GoString(why))
	}
	if libraries.byPath == nil {
		libraries.byPath = make(map[string]*Library)
	}
	libraries.byPath[path] = l
	return l, nil
}

// Version returns the library's version, as 10000*major + 100*minor + patch.
func (l *Library) Version() (int, Result) {
	var v C.int
	r := C.cp_nccl_version(l.l, &v)
	return int(v), Result(r)
}

// NewID returns a new ID.
func (l *Library) NewID() (id ID, r Result) {
	r = Result(C.cp_nccl_id(l.l, unsafe.Pointer(&id)))
	return id, r
}

// Text returns NCCL's words for a result.
func (l *Library) Text(r Result) string { return C.GoString(C.cp_nccl_text(l.l, C.int(r))) }

// Init begins to make a rank's communicator for the device of a context. It is
// of use when State is no longer InProgress, and has to be aborted where that is
// an error. It is nil where Init itself fails.
func (l *Library) Init(ctx uintptr, ranks int, id *ID, rank int) (*Comm, Result) {
	c := &Comm{l: l.l, ctx: C.uintptr_t(ctx)}
	r := Result(C.cp_nccl_init(l.l, c.ctx, &c.h, C.int(ranks), unsafe.Pointer(id), C.int(rank)))
	if c.h == nil {
		return nil, r
	}
	return c, r
}

// A Comm is an ncclComm_t. Its methods must not overlap.
type Comm struct {
	l   *C.cp_nccl
	h   unsafe.Pointer
	ctx C.uintptr_t
}

// State returns the state of the communicator: Success, InProgress or what went
// wrong.
func (c *Comm) State() Result { return Result(C.cp_nccl_state(c.l, c.ctx, c.h)) }

// Run makes calls, as a group where there are several.
func (c *Comm) Run(tasks []Task) Result {
	return Result(C.cp_nccl_run(c.l, c.ctx, c.h, (*C.cp_nccl_task)(unsafe.Pointer(unsafe.SliceData(tasks))), C.size_t(len(tasks))))
}

// Finalize begins to wait for all calls.
func (c *Comm) Finalize() Result { return Result(C.cp_nccl_finalize(c.l, c.ctx, c.h)) }

// Destroy gives a communicator back that is finalized. There is no call after it.
func (c *Comm) Destroy() Result { return Result(C.cp_nccl_destroy(c.l, c.ctx, c.h)) }

// Abort ends a communicator and what it was given. There is no call after it.
func (c *Comm) Abort() Result { return Result(C.cp_nccl_abort(c.l, c.ctx, c.h)) }

// Register registers memory, for which Deregister takes the handle. It returns
// Missing before NCCL 2.19.
func (c *Comm) Register(p uintptr, size int64) (handle uintptr, r Result) {
	var h unsafe.Pointer
	r = Result(C.cp_nccl_register(c.l, c.ctx, c.h, C.uintptr_t(p), C.size_t(size), &h))
	return uintptr(h), r
}

// Deregister ends a registration.
func (c *Comm) Deregister(handle uintptr) Result {
	return Result(C.cp_nccl_deregister(c.l, c.ctx, c.h, *(*unsafe.Pointer)(unsafe.Pointer(&handle))))
}

// LastError returns NCCL's words for what went wrong last, or "".
func (c *Comm) LastError() string { return C.GoString(C.cp_nccl_last_error(c.l, c.h)) }
