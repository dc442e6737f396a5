package dist

// stage runs a batch on the caller's goroutine, for devices whose memory the CPU
// does not read: what the calls send is copied to the host first, in the order
// of their streams, and what they receive is copied back.
func (c *hostComm) stage(b *batch) error {
	c.mu.Lock()
	err := c.numberLocked(b)
	if err == nil {
		c.queued++
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err = c.await(b); err == nil {
		err = c.staged(b)
		c.unwatch()
	}
	if err != nil {
		c.fail(err)
	}
	c.over(b)
	return err
}

func (c *hostComm) staged(b *batch) error {
	for i := range b.calls {
		k := &b.calls[i]
		k.out = aligned(k.dst.Bytes())
		k.in = k.out
		if k.src.Ptr != k.dst.Ptr {
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
