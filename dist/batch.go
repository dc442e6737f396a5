package dist

import (
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hostdev/sysmem"
)

// A call is one call of a Comm's method.
type call struct {
	kind     kind
	op       Op
	peer     int // of Send and Recv; the root of Broadcast
	dst, src Memory
	s        *cupool.Stream
	in, out  []byte // the elements of src and dst, while the call runs
}

// count returns the elements in the header of a call.
func (k *call) count() int {
	if k.kind == recv || k.kind == reduceScatter {
		return k.dst.Count
	}
	return k.src.Count
}

func (k *call) typ() Type {
	if k.kind == recv {
		return k.dst.Type
	}
	return k.src.Type
}

// A batch is calls that run as one, on the stream of the first.
type batch struct {
	calls  []call
	number uint64 // its turn
	run    func() // that the stream is given; made once
}

func (c *hostComm) batchLocked() *batch {
	if n := len(c.free); n > 0 {
		b := c.free[n-1]
		c.free = c.free[:n-1]
		return b
	}
	b := new(batch)
	b.run = func() { c.take(b) }
	return b
}

// queue submits a call, or adds it to the Group under way.
func (c *hostComm) queue(k call) error {
	if err := c.usable(&k); err != nil {
		return err
	}
	c.mu.Lock()
	if c.group != nil {
		c.group.calls = append(c.group.calls, k)
		c.mu.Unlock()
		return nil
	}
	b := c.batchLocked()
	c.mu.Unlock()
	b.calls = append(b.calls, k)
	return c.submit(b)
}

// usable checks the stream of a call, and records the memory on it.
func (c *hostComm) usable(k *call) error {
	if err := c.Err(); err != nil {
		return err
	}
	root := c.pool.DefaultStream()
	if k.s == nil {
		k.s = root
	}
	if k.s.Pool() != root.Pool() {
		return fmt.Errorf("dist: %s of rank %d: %w", kindNames[k.kind], c.rank, cupool.ErrForeignStream)
	}
	if k.s.Captured() && c.size > 1 {
		return fmt.Errorf("dist: %s of rank %d over the host on a stream that is captured: %w", kindNames[k.kind], c.rank, cupool.ErrNotSupported)
	}
	if k.dst.Count > 0 {
		if err := k.dst.Record(k.s); err != nil {
			return err
		}
	}
	if k.src.Count > 0 && k.src.Ptr != k.dst.Ptr {
		return k.src.Record(k.s)
	}
	return nil
}

// submit gives a batch to the stream of its first call, or runs it where streams
// do not run Go functions.
func (c *hostComm) submit(b *batch) error {
	switch {
	case len(b.calls) == 0:
		return nil
	case c.size == 1:
		return c.alone(b)
	}
	first := b.calls[0].s
	if err := b.others(first, func(s *cupool.Stream) error { return first.WaitStream(s) }); err != nil {
		return err
	}
	last := b.last() // the calls may be over before submit returns
	if !c.direct {
		if err := c.stage(b); err != nil {
			return err
		}
	} else if err := c.launch(b, first); err != nil {
		return err
	}
	for _, s := range last {
		if err := s.WaitStream(first); err != nil {
			return err
		}
	}
	return nil
}

// others calls f with the streams of the calls that are not s.
func (b *batch) others(s *cupool.Stream, f func(*cupool.Stream) error) error {
	for i := range b.calls {
		if o := b.calls[i].s; o != s {
			if err := f(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// last returns the streams beside the first.
func (b *batch) last() (list []*cupool.Stream) {
	_ = b.others(b.calls[0].s, func(s *cupool.Stream) error { list = append(list, s); return nil })
	return list
}

// alone runs a batch of the only rank: results are copies.
func (c *hostComm) alone(b *batch) error {
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

// numberLocked gives the batch its turn; mu is held.
func (c *hostComm) numberLocked(b *batch) error {
	if c.err != nil {
		return c.err
	}
	if c.closing {
		return fmt.Errorf("dist: rank %d: %w", c.rank, cupool.ErrClosed)
	}
	b.number = c.queued
	return nil
}

func (c *hostComm) launch(b *batch, s *cupool.Stream) error {
	for i := range b.calls {
		k := &b.calls[i]
		k.in, k.out = view(k.src), view(k.dst)
	}
	c.mu.Lock()
	defer c.mu.Unlock() // the turns are in the order of each stream
	if err := c.numberLocked(b); err != nil {
		return err
	}
	if err := s.Launch(b.run); err != nil {
		return err
	}
	c.queued++
	return nil
}

func view(m Memory) []byte {
	if m.Count == 0 {
		return nil
	}
	return sysmem.View(m.Ptr, uint64(m.Bytes()))
}

// take runs a batch when its turn has come.
func (c *hostComm) take(b *batch) {
	err := c.await(b)
	if err == nil {
		err = c.exec(b)
		c.unwatch()
	}
	if err != nil {
		c.fail(err)
	}
	c.over(b)
}

// over ends the batch's turn.
func (c *hostComm) over(b *batch) {
	c.mu.Lock()
	clear(b.calls)
	b.calls = b.calls[:0]
	c.free = append(c.free, b)
	c.turn++
	c.mu.Unlock()
	c.turned.Broadcast()
}

// await waits for the batch's turn.
func (c *hostComm) await(b *batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.turn != b.number && c.err == nil {
		c.turned.Wait()
	}
	return c.err
}
