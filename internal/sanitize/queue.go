package sanitize

import (
	"errors"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/epoch"
)

// A Queue holds the blocks of one heap that were freed and that no other stream
// uses any more, in the order of their frees. A block is checked when the work
// of its stream on it is done, stays until as many bytes as the Quarantine has
// came after it, and is then checked again. The heap's lock guards the Queue.
type Queue struct {
	pool   *Pool
	clock  *epoch.Clock
	stream device.Stream

	fifo    []entry
	checked int // of them, the first that were checked
	bytes   int64
}

// entry is a block that was freed.
type entry struct {
	id    block.ID
	b     *block.Block
	epoch uint64 // when the work on it is done
	blank bool   // there was no memory behind it
	full  bool   // it is filled with Freed
}

// NewQueue returns the queue of a heap.
func (p *Pool) NewQueue(k *epoch.Clock, s device.Stream) *Queue {
	return &Queue{pool: p, clock: k, stream: s}
}

// Bytes returns the bytes of the blocks that wait.
func (q *Queue) Bytes() int64 {
	if q == nil {
		return 0
	}
	return q.bytes
}

// Epoch returns the epoch of a block that was not checked yet, or 0.
func (q *Queue) Epoch(id block.ID) uint64 {
	for _, e := range q.fifo[q.checked:] {
		if e.id == id {
			return e.epoch
		}
	}
	return 0
}

// Push adds a block. When it cannot be filled it is as if poison were off.
func (q *Queue) Push(id block.ID, b *block.Block) {
	e, p := entry{id: id, b: b, blank: q.pool.Asleep.Load()}, q.pool
	if p.Delays() && !e.blank {
		if p.Poison && !p.Guard && !q.clock.Captured() {
			e.full = p.fill(device.Ptr(b.Addr()), Freed, b.Requested(), q.stream) == nil
		}
		e.epoch = q.clock.Open()
	}
	q.fifo = append(q.fifo, e)
	q.bytes += b.Size
}

// Drain checks the blocks whose work is done and gives the oldest of those to
// back until at most limit bytes wait. over says that the work on all is done.
// It returns how many went, and what the device failed with for one that stays. While the
// stream is captured, nothing goes.
func (q *Queue) Drain(limit int64, over bool, back func(block.ID, *block.Block)) (n int, err error) {
	if q.clock.Captured() {
		return 0, nil
	}
	for q.checked < len(q.fifo) && (over || q.fifo[q.checked].epoch <= q.clock.Done()) {
		if err = q.check(&q.fifo[q.checked]); err != nil {
			break
		}
		q.checked++
	}
	for ; q.checked > 0 && q.bytes > limit; n++ {
		e := q.fifo[0]
		if failed := q.leave(e); failed != nil {
			err = errors.Join(err, failed)
			break
		}
		q.fifo = q.fifo[1:]
		q.checked--
		q.bytes -= e.b.Size
		back(e.id, e.b)
	}
	if len(q.fifo) == 0 {
		q.fifo = nil
	}
	return n, err
}

// check looks at a block whose work is done, and with guards takes its memory
// away. It fails for one that has to stay unchecked.
func (q *Queue) check(e *entry) error {
	p := q.pool
	if e.blank {
		return nil
	}
	p.CheckEnd(e.id, e.b, q.stream)
	if p.Guards == nil {
		return nil
	}
	if p.ZeroOnFree {
		p.note(&p.bare, e.id, e.b) // the canaries go, also where a call fails and it comes here again
		if err := p.zeroNow(e.b); err != nil {
			return err
		}
	}
	err := p.Failed(p.Guards.Unmap(device.Ptr(e.b.Addr())))
	e.blank = err == nil
	return err
}

// leave looks at a block for the last time, and fills it with zeros where that
// is wanted. It fails for one that has to stay.
func (q *Queue) leave(e entry) error {
	p := q.pool
	if !e.blank {
		q.look(e)
		if p.ZeroOnFree {
			if err := p.Zero(e.b, q.stream); err != nil {
				return err
			}
		}
	}
	p.forget(e.id)
	return nil
}

// Look checks every block whose work is done, where it is.
func (q *Queue) Look() {
	for _, e := range q.fifo {
		if e.epoch <= q.clock.Done() && !e.blank && !q.pool.Asleep.Load() {
			q.look(e)
		}
	}
}

func (q *Queue) look(e entry) {
	q.pool.CheckEnd(e.id, e.b, q.stream)
	if e.full {
		q.pool.checkFreed(e.id, e.b, q.stream)
	}
}

// Blank says that there is no memory behind the blocks any more.
func (q *Queue) Blank() {
	for i := range q.fifo {
		q.fifo[i].blank = true
	}
}

// MoveTo hands the blocks over to the queue of another heap. The work on them is done.
func (q *Queue) MoveTo(to *Queue) {
	if q == nil {
		return
	}
	for _, e := range q.fifo {
		e.epoch = 0
		to.fifo = append(to.fifo, e)
	}
	to.bytes += q.bytes
	q.Drop()
}

// Drop forgets all blocks, for a heap that is given back as a whole.
func (q *Queue) Drop() { q.fifo, q.checked, q.bytes = nil, 0, 0 }
