package nccl

import (
	"context"
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/ncclapi"
)

// errLate is the cause of work that takes too long.
var errLate = context.DeadlineExceeded

// types has NCCL's type for each of dist's.
var types = [...]int64{dist.Float32: ncclapi.Float32, dist.Float64: ncclapi.Float64, dist.Int32: ncclapi.Int32, dist.Int64: ncclapi.Int64, dist.Uint8: ncclapi.Uint8}

// ops has NCCL's operation for each of dist's.
var ops = [...]int64{dist.Sum: ncclapi.Sum, dist.Prod: ncclapi.Prod, dist.Min: ncclapi.Min, dist.Max: ncclapi.Max, dist.Avg: ncclapi.Avg}

// AllReduce implements dist.Comm.
func (c *Comm) AllReduce(dst, src dist.Memory, op dist.Op, s *cupool.Stream) error {
	t := ncclapi.Task{Kind: ncclapi.AllReduce, Count: int64(src.Count)}
	if err := c.setOp(&t, src.Type, op); err != nil {
		return err
	}
	return c.both(&t, dst, src, 1, 1, s)
}

// Broadcast implements dist.Comm.
func (c *Comm) Broadcast(dst, src dist.Memory, root int, s *cupool.Stream) error {
	if root != c.Rank() {
		src = dst
	}
	t := ncclapi.Task{Kind: ncclapi.Broadcast, Count: int64(dst.Count)}
	if err := c.setPeer(&t, root); err != nil {
		return err
	}
	return c.both(&t, dst, src, 1, 1, s)
}

// AllGather implements dist.Comm.
func (c *Comm) AllGather(dst, src dist.Memory, s *cupool.Stream) error {
	t := ncclapi.Task{Kind: ncclapi.AllGather, Count: int64(src.Count)}
	return c.both(&t, dst, src, 1, c.Size(), s)
}

// ReduceScatter implements dist.Comm.
func (c *Comm) ReduceScatter(dst, src dist.Memory, op dist.Op, s *cupool.Stream) error {
	t := ncclapi.Task{Kind: ncclapi.ReduceScatter, Count: int64(dst.Count)}
	if err := c.setOp(&t, src.Type, op); err != nil {
		return err
	}
	return c.both(&t, dst, src, c.Size(), 1, s)
}

// Send implements dist.Comm. A rank sends to itself only in a Group that also
// receives.
func (c *Comm) Send(src dist.Memory, to int, s *cupool.Stream) error {
	t := ncclapi.Task{Kind: ncclapi.Send, Src: uintptr(src.Ptr), Count: int64(src.Count)}
	if err := c.setPeer(&t, to); err != nil {
		return err
	}
	return c.one(&t, src, s)
}

// Recv implements dist.Comm.
func (c *Comm) Recv(dst dist.Memory, from int, s *cupool.Stream) error {
	t := ncclapi.Task{Kind: ncclapi.Recv, Dst: uintptr(dst.Ptr), Count: int64(dst.Count)}
	if err := c.setPeer(&t, from); err != nil {
		return err
	}
	return c.one(&t, dst, s)
}

// Group implements dist.Comm. In the f of another Group, its calls become that one's:
// the work is queued when the outermost f has returned.
func (c *Comm) Group(f func() error) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("nccl: rank %d of %d: Group has no function: %w", c.rank, c.size, cupool.ErrInvalidHandle)
	}
	c.order.Lock()
	if c.depth == 0 {
		c.clear(0)
	}
	c.depth++
	begin := len(c.tasks)
	c.order.Unlock()
	failed := true // also where f panics
	defer func() {
		c.order.Lock()
		defer c.order.Unlock()
		c.depth--
		if failed {
			c.clear(begin)
		}
		if c.depth == 0 && len(c.tasks) > 0 {
			err = c.run("ncclGroupEnd")
		}
	}()
	err = f()
	failed = err != nil
	return err
}

// setOp sets the operation.
func (c *Comm) setOp(t *ncclapi.Task, of dist.Type, op dist.Op) error {
	switch {
	case op < 0 || int(op) >= len(ops):
		return c.refused(t, "operation %d: %w", op, cupool.ErrNotSupported)
	case op == dist.Avg && of != dist.Float32 && of != dist.Float64:
		return c.refused(t, "the average of elements that are no floating-point numbers: %w", cupool.ErrNotSupported)
	}
	if op == dist.Avg && c.Size() == 1 {
		op = dist.Sum // NCCL 2.28 leaves out elements at the end of a single rank's average
	}
	t.Op = ops[op]
	return nil
}

// setPeer sets the other rank.
func (c *Comm) setPeer(t *ncclapi.Task, rank int) error {
	if rank < 0 || rank >= c.Size() {
		return c.refused(t, "rank %d: %w", rank, dist.ErrRank)
	}
	t.Peer = int64(rank)
	return nil
}

func (c *Comm) refused(t *ncclapi.Task, format string, args ...any) error {
	if err := c.check(); err != nil {
		return err
	}
	return fmt.Errorf("nccl: rank %d of %d: %v: "+format, append([]any{c.rank, c.size, t.Kind}, args...)...)
}

// both queues a task that has both memories, which are of the same type. dst times
// dstTimes is as long as src times srcTimes, of which one is 1.
func (c *Comm) both(t *ncclapi.Task, dst, src dist.Memory, dstTimes, srcTimes int, s *cupool.Stream) error {
	if err := c.check(); err != nil {
		return err
	}
	if dst.Type != src.Type || dst.Count%srcTimes != 0 || src.Count%dstTimes != 0 || dst.Count/srcTimes != src.Count/dstTimes {
		return c.refused(t, "%d elements of type %d from %d of type %d, %d ranks: %w", dst.Count, dst.Type, src.Count, src.Type, c.size, cupool.ErrSizeMismatch)
	}
	t.Dst, t.Src = uintptr(dst.Ptr), uintptr(src.Ptr)
	s, err := c.stream(t, src.Type, s)
	if err != nil {
		return err
	}
	if dst.Ptr != src.Ptr || dst.Count != src.Count { // else one record does
		if err := src.Record(s); err != nil {
			return c.refused(t, "src at %#x: %w", uintptr(src.Ptr), err)
		}
	}
	return c.put(t, dst, s)
}

// one queues a task that has one memory, after setPeer has checked the Comm.
func (c *Comm) one(t *ncclapi.Task, m dist.Memory, s *cupool.Stream) error {
	s, err := c.stream(t, m.Type, s)
	if err != nil {
		return err
	}
	return c.put(t, m, s)
}

// put queues a task, of which only m was not recorded yet.
func (c *Comm) put(t *ncclapi.Task, m dist.Memory, s *cupool.Stream) error {
	if m.Count < 0 {
		return c.refused(t, "%d elements: %w", m.Count, cupool.ErrSizeMismatch)
	}
	if err := m.Record(s); err != nil {
		return c.refused(t, "memory at %#x: %w", uintptr(m.Ptr), err)
	}
	if m.Count > 0 {
		if err := s.Copy(m.Ptr, m.Ptr, 0); err != nil { // copies nothing: the stream is open, and the memory on its device
			return c.refused(t, "memory at %#x: %w", uintptr(m.Ptr), err)
		}
	}
	t.Type, t.Stream = types[m.Type], uintptr(s.Handle())
	return c.queue(t, s)
}

// stream returns s, or the default stream. It fails for streams of other devices
// and closed ones, and for elements of a type that is none.
func (c *Comm) stream(t *ncclapi.Task, of dist.Type, s *cupool.Stream) (*cupool.Stream, error) {
	if of <= 0 || int(of) >= len(types) {
		return nil, c.refused(t, "elements of %v: %w", of, cupool.ErrNotSupported)
	}
	if s == nil {
		return c.pool.DefaultStream(), nil
	}
	if err := c.pool.RecordStream(cupool.Block{}, s); err != nil {
		return nil, c.refused(t, "%w", err)
	}
	return s, nil
}

// queue puts a task into its stream, or into the Group.
func (c *Comm) queue(t *ncclapi.Task, s *cupool.Stream) error {
	c.order.Lock()
	defer c.order.Unlock()
	if c.depth == 0 {
		c.clear(0)
	}
	c.tasks, c.streams = append(c.tasks, *t), append(c.streams, s)
	if c.depth == 0 {
		return c.run(t.Kind.String())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usableLocked()
}

// clear forgets all tasks but the first n, with c.order held.
func (c *Comm) clear(n int) {
	clear(c.streams[n:])
	c.tasks, c.streams = c.tasks[:n], c.streams[:n]
}

// run queues c.tasks, with c.order held. Their streams are marked when the work is there.
func (c *Comm) run(call string) error {
	c.mu.Lock()
	if err := c.usableLocked(); err != nil {
		c.mu.Unlock()
		return err
	}
	r := c.comm.Run(c.tasks)
	c.mu.Unlock()
	if err := c.settle(context.Background(), call, r); err != nil {
		return err
	}
	c.markStreams()
	return nil
}
