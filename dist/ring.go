package dist

import (
	"fmt"
	"unsafe"
)

const (
	// piece is how much of a segment goes on at once, in bytes: what a rank has
	// received it passes on while the rest is on its way. Pieces that are
	// combined fit in the processor's cache.
	piece = 128 << 10
	// small is the largest AllReduce, in bytes, in which each rank sends all
	// that it has to every other one: more bytes, but one way instead of
	// 2*(Size-1) one after the other.
	small = 4 << 10
)

// exec runs the calls of a batch. Sends go first, and do not wait for the Recvs.
// Recvs are next, in the order of the elements on the links.
func (c *hostComm) exec(b *batch) error {
	c.headers(len(b.calls))
	for pass := range 3 {
		for i := 0; i < len(b.calls); {
			if passOf(b.calls[i].kind) != pass {
				i++
				continue
			}
			n, err := c.step(b.calls[i:], i)
			if err != nil {
				return err
			}
			i += n
		}
	}
	return c.flushAll()
}

// step runs the first of the calls, or several that are one. at is the number of
// the first in its batch.
func (c *hostComm) step(calls []call, at int) (n int, err error) {
	k, head := &calls[0], c.heads[at*2*headerSize:(at+1)*2*headerSize]
	switch k.kind {
	case send:
		return 1, c.sends(k, head)
	case recv:
		return 1, c.receives(k, head)
	}
	if n := fusible(calls); n > 1 {
		return n, c.fused(calls[:n], head)
	}
	return 1, c.collective(k, head)
}

func passOf(k kind) int {
	switch k {
	case send:
		return 0
	case recv:
		return 1
	}
	return 2
}

// headers makes room for two headers of each of n calls.
func (c *hostComm) headers(n int) {
	if need := n * 2 * headerSize; len(c.heads) < need {
		c.heads = make([]byte, need)
	}
}

func (c *hostComm) header(k *call) header {
	h := header{count: uint64(k.count()), kind: k.kind, typ: uint8(k.typ())}
	switch k.kind {
	case send, recv:
		return h
	case broadcast:
		h.root = uint32(k.peer)
	case allReduce, reduceScatter:
		h.op = uint8(k.op)
	}
	h.number = c.calls
	return h
}

// expect reads the header of a rank, which has to be h.
func (c *hostComm) expect(peer int, h header, b []byte) error {
	if err := c.read(peer, b); err != nil {
		return err
	}
	theirs := getHeader(b)
	same := theirs
	if h.kind == recv && theirs.kind == send {
		same.kind = recv
	}
	if same != h {
		return h.differs(c.rank, peer, theirs)
	}
	return nil
}

func (c *hostComm) sends(k *call, head []byte) error {
	c.header(k).put(head)
	c.links[k.peer].write(head[:headerSize])
	c.links[k.peer].write(k.in)
	return nil
}

func (c *hostComm) receives(k *call, head []byte) error {
	if err := c.expect(k.peer, c.header(k), head[headerSize:]); err != nil {
		return err
	}
	return c.read(k.peer, k.out)
}

func (c *hostComm) next() int { return (c.rank + 1) % c.size }
func (c *hostComm) prev() int { return (c.rank + c.size - 1) % c.size }

func (c *hostComm) collective(k *call, head []byte) error {
	c.calls++
	if k.kind == allReduce && len(k.in) <= small {
		return c.allToAll(k, head)
	}
	h := c.header(k)
	h.put(head)
	c.links[c.next()].write(head[:headerSize])
	if k.kind == broadcast && k.peer == c.rank { // it does not wait to be asked
		c.links[c.next()].write(k.in)
	}
	if err := c.expect(c.prev(), h, head[headerSize:]); err != nil {
		return err
	}
	switch k.kind {
	case allReduce:
		if err := c.scatter(k, k.out); err != nil {
			return err
		}
		return c.gather(k.out, k.dst)
	case reduceScatter:
		part := c.spare(len(k.in))
		if err := c.scatter(k, part); err != nil {
			return err
		}
		copy(k.out, c.segment(part, k.src, c.rank))
		return c.flush(c.next()) // the next call writes over part
	case allGather:
		copy(c.segment(k.out, k.dst, c.rank), k.in)
		return c.gather(k.out, k.dst)
	case broadcast:
		return c.relay(k)
	}
	return fmt.Errorf("dist: no such call: %v", h)
}

// segment returns the i-th of Size parts of the elements in b.
func (c *hostComm) segment(b []byte, m Memory, i int) []byte {
	i = (i%c.size + c.size) % c.size
	size := int(m.Type.Size())
	return b[m.Count*i/c.size*size : m.Count*(i+1)/c.size*size]
}

// scatter sets segment Rank of to to op over the src of all ranks. The sum for
// segment i begins with the elements of rank i+1, which pass round the ring and
// end at rank i: each element is added up in an order that depends on its
// place alone, and by one rank.
func (c *hostComm) scatter(k *call, to []byte) error {
	got := c.pieces()
	c.links[c.next()].write(c.segment(k.in, k.src, c.rank-1))
	for step := 2; step <= c.size; step++ {
		own, out := c.segment(k.in, k.src, c.rank-step), c.segment(to, k.src, c.rank-step)
		for at := 0; at < len(out); at += piece {
			end := min(at+piece, len(out))
			if err := c.read(c.prev(), got[:end-at]); err != nil {
				return err
			}
			combine(k.src.Type, k.op, out[at:end], got[:end-at], own[at:end])
			if step < c.size {
				c.links[c.next()].write(out[at:end])
			} else if k.op == Avg {
				divide(k.src.Type, out[at:end], c.size)
			}
		}
	}
	return nil
}

// gather gives segment Rank of b to all ranks, round the ring, and fills b with
// theirs.
func (c *hostComm) gather(b []byte, m Memory) error {
	c.links[c.next()].write(c.segment(b, m, c.rank))
	for step := 1; step < c.size; step++ {
		if err := c.pass(c.segment(b, m, c.rank-step), step < c.size-1); err != nil {
			return err
		}
	}
	return nil
}

// pass reads b from the previous rank, and writes it to the next one piece by
// piece where on is set.
func (c *hostComm) pass(b []byte, on bool) error {
	for len(b) > 0 {
		n := min(piece, len(b))
		if err := c.read(c.prev(), b[:n]); err != nil {
			return err
		}
		if on {
			c.links[c.next()].write(b[:n])
		}
		b = b[n:]
	}
	return nil
}

// relay is Broadcast, whose root has written already.
func (c *hostComm) relay(k *call) error {
	if k.peer != c.rank {
		return c.pass(k.out, c.next() != k.peer)
	}
	if k.dst.Ptr != k.src.Ptr {
		copy(k.out, k.in)
	}
	return nil
}

// allToAll is an AllReduce of few bytes: all ranks send theirs to all, and each
// adds them up, in the order of the ranks.
func (c *hostComm) allToAll(k *call, head []byte) error {
	n := len(k.in)
	own, got, sum := c.pieces()[:n], c.pieces()[small:small+n], c.pieces()[2*small:2*small+n]
	copy(own, k.in) // as dst may be src
	h := c.header(k)
	h.put(head)
	for peer, l := range c.links {
		if peer != c.rank {
			l.write(head[:headerSize])
			l.write(own)
		}
	}
	for peer := range c.links {
		from := own
		if peer != c.rank {
			if err := c.expect(peer, h, head[headerSize:]); err != nil {
				return err
			}
			if err := c.read(peer, got); err != nil {
				return err
			}
			from = got
		}
		if peer == 0 {
			copy(sum, from)
		} else {
			combine(k.src.Type, k.op, sum, sum, from)
		}
	}
	if k.op == Avg {
		divide(k.src.Type, sum, c.size)
	}
	copy(k.out, sum)
	return c.flushAll() // the next call writes over own
}

// flushAll waits until nothing is left to be written.
func (c *hostComm) flushAll() error {
	for peer, l := range c.links {
		if l != nil {
			if err := c.flush(peer); err != nil {
				return err
			}
		}
	}
	return nil
}

// pieces returns memory for a piece that was received.
func (c *hostComm) pieces() []byte {
	if c.got == nil {
		c.got = aligned(piece)
	}
	return c.got
}

// spare returns memory for the sums of a ReduceScatter that go on to other ranks.
func (c *hostComm) spare(n int) []byte {
	if len(c.scratch) < n {
		c.scratch = aligned(int64(n))
	}
	return c.scratch[:n]
}

// aligned returns n bytes that begin at the address of any type's element.
func aligned(n int64) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))[:n]
}
