package dist

const (
	// fuseEach is the largest AllReduce of a Group, in bytes, that is copied to be
	// one with its neighbours: a network with many layers has many gradients of
	// few bytes, and each AllReduce goes round the ring twice.
	fuseEach = 64 << 10
	// fuseAll is the size of all of them, in bytes.
	fuseAll = 1 << 20
)

// fusible returns how many of the calls, from the first, run as one AllReduce. It
// depends on their sizes alone, so that all ranks find the same.
func fusible(calls []call) (n int) {
	total := 0
	for i := range calls {
		k, first := &calls[i], &calls[0]
		if k.kind != allReduce || k.op != first.op || k.src.Type != first.src.Type || len(k.in) > fuseEach || total+len(k.in) > fuseAll {
			break
		}
		total += len(k.in)
		n++
	}
	return n
}

// fused runs AllReduces as one.
func (c *hostComm) fused(calls []call, head []byte) error {
	if c.flat == nil {
		c.flat = aligned(fuseAll)
	}
	one := call{kind: allReduce, op: calls[0].op, src: Memory{Type: calls[0].src.Type}}
	at := 0
	for i := range calls {
		at += copy(c.flat[at:], calls[i].in)
		one.src.Count += calls[i].src.Count
	}
	one.dst, one.in, one.out = one.src, c.flat[:at], c.flat[:at]
	if err := c.collective(&one, head); err != nil {
		return err
	}
	at = 0
	for i := range calls {
		at += copy(calls[i].out, c.flat[at:])
	}
	return c.flush(c.next()) // the next ones write over flat
}
