package epoch

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/cupool/cupool/internal/block"
)

// An event is recorded at once for a block of eagerBytes or more, and else
// when batchBlocks of one heap wait for the same epoch. Fewer wait until
// somebody misses them: the event is then later than it might be, by what the
// stream was given meanwhile, and thousands of small frees cost few driver
// calls.
const (
	eagerBytes  = 2 << 20
	batchBlocks = 32
)

// Block.Uses names the streams that were recorded on a block. Nearly always it
// is one, and Uses is its slot, plus one. The streams of a block that has more
// are in a set, and Uses is the set's number with manyUses.
const manyUses = 1 << 31

// Pending holds the blocks of one heap that were freed while streams may still
// use them, and the streams that were recorded on blocks. The heap's lock
// guards it.
type Pending struct {
	Table *block.Table
	Clock func(slot uint32) *Clock // of a stream that a block names

	lists   []waitList
	sets    []useSet
	free    []uint32 // sets that are not in use
	carried []int    // by slot: how many blocks and sets name the stream
	bytes   int64    // of blocks that wait
}

// waiter is a block that waits for an epoch of a stream.
type waiter struct {
	id    block.ID
	epoch uint64
}

// waitList holds the blocks that wait for one stream, by epoch.
type waitList struct {
	clock *Clock
	fifo  []waiter
	head  int // of fifo
	open  int // how many have the epoch of the last one
}

// useSet is the streams that were recorded on one block, where they are several, or
// where others hold it.
type useSet struct {
	clocks  []*Clock
	holds   int // see Hold
	waiting int // of both, while the block is Pending
}

// Bytes returns the bytes of the blocks that wait.
func (p *Pending) Bytes() int64 { return p.bytes }

// Names reports whether a block names the stream of a slot.
func (p *Pending) Names(slot uint32) bool { return int(slot) < len(p.carried) && p.carried[slot] > 0 }

// set returns the set of a block that has one, or nil.
func (p *Pending) set(b *block.Block) *useSet {
	if b.Uses()&manyUses == 0 {
		return nil
	}
	return &p.sets[b.Uses()&^manyUses]
}

func (p *Pending) carry(slot uint32, n int) {
	for int(slot) >= len(p.carried) {
		p.carried = append(p.carried, 0)
	}
	p.carried[slot] += n
}

// Record notes that a stream uses a live block that is not homed. A stream that
// has ended is done with it already.
func (p *Pending) Record(b *block.Block, k *Clock) {
	if b.Uses() == k.slot+1 || k.Ended() {
		return
	}
	if b.Uses() != 0 {
		p.forgetEnded(b)
	}
	switch {
	case b.Uses() == 0:
		b.SetUses(k.slot + 1)
		p.carry(k.slot, 1)
		return
	case b.Uses()&manyUses == 0:
		p.giveSet(b)
	}
	if set := p.set(b); !slices.Contains(set.clocks, k) {
		set.clocks = append(set.clocks, k)
		p.carry(k.slot, 1)
	}
}

// forgetEnded forgets those of the streams recorded on a live block that have ended, as a block
// may be used on one stream after the other for as long as the program runs.
func (p *Pending) forgetEnded(b *block.Block) {
	if set := p.set(b); set != nil {
		set.clocks = slices.DeleteFunc(set.clocks, func(k *Clock) bool {
			ended := k.Ended()
			if ended {
				p.carry(k.slot, -1)
			}
			return ended
		})
	} else if p.Clock(b.Uses() - 1).Ended() {
		p.Forget(b)
	}
}

// Hold makes a live block that is not homed wait for an Unhold once it is freed.
func (p *Pending) Hold(b *block.Block) {
	if p.set(b) == nil {
		p.giveSet(b)
	}
	p.set(b).holds++
}

// Unhold ends a Hold of a block, and calls done where it is Pending and waits for
// nothing else.
func (p *Pending) Unhold(id block.ID, b *block.Block, done func(block.ID, *block.Block)) {
	set := p.set(b)
	set.holds--
	if b.Word().State() == block.Pending {
		if set.waiting--; set.waiting == 0 {
			p.finish(b)
			done(id, b)
		}
	} else if set.holds == 0 && len(set.clocks) == 0 {
		p.Forget(b)
	}
}

// giveSet gives a block a set, with the stream that it names, if any.
func (p *Pending) giveSet(b *block.Block) {
	i := p.newSet()
	if set := &p.sets[i]; b.Uses() != 0 {
		set.clocks = append(set.clocks, p.Clock(b.Uses()-1))
	}
	b.SetUses(i | manyUses)
}

// newSet returns the number of a set that is not in use.
func (p *Pending) newSet() uint32 {
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		return i
	}
	p.sets = append(p.sets, useSet{})
	return uint32(len(p.sets)) - 1
}

// Forget forgets which streams were recorded on a block.
func (p *Pending) Forget(b *block.Block) {
	if set := p.set(b); set != nil {
		for _, k := range set.clocks {
			p.carry(k.slot, -1)
		}
		clear(set.clocks)
		*set = useSet{clocks: set.clocks[:0]}
		p.free = append(p.free, b.Uses()&^manyUses)
	} else if b.Uses() != 0 {
		p.carry(b.Uses()-1, -1)
	}
	b.SetUses(0)
}

// Add makes a Pending block wait for the streams recorded on it that have not
// ended, and for who holds it, and reports whether there are any. A failing event leaves the block
// waiting, which is safe, until a later one succeeds.
func (p *Pending) Add(id block.ID, b *block.Block) (waits bool) {
	p.bytes += b.Size
	n := 0
	if set := p.set(b); set == nil {
		n = p.await(p.Clock(b.Uses()-1), id, b.Size)
	} else {
		for _, k := range set.clocks {
			n += p.await(k, id, b.Size)
		}
		n += set.holds
		set.waiting = n
	}
	if n == 0 {
		p.finish(b)
	}
	return n > 0
}

// finish forgets a block that waits for nothing any more.
func (p *Pending) finish(b *block.Block) {
	p.Forget(b)
	p.bytes -= b.Size
}

// await makes a block wait for the open epoch of a stream, and returns how many
// waits that makes.
func (p *Pending) await(k *Clock, id block.ID, size int64) int {
	if k.Ended() {
		return 0 // no later than this its lists are emptied, under this lock
	}
	epoch := k.Open()
	l := p.list(k)
	if n := len(l.fifo); n == l.head || l.fifo[n-1].epoch != epoch {
		l.open = 0
	}
	l.fifo = append(l.fifo, waiter{id, epoch})
	if l.open++; size >= eagerBytes || l.open >= batchBlocks {
		k.RecordAhead()
	}
	return 1
}

// find returns the list of blocks that wait for a stream, or nil.
func (p *Pending) find(k *Clock) *waitList {
	for i := range p.lists {
		if p.lists[i].clock == k {
			return &p.lists[i]
		}
	}
	return nil
}

// list is find, and makes the list when there is none.
func (p *Pending) list(k *Clock) *waitList {
	if l := p.find(k); l != nil {
		return l
	}
	p.lists = append(p.lists, waitList{clock: k})
	return &p.lists[len(p.lists)-1]
}

// Each calls f for every wait: a block, and the epoch that it waits for.
func (p *Pending) Each(f func(k *Clock, epoch uint64, id block.ID)) {
	for i := range p.lists {
		l := &p.lists[i]
		for _, w := range l.fifo[l.head:] {
			f(l.clock, w.epoch, w.id)
		}
	}
}

// Of lists what a block waits for.
func (p *Pending) Of(id block.ID) (points []Point) {
	p.Each(func(k *Clock, epoch uint64, of block.ID) {
		if of == id {
			points = append(points, Point{k, epoch})
		}
	})
	return points
}

// Advance learns how far the streams are that blocks wait for.
func (p *Pending) Advance(how Insist) (err error) {
	for i := range p.lists {
		if l := &p.lists[i]; l.head < len(l.fifo) {
			err = errors.Join(err, l.clock.Advance(how))
		}
	}
	return err
}

// Collect calls done for every block whose waits are known to be over, and
// returns their number.
func (p *Pending) Collect(done func(block.ID, *block.Block)) (n int) {
	for i := range p.lists {
		l := &p.lists[i]
		n += p.pop(l, l.clock.Done(), 0, done)
	}
	return n
}

// Pop is Collect where the heap's stream was told to wait for an epoch of another stream, which may
// not be over. So the blocks count as given back no earlier than at the device's time of that wait.
func (p *Pending) Pop(k *Clock, upTo, time uint64, done func(block.ID, *block.Block)) {
	if l := p.find(k); l != nil {
		p.pop(l, upTo, time, done)
	}
}

// End is Collect for a stream that has ended. Its list goes.
func (p *Pending) End(k *Clock, done func(block.ID, *block.Block)) {
	if i := slices.IndexFunc(p.lists, func(l waitList) bool { return l.clock == k }); i >= 0 {
		p.pop(&p.lists[i], math.MaxUint64, 0, done)
		p.lists = slices.Delete(p.lists, i, i+1)
	}
}

// MoveBlock hands the streams that were recorded on a live or pending block over to another
// heap's list.
func (p *Pending) MoveBlock(b *block.Block, to *Pending) {
	if set := p.set(b); set != nil {
		for _, k := range set.clocks {
			p.carry(k.slot, -1)
			to.carry(k.slot, 1)
		}
		p.free = append(p.free, b.Uses()&^manyUses)
		i := to.newSet()
		to.sets[i], *set = *set, useSet{}
		b.SetUses(i | manyUses)
	} else if b.Uses() != 0 {
		p.carry(b.Uses()-1, -1)
		to.carry(b.Uses()-1, 1)
	}
}

// MoveWaits hands all waits over to another heap's list.
func (p *Pending) MoveWaits(to *Pending) {
	for _, l := range p.lists {
		if l.head == len(l.fifo) {
			continue
		}
		into := to.list(l.clock)
		into.fifo = append(into.fifo, l.fifo[l.head:]...)
		slices.SortStableFunc(into.fifo[into.head:], func(a, b waiter) int { return cmp.Compare(a.epoch, b.epoch) })
	}
	to.bytes += p.bytes
	p.Drop()
}

// Drop forgets all waits, for a heap that is given back as a whole.
func (p *Pending) Drop() { p.lists, p.bytes = nil, 0 }

// pop ends the waits of a list up to an epoch. Their blocks count as given back no earlier than at
// a time of the device.
func (p *Pending) pop(l *waitList, upTo, time uint64, done func(block.ID, *block.Block)) (n int) {
	for l.head < len(l.fifo) && l.fifo[l.head].epoch <= upTo {
		id := l.fifo[l.head].id
		l.head++
		b := p.Table.At(id)
		if b.GivenBack() < time {
			b.SetGivenBack(time)
		}
		if set := p.set(b); set != nil {
			if set.waiting--; set.waiting > 0 {
				continue
			}
		}
		p.finish(b)
		done(id, b)
		n++
	}
	l.compact()
	return n
}

// compact drops what was taken from the front of the list.
func (l *waitList) compact() {
	if l.head == len(l.fifo) {
		l.fifo, l.head = l.fifo[:0], 0
	} else if l.head > len(l.fifo)/2 {
		l.fifo = append(l.fifo[:0], l.fifo[l.head:]...)
		l.head = 0
	}
}

// Carried returns how many blocks and sets name each stream, for checks.
func (p *Pending) Carried() []int { return p.carried }

// Oldest returns when at least need bytes of the blocks that wait are free, or as many as
// are before streams have so many events in flight behind.
func (p *Pending) Oldest(need int64, behind int) (points []Point) {
	for i := range p.lists {
		l := &p.lists[i]
		last, x := l.clock.ahead(behind), Point{Clock: l.clock}
		for _, w := range l.fifo[l.head:] {
			if w.epoch > last || need <= 0 {
				break
			}
			need -= p.Table.At(w.id).Size
			x.Epoch = w.epoch
		}
		if x.Epoch > 0 {
			points = append(points, x)
		}
	}
	return points
}
