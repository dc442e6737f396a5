package pytorch_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// The part "MemPool" of the checklist in core_test.go. A MemPool is a private
// pool here; use_mem_pool, which routes what a thread allocates, is
// Engine.ScopeIn.
//
//	test_mempool_id, _multithread                TestPyTorchMemPoolID
//	test_mempool_with_allocator                  TestPyTorchMemPoolWithAllocator; pools have no use counts
//	test_mempool_empty_cache, _empty_cache_inactive  TestPyTorchMemPoolEmptyCache
//	test_tensor_delete_after_allocator_delete    TestPyTorchMemPoolDeleteAfterAllocator
//	test_mempool_limited_memory_with_allocator   TestPyTorchMemPoolOnOOM
//	test_deleted_mempool_not_used_on_oom         TestPyTorchMemPoolOnOOM
//	test_mempool_no_split                        TestPyTorchMemPoolNoSplit
//	test_mempool_emptycache_multithread          TestPyTorchMemPoolEmptyCacheMultithread
//	test_nested_mempool                          TestPyTorchNestedMemPool
//	test_mempool_ctx_multithread                 TestPyTorchMemPoolContextMultithread
//	test_mempool_oom_recovery_releases_cached_blocks  TestPyTorchMemPoolOOMRecovery
//	test_mempool_block_free_not_deferred         TestPyTorchMemPoolFreeNotDeferred
//	test_mempool_expandable                      TestPyTorchMemPoolExpandable
//	test_reserved_bytes_by_private_pools(_expandable)  TestPyTorchReservedBytesByPrivatePools
//
// And of the part "Graphs", what is about pools:
//
//	test_check_pool_live_allocations             TestPoolClose
//	test_allocate_in_thread_to_pool              TestPyTorchMemPoolContextMultithread

// counted is an upstream that counts what it holds.
type counted struct {
	d           cupool.Driver
	mu          sync.Mutex
	held        map[cupool.Ptr]int64
	made, freed int
	limit       int
}

func (u *counted) alloc(size int64) (cupool.Ptr, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.limit > 0 && u.made-u.freed == u.limit {
		return 0, fmt.Errorf("no more than %d segments: %w", u.limit, cupool.ErrOutOfMemory)
	}
	p, err := u.d.MemAlloc(size)
	if err == nil {
		u.made++
		u.held[p] = size
	}
	return p, err
}

func (u *counted) free(p cupool.Ptr, size int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held[p] != size {
		return fmt.Errorf("%v of %d bytes is not held", p, size)
	}
	delete(u.held, p)
	u.freed++
	return u.d.MemFree(p)
}

func newCounted(t *testing.T, c *cupool.Pool, cfg cupool.PoolConfig) (*cupool.Pool, *counted) {
	u := &counted{d: c.Driver(), held: map[cupool.Ptr]int64{}}
	cfg.Alloc, cfg.Free = u.alloc, u.free
	return pooltest.NewPrivate(t, c, cfg), u
}

// TestPyTorchMemPoolID: no two pools have the same name, whoever makes them.
func TestPyTorchMemPoolID(t *testing.T) {
	backings(t, 64*mib, func(t *testing.T, c *cupool.Pool) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { testkit.Must(c.NewPool(cupool.PoolConfig{})) })
		}
		wg.Wait()
		names := map[string]bool{c.Name(): true}
		for _, p := range c.Pools() {
			names[p.Name()] = true
		}
		require.Len(t, names, 9)
	})
}

// TestPyTorchMemPoolWithAllocator: the pool's functions serve it, and nobody
// else; blocks of 1 MiB share segments of two.
func TestPyTorchMemPoolWithAllocator(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		p, u := newCounted(t, c, cupool.PoolConfig{})
		for i, segments := range []int{1, 1, 2} {
			defer func(b cupool.Block) { require.NoError(t, c.Free(b)) }(pooltest.Alloc(t, p, mib, nil))
			require.EqualValues(t, segments, p.Stats().All.Segment.Current, "block %d", i)
			require.Equal(t, segments, u.made)
		}
		require.NoError(t, c.Free(pooltest.Alloc(t, c, mib, nil)))
		require.Equal(t, 2, u.made)
	})
}

// TestPyTorchMemPoolEmptyCache: what the pool caches goes back by its own
// function, to empty another's cache does not touch it, and what is live stays.
func TestPyTorchMemPoolEmptyCache(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		p, u := newCounted(t, c, cupool.PoolConfig{})
		live := pooltest.Alloc(t, p, 30*mib, nil)
		require.NoError(t, p.Free(pooltest.Alloc(t, p, 40*mib, nil)))
		require.NoError(t, c.EmptyCache())
		require.Zero(t, u.freed)
		require.NoError(t, p.EmptyCache())
		require.Equal(t, map[cupool.Ptr]int64{live.Ptr(): 30 * mib}, u.held)
		require.NoError(t, p.Free(live))
		require.NoError(t, p.EmptyCache())
		require.Empty(t, u.held)
	})
}

// TestPyTorchMemPoolDeleteAfterAllocator: blocks outlive the pool that was
// retired, and their memory goes back by the pool's function.
func TestPyTorchMemPoolDeleteAfterAllocator(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		p, u := newCounted(t, c, cupool.PoolConfig{})
		buf, err := cupool.BufferFrom(p, []int32{1, 2, 3}, nil)
		require.NoError(t, err)
		homed := pooltest.Alloc(t, p, 5000, nil)
		for range 3 { // until it is served without a lock
			require.NoError(t, p.Free(homed))
			homed = pooltest.Alloc(t, p, 5000, nil)
		}
		require.NoError(t, p.Free(homed))
		require.NoError(t, p.Retire())
		require.ErrorIs(t, p.Retire(), cupool.ErrClosed)
		for _, size := range []int64{5000, 30 * mib} {
			_, err = p.Alloc(size, nil)
			require.ErrorIs(t, err, cupool.ErrClosed)
		}
		got, err := buf.ToHost()
		require.NoError(t, err)
		require.Equal(t, []int32{1, 2, 3}, got)
		require.NoError(t, c.EmptyCache())
		require.Len(t, u.held, 1, "in use")
		require.NoError(t, c.FreePtr(buf.Ptr(), -1))
		require.NoError(t, c.EmptyCache())
		require.Empty(t, u.held)
		require.Empty(t, c.Pools())
		require.ErrorIs(t, p.Close(), cupool.ErrClosed)
	})
}

// TestPyTorchMemPoolOnOOM: memory of pools that lend serves the allocator when
// there is no other, and goes back to its pool; pools that do not, or that were
// retired, and requests to other pools, are left alone.
func TestPyTorchMemPoolOnOOM(t *testing.T) {
	backings(t, 128*mib, func(t *testing.T, c *cupool.Pool) {
		lender, u := newCounted(t, c, cupool.PoolConfig{UseOnOOM: true})
		other, _ := newCounted(t, c, cupool.PoolConfig{Isolated: true})
		sole := pooltest.Alloc(t, lender, 512, nil)
		x, y := pooltest.Alloc(t, lender, 40*mib, nil), pooltest.Alloc(t, other, 40*mib, nil)
		require.NoError(t, errors.Join(lender.Free(x), other.Free(y)))
		full := pooltest.Alloc(t, c, 40*mib, nil)

		b := pooltest.Alloc(t, c, 40*mib, nil)
		require.Equal(t, x.Ptr(), b.Ptr(), "lent")
		require.Equal(t, 2, len(u.held))
		_, err := c.Alloc(40*mib, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		_, err = other.Alloc(60*mib, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory, "and has given its own cache back in vain")
		require.NoError(t, c.Free(b))
		require.EqualValues(t, 512, lender.Stats().LiveBytes)
		require.Equal(t, x.Ptr(), allocateAndFree(t, lender, 40*mib), "it is the pool's again")

		keep := pooltest.Alloc(t, lender, 30*mib, nil) // so that the segment does not go back
		require.NoError(t, lender.Retire())
		more := pooltest.Alloc(t, c, 40*mib, nil)
		_, err = c.Alloc(9*mib, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		require.NoError(t, errors.Join(c.Free(keep), c.Free(full), c.Free(sole), c.Free(more)))
	})
}

// TestPyTorchMemPoolNoSplit: one block a segment.
func TestPyTorchMemPoolNoSplit(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{NoSplit: true})
		var blocks []cupool.Block
		for i, size := range []int64{512, 5000, 3 * mib, 11 * mib} {
			blocks = append(blocks, pooltest.Alloc(t, p, size, nil))
			require.EqualValues(t, i+1, p.Stats().All.Segment.Current)
		}
		require.Zero(t, p.Stats().All.InactiveSplit.Current)
		for _, b := range blocks {
			require.NoError(t, p.Free(b))
		}
		require.Contains(t, []cupool.Ptr{blocks[0].Ptr(), blocks[1].Ptr()}, allocateAndFree(t, p, 1000))
		require.EqualValues(t, 4, p.Stats().All.Segment.Current)
	})
}

// TestPyTorchMemPoolEmptyCacheMultithread: emptying the caches of some members
// does not disturb others at work.
func TestPyTorchMemPoolEmptyCacheMultithread(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		var wg sync.WaitGroup
		for i := range 4 {
			p, u := newCounted(t, c, cupool.PoolConfig{})
			wg.Go(func() {
				for n := range 50 {
					b := testkit.Must(p.Alloc(int64(1+n*3000*(i+1)), nil))
					testkit.Must(0, p.EmptyCache())
					if _, err := c.Lookup(b.Ptr()); err != nil {
						t.Error(err)
					}
					testkit.Must(0, p.Free(b))
				}
				testkit.Must(0, errors.Join(p.EmptyCache(), c.EmptyCache()))
				if len(u.held) > 0 {
					t.Errorf("%v is still held", u.held)
				}
			})
		}
		wg.Wait()
	})
}

// tensorOf makes a tensor in the engine's pool and returns the member of the
// family that holds it.
func tensorOf(t *testing.T, e *cupool.Engine, members ...*cupool.Pool) (in *cupool.Pool) {
	x, err := e.Empty(tensor.Float32, 1000)
	require.NoError(t, err)
	for _, m := range members {
		if m.Stats().All.Allocation.Current > 0 {
			require.Nil(t, in, "only one holds it")
			in = m
		}
	}
	require.True(t, e.Owns(x))
	require.NoError(t, e.FreeTensor(x))
	return in
}

// TestPyTorchNestedMemPool: the innermost scope says where memory comes from.
func TestPyTorchNestedMemPool(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		a, b := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		e, err := cupool.NewEngine(c)
		require.NoError(t, err)
		where := func() *cupool.Pool { return tensorOf(t, e, c, a, b) }
		open := func(p *cupool.Pool) *cupool.Scope {
			sc, err := e.ScopeIn(p)
			require.NoError(t, err)
			return sc
		}
		require.Same(t, c, where())
		outer := open(a)
		require.Same(t, a, where())
		inner := open(b)
		require.Same(t, b, where())
		plain := e.Scope()
		require.Same(t, b, where())
		again := open(c)
		require.Same(t, c, where())
		require.NoError(t, again.Close())
		require.NoError(t, plain.Close())
		require.NoError(t, inner.Close())
		require.Same(t, a, where())
		kept, err := e.Empty(tensor.Float64, 10)
		require.NoError(t, err)
		require.NoError(t, outer.Keep(kept))
		_, err = e.Empty(tensor.Float64, 10)
		require.NoError(t, err)
		require.NoError(t, outer.Close())
		require.EqualValues(t, 80, a.Stats().All.RequestedBytes.Current, "what was kept")
		require.NoError(t, e.FreeTensor(kept))
		require.Same(t, c, where())

		_, err = e.ScopeIn(nil)
		require.ErrorIs(t, err, cupool.ErrForeignStream)
		foreign, err := cupool.New(cupool.Config{})
		require.NoError(t, err)
		_, err = e.ScopeIn(foreign)
		require.ErrorIs(t, err, cupool.ErrForeignStream)
	})
}

// TestPyTorchMemPoolContextMultithread: engines of several goroutines, each
// with a scope in a pool of its own, do not meet.
func TestPyTorchMemPoolContextMultithread(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		var wg sync.WaitGroup
		for n := range int64(4) {
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
			wg.Go(func() {
				e := testkit.Must(cupool.NewEngine(c))
				sc := testkit.Must(e.ScopeIn(p))
				for range 20 {
					x := tensor.New(tensor.Of(tensor.Int64), tensor.WithShape(3), tensor.WithEngine(e))
					testkit.Must(tensor.Add(x, x))
				}
				st := p.Stats()
				if st.All.Allocation.Current != 40 {
					t.Errorf("pool %d has %d blocks, want 40", n, st.All.Allocation.Current)
				}
				testkit.Must(0, sc.Close())
			})
		}
		wg.Wait()
		require.Zero(t, c.Stats().All.Allocation.Allocated)
	})
}

// TestPyTorchMemPoolOOMRecovery: a pool that lacks memory gets what it caches
// itself, and then what the others cache.
func TestPyTorchMemPoolOOMRecovery(t *testing.T) {
	backings(t, 100*mib, func(t *testing.T, c *cupool.Pool) {
		p, q := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		for _, m := range []*cupool.Pool{p, q, c} {
			allocateAndFree(t, m, 30*mib)
		}
		allocateAndFree(t, p, 35*mib)
		require.NotZero(t, q.Stats().CachedBytes+c.Stats().CachedBytes, "the own memory was enough")
		allocateAndFree(t, p, 100*mib)
		require.Zero(t, q.Stats().CachedBytes+c.Stats().CachedBytes)
		allocateAndFree(t, c, 100*mib)
		require.Zero(t, p.Stats().CachedBytes)
	})
}

// TestPyTorchMemPoolFreeNotDeferred: what is freed in a scope of a pool serves
// the next request, in the scope and after it.
func TestPyTorchMemPoolFreeNotDeferred(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		e, err := cupool.NewEngine(c)
		require.NoError(t, err)
		sc, err := e.ScopeIn(p)
		require.NoError(t, err)
		var first uintptr
		for i := range 4 {
			x, err := e.Empty(tensor.Byte, 3*mib)
			require.NoError(t, err)
			if i == 0 {
				first = x.Uintptr()
			}
			require.Equal(t, first, x.Uintptr())
			require.NoError(t, e.FreeTensor(x))
		}
		require.NoError(t, sc.Close())
		require.EqualValues(t, first, allocateAndFree(t, p, 3*mib))
	})
}

// TestPyTorchMemPoolExpandable: a pool uses virtual memory where its allocator
// does, but for one with functions of its own.
func TestPyTorchMemPoolExpandable(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		q, _ := newCounted(t, c, cupool.PoolConfig{})
		for _, m := range []*cupool.Pool{c, p, q} {
			x, y, z := pooltest.Alloc(t, m, 6*mib, nil), pooltest.Alloc(t, m, 6*mib, nil), pooltest.Alloc(t, m, 6*mib, nil)
			require.NoError(t, errors.Join(m.Free(x), m.Free(z)))
			allocateAndFree(t, m, 12*mib)
			require.NoError(t, m.Free(y))
			require.NoError(t, m.Check())
		}
		require.Equal(t, c.Stats().Stitches, p.Stats().Stitches)
		require.Zero(t, q.Stats().Stitches)
	})
}

// TestPyTorchReservedBytesByPrivatePools: every member has books of its own.
func TestPyTorchReservedBytesByPrivatePools(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		p, q := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		var held []cupool.Block
		for i, m := range []*cupool.Pool{c, p, q} {
			held = append(held, pooltest.Alloc(t, m, int64(i+1)*20*mib, nil))
		}
		for i, m := range []*cupool.Pool{c, p, q} {
			require.EqualValues(t, (i+1)*20*mib, m.Stats().All.ReservedBytes.Current)
			require.NoError(t, c.Free(held[i]))
			require.NoError(t, m.EmptyCache())
			require.Zero(t, m.Stats().All.ReservedBytes.Current)
		}
	})
}
