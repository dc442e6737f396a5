package dist

import (
	"fmt"

	"github.com/cupool/cupool"
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

// A kind says which method a call is.
type kind uint8

const (
	allReduce kind = iota
	broadcast
	allGather
	reduceScatter
	send
	recv
)

// String returns the name of the method.
func (k kind) String() string {
	return [...]string{"AllReduce", "Broadcast", "AllGather", "ReduceScatter", "Send", "Recv"}[k]
}

// memory is what another rank's call has as much of.
func (k *call) memory() Memory {
	if k.kind == recv || k.kind == reduceScatter {
		return k.dst
	}
	return k.src
}

// String says what all ranks have to call alike.
func (k *call) String() string {
	m := k.memory()
	s := fmt.Sprintf("%v of %d %v elements", k.kind, m.Count, m.Type)
	switch k.kind {
	case allReduce, reduceScatter:
		s += fmt.Sprintf(" (%v)", k.op)
	case broadcast:
		s += fmt.Sprintf(" from rank %d", k.peer)
	}
	return s
}

// same reports whether another rank's collective call is the same.
func (k *call) same(o *call) bool {
	a, b := k.memory(), o.memory()
	return k.kind == o.kind && k.op == o.op && k.peer == o.peer && a.Count == b.Count && a.Type == b.Type
}

// AllReduce implements Comm.
func (c *local) AllReduce(dst, src Memory, op Op, s *cupool.Stream) error {
	if err := c.fits(allReduce, op, dst, src, 1, 1); err != nil {
		return err
	}
	return c.queue(call{kind: allReduce, op: op, dst: dst, src: src, s: s})
}

// Broadcast implements Comm.
func (c *local) Broadcast(dst, src Memory, root int, s *cupool.Stream) error {
	if root < 0 || root >= c.size {
		return c.noRank(broadcast, root)
	}
	if root != c.rank {
		src = dst
	}
	if err := c.fits(broadcast, Sum, dst, src, 1, 1); err != nil {
		return err
	}
	return c.queue(call{kind: broadcast, peer: root, dst: dst, src: src, s: s})
}

// AllGather implements Comm.
func (c *local) AllGather(dst, src Memory, s *cupool.Stream) error {
	if err := c.fits(allGather, Sum, dst, src, 1, c.size); err != nil {
		return err
	}
	return c.queue(call{kind: allGather, dst: dst, src: src, s: s})
}

// ReduceScatter implements Comm.
func (c *local) ReduceScatter(dst, src Memory, op Op, s *cupool.Stream) error {
	if err := c.fits(reduceScatter, op, dst, src, c.size, 1); err != nil {
		return err
	}
	return c.queue(call{kind: reduceScatter, op: op, dst: dst, src: src, s: s})
}

// Send implements Comm.
func (c *local) Send(src Memory, to int, s *cupool.Stream) error {
	if to < 0 || to >= c.size || to == c.rank {
		return c.noRank(send, to)
	}
	if err := c.fits(send, Sum, src, src, 1, 1); err != nil {
		return err
	}
	return c.queue(call{kind: send, peer: to, src: src, s: s})
}

// Recv implements Comm.
func (c *local) Recv(dst Memory, from int, s *cupool.Stream) error {
	if from < 0 || from >= c.size || from == c.rank {
		return c.noRank(recv, from)
	}
	if err := c.fits(recv, Sum, dst, dst, 1, 1); err != nil {
		return err
	}
	return c.queue(call{kind: recv, peer: from, dst: dst, s: s})
}

func (c *local) noRank(k kind, rank int) error {
	return fmt.Errorf("dist: %v of rank %d, with rank %d of %d: %w", k, c.rank, rank, c.size, ErrRank)
}

// fits checks that dst times dstTimes is as long as src times srcTimes, of which
// one is 1.
func (c *local) fits(k kind, op Op, dst, src Memory, dstTimes, srcTimes int) error {
	call := func() string { return fmt.Sprintf("dist: %v of rank %d", k, c.rank) }
	switch {
	case dst.Count < 0 || src.Count < 0 || dst.Type != src.Type || dst.Count%srcTimes != 0 || src.Count%dstTimes != 0 || dst.Count/srcTimes != src.Count/dstTimes:
		return fmt.Errorf("%s of %d ranks: dst is %d %v elements, src %d %v: %w", call(), c.size, dst.Count, dst.Type, src.Count, src.Type, cupool.ErrSizeMismatch)
	case src.Type < Float32 || src.Type > Uint8:
		return fmt.Errorf("%s: %v elements: %w", call(), src.Type, cupool.ErrNotSupported)
	case op < Sum || op > Avg, op == Avg && src.Type != Float32 && src.Type != Float64:
		return fmt.Errorf("%s: %v of %v elements: %w", call(), op, src.Type, cupool.ErrNotSupported)
	case (dst.Ptr == 0 || src.Ptr == 0) && dst.Count > 0:
		return fmt.Errorf("%s: no memory for %d elements: %w", call(), dst.Count, cupool.ErrInvalidHandle)
	}
	return nil
}
