package main

// #include "internal.h"
import "C"

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/device"
)

// peerStream is a stream of another device that uses memory of this one.
type peerStream struct {
	of     *gpu
	handle cupool.StreamHandle
}

// peers knows which blocks of a device streams of other devices use. The pool knows streams of its own device
// alone. So when such a block is freed, a stream of its device, the agent, waits for what the other stream was given
// by then, and the block waits for the agent.
type peers struct {
	count atomic.Int64 // of blocks
	freed atomic.Int64 // of these, how many wait for the end of a capture to be freed

	mu     sync.Mutex // guards what follows
	blocks map[cupool.Ptr]*peerBlock
	agents map[*gpu]*cupool.Stream // for the streams of each other device
}

// peerBlock is a block that streams of other devices use.
type peerBlock struct {
	by    []peerStream
	freed bool // when a capture is over
}

// recordPeer notes the use of a block on a stream of another device.
func (g *gpu) recordPeer(b cupool.Block, s peerStream) error {
	switch s.handle {
	case cuda.PerThreadStream:
		return errPerThread
	case cuda.LegacyStream:
		s.handle = 0
	}
	if err := s.of.driver.OwnsStream(s.handle); err != nil {
		return err
	}
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	v := g.peers.blocks[b.Ptr()]
	if v != nil && v.freed {
		return freedAlready("record stream", b.Ptr())
	}
	agent, err := g.agentLocked(s.of)
	if err != nil {
		return err
	}
	if err := g.record(b, agent); err != nil {
		return err
	}
	if v == nil {
		v = &peerBlock{}
		g.peers.blocks[b.Ptr()] = v
		g.peers.count.Add(1)
	}
	if !slices.Contains(v.by, s) {
		v.by = append(v.by, s)
	}
	return nil
}

func freedAlready(op string, p cupool.Ptr) error {
	return &cupool.BlockError{Op: op, Ptr: p, Size: -1, Err: cupool.ErrDoubleFree, Detail: "it waits for the end of a capture"}
}

// agentLocked returns the stream by which the device waits for those of another one.
func (g *gpu) agentLocked(of *gpu) (*cupool.Stream, error) {
	if a := g.peers.agents[of]; a != nil {
		return a, nil
	}
	a, err := g.root.NewStream()
	if err == nil {
		g.peers.agents[of] = a
	}
	return a, err
}

// free frees the block that begins at an address.
func (g *gpu) free(p cupool.Ptr) error {
	g.freeLate()
	if g.peers.count.Load() > 0 {
		if late, err := g.leave(p); late || err != nil {
			return err
		}
	}
	return g.root.FreePtr(p, -1)
}

// leave has the agents wait for the streams of other devices that use a block, which is to be freed. late: one of them
// is captured, so the block is freed when the capture is over.
func (g *gpu) leave(p cupool.Ptr) (late bool, err error) {
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	v := g.peers.blocks[p]
	switch {
	case v == nil:
		return false, nil
	case v.freed:
		return false, freedAlready("free", p)
	}
	if err := g.awaitLocked(v); err != nil {
		if !errors.Is(err, errCaptured) {
			return false, err
		}
		v.freed = true
		g.peers.freed.Add(1)
		return true, nil
	}
	g.dropLocked(p)
	return false, nil
}

func (g *gpu) dropLocked(p cupool.Ptr) {
	delete(g.peers.blocks, p)
	g.peers.count.Add(-1)
}

// freeLate frees what waits for the end of a capture that is over.
func (g *gpu) freeLate() {
	if g.peers.freed.Load() == 0 {
		return
	}
	var over []cupool.Ptr
	g.peers.mu.Lock()
	for p, v := range g.peers.blocks {
		if v.freed && g.awaitLocked(v) == nil {
			over = append(over, p)
			g.peers.freed.Add(-1)
			g.dropLocked(p)
		}
	}
	g.peers.mu.Unlock()
	for _, p := range over {
		_ = g.root.FreePtr(p, -1) // a corrupt block is freed all the same, and nobody is there to be told
	}
}

// awaitLocked has the agents wait for the streams that use a block, and takes each of them out.
func (g *gpu) awaitLocked(v *peerBlock) error {
	for len(v.by) > 0 {
		if err := g.awaitPeerLocked(v.by[0]); err != nil {
			return err
		}
		v.by = v.by[1:]
	}
	return nil
}

// awaitPeerLocked has the agent wait for what a stream of another device was given. A device that is lost runs nothing.
func (g *gpu) awaitPeerLocked(s peerStream) (err error) {
	agent, peer := g.peers.agents[s.of], s.of.driver
	defer func() {
		if errors.Is(err, device.ErrDeviceLost) {
			err = nil
		}
	}()
	e, err := peer.NewEvent()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.DestroyEvent(e)) }()
	if err := peer.RecordEvent(e, s.handle); err != nil {
		return err
	}
	defer relaxed()()
	return g.driver.StreamWaitPeerEvent(agent.Handle(), e, peer.Driver)
}

// awaitPeers has the agents wait for all streams of other devices that use blocks, whose memory is to go.
func (g *gpu) awaitPeers() error {
	if g.peers.count.Load() == 0 {
		return nil
	}
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	waited := map[peerStream]bool{}
	for _, v := range g.peers.blocks {
		for _, s := range v.by {
			if waited[s] {
				continue
			}
			if err := g.awaitPeerLocked(s); err != nil {
				return err
			}
			waited[s] = true
		}
	}
	return nil
}

// forgetPeer ends the use of the device's blocks by a stream that is about to be destroyed.
func (g *gpu) forgetPeer(s peerStream) (err error) {
	if g.peers.count.Load() == 0 {
		return nil
	}
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	waited := false
	for _, v := range g.peers.blocks {
		i := slices.Index(v.by, s)
		if i < 0 {
			continue
		}
		if !waited {
			if err := g.awaitPeerLocked(s); err != nil && !errors.Is(err, errCaptured) {
				return err
			}
			waited = true
		}
		v.by = slices.Delete(v.by, i, i+1)
	}
	return nil
}
