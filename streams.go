package cupool

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/magazine"
)

// Stream is a queue of work on the device, and the pools of the memory that
// was allocated for it. It belongs to one Caching and may be used from
// several goroutines; what they submit runs in the order in which it came.
//
// Memory that was allocated on a stream and freed is reused for the same
// stream at once, because later work waits for earlier work anyway. Other
// streams that use it have to be recorded on it (RecordStream).
type Stream struct {
	c       *Caching
	handle  StreamHandle
	index   uint32  // its place in Caching.streams (places.go)
	number  uint64  // of the family's streams, in the order in which they were made
	adopted bool    // somebody else's to destroy
	base    *Stream // the root's, which programs have; most often itself

	ledger   ledger // written under mu
	magazine *magazine.Cache
	clock    clock

	mu         lock.Mutex // guards what follows
	pools      [2]block.FreeSet
	fast       block.FastBins // small blocks that were freed and not merged yet
	slots      block.SlotCache
	segs       []*block.Segment // by Block.Seg; nil where one was given back
	segsFull   int              // no place below is free
	leaving    []idle           // segments that the device is being given back
	homedBytes int64
	crossed    int // blocks to give no home from now on
	crowd      crowd
	homes      [2][]*home // of virtual memory; the newest grows
	stitches   []*stitch
	stitched   int64      // stitches made so far
	searches   int64      // allocations that searched the pools so far
	waits      []waitList // of blocks of this stream
	waiting    int64      // bytes of blocks in them
	uses       []useSet
	usesFree   []uint32
	seen       []uint64 // by stream: the epoch this stream is ordered after

	heir   atomic.Pointer[Stream] // set by Close: where its live memory went
	over   atomic.Bool            // Close is done
	lender lender                 // guarded by Caching.stranded
}

// addStream makes the allocator's side of a device stream, or returns nil
// when the allocator was closed.
func (c *Caching) addStream(h StreamHandle, adopted bool) *Stream {
	c.streamsMu.Lock()
	defer c.streamsMu.Unlock()
	if c.closed.Load() {
		return nil
	}
	return c.addStreamLocked(h, adopted)
}

func (c *Caching) addStreamLocked(h StreamHandle, adopted bool) *Stream {
	return c.placeLocked(c.vacantLocked(), h, adopted)
}

// NewStream makes a stream of the device. It fails with ErrClosed or what
// the device says.
func (c *Caching) NewStream() (*Stream, error) {
	if c.closed.Load() {
		return nil, fmt.Errorf("cupool: new stream: %w", ErrClosed)
	}
	if root := c.family.root; root != c {
		return root.NewStream()
	}
	h, err := c.driver.NewStream()
	if err != nil {
		return nil, c.driverError(fmt.Errorf("cupool: new stream on %s: %w", c.driver.Name(), err))
	}
	s := c.addStream(h, false)
	if s == nil {
		return nil, errors.Join(fmt.Errorf("cupool: new stream: %w", ErrClosed), c.driver.DestroyStream(h))
	}
	return s, nil
}

// AdoptStream returns the Stream for a handle that somebody else made on
// the same device and goes on to own. The same handle gives the same Stream
// until that is closed. A Driver that can tell its own streams refuses
// those of another device with ErrForeignStream.
func (c *Caching) AdoptStream(h StreamHandle) (*Stream, error) {
	if root := c.family.root; root != c && !c.closed.Load() {
		return root.AdoptStream(h)
	}
	c.streamsMu.Lock()
	defer c.streamsMu.Unlock()
	if c.closed.Load() {
		return nil, fmt.Errorf("cupool: adopt stream 0x%x: %w", uintptr(h), ErrClosed)
	}
	for _, s := range c.openStreams() {
		if s.handle == h {
			return s, nil
		}
	}
	if d, ok := c.driver.(StreamOwner); ok {
		if err := d.OwnsStream(h); err != nil {
			return nil, fmt.Errorf("cupool: adopt stream 0x%x on %s: %w: %w", uintptr(h), c.driver.Name(), ErrForeignStream, err)
		}
	}
	return c.addStreamLocked(h, true), nil
}

// StreamOwner is the optional part of a Driver that can tell whether a
// stream that it did not make is of its device: nil, or why not.
type StreamOwner interface {
	OwnsStream(h StreamHandle) error
}

// Launcher is the optional part of a Driver whose streams can run Go
// functions, in order with their other work (the host device).
type Launcher interface {
	Launch(s StreamHandle, f func()) error
}

// Handle returns the device's own handle.
func (s *Stream) Handle() StreamHandle { return s.handle }

// Launch submits a Go function to the stream, on devices that run them;
// else it fails with ErrNotSupported.
func (s *Stream) Launch(f func()) error {
	if err := s.usable("launch"); err != nil {
		return err
	}
	l, ok := s.c.driver.(Launcher)
	if !ok {
		return fmt.Errorf("cupool: %s does not run Go functions: %w", s.c.driver.Name(), ErrNotSupported)
	}
	return s.submit("launch", l.Launch(s.handle, f))
}

// Copy submits a copy of n bytes between device addresses.
func (s *Stream) Copy(dst, src Ptr, n int64) error {
	if err := s.usable("copy"); err != nil {
		return err
	}
	return s.submit("copy", s.c.driver.Copy(dst, src, n, s.handle))
}

// CopyIn copies src to the device in the order of the stream; src may be
// reused when it returns.
func (s *Stream) CopyIn(dst Ptr, src []byte) error {
	if err := s.usable("copy in"); err != nil {
		return err
	}
	return s.submit("copy in", s.c.driver.CopyIn(dst, src, s.handle))
}

// CopyOut waits for the stream and copies from the device to dst.
func (s *Stream) CopyOut(dst []byte, src Ptr) error {
	if err := s.usable("copy out"); err != nil {
		return err
	}
	return s.submit("copy out", s.c.driver.CopyOut(dst, src, s.handle))
}

// Memset submits setting n bytes to a value.
func (s *Stream) Memset(dst Ptr, value byte, n int64) error {
	if err := s.usable("memset"); err != nil {
		return err
	}
	return s.submit("memset", s.c.driver.Memset(dst, value, n, s.handle))
}

// usable fails for a stream that was closed, whose handle may be another's
// by now.
func (s *Stream) usable(op string) error {
	if s.heir.Load() != nil || s.c.closed.Load() {
		return fmt.Errorf("cupool: %s on stream 0x%x: %w", op, uintptr(s.handle), ErrClosed)
	}
	return nil
}

func (s *Stream) submit(op string, err error) error {
	if err == nil {
		return nil
	}
	return s.c.driverError(fmt.Errorf("cupool: %s on stream 0x%x: %w", op, uintptr(s.handle), err))
}

// Sync waits until everything submitted to the stream is done, and releases
// the blocks that waited for it.
func (s *Stream) Sync() error {
	if err := s.usable("synchronize"); err != nil {
		return err
	}
	return s.sync()
}

func (s *Stream) sync() error {
	upTo := s.clock.tick.Add(1) - 1
	if err := s.submit("synchronize", s.c.driver.SyncStream(s.handle)); err != nil {
		return err
	}
	raise(&s.clock.done, upTo)
	if s.clock.newest.Load() > 0 { // somebody may wait for it
		s.c.collectAll()
	}
	return nil
}

// RecordStream implements Allocator. Recording the allocating stream, or
// the same one twice, changes nothing. It fails with ErrUseAfterFree,
// ErrForeignPointer, ErrForeignStream or ErrClosed.
func (c *Caching) RecordStream(h Block, s *Stream) error {
	owner, _, err := c.recordUse("record stream", h, s)
	if owner != nil {
		owner.mu.Unlock()
	}
	return err
}

// FreeOn is RecordStream followed by Free: the block was last used by work
// that s has been given.
func (c *Caching) FreeOn(h Block, s *Stream) error {
	owner, b, err := c.recordUse("free", h, s)
	if owner == nil {
		return err
	}
	defer owner.mu.Unlock()
	return owner.freeLocked(h, b)
}

// recordUse notes that s uses a live block and returns its owner, locked, or
// nil with an error and for the empty Block.
func (c *Caching) recordUse(op string, h Block, s *Stream) (*Stream, *block.Block, error) {
	if s == nil {
		s = c.DefaultStream()
	}
	if s.c != c.family.root {
		return nil, nil, c.blockError(op, h, s, ErrForeignStream)
	}
	if h.IsEmpty() {
		return nil, nil, nil
	}
	if o := c.other(h); o != nil {
		return o.recordUse(op, h, s)
	}
	owner, b := c.lockLive(h)
	if owner == nil {
		return nil, nil, c.notLive(op, h, ErrUseAfterFree)
	}
	if owner.base == s { // ordered already
		return owner, b, nil
	}
	if !owner.unhomeLocked(h.id(), b) {
		owner.mu.Unlock()
		return nil, nil, c.blockError(op, h, owner, ErrUseAfterFree)
	}
	b.MarkUsed()
	owner.addUseLocked(b, s)
	return owner, b, nil
}

// Close waits for the stream's work and destroys it, unless it was adopted.
// What it leaves serves whichever stream misses memory next; with blocks that
// are live, which count as allocated on the default stream then, everything
// goes over to that one. The default stream cannot be closed. Closing twice
// is ErrClosed.
func (s *Stream) Close() error {
	c := s.c
	if s == c.def {
		return fmt.Errorf("cupool: closing the default stream: %w", ErrNotSupported)
	}
	c.reclaim.Lock() // not while the allocator closes, or another stream
	defer c.reclaim.Unlock()
	if c.closed.Load() || !s.heir.CompareAndSwap(nil, c.def) {
		return fmt.Errorf("cupool: closing stream 0x%x: %w", uintptr(s.handle), ErrClosed)
	}
	s.closeTwins()
	if err := s.sync(); err != nil {
		s.heir.Store(nil)
		s.reopenTwins()
		return err
	}
	defer s.over.Store(true)
	c.endWaits(s)
	s.bequeath()
	s.bequeathTwins()
	if s.adopted {
		return nil
	}
	return s.submit("destroy stream", c.driver.DestroyStream(s.handle))
}

// moveTo hands all segments of a stream whose work is done to another one.
func (s *Stream) moveTo(heir *Stream) {
	first, second := s, heir
	if s.index > heir.index {
		first, second = heir, s
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	second.mu.Lock()
	defer second.mu.Unlock()
	s.unhomeAllLocked()
	for _, seg := range s.segs {
		if seg != nil {
			s.moveSegmentLocked(seg, heir)
		}
	}
	s.slots.Drain()
	for k := range s.homes {
		heir.homes[k] = append(s.homes[k], heir.homes[k]...)
		s.homes[k] = nil
	}
	heir.stitches = append(heir.stitches, s.stitches...)
	s.moveWaitsLocked(heir)
	s.segsFull = 0
	s.segs, s.stitches, s.uses, s.usesFree, s.seen = nil, nil, nil, nil, nil
	heir.checkLocked()
}

func (s *Stream) moveSegmentLocked(seg *block.Segment, heir *Stream) {
	k := kindOf(seg.Large)
	heir.addSegmentLocked(seg)
	s.c.segments.setOwner(seg, heir)
	seg.Each(&s.c.blocks, func(id block.ID, b *block.Block) {
		s.moveUsesLocked(b, heir)
		free := b.Word().State() == block.Free
		if free {
			s.pools[k].Remove(id, b)
		}
		b.Seg = seg.Index
		b.SetOwner(heir.index)
		if free {
			heir.pools[k].Insert(id, b)
		}
	})
}

// addSegmentLocked gives a segment a place in the stream's table.
func (s *Stream) addSegmentLocked(seg *block.Segment) {
	i := s.segsFull
	for i < len(s.segs) && s.segs[i] != nil {
		i++
	}
	if i == len(s.segs) {
		s.segs = append(s.segs, nil)
	}
	s.segs[i], s.segsFull = seg, i+1
	seg.Index, seg.Owner = uint32(i), s.index
}

// dropSegmentLocked takes a segment out of the stream's table.
func (s *Stream) dropSegmentLocked(i uint32) {
	s.segs[i] = nil
	s.segsFull = min(s.segsFull, int(i))
}
