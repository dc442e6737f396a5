package cupool

import (
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/relaxed"
)

// quantity is what the books count, of each pool.
type quantity int

// "Out" blocks are those that left the free sets: live ones and those cached
// in magazines. Stats tells the two apart when it is read, so that the
// lock-free path counts nothing. What is out or pending is active.
const (
	outBlocks quantity = iota
	outBytes
	requestedBytes
	segments
	reservedBytes
	splits
	splitBytes
	pendingBlocks
	pendingBytes
	magazineHits
	quantities

	activeBlocks = quantities // of which only the peaks are kept
	activeBytes  = activeBlocks + 1
	peaks        = activeBytes + 1
)

// tally is a quantity in one ledger.
type tally struct{ added, taken relaxed.Int64 }

func (t *tally) add(n int64)  { t.added.AddOwned(n) }
func (t *tally) take(n int64) { t.taken.AddOwned(n) }

// pass counts what came and went.
func (t *tally) pass(n int64) {
	t.add(n)
	t.take(n)
}

// ledger is one stream's part of the books. The stream's lock is held to
// write it; only the sum over all streams means anything, as what one stream
// allocates may be freed after its memory went to another.
//
// Peaks are exact and yet cost an allocation a few subtractions: fold finds
// how many blocks and bytes may still go out before any peak is reached, and
// until they have, none needs to be looked at. Streams share that room out.
type ledger struct {
	pools           [2][quantities]tally
	room, splitRoom [3]room       // below the peaks of each pool and of both
	activeRoom      [3]room       // likewise, once anything was pending
	share           relaxed.Int64 // books.shares when the room was given
}

// room is how much a stream may add before it must call fold.
type room struct{ blocks, bytes relaxed.Int64 }

// take makes the room smaller by one block and returns a negative number
// when there was none left.
func (r *room) take(bytes int64) int64 {
	r.blocks.AddOwned(-1)
	r.bytes.AddOwned(-bytes)
	return r.blocks.Load() | r.bytes.Load()
}

// give makes the room larger by n blocks.
func (r *room) give(n, bytes int64) {
	r.blocks.AddOwned(n)
	r.bytes.AddOwned(bytes)
}

// space is room that is shared out.
type space struct{ blocks, bytes int64 }

// left returns what there is, none where that is negative.
func (r *room) left() space { return space{max(r.blocks.Load(), 0), max(r.bytes.Load(), 0)} }

// set makes the room a part of a space that several streams share.
func (r *room) set(s space, streams int) {
	if streams > 1 {
		s.blocks, s.bytes = s.blocks/2, s.bytes/2
	}
	r.blocks.SetOwned(s.blocks)
	r.bytes.SetOwned(s.bytes)
}

// spaces are those below the peaks of each pool and of both.
type spaces struct{ out, active, split [3]space }

// held returns the ledger's rooms, none when they are void.
func (l *ledger) held(shares int64) (s spaces) {
	if l.share.Load() != shares {
		return s
	}
	for k := range s.out {
		s.out[k], s.active[k], s.split[k] = l.room[k].left(), l.activeRoom[k].left(), l.splitRoom[k].left()
	}
	return s
}

// give makes the ledger's rooms a part of the spaces.
func (l *ledger) give(s spaces, streams int, shares int64) {
	for k := range s.out {
		l.room[k].set(s.out[k], streams)
		l.activeRoom[k].set(s.active[k], streams)
		l.splitRoom[k].set(s.split[k], streams)
	}
	l.share.SetOwned(shares)
}

// add adds rooms of another ledger.
func (s *spaces) add(o spaces) {
	for k := range s.out {
		s.out[k].add(o.out[k])
		s.active[k].add(o.active[k])
		s.split[k].add(o.split[k])
	}
}

func (s *space) add(o space) {
	s.blocks += o.blocks
	s.bytes += o.bytes
}

// without returns what is left of the spaces, and whether that is any.
func (s spaces) without(o spaces) (_ spaces, ok bool) {
	bad := int64(0)
	for k := range s.out {
		bad |= s.out[k].take(o.out[k]) | s.active[k].take(o.active[k]) | s.split[k].take(o.split[k])
	}
	return s, bad >= 0
}

// take returns a negative number when there was less.
func (s *space) take(o space) int64 {
	s.blocks -= o.blocks
	s.bytes -= o.bytes
	return s.blocks | s.bytes
}

// noteOut notes that a block left the free set for the program.
func (s *Stream) noteOut(k kind, size, requested int64) {
	p := &s.ledger.pools[k]
	p[outBlocks].add(1)
	p[outBytes].add(size)
	p[requestedBytes].add(requested)
	l, b := &s.ledger, &s.c.books
	left := l.room[k].take(size) | l.room[all].take(size)
	if b.crossed.Load() {
		left |= l.activeRoom[k].take(size) | l.activeRoom[all].take(size)
	}
	if left < 0 || l.share.Load() != b.shares.Load() {
		s.fold()
	}
}

// noteFreed notes that the program gave a block back for good.
func (s *Stream) noteFreed(k kind, size, requested int64) {
	if s.c.books.crossed.Load() {
		s.ledger.activeRoom[k].give(1, requested)
		s.ledger.activeRoom[all].give(1, requested)
	}
	s.noteBack(k, size, requested)
}

// noteBack notes that the program gave a block back. There is room again for
// what was requested; of what was rounded up, nothing is sure to come back.
func (s *Stream) noteBack(k kind, size, requested int64) {
	s.ledger.room[k].give(1, requested)
	s.ledger.room[all].give(1, requested)
	p := &s.ledger.pools[k]
	p[outBlocks].take(1)
	p[outBytes].take(size)
	p[requestedBytes].take(requested)
}

// notePending notes a block that the program gave back and that begins to
// wait for streams. It stays active.
func (s *Stream) notePending(k kind, size, requested int64) {
	if b := &s.c.books; !b.crossed.Load() {
		b.crossed.Store(true)
		b.shares.Add(1) // there are no active rooms yet
	}
	s.ledger.pools[k][pendingBlocks].add(1)
	s.ledger.pools[k][pendingBytes].add(size)
	s.noteBack(k, size, requested)
}

// noteDone notes a block that no longer waits.
func (s *Stream) noteDone(k kind, size int64) {
	s.ledger.activeRoom[k].give(1, size)
	s.ledger.activeRoom[all].give(1, size)
	s.ledger.pools[k][pendingBlocks].take(1)
	s.ledger.pools[k][pendingBytes].take(size)
}

// noteHits notes that a block went through a magazine n times.
func (s *Stream) noteHits(b *block.Block, n int64) {
	p := &s.ledger.pools[s.c.kindOfSize(b.Size)]
	p[outBlocks].pass(n)
	p[outBytes].pass(n * b.Size)
	p[requestedBytes].pass(n * b.Requested())
	p[magazineHits].add(n)
}

// noteSplit notes a free block that shares its segment with others.
func (s *Stream) noteSplit(k kind, bytes int64) {
	p := &s.ledger.pools[k]
	p[splits].add(1)
	p[splitBytes].add(bytes)
	if l := &s.ledger; l.splitRoom[k].take(bytes)|l.splitRoom[all].take(bytes) < 0 || l.share.Load() != s.c.books.shares.Load() {
		s.fold()
	}
}

// noteUnsplit notes n such blocks that left the free set. With a negative n
// they are back as if they had not left.
func (s *Stream) noteUnsplit(k kind, n, bytes int64) {
	if n > 0 {
		s.ledger.splitRoom[k].give(n, bytes)
		s.ledger.splitRoom[all].give(n, bytes)
	}
	p := &s.ledger.pools[k]
	p[splits].take(n)
	p[splitBytes].take(bytes)
	if n < 0 {
		s.fold() // the rooms are new then
	}
}

// noteSegment notes a segment, or a chunk, that came from the device.
func (s *Stream) noteSegment(k kind, size int64) {
	s.ledger.pools[k][segments].add(1)
	s.ledger.pools[k][reservedBytes].add(size)
	s.fold()
}

// noteSegmentsGone notes n that went back.
func (s *Stream) noteSegmentsGone(k kind, n, bytes int64) {
	s.ledger.pools[k][segments].take(n)
	s.ledger.pools[k][reservedBytes].take(bytes)
}
