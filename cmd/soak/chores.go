package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/planner"
)

// every calls f, with pauses of up to d, until ctx is done.
func (k *soak) every(ctx context.Context, r *rand.Rand, d time.Duration, what string, f func() error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(r.Int64N(int64(d)))):
			k.quietly(what, f)
		}
	}
}

func (k *soak) newStream() (*cupool.Stream, error) {
	k.count.streams.Add(1)
	return k.pool.NewStream()
}

func (k *soak) newPool(cfg cupool.PoolConfig) (*cupool.Pool, error) {
	k.count.pools.Add(1)
	return k.pool.NewPool(cfg)
}

// replaceStreams closes streams whose blocks are live and pending, and makes
// others.
func (k *soak) replaceStreams(ctx context.Context, r *rand.Rand) {
	k.every(ctx, r, 20*time.Millisecond, "replacing a stream", func() error {
		p := &k.places[r.IntN(len(k.places))]
		p.Lock()
		defer p.Unlock()
		s, err := k.newStream()
		if err != nil {
			return err
		}
		old := p.s
		p.s = s
		return old.Close()
	})
}

// replacePools retires pools whose blocks are live and pending, and makes
// others.
func (k *soak) replacePools(ctx context.Context, r *rand.Rand) {
	k.every(ctx, r, 100*time.Millisecond, "replacing a pool", func() error {
		p := &k.pools[r.IntN(len(k.pools))]
		p.Lock()
		defer p.Unlock()
		old := p.p
		var err error
		p.p, err = k.newPool(k.somePool(r))
		if old != nil {
			err = errors.Join(err, old.Retire())
		}
		return err
	})
}

// somePool returns the configuration of a pool.
func (k *soak) somePool(r *rand.Rand) cupool.PoolConfig {
	switch r.IntN(6) {
	case 0:
		return cupool.PoolConfig{Limit: k.limit / 16}
	case 1:
		return cupool.PoolConfig{NoSplit: true, Limit: k.limit / 8}
	case 2:
		return cupool.PoolConfig{UseOnOOM: true}
	case 3:
		return cupool.PoolConfig{
			Alloc: k.driver.MemAlloc,
			Free:  func(p cupool.Ptr, _ int64) error { return k.driver.MemFree(p) },
		}
	default:
		return cupool.PoolConfig{}
	}
}

// doChores calls what programs call now and then.
func (k *soak) doChores(ctx context.Context, r *rand.Rand) {
	k.every(ctx, r, 50*time.Millisecond, "chore", func() error {
		c := k.pool
		if pools := c.Pools(); len(pools) > 0 && r.IntN(2) == 0 {
			c = pools[r.IntN(len(pools))]
		}
		err := k.chore(r, c)
		if c != k.pool && errors.Is(err, cupool.ErrClosed) {
			return nil // the pool's last block was freed meanwhile
		}
		return err
	})
}

func (k *soak) chore(r *rand.Rand, c *cupool.Pool) (err error) {
	switch r.IntN(10) {
	case 0:
		_, err = c.Trim(r.Int64N(k.limit))
	case 1:
		if r.IntN(4) == 0 {
			err = c.EmptyCache()
		}
	case 2:
		_, err = poolaccess.Of(c).Reclaim(r.Int64N(k.limit / 4))
	case 3:
		_, err = c.ProcessDeferred()
	case 4:
		c.Snapshot()
	case 5:
		_ = c.Stats()
		c.Snapshot().Layout()
		_ = c.Stats().String()
	case 6:
		c.ResetPeak()
	case 7:
		err = k.pool.Sync()
	default:
		err = k.on(r.IntN(len(k.places)), func(s *cupool.Stream) error { return k.pool.Reserve(r.Int64N(k.limit/16), s) })
	}
	return err
}

// hog takes all memory at times.
func (k *soak) hog(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second + time.Duration(r.Int64N(int64(8*time.Second)))):
		}
		var all []cupool.Block
		for full := false; !full && ctx.Err() == nil; {
			k.quietly("hogging", func() error {
				return k.on(r.IntN(len(k.places)), func(s *cupool.Stream) error {
					b, err := k.alloc(k.pool, k.limit/32, s)
					if full = err != nil; !full {
						all = append(all, b)
					}
					return err
				})
			})
		}
		time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
		for _, b := range all {
			k.quietly("freeing what was hogged", func() error { return k.free(b, k.pool.Free) })
		}
	}
}

// planIterations repeats iterations in a plan of their memory.
func (k *soak) planIterations(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		k.tolerate("plan", k.plan(ctx, r))
	}
}

// plan makes a planner in a pool of its own, runs iterations, and closes both.
func (k *soak) plan(ctx context.Context, r *rand.Rand) (err error) {
	locked := func(f func() error) error {
		k.quiet.RLock()
		defer k.quiet.RUnlock()
		return f()
	}
	var s *cupool.Stream
	var p *planner.Planner
	err = locked(func() (err error) {
		if s, err = k.newStream(); err != nil {
			return err
		}
		pool, err := k.newPool(cupool.PoolConfig{Name: "planned", Limit: k.limit / 8})
		if err != nil {
			return errors.Join(err, s.Close())
		}
		k.planned = pool
		p, err = planner.New(pool, planner.Config{})
		return err
	})
	if err != nil {
		return err
	}
	sizes := make([]int64, 12)
	for i := range sizes {
		sizes[i] = 1 + r.Int64N(256<<10)
	}
	for range 400 {
		if ctx.Err() != nil || err != nil {
			break
		}
		err = locked(func() error {
			k.count.operations.Add(1)
			return k.iteration(p, s, sizes, r.Uint64())
		})
		time.Sleep(5 * time.Millisecond)
	}
	return errors.Join(err, locked(func() error {
		err := errors.Join(p.Close(), k.planned.Close(), s.Close())
		k.planned = nil
		return err
	}))
}

// iteration allocates, writes and reads, with three blocks live at a time.
func (k *soak) iteration(p *planner.Planner, s *cupool.Stream, sizes []int64, tag uint64) (err error) {
	if err := p.BeginIteration(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.EndIteration()) }()
	var live []held
	defer func() {
		for _, h := range live {
			err = errors.Join(err, p.Free(h.Block))
		}
	}()
	for i, size := range sizes {
		b, err := p.Alloc(size, s)
		if err != nil {
			return err
		}
		h := held{Block: b, pattern: pattern{tag: tag + uint64(i), size: size}}
		live = append(live, h)
		if err := h.write(b.Ptr(), s); err != nil {
			return err
		}
		if len(live) < 3 {
			continue
		}
		h, live = live[0], live[1:]
		got := make([]byte, 1)
		if err := errors.Join(s.CopyOut(got, h.Ptr()+cupool.Ptr(h.size/2)), p.Free(h.Block)); err != nil {
			return err
		}
		if h.size > 32 && got[0] != h.fill() {
			k.corrupted("planned block")
		}
	}
	return nil
}
