package adaptor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/sanitize"
	"github.com/cupool/cupool/internal/trace"
)

// Recording writes the calls as a trace for `cupool replay`. The trace has a line
// of text for each allocation, free and use on another stream, in the order in
// which they took effect. An allocation for which there was no memory is a comment,
// and other calls that fail are left out. The trace does not say which stream waits
// for which other one, as no allocator is told.
type Recording struct {
	over
	mu   sync.Mutex
	w    *bufio.Writer
	ids  map[cupool.Block]int64
	next int64
	line []byte
}

// NewRecording returns an allocator that writes a trace of the calls through it to
// w. Flush writes out what is buffered.
func NewRecording(a cupool.Allocator, w io.Writer) *Recording {
	if w == nil {
		w = io.Discard
	}
	return &Recording{over: over{orNone(a)}, w: bufio.NewWriterSize(w, 1<<16), ids: map[cupool.Block]int64{}}
}

// Flush writes out what is buffered. It returns the first error of the writer,
// after which nothing more is written.
func (r *Recording) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w == nil {
		return errNone
	}
	if err := r.w.Flush(); err != nil {
		return fmt.Errorf("adaptor: writing a trace: %w", err)
	}
	return nil
}

// writeLocked writes a line. What goes wrong is known to w, which writes nothing more
// then and tells Flush.
func (r *Recording) writeLocked(op trace.Op, id, size int64, s *cupool.Stream) {
	r.line = trace.AppendEvent(r.line[:0], op, id, size, int64(s.Handle()))
	_, _ = r.w.Write(r.line)
}

// Alloc implements cupool.Allocator.
func (r *Recording) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	b, err := r.Unwrap().Alloc(size, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, cupool.ErrOutOfMemory):
		_, _ = fmt.Fprintf(r.w, "# out of memory: %d bytes on stream %d\n", size, s.Handle())
	case err == nil && !b.IsEmpty():
		r.ids[b] = r.next
		r.writeLocked(trace.Alloc, r.next, size, s)
		r.next++
	}
	return b, err
}

// Free implements cupool.Allocator.
func (r *Recording) Free(b cupool.Block) error {
	r.mu.Lock() // until it is written: its memory may go out again at once
	defer r.mu.Unlock()
	err := r.Unwrap().Free(b)
	if id, ok := r.ids[b]; ok && sanitize.WasFreed(err) {
		delete(r.ids, b)
		r.writeLocked(trace.Free, id, 0, nil)
	}
	return err
}

// FreePtr implements cupool.Allocator.
func (r *Recording) FreePtr(p cupool.Ptr, size int64) error {
	return freePtr(r.Unwrap(), p, size, r.Free)
}

// RecordStream implements cupool.Allocator.
func (r *Recording) RecordStream(b cupool.Block, s *cupool.Stream) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.Unwrap().RecordStream(b, s)
	if id, ok := r.ids[b]; ok && err == nil {
		r.writeLocked(trace.Use, id, 0, s)
	}
	return err
}
