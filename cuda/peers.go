package cuda

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
)

// CanAccessPeer implements Peers.
func (d *driver) CanAccessPeer(peer device.Peer) error {
	o, err := d.peer("CanAccessPeer", peer)
	if err != nil || !d.apart(o) {
		return err
	}
	can, r := cudadrv.CanAccessPeer(d.ctx.handle, d.ctx.device, o.ctx.device)
	if r != cudadrv.Success {
		return d.ctx.fail("cuDeviceCanAccessPeer", r, between(d, o))
	}
	if !can {
		return fmt.Errorf("cupool: %s: %w: %s: the computer does not connect the two, or forbids it; copies between them go through the host's memory", d.label, device.ErrNotSupported, between(d, o))
	}
	return nil
}

// EnablePeer implements Peers. It is for all Drivers of the two contexts.
func (d *driver) EnablePeer(peer device.Peer) error {
	if err := d.CanAccessPeer(peer); err != nil {
		return err
	}
	o := peer.(*driver)
	if !d.apart(o) {
		return nil
	}
	r := cudadrv.EnablePeer(d.ctx.handle, o.ctx.handle)
	if r != cudadrv.Success && r != cudadrv.PeerEnabled {
		return d.ctx.fail("cuCtxEnablePeerAccess", r, between(d, o))
	}
	if err := o.ctx.admit(int32(d.ctx.device)); err != nil {
		if r == cudadrv.Success {
			_ = cudadrv.DisablePeer(d.ctx.handle, o.ctx.handle)
		}
		return err
	}
	d.ctx.reach.put(uintptr(o.ctx.device), struct{}{})
	return nil
}

// StreamWaitPeerEvent implements Peers.
func (d *driver) StreamWaitPeerEvent(s StreamHandle, e EventHandle, peer device.Peer) error {
	o, err := d.peer("StreamWaitPeerEvent", peer)
	if err != nil {
		return err
	}
	if err := o.checkEvent("StreamWaitPeerEvent", e); err != nil {
		return err
	}
	if err := d.checkStream(s); err != nil {
		return err
	}
	if r := cudadrv.StreamWaitEvent(d.ctx.handle, uintptr(s), uintptr(e)); r != cudadrv.Success {
		return d.ctx.fail("cuStreamWaitEvent", r, stream(s)+", "+event(e)+" of "+o.ctx.name())
	}
	return nil
}

// peer returns the Driver of a peer when both are usable.
func (d *driver) peer(op string, peer device.Peer) (*driver, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	o, ok := peer.(*driver)
	if !ok {
		name := "no device"
		if peer != nil {
			name = peer.Name()
		}
		return nil, fmt.Errorf("cupool: %s: %s: %w: %s is not a Driver of this package", d.label, op, device.ErrNotSupported, name)
	}
	return o, o.usable()
}

// apart reports whether the peer's memory is another device's. Managed and
// pinned memory is for all devices.
func (d *driver) apart(o *driver) bool {
	return o.kind == MemoryDevice && o.ctx.device != d.ctx.device
}

// copyPeer copies from memory of one context to memory of another one, whether
// they have peer access or not.
func (d *driver) copyPeer(dst Ptr, to *context, src Ptr, from *context, n int64, s StreamHandle) error {
	r := cudadrv.CopyPeer(d.ctx.handle, uintptr(dst), to.handle, uintptr(src), from.handle, n, uintptr(s))
	if r != cudadrv.Success {
		return d.ctx.failRange("cuMemcpyPeerAsync", r, fmt.Sprintf("%d bytes from %v of %s to %v of %s, %s", n, src, from.name(), dst, to.name(), stream(s)))
	}
	return nil
}

// admit lets a device touch the virtual memory of the context, and what is
// mapped later. Where it fails the device has no access to any.
func (c *context) admit(device int32) error {
	b := &c.memory
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(c.admitted, device) {
		return nil
	}
	var done []mapping
	for _, s := range b.spans {
		for _, m := range s.mapped {
			r := cudadrv.MemSetAccess(c.handle, uintptr(m.start), m.size, []int32{device}, true)
			if r != cudadrv.Success {
				c.refuse(device, done)
				return c.fail("cuMemSetAccess", r, fmt.Sprintf("%d bytes at %v, for cuda:%d", m.size, m.start, device))
			}
			done = append(done, m)
		}
	}
	c.admitted = append(c.admitted, device)
	return nil
}

// refuse takes access to mappings away from a device.
func (c *context) refuse(device int32, mapped []mapping) {
	for _, m := range mapped {
		_ = cudadrv.MemSetAccess(c.handle, uintptr(m.start), m.size, []int32{device}, false)
	}
}

// between names a pair of devices for errors.
func between(d, o *driver) string {
	return fmt.Sprintf("work of %s on memory of %s", d.ctx.name(), o.ctx.name())
}
