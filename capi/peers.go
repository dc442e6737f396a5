package main

// #include "internal.h"
import "C"

import (
	"errors"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/device"
)

// enablePeer lets the device touch the memory of another one.
func (d *driver) enablePeer(peer *driver) error {
	defer relaxed()()
	return d.Driver.EnablePeer(peer.Driver)
}

// EnablePeer implements device.Peers.
func (d *driver) EnablePeer(peer device.Peer) error {
	if p, ok := peer.(*driver); ok {
		return d.enablePeer(p)
	}
	return d.Driver.EnablePeer(peer)
}

// CanAccessPeer implements device.Peers.
func (d *driver) CanAccessPeer(peer device.Peer) error {
	if p, ok := peer.(*driver); ok {
		peer = p.Driver
	}
	return d.Driver.CanAccessPeer(peer)
}

// peerStream is a stream of another device that uses memory of this one.
//
// A pool knows streams of its own device alone, so one of those follows the other: before an event is recorded
// on it, and before somebody waits for it, it waits for what the other stream was given.
type peerStream struct {
	of     *gpu
	handle cupool.StreamHandle
}

// follow has a stream wait for the one that it follows, if any.
func (d *driver) follow(s cupool.StreamHandle) (err error) {
	v, ok := d.followers.Load(s)
	if !ok {
		return nil
	}
	leader := v.(peerStream)
	peer := leader.of.driver
	if err := peer.captured(leader.handle); err != nil {
		return err
	}
	e, err := peer.Driver.NewEvent()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.Driver.DestroyEvent(e)) }()
	if err := peer.Driver.RecordEvent(e, leader.handle); err != nil {
		return err
	}
	return d.Driver.StreamWaitPeerEvent(s, e, peer.Driver)
}

// recordPeer is record for a stream of another device.
func (g *gpu) recordPeer(b cupool.Block, leader peerStream) error {
	s, err := g.follower(leader)
	if err != nil {
		return err
	}
	return g.record(b, s)
}

// follower returns the stream of g that follows one of another device.
func (g *gpu) follower(leader peerStream) (*cupool.Stream, error) {
	if leader.handle == cuda.LegacyStream {
		leader.handle = 0
	}
	g.following.Lock()
	defer g.following.Unlock()
	if s := g.followers[leader]; s != nil {
		return s, nil
	}
	if err := leader.of.owns(leader.handle); err != nil {
		return nil, err
	}
	s, err := g.root.NewStream()
	if err != nil {
		return nil, err
	}
	g.driver.followers.Store(s.Handle(), leader)
	g.followers[leader] = s
	return s, nil
}

// leave ends what follows a stream of another device, after its work.
func (g *gpu) leave(leader peerStream) error {
	g.following.Lock()
	defer g.following.Unlock()
	s := g.followers[leader]
	if s == nil {
		return nil
	}
	if err := s.Close(); err != nil && !errors.Is(err, cupool.ErrClosed) {
		return err
	}
	g.driver.followers.Delete(s.Handle())
	delete(g.followers, leader)
	return nil
}

// owns fails for a stream that is not of the device.
func (g *gpu) owns(handle cupool.StreamHandle) error {
	switch handle {
	case 0:
		return nil
	case cuda.PerThreadStream:
		return errPerThread
	}
	return g.driver.OwnsStream(handle)
}
