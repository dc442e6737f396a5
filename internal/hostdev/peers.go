package hostdev

import (
	"fmt"
	"slices"
	"sync"

	"github.com/cupool/cupool/device"
)

// opened has the devices that are open, as copies find memory of any of them.
var opened deviceList

type deviceList struct {
	mu  sync.RWMutex
	all []*Device
}

func (l *deviceList) add(d *Device) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d)
}

func (l *deviceList) remove(d *Device) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(o *Device) bool { return o == d })
	for _, o := range l.all {
		o.peers.Delete(d)
	}
}

// holder returns the open device whose memory the n bytes at p are, or nil.
func (l *deviceList) holder(p device.Ptr, n int64) *Device {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, o := range l.all {
		if o.holds(n, p) == nil {
			return o
		}
	}
	return nil
}

// CanAccessPeer returns nil for every host device, and ErrNotSupported for
// other devices.
func (d *Device) CanAccessPeer(peer device.Peer) error {
	_, err := d.peer("CanAccessPeer", peer)
	return err
}

// EnablePeer lets work of this device touch the memory of another host device
// until one of them is closed. Copies need no such leave. It returns
// ErrNotSupported for other devices.
func (d *Device) EnablePeer(peer device.Peer) error {
	o, err := d.peer("EnablePeer", peer)
	if err == nil && o != d {
		d.peers.Store(o, nil)
	}
	return err
}

// StreamWaitPeerEvent is StreamWaitEvent for an event of another host device.
// Work waits only for work that was submitted before it, so that no two devices
// wait for each other. It returns ErrInvalidHandle for an unknown stream or event.
func (d *Device) StreamWaitPeerEvent(h device.Stream, e device.Event, peer device.Peer) error {
	o, err := d.peer("StreamWaitPeerEvent", peer)
	if err != nil {
		return err
	}
	s, err := d.stream("StreamWaitPeerEvent", h)
	if err != nil {
		return err
	}
	ev, err := o.event("StreamWaitPeerEvent", e)
	if err != nil {
		return err
	}
	return s.waitFor("StreamWaitPeerEvent", ev)
}

// peer returns the Device of a peer when both are usable.
func (d *Device) peer(op string, peer device.Peer) (*Device, error) {
	if err := d.usable(op); err != nil {
		return nil, err
	}
	o, ok := peer.(*Device)
	if !ok {
		name := "no device"
		if peer != nil {
			name = peer.Name()
		}
		return nil, fmt.Errorf("hostdev: %s: %w: %s with %s, which is no host device", op, device.ErrNotSupported, d.name, name)
	}
	return o, o.usable(op)
}

// touchable says whose memory a call may name.
type touchable bool

const (
	ownOrPeers touchable = false
	anyDevice  touchable = true
)

// reachable returns nil when the n bytes at p are this device's memory, or that
// of a device that may be touched.
func (d *Device) reachable(p device.Ptr, n int64, may touchable) error {
	err := d.holds(n, p)
	if err == nil {
		return nil
	}
	o := opened.holder(p, n)
	if o == nil {
		return err
	}
	if _, peer := d.peers.Load(o); !peer && may != anyDevice {
		return fmt.Errorf("%w; it is memory of %s, which %s may touch after EnablePeer only", err, o.name, d.name)
	}
	return nil
}

// holds returns nil when all ranges of n bytes are this device's memory.
func (d *Device) holds(n int64, at ...device.Ptr) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, p := range at {
		if err := d.space.Check(p, n); err != nil {
			return err
		}
	}
	return nil
}
