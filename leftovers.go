package cupool

import (
	"errors"
	"fmt"
	"sync"
)

// leftover is virtual memory that a failing call kept from being given back:
// nothing uses it, and giving it back is tried again later.
type leftover struct {
	base      Ptr
	mapped    int64   // bytes from base on that are still mapped
	addresses int64   // bytes from base on that are still reserved
	handle    uintptr // still held
}

// leftovers are those of one allocator. Its lock is taken last.
type leftovers struct {
	mu   sync.Mutex
	list []leftover
}

// giveBack gives virtual memory back, as far as the device lets it, and
// remembers the rest.
func (c *Caching) giveBack(l leftover) error {
	err := c.tryGiveBack(&l)
	if err != nil {
		c.left.mu.Lock()
		c.left.list = append(c.left.list, l)
		c.left.mu.Unlock()
	}
	return err
}

// giveBackLeftovers tries again what failed before.
func (c *Caching) giveBackLeftovers() error {
	c.left.mu.Lock()
	defer c.left.mu.Unlock()
	var errs []error
	rest := c.left.list[:0]
	for _, l := range c.left.list {
		if err := c.tryGiveBack(&l); err != nil {
			errs = append(errs, err)
			rest = append(rest, l)
		}
	}
	c.left.list = rest
	return errors.Join(errs...)
}

// tryGiveBack takes off l what could be given back. Unmapping comes first:
// addresses that are mapped cannot be given back.
func (c *Caching) tryGiveBack(l *leftover) error {
	if l.mapped > 0 {
		if err := c.vm.MemUnmap(l.base, l.mapped); err != nil {
			return c.driverError(fmt.Errorf("cupool: unmapping %d bytes at %v on %s: %w", l.mapped, l.base, c.driver.Name(), err))
		}
		l.mapped = 0
	}
	var errs []error
	if l.addresses > 0 {
		err := c.vm.AddressFree(l.base, l.addresses)
		if err == nil {
			l.addresses = 0
		}
		errs = append(errs, err)
	}
	if l.handle != 0 {
		err := c.vm.MemRelease(l.handle)
		if err == nil {
			l.handle = 0
			c.books.driverFrees.Add(1)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return c.driverError(fmt.Errorf("cupool: giving back memory at %v on %s: %w", l.base, c.driver.Name(), err))
	}
	return nil
}
