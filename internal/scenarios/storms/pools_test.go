package storms_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestPoolStreamsStorm opens and closes streams on which goroutines allocate
// from the members of a family, one of which lends, while caches are emptied.
// Programs of internal/model make the other storms.
func TestPoolStreamsStorm(t *testing.T) {
	limit := func(cfg *cupool.Config) { cfg.Limit = 300 << 20 }
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		members := []*cupool.Pool{c, pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{UseOnOOM: true})}
		seed := testkit.Seed(t)
		handed := make(chan cupool.Block, 64)
		var makers, freers sync.WaitGroup
		for g := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, g))
			makers.Go(func() {
				for range testkit.Choose(40, 15) {
					s := testkit.Must(c.NewStream())
					for range 10 {
						b, err := members[r.IntN(3)].Alloc(1+r.Int64N(1<<(8+r.IntN(18))), s)
						if err == nil {
							testkit.Must(0, members[r.IntN(3)].RecordStream(b, nil))
							assert.True(t, holds(b, s, byte(g+1)), "another block is on %v", b)
							handed <- b
						} else if !errors.Is(err, cupool.ErrOutOfMemory) {
							t.Error(err)
						}
					}
					testkit.Must(0, s.Close())
				}
			})
			freers.Go(func() {
				r := rand.New(rand.NewPCG(seed, 10+g))
				for b := range handed {
					testkit.Must(0, members[r.IntN(3)].Free(b))
					if r.IntN(20) == 0 {
						testkit.Must(0, members[r.IntN(3)].EmptyCache())
					}
				}
			})
		}
		makers.Wait()
		close(handed)
		freers.Wait()
		for _, m := range members {
			require.NoError(t, m.EmptyCache())
			require.NoError(t, m.Check())
			require.Zero(t, m.Stats().All.ReservedBytes.Current, m.Snapshot().Layout())
		}
	}, limit)
}

// holds has the end of a block written, and reports whether it holds that.
func holds(b cupool.Block, s *cupool.Stream, value byte) bool {
	end := make([]byte, min(b.Size(), 512))
	at := b.Ptr() + cupool.Ptr(b.Size()-int64(len(end)))
	testkit.Must(0, errors.Join(s.Memset(at, value, int64(len(end))), s.CopyOut(end, at)))
	return bytes.Count(end, []byte{value}) == len(end)
}

// grave knows which streams were destroyed.
type grave struct {
	sync.Mutex
	destroyed map[cupool.StreamHandle]bool
	closing   map[cupool.StreamHandle]bool // destroyed since the pool is being closed
	stale     int                          // waits for streams that were destroyed before that
	late      int                          // waits for others that were destroyed
}

// note is told of each call of a device before it is made.
func (g *grave) note(c *hook.Call) {
	g.Lock()
	defer g.Unlock()
	switch s := c.Stream; {
	case c.Name == "DestroyStream":
		g.destroyed[s], g.closing[s] = true, true
	case c.Name == "SyncStream" && g.closing[s]:
		g.late++
	case c.Name == "SyncStream" && g.destroyed[s]:
		g.stale++
	}
}

// beginClosing notes that a pool is about to be closed.
func (g *grave) beginClosing() {
	g.Lock()
	defer g.Unlock()
	clear(g.closing)
}

// TestPoolsBesideStreams: pools that are made, used and closed while streams
// come and go never wait for a stream that is destroyed: not for one that was
// destroyed when the pool met it, whose place another stream had, and not for
// one that is destroyed while the pool is being closed.
func TestPoolsBesideStreams(t *testing.T) {
	const standing = 8 // places of streams that come and go, which a pool meets at once
	g := &grave{destroyed: map[cupool.StreamHandle]bool{}, closing: map[cupool.StreamHandle]bool{}}
	c := pooltest.Open(t, cupool.Config{Driver: &hook.Driver{Driver: simdev.New(simdev.Config{}), Around: func(c *hook.Call, do func() error) error {
		g.note(c)
		return do()
	}}})
	var coming []*cupool.Stream
	for range standing {
		coming = append(coming, pooltest.NewStream(t, c))
	}
	last := pooltest.NewStream(t, c) // of the highest place: a pool that meets it meets all below
	for _, s := range coming {
		require.NoError(t, s.Close())
	}
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !over.Load() {
				s, err := c.NewStream()
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	failed := 0
	for range testkit.Rounds(4_000) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		b, err := p.Alloc(512, last)
		if err == nil {
			err = p.Free(b)
		}
		if err != nil {
			failed++
		}
		g.beginClosing()
		if p.Close() != nil {
			failed++
		}
	}
	over.Store(true)
	wg.Wait()
	require.Zero(t, g.stale, "waits for a stream that was destroyed before the pool was closed")
	require.Zero(t, g.late, "waits for a stream that was destroyed while the pool was being closed")
	require.Zero(t, failed, "errors")
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestCheckBesidePools: Check is right while another goroutine makes pools that take
// memory, and closes them.
func TestCheckBesidePools(t *testing.T) {
	c, _ := pooltest.NewParallel(t, 1<<30)
	done := pooltest.Start(func() error {
		for range testkit.Choose(20000, 300) {
			p, err := c.NewPool(cupool.PoolConfig{})
			if err != nil {
				return err
			}
			b, err := p.Alloc(5000, nil)
			if err := errors.Join(err, p.Free(b), p.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	for checked := false; ; checked = true {
		select {
		case err := <-done:
			require.NoError(t, err)
			require.True(t, checked)
			return
		default:
			require.NoError(t, c.Check())
		}
	}
}
