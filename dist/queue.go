package dist

import (
	"fmt"
	"unsafe"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
)

// A batch is calls that run as one, on the stream of the first.
type batch struct {
	calls      []call
	collective []call // those of calls that all ranks make
	sent       []*letter
	number     uint64 // its turn
	run        func() // that the stream is given; made once
}

func (c *local) newBatch() *batch {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if n := len(c.free); n > 0 {
		b := c.free[n-1]
		c.free = c.free[:n-1]
		return b
	}
	b := new(batch)
	b.run = func() { _ = c.take(b, c.exec) } // its error is the rank's
	return b
}

// queue submits a call, or adds it to the Group under way.
func (c *local) queue(k call) error {
	if err := c.usable(&k); err != nil {
		return err
	}
	c.room.mu.Lock()
	if c.group != nil {
		c.group.calls = append(c.group.calls, k)
		c.room.mu.Unlock()
		return nil
	}
	c.room.mu.Unlock()
	b := c.newBatch()
	b.calls = append(b.calls, k)
	return c.submit(b)
}

// usable checks the stream of a call and its memory, and records that on the
// stream.
func (c *local) usable(k *call) error {
	if err := c.Err(); err != nil {
		return err
	}
	if k.s == nil {
		k.s = c.pool.DefaultStream()
	}
	if err := c.pool.RecordStream(cupool.Block{}, k.s); err != nil {
		return fmt.Errorf("dist: %v of rank %d: %w", k.kind, c.rank, err)
	}
	if k.s.Captured() && c.size > 1 {
		return fmt.Errorf("dist: %v of rank %d over the host on a stream that is captured: %w", k.kind, c.rank, cupool.ErrNotSupported)
	}
	err := k.record(k.dst)
	if err == nil && (k.src.Ptr != k.dst.Ptr || k.src.Count != k.dst.Count) { // else one record does
		err = k.record(k.src)
	}
	if err != nil {
		return fmt.Errorf("dist: %v of rank %d: %w", k.kind, c.rank, err)
	}
	return nil
}

// record keeps memory for the call's stream.
func (k *call) record(m Memory) error {
	if m.Count == 0 {
		return nil
	}
	if err := m.Record(k.s); err != nil {
		return err
	}
	return k.s.Copy(m.Ptr, m.Ptr, 0) // copies nothing: the stream is open, and the memory on its device
}

// submit gives a batch to the stream of its first call, or runs it where streams
// do not run Go functions. The streams of the other calls wait for that one, and
// it for them.
func (c *local) submit(b *batch) error {
	switch {
	case len(b.calls) == 0:
		return nil
	case c.size == 1:
		return b.alone()
	}
	first := b.calls[0].s
	var others []*cupool.Stream
	for i := range b.calls {
		if s := b.calls[i].s; s != first {
			others = append(others, s)
		}
	}
	for _, s := range others {
		if err := first.WaitStream(s); err != nil {
			return err
		}
	}
	queue := c.launch
	if !c.direct {
		queue = c.stage
	}
	if err := queue(b, first); err != nil {
		return err
	}
	for _, s := range others {
		if err := s.WaitStream(first); err != nil {
			return err
		}
	}
	return nil
}

// alone runs a batch of the only rank: results are copies.
func (b *batch) alone() error {
	for i := range b.calls {
		k := &b.calls[i]
		if k.dst.Ptr == k.src.Ptr || k.src.Count == 0 {
			continue
		}
		if err := k.s.Copy(k.dst.Ptr, k.src.Ptr, k.src.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// launch has the stream run the batch.
func (c *local) launch(b *batch, s *cupool.Stream) error {
	for i := range b.calls {
		k := &b.calls[i]
		k.in, k.out = view(k.src), view(k.dst)
	}
	c.order.Lock()
	defer c.order.Unlock() // the turns are in the order of each stream
	if err := c.number(b); err != nil {
		return err
	}
	err := s.Launch(b.run)
	if err != nil { // there is no such turn
		c.room.mu.Lock()
		defer c.room.mu.Unlock()
		c.queued--
		c.room.changed.Broadcast()
	}
	return err
}

// stage runs a batch on the caller's goroutine.
func (c *local) stage(b *batch, _ *cupool.Stream) error {
	if err := c.number(b); err != nil {
		return err
	}
	return c.take(b, c.staged)
}

// number gives the batch its turn.
func (c *local) number(b *batch) error {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if c.closing {
		return fmt.Errorf("dist: rank %d: %w", c.rank, cupool.ErrClosed)
	}
	b.number = c.queued
	c.queued++
	return nil
}

// take runs a batch when its turn has come.
func (c *local) take(b *batch, exec func(b *batch) error) error {
	c.room.mu.Lock()
	for c.turn != b.number && c.err == nil {
		c.room.changed.Wait()
	}
	err := c.err
	c.room.mu.Unlock()
	if err == nil {
		err = exec(b)
	}
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if err != nil {
		err = c.failLocked(err)
	}
	clear(b.calls)
	b.calls = b.calls[:0]
	c.free = append(c.free, b)
	c.turn++
	c.room.changed.Broadcast()
	return err
}

// staged runs a batch over memory that the CPU does not read: what the calls send
// is copied to the host first, in the order of their streams, and what they
// receive is copied back.
func (c *local) staged(b *batch) error {
	for i := range b.calls {
		k := &b.calls[i]
		k.out = aligned(k.dst.Bytes())
		k.in = k.out
		if k.src.Ptr != k.dst.Ptr || k.src.Count != k.dst.Count {
			k.in = aligned(k.src.Bytes())
		}
		if k.src.Count == 0 || k.kind == broadcast && k.peer != c.rank {
			continue
		}
		if err := k.s.CopyOut(k.in, k.src.Ptr); err != nil {
			return err
		}
	}
	if err := c.exec(b); err != nil {
		return err
	}
	for i := range b.calls {
		k := &b.calls[i]
		if k.dst.Count == 0 {
			continue
		}
		if err := k.s.CopyIn(k.dst.Ptr, k.out); err != nil {
			return err
		}
	}
	return nil
}

func view(m Memory) []byte {
	return sysmem.View(m.Ptr, uint64(m.Bytes()))
}

// aligned returns n bytes that begin at the address of any type's element.
func aligned(n int64) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}
