package nccl

import (
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/ncclapi"
)

// Register tells NCCL of a live block that is used again and again, such as
// gradients: calls on its memory may then skip NCCL's own buffers. All ranks
// register theirs. NCCL makes use of it where the memory can be shared with the
// other GPUs, and ignores it elsewhere, as in a group of one.
//
// The block is deregistered before it is freed, by Deregister or Close. It fails
// with cupool.ErrUseAfterFree or ErrForeignPointer, with cupool.ErrNotSupported before NCCL 2.19, and as
// calls do.
func (c *Comm) Register(b cupool.Block) error {
	const call = "ncclCommRegister"
	if err := c.check(); err != nil {
		return err
	}
	live, err := c.pool.Lookup(b.Ptr())
	if err == nil && live != b {
		err = cupool.ErrUseAfterFree
	}
	if err != nil {
		return fmt.Errorf("nccl: rank %d of %d: register block at %#x: %w", c.rank, c.size, uintptr(b.Ptr()), err)
	}
	c.order.Lock()
	defer c.order.Unlock()
	c.mu.Lock()
	if err := c.usableLocked(); err != nil {
		c.mu.Unlock()
		return err
	}
	if _, ok := c.registered[b.Ptr()]; ok {
		c.mu.Unlock()
		return nil
	}
	h, r := c.comm.Register(uintptr(b.Ptr()), b.Size())
	if r == ncclapi.Success {
		c.registered[b.Ptr()] = h
	}
	c.mu.Unlock()
	switch r {
	case ncclapi.Success:
		return nil
	case ncclapi.Missing:
		return newError(call, r, c.rank, c.size, "it needs NCCL 2.19 or newer", "")
	}
	return c.failWith(call, r)
}

// Deregister takes a block's registration back, after the work that uses it is
// done. It fails with cupool.ErrForeignPointer for a block that is not registered,
// and as calls do.
func (c *Comm) Deregister(b cupool.Block) error {
	if err := c.check(); err != nil {
		return err
	}
	c.order.Lock()
	defer c.order.Unlock()
	c.mu.Lock()
	if err := c.usableLocked(); err != nil {
		c.mu.Unlock()
		return err
	}
	h, ok := c.registered[b.Ptr()]
	if !ok {
		c.mu.Unlock()
		return fmt.Errorf("nccl: rank %d of %d: deregister block at %#x: %w: it is not registered", c.rank, c.size, uintptr(b.Ptr()), cupool.ErrForeignPointer)
	}
	delete(c.registered, b.Ptr())
	r := c.comm.Deregister(h)
	c.mu.Unlock()
	if r == ncclapi.Success {
		return nil
	}
	return c.failWith("ncclCommDeregister", r)
}

// deregisterAll takes all registrations back. Those of a Comm that has ended are
// gone with it, and a failure ends it.
func (c *Comm) deregisterAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.registered {
		if c.comm == nil {
			return
		}
		if r := c.comm.Deregister(h); r != ncclapi.Success {
			_ = c.failWithLocked("ncclCommDeregister", r)
		}
	}
}
