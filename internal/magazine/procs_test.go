package magazine

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/relaxed"
	"github.com/cupool/cupool/internal/testkit"
)

func TestProcIsOneCacheLine(t *testing.T) {
	require.EqualValues(t, 64, unsafe.Sizeof(proc{}))
}

func TestEnter(t *testing.T) {
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	p := NewProcs()
	require.GreaterOrEqual(t, len(p.list), runtime.GOMAXPROCS(0))
	id := p.enter()
	require.GreaterOrEqual(t, id, 0)
	busy := p.list[id].busy.Load()
	p.exit(id)
	require.EqualValues(t, 1, busy)
	require.Zero(t, p.list[id].busy.Load())

	p.close()
	require.Equal(t, -1, p.enter())
	p.close()
	p.open()
	require.Equal(t, -1, p.enter(), "closed twice, opened once")
	p.open()
	id = p.enter()
	p.exit(id)
	require.GreaterOrEqual(t, id, 0)

	p.Shut()
	require.Equal(t, -1, p.enter())
	require.Equal(t, -1, (&Procs{}).enter(), "a processor that came later")
}

// Who closes a processor waits for who is inside, however long the operating
// system keeps that from going on.
func TestCloseWaits(t *testing.T) {
	p := &Procs{list: make([]proc, 2)}
	p.list[1].busy.Store(1)
	var left atomic.Bool
	go func() {
		time.Sleep(10 * time.Millisecond)
		left.Store(true)
		p.list[1].leave()
	}()
	p.close()
	require.True(t, left.Load())
	p.open()
}

// A goroutine that comes and another that closes the processor at the same time
// do not both find that they are alone, which without a barrier they do soon.
func TestBarrier(t *testing.T) {
	if !hasBarrier() || runtime.GOMAXPROCS(0) < 2 {
		t.Skip("nothing is left to a barrier")
	}
	p := &Procs{list: make([]proc, 1)}
	h := &p.list[0]
	h.plain.Store(true)
	var start, came atomic.Int64 // the round, 0 after the last; the round, negative for one that was not let in
	start.Store(-1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for i := int64(1); ; i++ {
			for start.Load() != i {
				if start.Load() == 0 {
					return
				}
			}
			if h.come() {
				came.Store(i)
				for start.Load() == i { // stays inside
				}
			} else {
				came.Store(-i)
			}
			h.leave()
		}
	}()
	both, in, rounds := 0, 0, int64(testkit.Rounds(20_000))
	began := time.Now()
	for i := int64(1); i <= rounds; i++ {
		if time.Since(began) > testkit.Choose(5*time.Second, time.Second) {
			rounds = i // the two take turns, as others need the processors
		}
		start.Store(i)
		for range rand.IntN(100) { // until about when the other sees that
		}
		h.gate.Add(1)
		barrier()
		inside := h.busy.Load() != 0
		for came.Load() != i && came.Load() != -i {
		}
		h.gate.Add(-1)
		if came.Load() == i {
			if in++; !inside {
				both++
			}
		}
		start.Store(-i)
		for h.busy.Load() != 0 {
		}
	}
	start.Store(0)
	<-over
	require.Zero(t, both, "of %d rounds, in %d of which the goroutine came first", rounds, in)
}

// counter counts up what only who is inside a processor may touch.
type counter struct{ n, m relaxed.Int64 }

// count reports whether it was alone there.
func (c *counter) count() (alone bool) {
	c.n.AddOwned(1)
	alone = c.n.Load() == c.m.Load()+1
	c.m.AddOwned(1)
	return alone
}

// insideAlone has goroutines go inside the processors while this one closes them so
// often, and finds that none has company there.
func insideAlone(t *testing.T, p *Procs, closings int) {
	t.Helper()
	counts := make([]counter, len(p.list))
	var over atomic.Bool
	var comings atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !over.Load() {
				id := p.enter()
				if id < 0 {
					runtime.Gosched()
					continue
				}
				alone := counts[id].count()
				p.exit(id)
				if comings.Add(1); !alone {
					t.Error("somebody else was inside")
					return
				}
			}
		})
	}
	for range closings {
		p.close()
		for id := range counts {
			if !counts[id].count() {
				t.Error("somebody else is inside")
			}
		}
		p.open()
	}
	over.Store(true)
	wg.Wait()
	sum := int64(0)
	for i := range counts {
		require.Equal(t, counts[i].n.Load(), counts[i].m.Load())
		sum += counts[i].n.Load()
	}
	require.Equal(t, comings.Load()+int64(closings*len(counts)), sum)
}

func TestInsideAlone(t *testing.T) { insideAlone(t, NewProcs(), 10_000) }

// crowd is a cache whose blocks several goroutines use at once.
type crowd struct {
	*pen
	mu      sync.Mutex // of the stream
	holders map[block.ID]*atomic.Int32
	freed   chan held // by one goroutine for another
}

type held struct {
	b   *block.Block
	gen uint64
	id  block.ID
}

// hold notes that a block is somebody's alone.
func (c *crowd) hold(t *testing.T, id block.ID) {
	if c.holders[id].Add(1) != 1 {
		t.Errorf("block %d went to two holders", id)
	}
}

func (c *crowd) free(t *testing.T, h held) {
	c.holders[h.id].Add(-1)
	if h.b.FreeHomed(h.gen) {
		return
	}
	c.mu.Lock() // as Pool does: it lost its home
	defer c.mu.Unlock()
	if w := h.b.Word(); w != block.MakeWord(h.gen, block.Live) {
		t.Errorf("block %d was taken from its holder: %v", h.id, w)
	}
	h.b.SetWord(block.MakeWord(h.gen, block.Cached))
}

// use takes blocks and frees them, or has somebody else do so.
func (c *crowd) use(t *testing.T, r *rand.Rand, sizes []int64) {
	for range 20_000 {
		size := sizes[r.IntN(len(sizes))]
		if id, b, gen, _ := c.Get(size); id != 0 {
			c.hold(t, id)
			if b.Requested() != size {
				t.Errorf("block %d of %d bytes for %d", id, b.Requested(), size)
			}
			h := held{b, gen, id}
			select {
			case c.freed <- h:
			default:
				c.free(t, h)
			}
		}
		if r.IntN(3) == 0 {
			select {
			case h := <-c.freed:
				c.free(t, h)
			default:
			}
		}
	}
}

// rehome hands blocks that lost their home out again, with a home where this
// runs, and takes others theirs.
func (c *crowd) rehome(t *testing.T, r *rand.Rand) {
	for i := range 3_000 {
		c.mu.Lock()
		if i%8 == 0 {
			c.Flush(i%16 == 0, func(Leaver) {})
		}
		for id := range c.holders {
			b := c.table.At(id)
			switch w := b.Word(); {
			case w == block.MakeWord(w.Gen(), block.Cached):
				gen := w.Gen() + 1
				b.SetWord(block.MakeWord(gen, block.Live))
				c.hold(t, id)
				c.begin(b.Requested())
				c.Home(id, b, block.Long)
				c.mu.Unlock()
				c.free(t, held{b, gen, id})
				c.mu.Lock()
			case w.Has(block.Homed) && r.IntN(16) == 0:
				c.Leave(id)
			}
		}
		c.mu.Unlock()
		runtime.Gosched()
	}
}

// Goroutines take blocks and bring them home without a lock, here and there,
// while others take them away and home them elsewhere: nobody ever holds the
// same, and none is lost.
func TestCrowd(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	c := &crowd{pen: penOf(NewProcs()), holders: map[block.ID]*atomic.Int32{}, freed: make(chan held, 4)}
	sizes := []int64{512, 1000, 1024}
	for i := range 12 {
		id, b := c.block(t, sizes[i%len(sizes)])
		b.SetWord(block.MakeWord(0, block.Cached))
		c.holders[id] = new(atomic.Int32)
	}
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() { c.use(t, rand.New(rand.NewPCG(seed, g)), sizes) })
	}
	wg.Go(func() { c.rehome(t, rand.New(rand.NewPCG(seed, 9))) })
	wg.Wait()
	for len(c.freed) > 0 {
		c.free(t, <-c.freed)
	}
	c.Flush(true, func(Leaver) {})
	for id, n := range c.holders {
		require.Zero(t, n.Load())
		w := c.table.At(id).Word()
		require.Equal(t, block.MakeWord(w.Gen(), block.Cached), w, "block %d", id)
	}
}
