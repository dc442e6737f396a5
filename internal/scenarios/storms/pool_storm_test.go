package storms_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestPoolStorm has goroutines use the members of a family on shared streams,
// short of memory, while pools are made, retired and closed.
func TestPoolStorm(t *testing.T) {
	limit := func(cfg *cupool.Config) { cfg.Limit = 200 << 20 }
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
		seed := testkit.Seed(t)
		lender := pooltest.NewPrivate(t, c, cupool.PoolConfig{UseOnOOM: true})
		steady := pooltest.NewPrivate(t, c, cupool.PoolConfig{Limit: 60 << 20})
		var wg sync.WaitGroup
		for g := range uint64(4) {
			r := rand.New(rand.NewPCG(seed, g))
			s, err := c.NewStream()
			require.NoError(t, err)
			wg.Go(func() {
				for range 60 {
					p := []*cupool.Pool{c, lender, steady, nil}[r.IntN(4)]
					if p == nil {
						p = enginetest.Must(c.NewPool(cupool.PoolConfig{}))
						defer func() { enginetest.Must(0, pooltest.Ignore(p.Retire(), cupool.ErrClosed)) }()
					}
					enginetest.Must(0, poolStep(r, c, p, s))
				}
			})
		}
		wg.Wait()
		require.NoError(t, c.EmptyCache())
		for _, p := range append(c.Pools(), c) {
			require.NoError(t, p.Check())
			require.Zero(t, p.Stats().LiveBytes)
		}
		require.Len(t, c.Pools(), 2)
	}, limit)
}

// poolStep allocates from p, writes, reads, and has c free.
func poolStep(r *rand.Rand, c, p *cupool.Pool, s *cupool.Stream) error {
	var held []cupool.Block
	for range 1 + r.IntN(4) {
		b, err := p.Alloc(1+r.Int64N(1<<(10+r.IntN(16))), s)
		if errors.Is(err, cupool.ErrOutOfMemory) {
			break
		}
		if err != nil {
			return err
		}
		held = append(held, b)
	}
	for i, b := range held {
		if err := s.Memset(b.Ptr(), byte(i+1), b.Size()); err != nil {
			return err
		}
	}
	for i, b := range held {
		got := make([]byte, min(b.Size(), 512))
		if err := s.CopyOut(got, b.Ptr()+cupool.Ptr(b.Size()-int64(len(got)))); err != nil {
			return err
		}
		for _, v := range got {
			if v != byte(i+1) {
				return fmt.Errorf("%v holds %d, want %d", b, v, i+1)
			}
		}
		if err := []func(cupool.Block) error{c.Free, p.Free, func(b cupool.Block) error { return c.FreeOn(b, nil) }}[r.IntN(3)](b); err != nil {
			return err
		}
	}
	return nil
}

// TestPoolStreamsStorm opens and closes streams on which goroutines allocate
// from the members of a family, while caches are emptied.
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
				for range 40 {
					s := enginetest.Must(c.NewStream())
					for range 10 {
						b, err := members[r.IntN(3)].Alloc(1+r.Int64N(1<<(8+r.IntN(18))), s)
						if err == nil {
							enginetest.Must(0, members[r.IntN(3)].RecordStream(b, nil))
							handed <- b
						} else if !errors.Is(err, cupool.ErrOutOfMemory) {
							t.Error(err)
						}
					}
					enginetest.Must(0, s.Close())
				}
			})
			freers.Go(func() {
				r := rand.New(rand.NewPCG(seed, 10+g))
				for b := range handed {
					enginetest.Must(0, members[r.IntN(3)].Free(b))
					if r.IntN(20) == 0 {
						enginetest.Must(0, members[r.IntN(3)].EmptyCache())
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

// TestCheckBesidePools: Check is right while another goroutine makes pools that take
// memory, and closes them.
func TestCheckBesidePools(t *testing.T) {
	c, _ := pooltest.NewParallel(t, 1<<30)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for range testkit.Choose(20000, 2000) {
			p, err := c.NewPool(cupool.PoolConfig{})
			if !assert.NoError(t, err) {
				return
			}
			b, err := p.Alloc(5000, nil)
			assert.NoError(t, err)
			assert.NoError(t, p.Free(b))
			assert.NoError(t, p.Close())
		}
	})
	for checked := false; ; checked = true {
		select {
		case <-done:
			require.True(t, checked)
			wg.Wait()
			return
		default:
			require.NoError(t, c.Check())
		}
	}
}
