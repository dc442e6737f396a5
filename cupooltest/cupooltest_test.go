package cupooltest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cupooltest"
	"github.com/cupool/cupool/internal/poolaccess"
)

// recorder is a test that keeps what fails it, and runs its cleanups when told.
type recorder struct {
	testing.TB
	cleanups []func()
	failures []string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Error(fmt.Sprintf(format, args...))
	panic(r) // which ends it
}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any) {
	r.failures = append(r.failures, fmt.Sprint(args...))
}

// end returns what the test failed with.
func (r *recorder) end() string {
	for i := range r.cleanups {
		r.cleanups[len(r.cleanups)-1-i]()
	}
	return strings.Join(r.failures, "\n")
}

func newPool(t *testing.T) *cupool.Pool {
	c, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

//go:noinline
func planted(t *testing.T, a cupool.Allocator, size int64) cupool.Block {
	b, err := a.Alloc(size, nil)
	require.NoError(t, err)
	return b
}

func TestNoLeaks(t *testing.T) {
	c := newPool(t)
	old := planted(t, c, 1000)
	for name, tc := range map[string]struct {
		test func(t *testing.T)
		want []string // lines of the failure
	}{
		"clean": {func(t *testing.T) { require.NoError(t, c.Free(planted(t, c, 1000))) }, nil},
		"freed while another stream uses it": {func(t *testing.T) {
			s, err := c.NewStream()
			require.NoError(t, err)
			gate := make(chan struct{})
			require.NoError(t, s.Launch(func() { <-gate }))
			require.NoError(t, c.FreeOn(planted(t, c, 1000), s))
			require.Positive(t, c.Stats().PendingBytes)
			t.Cleanup(func() { close(gate); require.NoError(t, s.Close()) })
		}, nil},
		"a block that was there": {func(t *testing.T) {
			require.NoError(t, c.Free(old))
			old = planted(t, c, 1000) // a new one, at its address
		}, []string{"leaked 1 block, 1000 B", "1 block, 1000 B, allocated at cupooltest_test.planted (cupooltest_test.go:51)"}},
		"a planted leak": {func(t *testing.T) {
			p, err := c.NewPool(cupool.PoolConfig{})
			require.NoError(t, err)
			for range 2 {
				planted(t, p.WithLabel("x"), 2<<20)
			}
			planted(t, c, 512)
		}, []string{
			"leaked 3 blocks, 4 MiB",
			"2 blocks, 4 MiB, for x, allocated at cupooltest_test.planted (cupooltest_test.go:51), called by cupooltest_test.TestNoLeaks",
			"1 block, 512 B, allocated at cupooltest_test.planted (cupooltest_test.go:51), called by cupooltest_test.TestNoLeaks",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			cupooltest.NoLeaks(r, c)
			tc.test(t)
			got := strings.Split(r.end(), "\n")
			for i, want := range tc.want {
				require.Contains(t, got[i], want)
			}
			require.Len(t, got, max(len(tc.want), 1))
			require.NotEmpty(t, poolaccess.Of(c).Events(0))
			events := len(poolaccess.Of(c).Events(0))
			require.NoError(t, c.Free(planted(t, c, 5000)))
			require.Len(t, poolaccess.Of(c).Events(0), events, "nothing is recorded any more")
			require.Equal(t, len(tc.want) > 0, t.Failed() || got[0] != "")
		})
	}
}

// What tensors that nobody can reach hold is no leak, and what others hold is.
func TestNoLeaksOfTensors(t *testing.T) {
	c := newPool(t)
	eng, err := cupool.NewEngine(c, cupool.WithLifetimes())
	require.NoError(t, err)
	r := &recorder{TB: t}
	cupooltest.NoLeaks(r, c)
	kept := func() tensor.Tensor {
		var last tensor.Tensor
		for range 5 {
			x, err := eng.FromHost(tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{1, 2})))
			require.NoError(t, err)
			last = x
		}
		return last
	}()
	require.Contains(t, r.end(), "leaked 1 block, 8 B")
	runtime.KeepAlive(kept)
}

func TestNoLeaksOfClosed(t *testing.T) {
	c, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	r := &recorder{TB: t}
	cupooltest.NoLeaks(r, c)
	require.NoError(t, c.Close())
	require.Contains(t, r.end(), "the allocator was closed before")

	r = &recorder{TB: t}
	require.PanicsWithValue(t, r, func() { cupooltest.NoLeaks(r, c) })
	require.Contains(t, r.end(), "start history")
}

// Tests that run in parallel with pools of their own do not see each other's blocks.
func TestNoLeaksInParallel(t *testing.T) {
	c := newPool(t)
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			p, err := c.NewPool(cupool.PoolConfig{})
			require.NoError(t, err)
			r := &recorder{TB: t}
			cupooltest.NoLeaks(r, p)
			planted(t, c, 100)
			for range i {
				planted(t, p, 100)
			}
			if text := r.end(); i == 0 {
				require.Empty(t, text)
			} else {
				require.Contains(t, text, fmt.Sprintf("%d00 B, allocated", i))
			}
		})
	}
}
