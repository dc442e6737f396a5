package cupool

import (
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What several goroutines push comes out, the newest of each first, and once but for what is
// drained while they push.
func TestLaterStack(t *testing.T) {
	var s laterStack
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				s.push(Block{size: int64(1000*i + j)})
			}
		})
	}
	seen := map[int]bool{}
	last := map[int]int{}
	s.drain(func(b Block) { seen[int(b.size)] = true }) // while they push
	wg.Wait()
	early := maps.Clone(seen)
	s.drain(func(b Block) {
		n := int(b.size)
		require.False(t, seen[n] && !early[n])
		seen[n] = true
		if before, ok := last[n/1000]; ok {
			require.Less(t, n, before)
		}
		last[n/1000] = n
	})
	require.Len(t, seen, 8000)
	s.drain(func(Block) { t.Error("nothing is left") })
}

// What one goroutine is about to free, another that lacks memory finds, too.
func TestLaterStackDrainedByTwo(t *testing.T) {
	var s laterStack
	for i := range 3 {
		s.push(Block{size: int64(i)})
	}
	begun, end := make(chan struct{}), make(chan struct{})
	first, second := []int64{}, []int64{}
	var wg sync.WaitGroup
	wg.Go(func() {
		s.drain(func(b Block) {
			if first = append(first, b.size); len(first) == 1 {
				close(begun)
				<-end
			}
		})
	})
	<-begun
	s.drain(func(b Block) { second = append(second, b.size) })
	close(end)
	wg.Wait()
	require.Equal(t, []int64{2}, first)
	require.Equal(t, []int64{2, 1, 0}, second)
}

// TestHold: the memory of a block that is held is not reused, whoever frees it how.
func TestHold(t *testing.T) {
	for _, backing := range []Backing{BackingSegments, BackingVMM} {
		c, err := New(Config{Backing: backing})
		require.NoError(t, err)
		s, err := c.NewStream()
		require.NoError(t, err)
		for name, free := range map[string]func(b Block) error{
			"Free":    c.Free,
			"FreePtr": func(b Block) error { return c.FreePtr(b.Ptr(), b.Size()) },
			"FreeOn":  func(b Block) error { return c.FreeOn(b, s) },
			"later":   func(b Block) error { c.FreeLater(b); _, err := c.ProcessDeferred(); return err },
		} {
			for range 3 { // by then its size has a magazine
				b, err := c.Alloc(1<<20, nil)
				require.NoError(t, err)
				first, err := c.Hold(b)
				require.NoError(t, err, name)
				second, err := c.Hold(b)
				require.NoError(t, err)
				require.NoError(t, free(b), name)
				require.Equal(t, name == "later", free(b) == nil, "%s: FreeLater passes over a second free", name)
				_, err = c.Hold(b)
				require.ErrorIs(t, err, ErrUseAfterFree)
				require.NoError(t, s.Sync())
				_, err = c.ProcessDeferred()
				require.NoError(t, err)
				require.EqualValues(t, 1<<20, c.Stats().PendingBytes, name)
				require.NoError(t, c.Check())
				other, err := c.Alloc(1<<20, nil)
				require.NoError(t, err)
				require.NotEqual(t, b.Ptr(), other.Ptr(), name)
				require.NoError(t, c.Free(other))
				first()
				first()
				require.EqualValues(t, 1<<20, c.Stats().PendingBytes, name)
				second()
				require.Zero(t, c.Stats().PendingBytes, name)
				require.NoError(t, c.Check())
			}
		}
		require.NoError(t, c.Close())
	}
}

// TestHoldLive: a hold that ends while the block lives leaves no trace.
func TestHoldLive(t *testing.T) {
	c, err := New(Config{})
	require.NoError(t, err)
	b, err := c.Alloc(1000, nil)
	require.NoError(t, err)
	release, err := c.Hold(b)
	require.NoError(t, err)
	release()
	require.NoError(t, c.Free(b))
	require.Zero(t, c.Stats().PendingBytes)
	_, err = c.Hold(Block{})
	require.ErrorIs(t, err, ErrForeignPointer)
	require.NoError(t, c.Close())
	_, err = c.Hold(b)
	require.ErrorIs(t, err, ErrClosed)
}

// TestHoldEnds: what would take the memory away fails while it is held, and stream
// and pools can be closed around it.
func TestHoldEnds(t *testing.T) {
	c, err := New(Config{Backing: BackingVMM})
	require.NoError(t, err)
	p, err := c.NewPool(PoolConfig{})
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)
	live, err := p.Alloc(3<<20, s)
	require.NoError(t, err)
	freed, err := p.Alloc(5<<20, s)
	require.NoError(t, err)
	one, err := c.Hold(live)
	require.NoError(t, err)
	two, err := p.Hold(freed)
	require.NoError(t, err)
	require.NoError(t, c.Free(freed))
	require.NoError(t, s.Close(), "the blocks are the default stream's now")
	for range 2 {
		require.ErrorIs(t, c.Close(), ErrNotSupported)
		require.ErrorIs(t, p.Close(), ErrNotSupported)
		require.ErrorIs(t, p.Sleep(nil), ErrNotSupported)
		require.ErrorIs(t, p.Reset(), ErrNotSupported)
		require.NoError(t, c.EmptyCache())
		require.NoError(t, p.EmptyCache())
		require.EqualValues(t, 5<<20, p.Stats().PendingBytes)
		require.NoError(t, p.Check())
		x, err := p.Alloc(1000, nil)
		require.NoError(t, err, "all is open")
		require.NoError(t, p.Free(x))
	}
	two()
	require.Zero(t, p.Stats().PendingBytes)
	require.ErrorIs(t, p.Reset(), ErrNotSupported, "one is left")
	one()
	require.NoError(t, p.Sleep(nil))
	_, err = p.Hold(live)
	require.ErrorIs(t, err, ErrAsleep)
	require.NoError(t, p.Wake())
	require.NoError(t, p.Free(live))
	require.NoError(t, c.Close())
}

// TestHoldStorm holds, frees and records at random: nothing is handed out that is held.
func TestHoldStorm(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c, err := New(Config{Backing: BackingVMM})
	require.NoError(t, err)
	var streams []*Stream
	for range 3 {
		s, err := c.NewStream()
		require.NoError(t, err)
		streams = append(streams, s)
	}
	type held struct {
		b       Block
		release func()
	}
	var live []Block
	var holds []held
	for range 3000 {
		s := streams[r.IntN(len(streams))]
		switch r.IntN(6) {
		case 0, 1:
			b, err := c.Alloc(1+r.Int64N(3<<20), s)
			require.NoError(t, err)
			for _, h := range holds {
				apart := b.Ptr()+Ptr(b.Size()) <= h.b.Ptr() || h.b.Ptr()+Ptr(h.b.Size()) <= b.Ptr()
				require.True(t, apart, "%v is held, %v was handed out", h.b, b)
			}
			live = append(live, b)
		case 2:
			if i := r.IntN(len(live) + 1); i < len(live) {
				release, err := c.Hold(live[i])
				require.NoError(t, err)
				holds = append(holds, held{live[i], release})
			}
		case 3:
			if i := r.IntN(len(live) + 1); i < len(live) {
				require.NoError(t, c.RecordStream(live[i], s))
			}
		case 4:
			if i := r.IntN(len(live) + 1); i < len(live) {
				require.NoError(t, c.Free(live[i]))
				live = append(live[:i], live[i+1:]...)
			}
		case 5:
			if i := r.IntN(len(holds) + 1); i < len(holds) {
				holds[i].release()
				holds = append(holds[:i], holds[i+1:]...)
			}
		}
	}
	require.NoError(t, c.Check())
	for _, h := range holds {
		h.release()
	}
	for _, b := range live {
		require.NoError(t, c.Free(b))
	}
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}
