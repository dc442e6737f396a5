package ipc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/poolaccess"
)

// Memory is another process's block, mapped in this one. All methods are safe from
// several goroutines.
type Memory struct {
	client *Client
	name   string
	ref    uint64
	ptr    cupool.Ptr
	size   int64

	mu      sync.Mutex
	streams []*cupool.Stream
	closed  bool
}

var errMemoryClosed = fmt.Errorf("cupool: ipc: memory: %w", cupool.ErrClosed)

// Name returns the name that it was opened by.
func (m *Memory) Name() string { return m.orZero().name }

// Ptr returns the address in this process.
func (m *Memory) Ptr() cupool.Ptr { return m.orZero().ptr }

// Size returns the bytes of the block, as the exporter requested them.
func (m *Memory) Size() int64 { return m.orZero().size }

// orZero is the Memory, or a zero one for nil.
func (m *Memory) orZero() *Memory {
	if m == nil {
		return new(Memory)
	}
	return m
}

// RecordStream says that work on s uses the memory: Close waits for it. The default
// stream is always waited for. It fails with ErrForeignStream for a stream of another
// allocator, and with ErrClosed.
func (m *Memory) RecordStream(s *cupool.Stream) error {
	if m.orZero().client == nil {
		return nothing("Memory")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return errMemoryClosed
	case s == nil || slices.Contains(m.streams, s):
		return nil
	case s.Pool() != m.client.pool.DefaultStream().Pool():
		return fmt.Errorf("cupool: ipc: %q: %w", m.name, cupool.ErrForeignStream)
	}
	m.streams = append(slices.DeleteFunc(m.streams, (*cupool.Stream).Closed), s)
	return nil
}

// Close waits for the work of the default stream and of those that were recorded, unmaps
// the memory and tells the exporter. Where the exporter is gone it only unmaps, and where
// the device was closed before, which unmaps, it only tells. When ctx is done before the
// work is, it fails with a *cupool.WaitError, and the memory stays open. It fails with
// ErrClosed where it was called before, with what the device says, or with the cause of
// ctx where the exporter does not answer: the memory is closed then.
func (m *Memory) Close(ctx context.Context) error {
	if m.orZero().client == nil || ctx == nil {
		return nothing("Memory or context")
	}
	if err := m.unmap(ctx); err != nil {
		return err
	}
	_, err := m.client.ask(ctx, closeKind, nil, m.ref)
	if errors.Is(err, ErrGone) || errors.Is(err, cupool.ErrClosed) {
		return nil
	}
	return err
}

// unmap waits for the streams, and unmaps the memory.
func (m *Memory) unmap(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var waited []*cupool.Stream // others come and go meanwhile
	isNew := func(s *cupool.Stream) bool { return !slices.Contains(waited, s) }
	for i := slices.IndexFunc(m.streams, isNew); !m.closed && i >= 0; i = slices.IndexFunc(m.streams, isNew) {
		waited = append(waited, m.streams[i])
		if err := m.waitUnlocked(ctx, m.streams[i]); err != nil {
			return fmt.Errorf("cupool: ipc: closing %q: %w", m.name, err)
		}
	}
	if m.closed {
		return errMemoryClosed
	}
	c := m.client
	if err := c.dev.CloseRange(m.ptr); err != nil && !errors.Is(err, cupool.ErrClosed) { // a closed device maps nothing
		return poolaccess.Of(c.pool).DriverError(fmt.Errorf("cupool: ipc: closing %q: %w", m.name, err))
	}
	m.closed = true
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, m)
	return nil
}

// waitUnlocked waits for a stream, without the lock, for which work of the stream or another
// Close may wait.
func (m *Memory) waitUnlocked(ctx context.Context, s *cupool.Stream) error {
	m.mu.Unlock()
	defer m.mu.Lock()
	if err := s.SyncContext(ctx); !errors.Is(err, cupool.ErrClosed) { // the work of a closed stream is done
		return err
	}
	return nil
}
