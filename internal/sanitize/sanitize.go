// Package sanitize finds wrong uses of device memory: writes behind the end of
// a block (canaries), writes to blocks that were freed (poison and a
// quarantine), and any use of either (guard ranges). It also fills memory with
// zeros, so that nobody reads what another one left.
//
// A Pool has the settings and the findings of one pool of memory. A Queue holds
// the blocks of one heap that were freed and are not to be reused yet. All
// filling is work of the heap's stream, in the order of its other work. Reading
// goes through a stream of the Pool's own, when the work is known to be done, so
// that no check waits for a stream.
package sanitize

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/origins"
)

// The patterns: each is a byte that fills memory.
const (
	New    byte = 0xCD // a block that was handed out and not written yet
	Freed  byte = 0xDB // a block that was freed
	Canary byte = 0xCA // the bytes behind a block
)

// WasFreed reports whether a free that returned an error has freed its block: what it finds
// corrupted is freed all the same.
func WasFreed(err error) bool { return err == nil || errors.Is(err, device.ErrCorrupted) }

// Settings say what is on. Sizes are in bytes.
type Settings struct {
	Poison, Guard, Wait     bool
	Canaries, Quarantine    int64
	ZeroOnAlloc, ZeroOnFree bool
}

// Delays reports whether freed blocks wait in a Queue until the work on them is
// done.
func (s *Settings) Delays() bool {
	return s.Poison || s.Guard || s.Canaries > 0 || s.Quarantine > 0
}

// Any reports whether anything is on.
func (s *Settings) Any() bool { return s.Delays() || s.ZeroOnAlloc || s.ZeroOnFree }

// Device is what is asked of a device; see cupool.Driver.
type Device interface {
	Memset(dst device.Ptr, value byte, n int64, s device.Stream) error
	CopyOut(dst []byte, src device.Ptr, s device.Stream) error
	SyncStream(s device.Stream) error
	NewStream() (device.Stream, error)
	DestroyStream(s device.Stream) error
}

// A Pool is safe for use from several goroutines. Its exported fields are set
// before it is used.
type Pool struct {
	Settings
	Device  Device
	Guards  *Guards // nil: no guard ranges
	Name    string  // of the pool, for errors
	Package string  // whose frames at the top of stacks are left out
	Stacks  *origins.Table
	Tell    func(*device.CorruptionError) // called for every finding, with locks held
	Failed  func(error) error             // told of errors of the device, which it returns

	Asleep atomic.Bool // there is no memory behind the blocks

	opening sync.Mutex    // guards reader and closed
	reader  device.Stream // memory is read on it; 0: not made yet
	closed  bool          // it is not made any more

	mu    sync.Mutex
	found []finding
	more  int                 // findings that found has no room for
	bare  map[block.ID]uint64 // blocks without canaries, by generation
	told  map[block.ID]uint64 // blocks that were reported, by generation
}

// A finding is what was found of a block in a generation.
type finding struct {
	err *device.CorruptionError
	id  block.ID
	gen uint64
}

// maxFound bounds the findings that are kept.
const maxFound = 100

// Room returns the bytes to look for when a program asks for size.
func (p *Pool) Room(size int64) int64 {
	if p.Guard { // the first byte behind the block had better fault
		return size
	}
	return size + p.Canaries
}

// canaries returns the range of a block's canaries, from its start.
func (p *Pool) canaries(b *block.Block) (from, to int64) {
	from = b.Requested()
	if p.Canaries == 0 {
		return from, from
	}
	return from, min(b.Size, from+p.Canaries+511)
}

// HandOut fills a block that goes out, as work of a stream. While that is
// captured, the block gets no canaries.
func (p *Pool) HandOut(id block.ID, b *block.Block, s device.Stream, captured bool) error {
	if captured {
		p.note(&p.bare, id, b)
	}
	at, size := device.Ptr(b.Addr()), b.Requested()
	var err error
	switch {
	case p.ZeroOnAlloc:
		err = p.fill(at, 0, b.Size, s)
	case p.Poison && !captured:
		err = p.fill(at, New, size, s)
	}
	if err == nil && !captured {
		err = p.MarkEnd(b, s)
	}
	return err
}

// Bare says that a block has no canaries, as HandOut failed and it goes back.
func (p *Pool) Bare(id block.ID, b *block.Block) { p.note(&p.bare, id, b) }

// MarkEnd writes the canaries of a block.
func (p *Pool) MarkEnd(b *block.Block, s device.Stream) error {
	from, to := p.canaries(b)
	return p.fill(device.Ptr(b.Addr())+device.Ptr(from), Canary, to-from, s)
}

// Zero fills a block with zeros.
func (p *Pool) Zero(b *block.Block, s device.Stream) error {
	return p.fill(device.Ptr(b.Addr()), 0, b.Size, s)
}

func (p *Pool) fill(at device.Ptr, value byte, n int64, s device.Stream) error {
	if n == 0 {
		return nil
	}
	if err := p.Device.Memset(at, value, n, s); err != nil {
		return p.Failed(fmt.Errorf("cupool: filling %d bytes at %v on %v: %w", n, at, s, err))
	}
	return nil
}

// stream returns the Pool's own stream. It fails with ErrClosed after Close.
func (p *Pool) stream() (s device.Stream, err error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	if p.closed {
		return 0, fmt.Errorf("cupool: checking memory of %s: %w", p.Name, device.ErrClosed)
	}
	if p.reader == 0 {
		p.reader, err = p.Device.NewStream()
	}
	return p.reader, err
}

// zeroNow fills a block, on which no work is under way, with zeros.
func (p *Pool) zeroNow(b *block.Block) error {
	s, err := p.stream()
	if err == nil {
		err = p.Zero(b, s)
	}
	if err == nil {
		err = p.Failed(p.Device.SyncStream(s))
	}
	return err
}

// Close ends checking, also that of frees which are under way. What the device refuses is
// tried once more.
func (p *Pool) Close() error {
	p.opening.Lock()
	defer p.opening.Unlock()
	s := p.reader
	p.closed = true
	if p.reader = 0; s == 0 {
		return nil
	}
	err := p.Device.DestroyStream(s)
	if err != nil {
		err = p.Device.DestroyStream(s)
	}
	if err != nil {
		return fmt.Errorf("cupool: destroying the stream of a sanitizer: %w", err)
	}
	return nil
}

// note remembers a block of this generation.
func (p *Pool) note(in *map[block.ID]uint64, id block.ID, b *block.Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *in == nil {
		*in = map[block.ID]uint64{}
	}
	(*in)[id] = b.Word().Gen()
}

func (p *Pool) noted(in *map[block.ID]uint64, id block.ID, b *block.Block) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	gen, ok := (*in)[id]
	return ok && gen == b.Word().Gen()
}

// forget drops what was noted of a block.
func (p *Pool) forget(id block.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.bare, id)
	delete(p.told, id)
}

// CheckEnd reads the canaries of a block, live or freed, on which no work is
// under way.
func (p *Pool) CheckEnd(id block.ID, b *block.Block, s device.Stream) {
	if !p.noted(&p.bare, id, b) {
		from, to := p.canaries(b)
		p.check(id, b, s, from, to, Canary)
	}
}

// checkFreed reads a block that was filled after it was freed.
func (p *Pool) checkFreed(id block.ID, b *block.Block, s device.Stream) {
	p.check(id, b, s, 0, b.Requested(), Freed)
}

// check reads a part of a block, which should hold a pattern. A block is
// reported once. What cannot be read is not reported.
func (p *Pool) check(id block.ID, b *block.Block, s device.Stream, from, to int64, want byte) {
	if p.noted(&p.told, id, b) {
		return
	}
	base := device.Ptr(b.Addr())
	first, n, err := Scan(from, to, want, func(dst []byte, at int64) error {
		s, err := p.stream()
		if err != nil {
			return err
		}
		return p.Device.CopyOut(dst, base+device.Ptr(at), s)
	})
	if err != nil {
		_ = p.Failed(err)
	}
	if n == 0 {
		return
	}
	p.note(&p.told, id, b)
	o := p.Stacks.At(b.Origin())
	e := &device.CorruptionError{
		Pool: p.Name, Ptr: base, Size: b.Requested(), Offset: first, Bytes: n, Stream: s,
		AfterFree: want == Freed, FreedAt: o.FreedAt(p.Package),
	}
	e.AllocatedAt, e.Label = o.Describe(p.Package)
	p.mu.Lock()
	if len(p.found) < maxFound {
		p.found = append(p.found, finding{e, id, b.Word().Gen()})
	} else {
		p.more++
	}
	p.mu.Unlock()
	p.Tell(e)
}

// Found returns what was found of a block, or nil.
func (p *Pool) Found(id block.ID, gen uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.found {
		if f.id == id && f.gen == gen {
			return f.err
		}
	}
	return nil
}

// Findings returns what was found since the last call, or nil. A nil Pool finds
// nothing.
func (p *Pool) Findings() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, f := range p.found {
		errs = append(errs, f.err)
	}
	if p.more > 0 {
		errs = append(errs, fmt.Errorf("%w: %d more blocks, of which the log tells", device.ErrCorrupted, p.more))
	}
	p.found, p.more = nil, 0
	return errors.Join(errs...)
}

// scanBytes is how much is read at once.
const scanBytes = 1 << 20

// Scan reads a range and returns the offset of the first byte that is not as it
// should be, and how many are not.
func Scan(from, to int64, want byte, read func(dst []byte, at int64) error) (first, wrong int64, err error) {
	if from >= to {
		return 0, 0, nil
	}
	buf := make([]byte, min(scanBytes, to-from))
	for at := from; at < to; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), to-at)]
		if err := read(buf, at); err != nil {
			return first, wrong, err
		}
		for i, got := range buf {
			if got == want {
				continue
			}
			if wrong == 0 {
				first = at + int64(i)
			}
			wrong++
		}
	}
	return first, wrong, nil
}
