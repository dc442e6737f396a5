package hostdev

import (
	"fmt"
	"runtime/debug"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
)

type jobKind uint8

const (
	jobFunc jobKind = iota + 1
	jobWait
	jobCopy
	jobCopyIn
	jobCopyOut
	jobMemset
)

// A job is one piece of a stream's work. kind says which fields count.
type job struct {
	kind     jobKind
	value    byte       // jobMemset
	dst, src device.Ptr // jobCopy, jobMemset (dst), jobCopyIn (dst), jobCopyOut (src)
	n        uint64     // bytes; jobWait: the number of the job waited for
	host     []byte     // jobCopyIn, jobCopyOut
	on       *stream    // jobWait
	fn       func()     // jobFunc
}

// runJob runs j unless the device is lost, and makes the device lost when j
// does not return normally. When j ends its goroutine (runtime.Goexit), so
// does runJob. The goroutine must have SetPanicOnFault set.
func (s *stream) runJob(j *job) {
	if s.dev.lost.Load() != nil {
		return
	}
	returned := false
	defer func() {
		if !returned {
			s.dev.lose(j.failure(recover()))
		}
	}()
	j.run()
	returned = true
}

// runFaultSafe runs j on a goroutine that is not a worker.
func (s *stream) runFaultSafe(j *job) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	s.runJob(j)
}

// failure says what went wrong in j, which panicked with r, or called Goexit
// when r is nil.
func (j *job) failure(r any) string {
	if r == nil {
		return "a launched function ended its goroutine (runtime.Goexit)"
	}
	if fault, ok := r.(interface{ Addr() uintptr }); ok {
		return fmt.Sprintf("illegal address %v in %s", device.Ptr(fault.Addr()), j.String())
	}
	return fmt.Sprintf("%s panicked: %v", j.String(), r)
}

// String names the job. It is called by name, not through %v, which would make
// every job escape to the heap.
func (j *job) String() string {
	switch j.kind {
	case jobCopy:
		return fmt.Sprintf("a copy of %d bytes from %v to %v", j.n, j.src, j.dst)
	case jobCopyIn:
		return fmt.Sprintf("a copy of %d bytes to %v", j.n, j.dst)
	case jobCopyOut:
		return fmt.Sprintf("a copy of %d bytes from %v", j.n, j.src)
	case jobMemset:
		return fmt.Sprintf("a memset of %d bytes at %v", j.n, j.dst)
	case jobWait:
		return "a wait for an event"
	}
	return "a launched function"
}

func (j *job) run() {
	switch j.kind {
	case jobFunc:
		j.fn()
	case jobWait:
		j.on.wait(j.n)
	case jobCopy:
		copy(sysmem.View(j.dst, j.n), sysmem.View(j.src, j.n))
	case jobCopyIn:
		copy(sysmem.View(j.dst, j.n), j.host)
	case jobCopyOut:
		copy(j.host, sysmem.View(j.src, j.n))
	case jobMemset:
		fill(sysmem.View(j.dst, j.n), j.value)
	}
}

func fill(b []byte, v byte) {
	if v == 0 {
		clear(b)
		return
	}
	// Doubling within a block that stays in the cache, then copying it.
	const block = 16 << 10
	m := min(len(b), block)
	b[0] = v
	for n := 1; n < m; n *= 2 {
		copy(b[n:m], b[:n])
	}
	for n := m; n < len(b); n += m {
		copy(b[n:], b[:m])
	}
}
