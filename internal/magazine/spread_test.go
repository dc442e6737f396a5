package magazine

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
)

// One goroutine has one shard, whatever the depth of its stack.
func TestOneGoroutineHasOneShard(t *testing.T) {
	p := newPen()
	id, b, _ := p.put(t, 1000)
	require.True(t, b.FreeHomed(0))
	for depth := range 64 {
		deep(depth, func() {
			got, _, gen, _ := p.Get(1000)
			require.Equal(t, id, got)
			require.True(t, b.FreeHomed(gen))
			p.miss(t, 3000, false)
		})
	}
	require.Len(t, p.shards, 1)
}

// A goroutine finds what got a home for it far deeper in its stack, where goroutines have
// shards of their own, too.
func TestHomeFromDeepInTheStack(t *testing.T) {
	p := newPen()
	p.lose(512)
	for depth := range 16 {
		size := int64(1000 + depth)
		id, b := p.block(t, size)
		var got block.ID
		for try := range 2 { // both from the same depth
			var why Miss
			if got, _, _, why = p.Get(size); try == 0 {
				deep(depth, func() {
					_, ok := p.Home(p.Missed(size, why).Shard(), id, b, block.Cached, block.Long)
					require.True(t, ok)
				})
			}
		}
		require.Equal(t, id, got)
	}
}

// Who loses a block moves to a shard of its own, and ever more rarely.
func TestWhoLosesMoves(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	p := newPen()
	seen := map[*shard]bool{}
	moves := []int{1, 2, 4, 8, 16, 32, 64}
	p.miss(t, 512, false)
	const me = Miss(7 << flagBits) // not the stack's hash, as the stack may be moved
	last := p.at(me)
	seen[last] = true
	for i := 1; i <= 64; i++ {
		p.Missed(512, lost|me)
		now := p.at(me)
		if i == moves[0] {
			require.NotSame(t, last, now, "loss %d", i)
			moves = moves[1:]
		} else {
			require.Same(t, last, now, "loss %d", i)
		}
		last = now
		seen[now] = true
	}
	require.Equal(t, len(seen), len(p.shards))
	require.LessOrEqual(t, len(seen), len(p.spread.Load().shards))
	require.Equal(t, 3, runtime.GOMAXPROCS(0), "the program's setting stays")
}

// Goroutines get, free and leave blocks of a few sizes, while one with the lock homes,
// flushes and shuts them out: nobody is handed a block that another one has, or one of
// another size, and generations count how often each went out.
func TestNoBlockTwice(t *testing.T) {
	const blocks, goroutines = 24, 8
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	p := newPen()
	sizes := sizesOfOneSet(3)
	var (
		mu     sync.Mutex // the heap's
		out    [128]atomic.Int32
		takes  [128]atomic.Int64
		sizeOf [128]atomic.Int64
		hits   int64 // that were booked
		free   []block.ID
	)
	for i := range blocks {
		id, b := p.block(t, sizes[i%len(sizes)])
		require.Less(t, int(id), len(out))
		b.SetWord(block.MakeWord(0, block.Free))
		free = append(free, id)
	}
	left := func(l Leaver) { // with the lock
		hits += l.Hits
		if l.Word.State() == block.Cached {
			b := p.table.At(l.ID)
			b.SetWord(block.MakeWord(l.Word.Gen(), block.Free))
			free = append(free, l.ID)
		}
	}
	// alloc is what a heap does for a request that the magazines did not serve.
	alloc := func(size int64, why Miss) (id block.ID, gen uint64) {
		mu.Lock()
		defer mu.Unlock()
		misses := p.Missed(size, why)
		if len(free) == 0 {
			p.Flush(false, left)
		}
		if len(free) == 0 {
			return 0, 0
		}
		id, free = free[len(free)-1], free[:len(free)-1]
		b := p.table.At(id)
		gen = b.Word().Gen() + 1
		b.SetRequested(size)
		b.SetWord(block.MakeWord(gen, block.Live))
		if misses.Recurs(false) {
			if evicted, ok := p.Home(misses.Shard(), id, b, block.Live, block.Long); ok && evicted.ID != 0 {
				left(evicted)
			}
		}
		return id, gen
	}
	// back is what a heap does for a block that is not in the magazines.
	back := func(id block.ID, gen uint64) bool {
		mu.Lock()
		defer mu.Unlock()
		b := p.table.At(id)
		if l, ok := p.Leave(id); ok {
			left(l)
		}
		if b.Word() != block.MakeWord(gen, block.Live) {
			return false
		}
		b.SetWord(block.MakeWord(gen, block.Free))
		free = append(free, id)
		return true
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range goroutines {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for done := false; !done; {
				select {
				case <-stop:
					done = true
				default:
				}
				size := sizes[r.IntN(len(sizes))]
				id, _, gen, why := p.Get(size)
				if id == 0 {
					if id, gen = alloc(size, why); id == 0 {
						continue
					}
				}
				if out[id].Add(1) != 1 {
					t.Errorf("block %d is out twice", id)
				}
				takes[id].Add(1)
				sizeOf[id].Store(size)
				if r.IntN(4) == 0 {
					time.Sleep(time.Microsecond)
				}
				if sizeOf[id].Load() != size {
					t.Errorf("block %d was handed out for %d bytes meanwhile", id, sizeOf[id].Load())
				}
				out[id].Add(-1)
				b := p.table.At(id)
				if r.IntN(2) == 0 && b.FreeHomed(gen) {
					if b.FreeHomed(gen) {
						t.Errorf("block %d was freed twice", id)
					}
				} else if !back(id, gen) {
					t.Errorf("block %d is not live in generation %d", id, gen)
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(seed, goroutines))
	for range 2000 {
		mu.Lock()
		p.Flush(r.IntN(2) == 0, left)
		mu.Unlock()
		time.Sleep(time.Duration(r.IntN(50)) * time.Microsecond)
	}
	close(stop)
	wg.Wait()
	p.Flush(true, left)
	require.Len(t, free, blocks)
	var all int64
	for _, id := range free {
		require.EqualValues(t, takes[id].Load(), p.table.At(id).Word().Gen(), "block %d", id)
		all += takes[id].Load()
	}
	require.Positive(t, hits)
	t.Logf("%d times out, %d of them hits, %d shards", all, hits, len(p.shards))
}
