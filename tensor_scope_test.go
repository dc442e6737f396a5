package cupool_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestScope(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		before := e.From(random(e.Rand, tensor.Float64, 8))
		sc := e.Scope()
		x := e.From(random(e.Rand, tensor.Float64, 3, 4))
		kept := must(tensor.Add(x, x))
		must(tensor.MatMul(x, must(tensor.Transpose(x))))
		lost := must(e.FromHost(random(e.Rand, tensor.Float64, 2)))
		rows := must(tensor.Exp(x)).(*tensor.Dense)
		shallow := must(tensor.Exp(x)).(*tensor.Dense)
		freed := must(tensor.Exp(x))
		e.FreeAll(freed)
		require.NoError(t, sc.Keep(kept, view(rows, tensor.S(1, 2)), shallow.ShallowClone(), before, nil, random(e.Rand, tensor.Int, 2)))
		require.ErrorIs(t, sc.Keep(x.ShallowClone(), nil, (*tensor.Dense)(nil)), nil)
		require.NoError(t, sc.Close())
		require.Equal(t, int64(5), e.Live())
		require.Zero(t, lost.MemSize(), "it is left without data")
		for _, d := range []tensor.Tensor{before, x, kept, rows, shallow} {
			require.True(t, e.Owns(d))
		}
		require.NoError(t, sc.Close(), "again")
		require.ErrorIs(t, sc.Keep(x), cupool.ErrClosed)
		e.FreeAll(before, x, kept, rows, shallow)
	})
}

// TestScopeNested tests where memory goes that is kept at one level and not
// at another.
func TestScopeNested(t *testing.T) {
	for name, tc := range map[string]struct {
		keepOuter, keepInner bool
		afterInner           bool // lives after the inner scope
		afterOuter           bool
	}{
		"not kept":     {false, false, false, false},
		"kept inside":  {false, true, true, false},
		"kept outside": {true, false, true, true},
		"kept in both": {true, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, closeInner := range []bool{true, false} {
				e := newBench(t, false)
				outer := e.Scope()
				first := must(e.Empty(tensor.Int, 3))
				inner := e.Scope()
				x := must(e.Empty(tensor.Int, 5))
				if tc.keepInner {
					require.NoError(t, inner.Keep(x))
				}
				if tc.keepOuter {
					require.NoError(t, outer.Keep(x))
				}
				if closeInner {
					require.NoError(t, inner.Close())
					require.True(t, e.Owns(first))
					require.Equal(t, tc.afterInner, e.Owns(x))
				}
				require.NoError(t, outer.Close())
				require.NoError(t, inner.Close(), "closed with the outer one")
				require.False(t, e.Owns(first))
				require.Equal(t, tc.afterOuter, e.Owns(x))
				if tc.afterOuter {
					e.FreeAll(x)
				}
				last := must(e.Empty(tensor.Int, 3))
				require.True(t, e.Owns(last), "no scope is left")
				e.FreeAll(last)
			}
		})
	}
}

// TestScopeRecycled: memory that was freed in a scope and handed out again
// past the engine is not freed with the scope.
func TestScopeRecycled(t *testing.T) {
	e := newBench(t, false)
	sc := e.Scope()
	x := must(e.Empty(tensor.Int, 64))
	p := cupool.Ptr(x.Uintptr())
	e.FreeAll(x)
	b := pooltest.Alloc(t, e.Pool, 512, nil)
	require.Equal(t, p, b.Ptr(), "the test needs the same block")
	require.NoError(t, sc.Close())
	require.NoError(t, e.Pool.Free(b))
}

// TestScopeLong: a scope forgets what is freed meanwhile.
func TestScopeLong(t *testing.T) {
	e := newBench(t, false)
	sc := e.Scope()
	var live []*tensor.Dense
	for i := range 20_000 {
		d := must(e.Empty(tensor.Int, 1+i%9))
		if i%100 == 0 {
			live = append(live, d)
		} else {
			e.FreeAll(d)
		}
	}
	require.Less(t, cupool.ScopeLen(sc), 4*1024)
	require.NoError(t, sc.Keep(live[0]))
	require.NoError(t, sc.Close())
	require.Equal(t, int64(1), e.Live())
	e.FreeAll(live[0])
}

// TestScopeConcurrent: a scope notes what all goroutines allocate.
func TestScopeConcurrent(t *testing.T) {
	e := newBench(t, false)
	for range 20 {
		sc := e.Scope()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i := range 50 {
					d := must(e.Empty(tensor.Float32, 1+i))
					if i%3 == 0 {
						must(0, e.FreeTensor(d))
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, sc.Close())
		require.Zero(t, e.Live())
	}
}

// TestScopeLeave: after Leave, nothing is noted, and nothing freed until Close.
func TestScopeLeave(t *testing.T) {
	e := newBench(t, false)
	around := e.Scope()
	first := e.Scope()
	x, kept := must(e.Empty(tensor.Int, 3)), must(e.Empty(tensor.Int, 4))
	inner := e.Scope()
	y := must(e.Empty(tensor.Int, 5))
	require.NoError(t, inner.Keep(y))
	first.Leave()
	first.Leave()
	require.NoError(t, inner.Close(), "it ended with the first")
	second := e.Scope()
	z := must(e.Empty(tensor.Int, 6))
	require.NoError(t, first.Keep(kept))
	require.NoError(t, first.Close())
	for d, lives := range map[*tensor.Dense]bool{x: false, y: false, kept: true, z: true} {
		require.Equal(t, lives, e.Owns(d))
	}
	require.NoError(t, second.Close())
	require.False(t, e.Owns(z))
	require.NoError(t, around.Close())
	require.Zero(t, e.Live(), "what was kept in a scope belongs to the one around it")
}

// TestScopeLeaveOutlivesTheOuter: what a scope keeps that outlives the one
// around it is the next one's.
func TestScopeLeaveOutlivesTheOuter(t *testing.T) {
	e := newBench(t, false)
	far, near := e.Scope(), e.Scope()
	s := e.Scope()
	x := must(e.Empty(tensor.Int, 3))
	s.Leave()
	require.NoError(t, near.Close())
	require.True(t, e.Owns(x))
	require.NoError(t, s.Keep(x))
	require.NoError(t, s.Close())
	require.True(t, e.Owns(x))
	require.NoError(t, far.Close())
	require.Zero(t, e.Live())
}

// Scopes with labels, inside each other and in a private pool.
func TestScopeLabeled(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	alloc := func() {
		_, err := e.Empty(tensor.Float32, 256)
		require.NoError(t, err)
	}
	bytes := func(c *cupool.Pool) map[string]int64 {
		all := map[string]int64{}
		for _, l := range c.Stats().Labels {
			all[l.Label] = l.Bytes.Current
		}
		return all
	}
	outer := must(e.ScopeLabeled("forward"))
	alloc()
	plain := e.Scope()
	alloc()
	inner := must(e.ScopeLabeled("attention"))
	alloc()
	pool := must(e.ScopeIn(p))
	alloc()
	pooled := must(e.ScopeLabeled("pooled"))
	alloc()
	require.Equal(t, map[string]int64{"forward": 2048, "attention": 1024}, bytes(c))
	require.Equal(t, map[string]int64{"pooled": 1024}, bytes(p))
	require.EqualValues(t, 2048, p.Stats().LiveBytes)
	for _, s := range []*cupool.Scope{pooled, pool, inner, plain, outer} {
		require.NoError(t, s.Close())
	}
	require.Equal(t, map[string]int64{"forward": 0, "attention": 0}, bytes(c))
	require.Equal(t, map[string]int64{"pooled": 0}, bytes(p))

	n, err := cupool.NewEngine(struct{ cupool.Allocator }{c})
	require.NoError(t, err)
	_, err = n.ScopeLabeled("x")
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.NoError(t, c.Close())
}
