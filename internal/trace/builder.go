package trace

import (
	"fmt"
	"math"
)

// MaxSize bounds the size of one allocation, 1 PiB: more is damage.
const MaxSize = 1 << 50

// builder puts a trace together and refuses what no program can have done.
// Its methods return the reason as plain text, "" for none.
type builder struct {
	t       Trace
	blocks  map[uint64]blockState // by the recorded ID
	marks   map[uint64]uint32
	streams map[int64]uint16
	live    int64   // bytes
	sizes   []int64 // by ID
}

// blockState is what an ID names now: the block's number, and whether it is
// still live.
type blockState struct {
	id   uint32
	live bool
}

func newBuilder(name string) *builder {
	return &builder{
		t:       Trace{Name: name, Streams: []int64{0}},
		blocks:  map[uint64]blockState{},
		marks:   map[uint64]uint32{},
		streams: map[int64]uint16{0: 0},
	}
}

func (b *builder) add(op Op, id uint32, size int64, stream uint16) {
	b.t.Events = append(b.t.Events, Event{Op: op, ID: id, Size: size, Stream: stream})
}

func (b *builder) alloc(id uint64, size, stream int64) string {
	switch {
	case size < 0:
		return fmt.Sprintf("negative size %d", size)
	case size > MaxSize:
		return fmt.Sprintf("size %d is more than 1 PiB", size)
	case b.blocks[id].live:
		return fmt.Sprintf("duplicate ID %d: the block is still live", id)
	case len(b.sizes) == math.MaxUint32:
		return "too many allocations"
	case b.live > math.MaxInt64-MaxSize:
		return "more bytes live than can be counted"
	}
	s, reason := b.stream(stream)
	if reason != "" {
		return reason
	}
	n := uint32(len(b.sizes))
	b.blocks[id] = blockState{n, true}
	b.sizes = append(b.sizes, size)
	b.live += size
	b.t.PeakRequested = max(b.t.PeakRequested, b.live)
	b.add(Alloc, n, size, s)
	return ""
}

// block returns the number of a live block.
func (b *builder) block(id uint64) (uint32, string) {
	s, ok := b.blocks[id]
	switch {
	case !ok:
		return 0, fmt.Sprintf("unknown ID %d: no such block was allocated", id)
	case !s.live:
		return 0, fmt.Sprintf("unknown ID %d: the block was freed before", id)
	}
	return s.id, ""
}

func (b *builder) free(id uint64) string {
	n, reason := b.block(id)
	if reason != "" {
		return reason
	}
	b.blocks[id] = blockState{id: n}
	b.live -= b.sizes[n]
	b.add(Free, n, 0, 0)
	return ""
}

func (b *builder) use(id uint64, stream int64) string {
	n, reason := b.block(id)
	if reason != "" {
		return reason
	}
	s, reason := b.stream(stream)
	if reason == "" {
		b.add(Use, n, 0, s)
	}
	return reason
}

func (b *builder) record(mark uint64, stream int64) string {
	s, reason := b.stream(stream)
	if reason != "" {
		return reason
	}
	n, ok := b.marks[mark]
	if !ok {
		n = uint32(len(b.marks))
		b.marks[mark] = n
	}
	b.add(Record, n, 0, s)
	return ""
}

func (b *builder) wait(mark uint64, stream int64) string {
	n, ok := b.marks[mark]
	if !ok {
		return fmt.Sprintf("unknown event %d: it was not recorded", mark)
	}
	s, reason := b.stream(stream)
	if reason == "" {
		b.add(Wait, n, 0, s)
	}
	return reason
}

// stream returns the index of a stream.
func (b *builder) stream(number int64) (uint16, string) {
	if i, ok := b.streams[number]; ok {
		return i, ""
	}
	n := len(b.t.Streams)
	switch {
	case number < 0:
		return 0, fmt.Sprintf("negative stream %d", number)
	case n > math.MaxUint16:
		return 0, "too many streams"
	}
	b.streams[number] = uint16(n)
	b.t.Streams = append(b.t.Streams, number)
	return uint16(n), ""
}

func (b *builder) finish() *Trace {
	b.t.Blocks, b.t.Marks = len(b.sizes), len(b.marks)
	return &b.t
}
