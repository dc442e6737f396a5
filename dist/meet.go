package dist

import (
	"fmt"
	"sync"
	"time"

	"github.com/cupool/cupool"
)

// A room is where the ranks of one process meet. They work on each other's memory
// there: an AllReduce has each rank add up a part of the elements, and write the
// sums to all.
type room struct {
	timeout time.Duration
	ranks   []*local

	mu      sync.Mutex // guards what follows, and the state of all ranks
	changed sync.Cond
	meeting *meeting // that ranks have come to, but not all
	mail    map[pair][]*letter
}

// A meeting is the collective calls of one batch of each rank.
type meeting struct {
	calls      [][]call // by rank; nil: not here
	here, left int      // ranks
}

// A letter is what a rank sends to another one, who reads it from the sender's
// memory.
type letter struct {
	call        *call
	taken, read bool
}

// A pair is the rank that sends and the one that receives.
type pair struct{ from, to int }

// exec runs the calls of a batch, and returns when nobody reads this rank's memory
// any more.
func (c *local) exec(b *batch) error {
	b.collective, b.sent = b.collective[:0], b.sent[:0]
	err := c.make(b)
	for _, l := range b.sent {
		err = c.delivered(l, err)
	}
	return err
}

// make makes the calls: Sends go first, and do not wait for the Recvs.
func (c *local) make(b *batch) error {
	for i := range b.calls {
		switch k := &b.calls[i]; k.kind {
		case send:
			if err := c.send(b, k); err != nil {
				return err
			}
		case recv:
		default:
			b.collective = append(b.collective, *k)
		}
	}
	for i := range b.calls {
		if k := &b.calls[i]; k.kind == recv {
			if err := c.receive(k); err != nil {
				return err
			}
		}
	}
	if len(b.collective) == 0 {
		return nil
	}
	return c.meet(b.collective)
}

// meet makes the calls together with the other ranks. What was begun is finished,
// whoever fails meanwhile, as ranks read each other's memory.
func (c *local) meet(calls []call) error {
	r := c.room
	m, err := c.come(calls)
	if err != nil {
		return err
	}
	for i := range calls {
		c.work(m.calls, i)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m.left++
	r.changed.Broadcast()
	for m.left < c.size { // others read and write this rank's memory
		r.changed.Wait()
	}
	return nil
}

// come waits until all ranks are there, with the same calls.
func (c *local) come(calls []call) (*meeting, error) {
	r := c.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if r.meeting == nil {
		r.meeting = &meeting{calls: make([][]call, c.size)}
	}
	m := r.meeting
	for o, theirs := range m.calls {
		if err := differ(c.rank, o, calls, theirs); theirs != nil && err != nil {
			return nil, c.failLocked(err)
		}
		if k := r.ranks[o].awaits; k != nil && k.peer == c.rank && !r.ranks[o].comes() {
			return nil, c.failLocked(fmt.Errorf("dist: rank %d called %v, and rank %d called %v: %w: %s", c.rank, &calls[0], o, k, cupool.ErrSizeMismatch, sameCalls))
		}
	}
	m.calls[c.rank] = calls
	if m.here++; m.here == c.size {
		r.meeting = nil
		r.changed.Broadcast()
	}
	return m, c.waitLocked(func() bool { return m.here == c.size }, m.missing)
}

func (m *meeting) missing() (ranks []int) {
	for rank, calls := range m.calls {
		if calls == nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

const sameCalls = "all ranks make the same calls in the same order"

// differ is the error of ranks that call different things.
func differ(rank, other int, ours, theirs []call) error {
	for i := range min(len(ours), len(theirs)) {
		if !ours[i].same(&theirs[i]) {
			return fmt.Errorf("dist: rank %d called %v, and rank %d called %v: %w: %s", rank, &ours[i], other, &theirs[i], cupool.ErrSizeMismatch, sameCalls)
		}
	}
	if len(ours) != len(theirs) {
		return fmt.Errorf("dist: rank %d made %d calls as one, and rank %d %d: %w: all ranks group the same calls", rank, len(ours), other, len(theirs), cupool.ErrSizeMismatch)
	}
	return nil
}

// send puts a letter into the mail.
func (c *local) send(b *batch, k *call) error {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	l, way := &letter{call: k}, pair{c.rank, k.peer}
	c.room.mail[way] = append(c.room.mail[way], l)
	b.sent = append(b.sent, l)
	c.room.changed.Broadcast()
	return nil
}

// receive waits for a letter and reads it.
func (c *local) receive(k *call) error {
	r, way := c.room, pair{k.peer, c.rank}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.awaitLocked(k, func() bool { return len(r.mail[way]) > 0 }); err != nil {
		return err
	}
	l := r.mail[way][0]
	if l.call.src.Count != k.dst.Count || l.call.src.Type != k.dst.Type {
		return c.failLocked(fmt.Errorf("dist: rank %d called %v, and rank %d called %v: %w: %s", c.rank, k, k.peer, l.call, cupool.ErrSizeMismatch, sameCalls))
	}
	r.mail[way] = r.mail[way][1:]
	l.taken = true
	r.mu.Unlock()
	copy(k.out, l.call.in)
	r.mu.Lock()
	l.read = true
	r.changed.Broadcast()
	return nil
}

// delivered waits until a letter is read, or until nobody will read it, where the
// batch has failed.
func (c *local) delivered(l *letter, err error) error {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if err == nil {
		err = c.awaitLocked(l.call, func() bool { return l.taken })
	}
	for l.taken && !l.read {
		c.room.changed.Wait()
	}
	return err
}

// awaitLocked waits for the peer of a Send or Recv. A peer that waits at a meeting
// for this rank does not come.
func (c *local) awaitLocked(k *call, ready func() bool) error {
	if m := c.room.meeting; m != nil && !ready() && m.calls[k.peer] != nil {
		return c.failLocked(fmt.Errorf("dist: rank %d called %v, and rank %d called %v: %w: %s", c.rank, k, k.peer, &m.calls[k.peer][0], cupool.ErrSizeMismatch, sameCalls))
	}
	c.awaits, c.comes = k, ready
	defer func() { c.awaits, c.comes = nil, nil }()
	return c.waitLocked(ready, func() []int { return []int{k.peer} })
}

// piece is how many bytes a rank adds up at once: they fit in the processor's
// cache.
const piece = 128 << 10

// work does this rank's part of the i-th call of all ranks.
func (c *local) work(all [][]call, i int) {
	k := &all[c.rank][i]
	switch k.kind {
	case allReduce:
		size := int(k.src.Type.Size())
		first, end := k.src.Count*c.rank/c.size*size, k.src.Count*(c.rank+1)/c.size*size
		for ; first < end; first += piece {
			sum := c.scratch(min(piece, end-first))
			c.reduce(sum, all, i, first)
			for o := range all {
				copy(all[o][i].out[first:], sum)
			}
		}
	case reduceScatter:
		for at := 0; at < len(k.out); at += piece {
			out := k.out[at:min(at+piece, len(k.out))]
			sum := out
			if k.dst.Ptr == k.src.Ptr+cupool.Ptr(c.rank*len(k.out)) { // it is to be read yet
				sum = c.scratch(len(out))
			}
			c.reduce(sum, all, i, c.rank*len(k.out)+at)
			copy(out, sum)
		}
	case allGather:
		for o := range all {
			copy(k.out[o*len(k.in):], all[o][i].in)
		}
	case broadcast:
		if k.peer != c.rank || k.dst.Ptr != k.src.Ptr {
			copy(k.out, all[k.peer][i].in)
		}
	}
}

// scratch returns n bytes, a piece at most, for sums.
func (c *local) scratch(n int) []byte {
	if c.sum == nil {
		c.sum = aligned(piece)
	}
	return c.sum[:n]
}

// reduce sets sum to the operation of the i-th call over what the ranks have from
// an offset on, in the order of the ranks.
func (c *local) reduce(sum []byte, all [][]call, i, at int) {
	k := &all[c.rank][i]
	part := func(rank int) []byte { return all[rank][i].in[at : at+len(sum)] }
	combine(k.src.Type, k.op, sum, part(0), part(1))
	for rank := 2; rank < c.size; rank++ {
		combine(k.src.Type, k.op, sum, sum, part(rank))
	}
	if k.op == Avg {
		divide(k.src.Type, sum, c.size)
	}
}
