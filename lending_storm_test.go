package cupool_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// lendingStorm is goroutines that share streams, all of which lend. What a stream is
// given writes blocks, and looks later whether they have their contents, while the
// blocks are freed already.
type lendingStorm struct {
	c     *cupool.Pool
	pause sync.RWMutex // held for writing while the pool sleeps, or a stream is renewed

	streams []*cupool.Stream // guarded by pause
	broken  atomic.Pointer[string]
	lent    atomic.Int64
}

// written is a live block with what it holds.
type written struct {
	cupool.Block
	s    *cupool.Stream
	mark uint64
}

const lendingStormStep = 32 << 10 // bytes between two marks

// words calls f for some words of a block, in memory that the host has.
func (w written) words(f func(*uint64)) {
	for off := int64(0); off+8 <= w.Size(); off += lendingStormStep {
		f((*uint64)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(new(w.Ptr()))), off)))
	}
}

// late is how long work takes: so little mostly that streams are idle in between.
func late(r *rand.Rand) time.Duration {
	if r.IntN(4) > 0 {
		return 0
	}
	return time.Duration(r.IntN(400)) * time.Microsecond
}

func (x *lendingStorm) write(w written, late time.Duration) error {
	return w.s.Launch(func() {
		time.Sleep(late)
		w.words(func(p *uint64) { *p = w.mark })
	})
}

// verify has a stream look at a block.
func (x *lendingStorm) verify(w written, on *cupool.Stream, late time.Duration) error {
	return on.Launch(func() {
		time.Sleep(late)
		w.words(func(p *uint64) {
			if *p != w.mark && x.broken.Load() == nil {
				x.broken.Store(new(fmt.Sprintf("%v of stream %#x holds %d, not %d, on stream %#x", w.Block, w.s.Handle(), *p, w.mark, on.Handle())))
			}
		})
	})
}

func (x *lendingStorm) alloc(r *rand.Rand, mark uint64) (written, error) {
	s := x.streams[r.IntN(len(x.streams))]
	b, err := x.c.Alloc(1<<20+1+r.Int64N(5<<20), s)
	if err != nil {
		return written{}, err
	}
	if of := x.c.StreamOf(b); of != s {
		return written{}, fmt.Errorf("%v is of stream %#x, not %#x", b, of.Handle(), s.Handle())
	}
	if x.c.IsLent(b) {
		x.lent.Add(1)
	}
	w := written{b, s, mark}
	return w, x.write(w, late(r))
}

// free gives a block back while its stream, and perhaps another one, has yet to look
// at it.
func (x *lendingStorm) free(r *rand.Rand, w written) error {
	on := x.streams[r.IntN(len(x.streams))]
	err := on.WaitStream(w.s)
	err = errors.Join(err, x.verify(w, on, late(r)), x.verify(w, w.s, late(r)))
	switch r.IntN(4) {
	case 0:
		return errors.Join(err, x.c.FreeOn(w.Block, on))
	case 1:
		return errors.Join(err, w.s.WaitStream(on), x.c.FreePtr(w.Ptr(), w.Size()))
	default:
		return errors.Join(err, x.c.RecordStream(w.Block, on), x.c.Free(w.Block))
	}
}

func (x *lendingStorm) chore(r *rand.Rand) (err error) {
	switch r.IntN(16) {
	case 0:
		_, err = x.c.Trim(r.Int64N(64 << 20))
	case 1:
		err = x.c.EmptyCache()
	case 2:
		_, err = x.c.ProcessDeferred()
	case 3:
		x.c.Stats()
		x.c.Snapshot()
	case 4:
		err = x.streams[r.IntN(len(x.streams))].Sync()
	default:
		err = errors.Join(x.c.CheckLent(), x.c.Check())
	}
	for _, s := range x.streams {
		x.c.MakeLender(s)
	}
	return err
}

// upheaval is what nobody may work beside: the pool sleeps, or a stream is another one.
func (x *lendingStorm) upheaval(r *rand.Rand) error {
	x.pause.Lock()
	defer x.pause.Unlock()
	if r.IntN(3) == 0 {
		return errors.Join(x.c.Sleep(func(cupool.Block) bool { return true }), x.c.Wake())
	}
	i := 1 + r.IntN(len(x.streams)-1)
	err := x.streams[i].Close()
	s, e := x.c.NewStream()
	if err = errors.Join(err, e); err == nil {
		x.c.MakeLender(s)
		x.streams[i] = s
	}
	return err
}

func (x *lendingStorm) run(r *rand.Rand, id uint64, steps int) (err error) {
	var live []written
	for i := range uint64(steps) {
		if r.IntN(100) == 0 {
			err = x.upheaval(r)
		}
		x.pause.RLock()
		for k := range live {
			if live[k].s.Closed() {
				live[k].s = x.c.DefaultStream()
			}
		}
		switch n := r.IntN(20); {
		case err != nil:
		case n == 0:
			err = x.chore(r)
		case n < 11 && len(live) < 8 || len(live) == 0:
			var w written
			if w, err = x.alloc(r, id<<32+i); err == nil {
				live = append(live, w)
			}
		default:
			k := r.IntN(len(live))
			err = x.free(r, live[k])
			live = append(live[:k], live[k+1:]...)
		}
		x.pause.RUnlock()
		if err != nil {
			return err
		}
	}
	x.pause.RLock()
	defer x.pause.RUnlock()
	for _, w := range live {
		err = errors.Join(err, x.c.Free(w.Block))
	}
	return err
}

// TestLendingStorm: nobody is lent what another stream may still use, whatever happens
// to the streams and the pool.
func TestLendingStorm(t *testing.T) {
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	if d.(cupool.VirtualMemory).VMMGranularity() == 0 {
		t.Skip("no virtual memory here")
	}
	c, err := cupool.New(cupool.Config{Driver: d, Backing: cupool.BackingVMM, SoftLimit: 1, MagazineBytes: -1})
	require.NoError(t, err)
	x := &lendingStorm{c: c, streams: []*cupool.Stream{c.DefaultStream()}}
	for range 7 {
		s := newStreamOf(t, c)
		x.streams = append(x.streams, s)
		c.MakeLender(s)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for g := range errs {
		wg.Go(func() { errs[g] = x.run(rand.New(rand.NewPCG(seed, uint64(g))), uint64(g), stormSteps()) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.NoError(t, c.Sync())
	if wrong := x.broken.Load(); wrong != nil {
		require.Fail(t, *wrong)
	}
	t.Logf("%d blocks were lent", x.lent.Load())
	require.NotZero(t, x.lent.Load())
	require.NoError(t, c.Check())
	require.NoError(t, c.EmptyCache())
	require.Zero(t, c.Stats().All.ReservedBytes.Current)
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// stormSteps returns how many steps a goroutine of a storm makes.
func stormSteps() int {
	if testing.Short() {
		return 200
	}
	return 2000
}
