//go:build invariants

package magazine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/atomic"
	"github.com/cupool/cupool/internal/atomic/interleave"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/testkit"
)

// The lock-free protocols of this package, in all orders of what goroutines do.

// explore plays a program in all orders, or in so many of them as are to be had
// quickly where those are too many.
func explore(t *testing.T, most int, setup func(r *interleave.Run)) {
	t.Helper()
	r := interleave.Explore(interleave.Options{Max: most}, setup)
	t.Log(r)
	if r.Failure != nil {
		require.FailNow(t, r.Failure.Error())
	}
	if most == 0 {
		require.True(t, r.Complete)
	}
}

// procsOf returns n processors whose goroutines leave the fence to barrier, or not.
func procsOf(n int, plain bool) *Procs {
	p := &Procs{list: make([]proc, n)}
	p.plain.Store(plain)
	for i := range p.list {
		p.list[i].plain.Store(plain)
	}
	return p
}

// inside goes where only one may be, once.
type inside struct{ who atomic.Uint32 }

func (x *inside) visit() {
	if x.who.Add(1) != 1 {
		panic("somebody else is inside")
	}
	if x.who.Add(^uint32(0)) != 0 {
		panic("somebody else came inside")
	}
}

// A goroutine that comes, and one or two that close the processor, are never inside
// at the same time: with the barrier, with fences, and where the barrier is refused
// on the way.
func TestInsideInAllOrders(t *testing.T) {
	for name, x := range map[string]struct {
		plain     bool
		refuse    int // barriers that work; negative: all
		comings   int
		closings  int
		onAnother bool // the second coming is by a third goroutine, on the same processor
		most      int
	}{
		"barrier":                      {plain: true, refuse: -1, comings: 2, closings: 1},
		"barrier, closed twice":        {plain: true, refuse: -1, comings: 1, closings: 2},
		"fences":                       {refuse: -1, comings: 2, closings: 2},
		"refused":                      {plain: true, comings: 2, closings: 1},
		"refused, closed twice":        {plain: true, comings: 2, closings: 2},
		"refused at the second":        {plain: true, refuse: 1, comings: 1, closings: 2},
		"two goroutines, one for each": {plain: true, refuse: -1, comings: 2, closings: 1, onAnother: true},
	} {
		t.Run(name, func(t *testing.T) {
			explore(t, x.most, func(r *interleave.Run) {
				p := procsOf(1, x.plain)
				var in inside
				if x.refuse >= 0 {
					r.RefuseBarrier(x.refuse)
				}
				come := func(n int) {
					for range n {
						if id := p.enter(); id >= 0 {
							in.visit()
							p.exit(id)
						}
					}
				}
				if x.onAnother {
					r.Go(0, func() { come(1) })
					r.Go(0, func() { come(1) })
				} else {
					r.Go(0, func() { come(x.comings) })
				}
				r.Go(1, func() {
					for range x.closings {
						p.close()
						in.visit()
						p.open()
					}
				})
			})
		})
	}
}

// Two goroutines that close the processors do so for blocks of their own streams:
// neither waits for the other.
func TestTwoClosersInAllOrders(t *testing.T) {
	explore(t, 0, func(r *interleave.Run) {
		p := procsOf(1, true)
		var in [2]inside
		r.Go(0, func() {
			if id := p.enter(); id >= 0 {
				in[0].visit()
				in[1].visit()
				p.exit(id)
			}
		})
		for i := range 2 {
			r.Go(i+1, func() {
				p.close()
				in[i].visit()
				p.open()
			})
		}
	})
}

// world is a cache of one stream with its lock, and who holds which block.
type world struct {
	*pen
	mu    atomic.Mutex // of the stream
	holds map[block.ID]*atomic.Uint32
	used  map[block.ID]bool // blocks that a stream was recorded on
	hits  int64             // generations that went through Get, not booked yet
	books int64             // hits that leavers reported
}

const worldSize = 1000

// newWorld makes a cache with a block for each processor of homes, live there in
// generation 0, and freed.
func newWorld(procs int, homes ...int) (*world, []block.ID) {
	w := &world{pen: penOf(procsOf(procs, true)), holds: map[block.ID]*atomic.Uint32{}, used: map[block.ID]bool{}}
	var ids []block.ID
	for _, home := range homes {
		if err := w.slots.Ensure(1); err != nil {
			panic(err)
		}
		id, b := w.slots.Take()
		b.Size = worldSize
		b.SetRequested(worldSize)
		b.SetOwner(owner)
		b.SetWord(block.MakeWord(0, block.Live))
		w.shards[home].CompareAndSwap(nil, &shard{proc: &w.procs.list[home]})
		w.place(home, id, b, block.Long)
		if !b.FreeHomed(0) {
			panic("not homed")
		}
		w.holds[id] = new(atomic.Uint32)
		ids = append(ids, id)
	}
	return w, ids
}

// take is Get that holds what it finds.
func (w *world) take() (h held, ok bool) {
	id, b, gen, _ := w.Get(worldSize)
	if id == 0 {
		return held{}, false
	}
	w.hold(id)
	w.hits++
	return held{b, gen, id}, true
}

func (w *world) hold(id block.ID) {
	if w.holds[id].Add(1) != 1 {
		panic(fmt.Sprintf("block %d went to two holders", id))
	}
}

func (w *world) letGo(id block.ID) {
	if w.holds[id].Add(^uint32(0)) != 0 {
		panic(fmt.Sprintf("block %d has two holders", id))
	}
}

// free gives a block back as Pool does.
func (w *world) free(h held) {
	w.letGo(h.id)
	if h.b.FreeHomed(h.gen) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if l, ok := w.Leave(h.id); ok {
		w.books += l.Hits
	}
	if word := h.b.Word(); word.Gen() != h.gen || word.State() != block.Live || word.Has(block.Homed) {
		panic(fmt.Sprintf("block %d was taken from its holder: %#x", h.id, word))
	}
	h.b.SetWord(block.MakeWord(h.gen, block.Free))
	h.b.SetUses(0)
}

// record records a stream on a block that the caller holds.
func (w *world) record(h held, stream uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l, ok := w.Leave(h.id); ok {
		w.books += l.Hits
	}
	if word := h.b.Word(); word != block.MakeWord(h.gen, block.Live) {
		panic(fmt.Sprintf("block %d was taken from its holder: %#x", h.id, word))
	}
	h.b.SetUses(stream + 1)
	h.b.MarkUsed()
}

// flush empties the cache.
func (w *world) flush(live bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Flush(live, func(l Leaver) {
		w.books += l.Hits
		if l.Word.State() == block.Cached {
			w.hold(l.ID) // nobody may have it
			w.table.At(l.ID).SetWord(block.MakeWord(l.Word.Gen(), block.Free))
			w.letGo(l.ID)
		}
	})
}

// rehome hands a free block out again, with a home on the caller's processor, and
// returns it.
func (w *world) rehome(id block.ID) (h held, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.table.At(id)
	if b.Word().State() != block.Free {
		return held{}, false
	}
	w.hold(id)
	gen := b.Word().Gen() + 1
	b.SetRequested(worldSize)
	b.SetWord(block.MakeWord(gen, block.Live))
	if l, ok := w.Home(id, b, block.Long); ok && l.ID != 0 {
		w.books += l.Hits
	}
	return held{b, gen, id}, true
}

// check verifies that each block is somewhere, and the books.
func (w *world) check(out ...held) error {
	live := map[block.ID]bool{}
	for _, h := range out {
		if h.id != 0 {
			live[h.id] = true
		}
	}
	w.procs.plain.Store(false) // no goroutine is left to execute a barrier
	w.Flush(true, func(l Leaver) {
		w.books += l.Hits
		if l.Word.State() == block.Cached {
			w.table.At(l.ID).SetWord(block.MakeWord(l.Word.Gen(), block.Free))
		}
	})
	for id := range w.holds {
		want := block.Free
		if live[id] {
			want = block.Live
		}
		if got := w.table.At(id).Word(); got.State() != want || got.Has(block.Homed) {
			return fmt.Errorf("block %d is lost: %#x, and not %v", id, got, want)
		}
	}
	if w.books != w.hits {
		return fmt.Errorf("%d hits are booked of %d", w.books, w.hits)
	}
	return nil
}

// A goroutine takes a block and gives it back on its processor, while another one
// empties the magazines.
func TestGetAgainstFlushInAllOrders(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprint("live ", live), func(t *testing.T) {
			explore(t, 0, func(r *interleave.Run) {
				w, _ := newWorld(2, 0)
				r.Go(0, func() {
					if h, ok := w.take(); ok {
						w.free(h)
					}
				})
				r.Go(1, func() { w.flush(live) })
				r.Finally(func() error { return w.check() })
			})
		})
	}
}

// A block is freed on another processor than that it was taken on, while the first
// one takes again.
func TestRemoteFreeInAllOrders(t *testing.T) {
	explore(t, 0, func(r *interleave.Run) {
		w, ids := newWorld(2, 0)
		b := w.table.At(ids[0])
		b.TakeHomed(0)
		w.hits++
		w.hold(ids[0])
		var out held
		r.Go(0, func() {
			for range 2 {
				if h, ok := w.take(); ok {
					out = h
					return
				}
			}
		})
		r.Go(1, func() { w.free(held{b, 1, ids[0]}) })
		r.Finally(func() error { return w.check(out) })
	})
}

// Two goroutines free the same block: one of them does.
func TestDoubleFreeInAllOrders(t *testing.T) {
	explore(t, 0, func(r *interleave.Run) {
		w, ids := newWorld(1, 0)
		b := w.table.At(ids[0])
		gen := b.TakeHomed(0)
		w.hits++
		n := 0
		for i := range 3 {
			r.Go(i, func() {
				if b.FreeHomed(gen) {
					n++
				}
			})
		}
		r.Finally(func() error {
			if n != 1 {
				return fmt.Errorf("%d frees of one block", n)
			}
			return w.check()
		})
	})
}

// A stale handle frees nothing while the block goes out again.
func TestStaleFreeInAllOrders(t *testing.T) {
	explore(t, 0, func(r *interleave.Run) {
		w, ids := newWorld(1, 0)
		b := w.table.At(ids[0])
		var out held
		stale := false
		r.Go(0, func() {
			if h, ok := w.take(); ok {
				out = h
			}
		})
		r.Go(1, func() { stale = b.FreeHomed(0) }) // it was freed before
		r.Finally(func() error {
			if stale || out.id == 0 {
				return errors.New("a stale handle freed the block")
			}
			return w.check(out)
		})
	})
}

// A goroutine with a stale slot looks at a block that goes out at its home meanwhile,
// and has a stream recorded that has the number of the goroutine's processor.
func TestStaleSlotAgainstRecordInAllOrders(t *testing.T) {
	const away = 1
	explore(t, 0, func(r *interleave.Run) {
		w, ids := newWorld(2, 0)
		set, tag := hash(worldSize)
		sh := &shard{proc: &w.procs.list[away]}
		sh.sets[set%setCount][0].SetOwned(uint64(ids[0])<<32 | uint64(tag))
		sh.tags[set%setCount].SetOwned(bit(tag))
		w.shards[away].Store(sh)
		var out held
		r.Go(away, func() {
			if _, ok := w.take(); ok {
				panic("the block has its home elsewhere")
			}
		})
		r.Go(0, func() {
			if h, ok := w.take(); ok {
				w.record(h, away)
				out = h
			}
		})
		r.Finally(func() error {
			b := w.table.At(ids[0])
			if b.Uses() != away+1 || !b.Word().Has(block.Used) {
				return fmt.Errorf("the recorded use is forgotten: %#x, %#x", b.Word(), b.Uses())
			}
			b.SetWord(block.MakeWord(b.Word().Gen(), block.Live))
			return w.check(out)
		})
	})
}

// A block that is taken has a stream recorded on it while its home is emptied.
func TestRecordAgainstFlushInAllOrders(t *testing.T) {
	explore(t, 0, func(r *interleave.Run) {
		w, ids := newWorld(2, 0)
		b := w.table.At(ids[0])
		b.TakeHomed(0)
		w.hits++
		w.hold(ids[0])
		h := held{b, 1, ids[0]}
		r.Go(0, func() {
			w.record(h, 3)
			w.free(h)
		})
		r.Go(1, func() { w.flush(true) })
		r.Finally(func() error { return w.check() })
	})
}

// A block loses its home to another processor's, while a goroutine of the first one
// looks for it: the slot of the first is stale from then on, and may be so for a
// block in a new generation.
func TestNewHomeInAllOrders(t *testing.T) {
	explore(t, testkit.Choose(20_000, 500), func(r *interleave.Run) {
		w, ids := newWorld(2, 0)
		w.shards[1].Store(&shard{proc: &w.procs.list[1]})
		var outs [2]held
		r.Go(0, func() {
			for range 2 {
				if h, ok := w.take(); ok {
					w.free(h)
				}
			}
		})
		r.Go(1, func() {
			w.flush(false)
			if h, ok := w.rehome(ids[0]); ok {
				w.free(h)
				if h, ok = w.take(); ok {
					outs[1] = h
				}
			}
		})
		r.Finally(func() error { return w.check(outs[:]...) })
	})
}

// Three goroutines: one takes and frees, one frees from afar, one empties.
func TestThreeInAllOrders(t *testing.T) {
	explore(t, testkit.Choose(20_000, 500), func(r *interleave.Run) {
		w, ids := newWorld(3, 0, 0)
		b := w.table.At(ids[0])
		b.TakeHomed(0)
		w.hits++
		w.hold(ids[0])
		var out held
		r.Go(0, func() {
			if h, ok := w.take(); ok {
				out = h
			}
		})
		r.Go(1, func() { w.free(held{b, 1, ids[0]}) })
		r.Go(2, func() { w.flush(false) })
		r.Finally(func() error { return w.check(out) })
	})
}
