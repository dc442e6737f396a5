package model

import (
	"errors"
	"slices"

	"github.com/cupool/cupool"
)

// Calls that end the life of blocks, or suspend it, and Hold, which forbids that.

// hold is a block that Hold keeps.
type hold struct {
	b       *Block
	release func()
}

// holdOrRelease holds a block, or ends a hold, also one of another goroutine.
func (r *runner) holdOrRelease() {
	if r.n(3) == 0 {
		r.release(int(r.next()))
		return
	}
	b := r.pickBlock()
	if b == nil || b.via != nil {
		return
	}
	r.logf(" %v", b.Block)
	p := b.pool
	r.mu.Lock()
	p.held = true
	r.mu.Unlock()
	release, err := p.Hold(b.Block)
	want := r.freeReasons(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sleepsLocked(want, p)
	if r.judgeLocked("Hold", err, want); err != nil {
		return
	}
	r.held = append(r.held, &hold{b, release})
	if b.holds++; b.over {
		r.failLocked("errors: Hold of %v has succeeded, and so has a call that ended it", b)
	}
}

// release ends a hold, twice. It reports whether there was one.
func (w *world) release(k int) bool {
	w.mu.Lock()
	if len(w.held) == 0 {
		w.mu.Unlock()
		return false
	}
	k %= len(w.held)
	h := w.held[k]
	w.held = slices.Delete(w.held, k, k+1)
	h.b.holds--
	w.mu.Unlock()
	h.release()
	h.release()
	return true
}

// reset ends the life of all blocks of a pool.
func (r *runner) reset() {
	p := r.pickPool()
	r.logf(" %s", p.name)
	p.asking.Lock() // nothing may be allocated
	defer p.asking.Unlock()
	r.closeGuests(p)
	r.mu.Lock()
	p.resetting = true // what a Close ends and does not, Reset may end
	r.mu.Unlock()
	list := r.ends(p, everything)
	r.mu.Lock()
	before := r.heldLocked(p)
	p.resets++
	r.mu.Unlock()
	err := p.Reset()
	r.judge("Reset", err, r.house(p).and(r.whileHeld(before, p)))
	if err == nil {
		r.over("Reset of "+p.name, list)
		for _, t := range list { // which mistakes use
			if i := slices.Index(r.blocks, t.b); i >= 0 && t.b.via == nil {
				r.old = append(r.old, t.b)
			}
		}
	}
	r.mu.Lock()
	p.alone, p.resetting = false, false
	p.resets++
	if err == nil {
		p.lastReset, p.waiting = p.resets, nil
		list = nil
	}
	if p.state == open {
		list, p.gone = append(list, p.gone...), nil
	}
	r.mu.Unlock()
	r.revive(p, list)
	if err != nil || !r.exact {
		return
	}
	r.drained(p)
	if st := p.Stats(); !r.guards && (st.All.ReservedBytes.Current != 0 || st.All.Allocation.Peak != 0) {
		r.fail("books: after Reset %s has %d bytes and a peak of %d blocks", p.name, st.All.ReservedBytes.Current, st.All.Allocation.Peak)
	}
}

// sleepOrWake puts a pool to sleep, or wakes one that sleeps.
func (r *runner) sleepOrWake() {
	p, how := r.pickPool(), r.n(4)
	r.mu.Lock()
	i := slices.IndexFunc(r.pools, func(p *Pool) bool { return p.asleep && p.state == open })
	if i >= 0 && how < 3 {
		p = r.pools[i]
	}
	r.mu.Unlock()
	if i >= 0 && how < 3 {
		r.wake(p)
		return
	}
	r.sleep(p, how)
}

// turns says that a call of Sleep or Wake begins. Until it has ended nothing uses the
// blocks of the pool.
func (r *runner) turns(p *Pool, sleep bool) {
	p.turning.Lock()
	defer p.turning.Unlock()
	p.using.Lock()
	defer p.using.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.turns++; !sleep {
		return
	}
	for _, b := range r.live {
		if b.pool == p {
			b.before = r.workLocked(b)
		}
	}
	p.asleep, p.slept = true, true
}

// turned says that a call of Sleep or Wake has ended, and whether the pool sleeps, unless
// other calls are under way: then the last one asks the pool.
func (r *runner) turned(p *Pool, asleep bool) {
	p.turning.Lock()
	defer p.turning.Unlock()
	var err error
	if !r.exact {
		err = p.Err()
		asleep = errors.Is(err, cupool.ErrAsleep)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.turns--; p.turns > 0 || errors.Is(err, cupool.ErrClosed) { // it may be open again
		return
	}
	p.asleep = asleep
	for _, b := range r.live {
		switch {
		case b.pool != p:
		case asleep:
			b.pieces = nil
		case p.state == open:
			r.placeLocked(b)
		}
	}
}

// sleep puts a pool to sleep. It keeps what some blocks hold: where others may write
// meanwhile, small ones.
func (r *runner) sleep(p *Pool, how int) {
	want := r.house(p)
	if p.segments {
		want = &reasons{[]error{cupool.ErrNotSupported}, true}
	}
	r.mu.Lock()
	before := r.heldLocked(p)
	was := p.asleep
	r.mu.Unlock()
	if !p.segments {
		want = want.and(r.whileHeld(before, p))
	}
	kept := func(b *Block) bool {
		switch {
		case b.of != nil || b.inner != nil: // the whole of a guest's memory is kept
			return true
		case !r.exact:
			return b.Size() <= 64*kib
		}
		return b.value != 0 && b.value%2 == byte(how%2)
	}
	r.turns(p, !r.exact || !want.must)
	err := p.Sleep(func(h cupool.Block) bool {
		if !r.exact {
			return h.Size() <= 64*kib || r.isInner(p, h)
		}
		i := slices.IndexFunc(r.live, func(b *Block) bool { return b.Block == h })
		if i < 0 {
			if !p.loose {
				r.fail("books: Sleep asks whether to keep %v, which is not live", h)
			}
			return p.loose
		}
		return kept(r.live[i])
	})
	if !r.exact && !p.segments {
		want = r.house(p).and(r.whileHeld(before, p))
	}
	r.judge("Sleep", err, want)
	if err == nil {
		r.loses(p, kept)
	}
	r.turned(p, err == nil || was)
	if err != nil || !r.exact {
		return
	}
	r.drained(p)
	if n := p.Stats().All.ReservedBytes.Current; n != 0 {
		r.fail("books: %d bytes are reserved by %s, which sleeps", n, p.name)
	}
}

// loses says that Sleep has lost what blocks hold that were not kept.
func (r *runner) loses(p *Pool, kept func(*Block) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.live {
		if b.pool == p && !kept(b) {
			b.lost = true
		}
	}
}

// isInner reports whether a guest hands out parts of a block.
func (r *runner) isInner(p *Pool, h cupool.Block) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.live, func(b *Block) bool { return b.Block == h })
	return i >= 0 && r.live[i].inner != nil || i < 0 && p.loose
}

// wake wakes a pool that sleeps.
func (r *runner) wake(p *Pool) {
	need := p.Stats().AsleepBytes
	want := &reasons{}
	if room := r.room(p); need > room {
		for _, o := range r.openPools() {
			if st := o.c.Stats(); o != p { // they give back what they cache
				room += st.All.ReservedBytes.Current - st.LiveBytes
			}
		}
		want.add(r.exact && r.d.sim != nil && need > room, cupool.ErrOutOfMemory)
	}
	r.turns(p, false)
	err := p.Wake()
	r.mu.Lock()
	if p.retired {
		want.add(false, cupool.ErrClosed)
	}
	r.mu.Unlock()
	if !r.exact {
		want = want.and(r.allow(p))
		want.add(false, cupool.ErrOutOfMemory) // others take memory
	}
	r.judge("Wake", err, want)
	r.turned(p, err != nil)
}
