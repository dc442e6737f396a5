package cuda

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/cupool/cupool/internal/cublas"
)

// blasHandles are the cuBLAS handles of a Driver, one for each stream, so that
// streams do not wait for each other's calls. The handle of a stream that is
// destroyed serves a new stream: to destroy a handle waits for the device.
type blasHandles struct {
	mu       sync.Mutex
	byStream map[StreamHandle]*cublas.Handle
	idle     []*cublas.Handle
}

// of returns the handle for a stream. It makes one in the context where none
// is idle.
func (b *blasHandles) of(ctx uintptr, s StreamHandle) (*cublas.Handle, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.byStream[s]; h != nil {
		return h, nil
	}
	h, err := b.unusedLocked(ctx)
	if err != nil {
		return nil, err
	}
	if b.byStream == nil {
		b.byStream = make(map[StreamHandle]*cublas.Handle)
	}
	b.byStream[s] = h
	return h, nil
}

func (b *blasHandles) unusedLocked(ctx uintptr) (*cublas.Handle, error) {
	if n := len(b.idle); n > 0 {
		h := b.idle[n-1]
		b.idle = b.idle[:n-1]
		return h, nil
	}
	return cublas.New(ctx)
}

// leave makes the handle of a stream that is destroyed idle.
func (b *blasHandles) leave(s StreamHandle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.byStream[s]; h != nil {
		delete(b.byStream, s)
		b.idle = append(b.idle, h)
	}
}

// count returns how many handles there are, and how many of them are idle.
func (b *blasHandles) count() (all, idle int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byStream) + len(b.idle), len(b.idle)
}

// close destroys the handles.
func (b *blasHandles) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, h := range append(slices.Collect(maps.Values(b.byStream)), b.idle...) {
		errs = append(errs, h.Close())
	}
	b.byStream, b.idle = nil, nil
	return errors.Join(errs...)
}
