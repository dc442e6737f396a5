package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cupool/cupool"
)

// held is a block that the program holds.
type held struct {
	cupool.Block
	pattern
	owner *cupool.Pool   // that it was allocated from
	last  *cupool.Stream // that used it last
	place int            // of that stream, which may have been closed since
}

// A worker is one of the goroutines.
type worker struct {
	*soak
	id    int
	r     *rand.Rand
	seen  *witness
	held  []held
	bytes int64 // in them
	tags  uint64
}

// work runs a worker until ctx is done.
func (k *soak) work(ctx context.Context, id int) {
	w := &worker{soak: k, id: id, r: k.random(id)}
	var err error
	if w.seen, err = k.newWitness(); err != nil {
		k.tolerate("witness", err)
		return
	}
	for ctx.Err() == nil {
		w.quietly("operation", w.step)
	}
	for len(w.held) > 0 {
		w.quietly("free at the end", w.freeOne)
	}
	w.quietly("comparing at the end", w.seen.close)
}

// quietly runs one operation, which no quiet moment interrupts.
func (k *soak) quietly(what string, f func() error) {
	k.quiet.RLock()
	defer k.quiet.RUnlock()
	k.count.operations.Add(1)
	k.tolerate(what, f())
}

// step is one operation.
func (w *worker) step() error {
	if w.seen.full() {
		return w.seen.compare()
	}
	full := w.bytes > w.limit/2/int64(w.workers) || len(w.held) > 32
	switch n := w.r.IntN(1000); {
	case n < 400 && !full:
		return w.allocOne()
	case n < 540:
		return w.moveOne()
	case n < 880:
		return w.freeOne()
	case n < 920:
		return w.handOver()
	case n < 940:
		return w.misuse()
	case n < 960:
		return w.lookup()
	case n < 966:
		return w.slow()
	case n < 976 && !full:
		return w.ownStream()
	case n < 980:
		return w.ownPool()
	case n < 983:
		return w.closeWhileUsed()
	case n < 990:
		return w.burst()
	default:
		return w.freeOne()
	}
}

// size returns the size of a request: most are small, and of few sizes.
func (w *worker) size() int64 {
	switch n := w.r.IntN(100); {
	case n < 60:
		return int64(1+w.r.IntN(8)) << 11
	case n < 80:
		return 1 + w.r.Int64N(64<<10)
	case n < 94:
		return 1 + w.r.Int64N(1<<20)
	case n < 99:
		return 1 + w.r.Int64N(4<<20)
	default:
		return 1 + w.r.Int64N(min(24<<20, w.limit/16))
	}
}

func (w *worker) somewhere() int { return w.r.IntN(len(w.places)) }

func (w *worker) tag() uint64 {
	w.tags++
	return uint64(w.id)<<40 | w.tags
}

// write gives a block new contents, on a stream that may use it.
func (w *worker) write(h *held, s *cupool.Stream, place int) error {
	h.tag, h.last, h.place = w.tag(), s, place
	return h.write(h.Ptr(), s)
}

func (w *worker) keep(h held) {
	w.held = append(w.held, h)
	w.bytes += h.Block.Size()
}

// take takes a random block out.
func (w *worker) take() (held, bool) {
	if len(w.held) == 0 {
		return held{}, false
	}
	i, last := w.r.IntN(len(w.held)), len(w.held)-1
	h := w.held[i]
	w.held[i] = w.held[last]
	w.held = w.held[:last]
	w.bytes -= h.Block.Size()
	return h, true
}

// allocOne allocates in one of the ways and writes.
func (w *worker) allocOne() error {
	if w.r.IntN(4) == 0 {
		p := &w.pools[w.r.IntN(len(w.pools))]
		p.RLock()
		defer p.RUnlock()
		if p.p != nil {
			return w.allocFrom(p.p)
		}
	}
	return w.allocFrom(w.pool)
}

func (w *worker) allocFrom(p *cupool.Pool) error {
	place, size := w.somewhere(), w.size()
	return w.on(place, func(s *cupool.Stream) error {
		h, err := w.allocOn(p, size, s)
		if err != nil {
			return err
		}
		return errors.Join(w.write(&h, s, place), w.kept(h))
	})
}

func (w *worker) kept(h held) error {
	w.keep(h)
	return nil
}

func (w *worker) allocOn(p *cupool.Pool, size int64, s *cupool.Stream) (held, error) {
	var b cupool.Block
	var err error
	switch n := w.r.IntN(100); {
	case n < 2:
		b, err = w.alloc(p.WithLabel("labelled"), size, s)
	case n < 4:
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		if b, err = p.AllocContext(ctx, size, s); err == nil {
			w.enter(b)
		}
	default:
		b, err = w.alloc(p, size, s)
	}
	return held{Block: b, owner: p, pattern: pattern{size: size}}, err
}

// moveOne has another stream use a block, which waits for the last one.
func (w *worker) moveOne() error {
	if len(w.held) == 0 {
		return nil
	}
	h, to := &w.held[w.r.IntN(len(w.held))], w.somewhere()
	return w.onBoth(h.place, to, func(now, s *cupool.Stream) error {
		if err := w.follow(h, now, s); err != nil {
			return err
		}
		return w.write(h, s, to)
	})
}

// follow makes a block ready for use on s. now is the stream that is at the
// place of the block's last one.
func (w *worker) follow(h *held, now, s *cupool.Stream) error {
	if now == h.last && now != s {
		if err := s.WaitStream(now); err != nil {
			return err
		}
	}
	if w.plant == plantUnrecorded {
		return nil
	}
	return w.pool.RecordStream(h.Block, s)
}

// freeOne has the device copy what a block holds, and frees it at once.
func (w *worker) freeOne() error {
	h, ok := w.take()
	if !ok {
		return nil
	}
	if w.seen.full() {
		if err := w.seen.compare(); err != nil {
			return err
		}
	}
	if err := w.breakSomething(&h); err != nil {
		return err
	}
	return w.on(h.place, func(s *cupool.Stream) error {
		how := w.r.IntN(8)
		if s != h.last && how != 0 {
			if err := w.pool.RecordStream(h.Block, s); err != nil {
				return err
			}
		}
		note := fmt.Sprintf("worker %d, block %v of %q", w.id, h.Block, h.owner.Name())
		if err := w.seen.see(h.pattern, h.Ptr(), s, h.place, note); err != nil {
			return err
		}
		return w.free(h.Block, func(b cupool.Block) error {
			switch how {
			case 0:
				return w.pool.FreeOn(b, s)
			case 1:
				return w.pool.FreePtr(b.Ptr(), b.Size())
			case 2:
				h.owner.FreeLater(b)
				return nil
			case 3:
				return h.owner.Free(b)
			default:
				return w.pool.Free(b)
			}
		})
	})
}

// burst allocates, writes and frees one size again and again, which magazines
// serve.
func (w *worker) burst() error {
	place, size := w.somewhere(), w.size()
	return w.on(place, func(s *cupool.Stream) error {
		for !w.seen.full() {
			b, err := w.alloc(w.pool, size, s)
			if err != nil {
				return err
			}
			p := pattern{w.tag(), size}
			err = errors.Join(p.write(b.Ptr(), s), w.seen.see(p, b.Ptr(), s, place, "burst"), w.free(b, w.pool.Free))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// handOver gives a block to another worker and takes one that another one gave.
func (w *worker) handOver() error {
	if h, ok := w.take(); ok {
		select {
		case w.handed <- h:
		default:
			w.keep(h)
		}
	}
	select {
	case h := <-w.handed:
		w.keep(h)
	default:
	}
	return nil
}

// misuse makes mistakes, each of which has to be an error.
func (w *worker) misuse() error {
	b, err := w.alloc(w.pool, w.size(), nil)
	if err != nil {
		return err
	}
	_, foreign := w.pool.Lookup(1 << 20)
	interior := w.pool.FreePtr(b.Ptr()+1, -1)
	size := w.pool.FreePtr(b.Ptr(), b.Size()+1)
	if err := w.free(b, w.pool.Free); err != nil {
		return err
	}
	// Whoever holds the address by now, this block was freed.
	return errors.Join(
		wanted(foreign, cupool.ErrForeignPointer), wanted(interior, cupool.ErrInteriorPointer), wanted(size, cupool.ErrSizeMismatch),
		wanted(w.pool.Free(b), cupool.ErrDoubleFree), wanted(w.pool.RecordStream(b, nil), cupool.ErrUseAfterFree))
}

// wanted returns an error unless a mistake failed with what it has to.
func wanted(got, want error) error {
	if errors.Is(got, want) {
		return nil
	}
	return fmt.Errorf("a mistake gave %v, want %w", got, want)
}

func (w *worker) lookup() error {
	if len(w.held) == 0 {
		return nil
	}
	b := w.held[w.r.IntN(len(w.held))].Block
	got, err := w.pool.Lookup(b.Ptr() + cupool.Ptr(w.r.Int64N(b.Size())))
	if err == nil && got != b {
		err = fmt.Errorf("looking up %v found %v", b, got)
	}
	return err
}

// slow keeps a stream busy for a while.
func (w *worker) slow() error {
	pause := time.Duration(w.r.IntN(2000)) * time.Microsecond
	return w.on(w.somewhere(), func(s *cupool.Stream) error {
		err := s.Launch(func() { time.Sleep(pause) })
		if !errors.Is(err, cupool.ErrNotSupported) {
			return err
		}
		b, err := w.alloc(w.pool, 4<<20, s)
		if err != nil {
			return err
		}
		for range 64 {
			if err := s.Memset(b.Ptr(), 0, b.Size()); err != nil {
				return err
			}
		}
		return w.free(b, w.pool.Free)
	})
}

// ownStream makes a stream and closes it while a block of it is live.
func (w *worker) ownStream() error {
	s, err := w.newStream()
	if err != nil {
		return err
	}
	h, err := w.allocOn(w.pool, w.size(), s)
	if err == nil {
		err = w.write(&h, s, w.somewhere())
		w.keep(h)
	}
	if w.plant == plantStream {
		return err
	}
	return errors.Join(err, s.Close())
}

// ownPool makes a pool and closes it while streams work on its memory.
func (w *worker) ownPool() error {
	place, other := w.somewhere(), w.somewhere()
	if w.seen.full() {
		return nil
	}
	return w.onBoth(place, other, func(s, t *cupool.Stream) error {
		p, err := w.newPool(cupool.PoolConfig{NoSplit: w.r.IntN(4) == 0})
		if err != nil {
			return err
		}
		h, err := w.allocOn(p, w.size(), s)
		if err == nil {
			err = errors.Join(w.write(&h, s, place), w.follow(&h, s, t), w.write(&h, t, other),
				w.seen.see(h.pattern, h.Ptr(), t, other, "pool that is closed"), w.free(h.Block, p.Free))
		}
		return errors.Join(err, p.Close())
	})
}

// closeWhileUsed closes a stream while another goroutine uses it: that may
// fail only because the stream is closed.
func (w *worker) closeWhileUsed() error {
	s, err := w.newStream()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var used error
	place := w.somewhere() // only this goroutine draws from w.r
	wg.Go(func() {
		for range 4 {
			if used = w.useAll(s, place); used != nil {
				break
			}
		}
	})
	for range w.r.IntN(4) {
		if err := w.useAll(s, w.somewhere()); err != nil && !errors.Is(err, cupool.ErrOutOfMemory) {
			return errors.Join(err, s.Close())
		}
	}
	err = s.Close()
	wg.Wait()
	if errors.Is(used, cupool.ErrClosed) {
		used = nil
	}
	return errors.Join(err, used)
}

// useAll calls what uses a stream, beside the one at place.
func (w *worker) useAll(s *cupool.Stream, place int) error {
	b, err := w.alloc(w.pool, 4096, s)
	if err != nil {
		return err
	}
	if err := w.free(b, w.pool.Free); err != nil {
		return err
	}
	e, err := s.Record()
	if err != nil {
		return err
	}
	return errors.Join(w.on(place, func(t *cupool.Stream) error {
		return errors.Join(t.Wait(e), t.WaitStream(s))
	}), s.Sync(), e.Close())
}

// What tests break, to see that it is found.
const (
	plantStream     = "a stream is not closed"
	plantBlock      = "a block is not freed"
	plantPattern    = "a block is written to that is another one's"
	plantUnrecorded = "streams are not recorded"
	plantEvent      = "an event is not closed"
	plantError      = "an address is freed that is inside of a block"
)

func (w *worker) breakSomething(h *held) error {
	switch w.plant {
	case plantBlock:
		_, err := w.pool.Alloc(512, nil)
		return err
	case plantError:
		return w.pool.FreePtr(h.Ptr()+1, -1)
	case plantEvent:
		_, err := w.pool.DefaultStream().Record()
		return err
	case plantPattern:
		return w.on(h.place, func(s *cupool.Stream) error {
			if s != h.last {
				return nil
			}
			return s.Memset(h.Ptr()+cupool.Ptr(h.size-1), h.fill()+1, 1)
		})
	}
	return nil
}
