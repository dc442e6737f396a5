package cupool_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// atBase runs a test with memory that begins at different addresses: some
// that the address maps hold, and some that only a walk of the segment finds.
func atBase(t *testing.T, f func(t *testing.T, c *cupool.Pool, x *pooltest.Script)) {
	for name, base := range map[string]cupool.Ptr{"low": 1 << 40, "beyond 57 bits": 1 << 60, "the highest": 1<<63 + 1<<40} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, 1<<30)
			d.Base = base
			f(t, c, pooltest.NewScript(t, c, d))
		})
	}
}

func TestLookup(t *testing.T) {
	atBase(t, func(t *testing.T, c *cupool.Pool, x *pooltest.Script) {
		x.Run("a=2M b=3M+7 s=1000 z=512@1 p=4M busy:1 free:p@1")
		for _, name := range []string{"a", "b", "s", "z"} {
			b := x.Block(name)
			for _, off := range []int64{0, 1, 511, b.Size() / 2, b.Size() - 1} {
				got, err := c.Lookup(b.Ptr() + cupool.Ptr(off))
				require.NoError(t, err, "%s + %d", name, off)
				require.Equal(t, b, got)
			}
		}
		a, b := x.Block("a"), x.Block("b")
		for name, tc := range map[string]struct {
			p    cupool.Ptr
			want error
		}{
			"before all":     {a.Ptr() - 1, cupool.ErrForeignPointer},
			"nil":            {0, cupool.ErrForeignPointer},
			"far behind":     {a.Ptr() + 1<<35, cupool.ErrForeignPointer},
			"pending":        {x.Block("p").Ptr(), cupool.ErrUseAfterFree},
			"inside pending": {x.Block("p").Ptr() + 5, cupool.ErrUseAfterFree},
			"free":           {a.Ptr() + 19<<20, cupool.ErrUseAfterFree},
		} {
			_, err := c.Lookup(tc.p)
			require.ErrorIs(t, err, tc.want, name)
			if tc.p != 0 {
				require.ErrorContains(t, err, tc.p.String(), name)
			}
		}
		x.Run("free:a")
		_, err := c.Lookup(a.Ptr())
		require.ErrorIs(t, err, cupool.ErrUseAfterFree)
		got, err := c.Lookup(b.Ptr())
		require.NoError(t, err)
		require.Equal(t, b, got)
		x.Run("free:b free:s free:z empty")
		for _, name := range []string{"a", "b", "s", "z"} { // their memory went back to the device
			p := x.Block(name).Ptr()
			_, err := c.Lookup(p)
			require.ErrorIs(t, err, cupool.ErrForeignPointer)
			require.ErrorIs(t, c.FreePtr(p, -1), cupool.ErrForeignPointer)
		}
	})
}

func TestFreePtr(t *testing.T) {
	atBase(t, func(t *testing.T, c *cupool.Pool, x *pooltest.Script) {
		x.Run("a=2M b=1000 p=4M busy:1 free:p@1")
		a, b := x.Block("a"), x.Block("b")
		before := x.Layout()
		for name, tc := range map[string]struct {
			p    cupool.Ptr
			size int64
			want error
			text string
		}{
			"interior":      {a.Ptr() + 512, -1, cupool.ErrInteriorPointer, "512 bytes into the block"},
			"one byte in":   {b.Ptr() + 1, 1000, cupool.ErrInteriorPointer, "of 1000 bytes"},
			"foreign":       {42, -1, cupool.ErrForeignPointer, "no segment"},
			"nil with size": {0, 512, cupool.ErrForeignPointer, "free of 512 bytes: foreign pointer: no segment"},
			"too small":     {b.Ptr(), 999, cupool.ErrSizeMismatch, "1000 bytes were allocated there"},
			"too large":     {b.Ptr(), 1024, cupool.ErrSizeMismatch, "1024 bytes"},
			"zero":          {b.Ptr(), 0, cupool.ErrSizeMismatch, "1000 bytes"},
			"free":          {a.Ptr() + 10<<20, -1, cupool.ErrForeignPointer, "not live (Free 14M"},
			"pending":       {x.Block("p").Ptr(), -1, cupool.ErrDoubleFree, "no block is live there"},
		} {
			err := c.FreePtr(tc.p, tc.size)
			require.ErrorIs(t, err, tc.want, name)
			require.ErrorContains(t, err, tc.text, name)
			var be *cupool.BlockError
			require.ErrorAs(t, err, &be, name)
			require.Equal(t, tc.p, be.Ptr, name)
			require.Equal(t, before, x.Layout(), "%s: nothing was changed", name)
		}
		require.NoError(t, c.FreePtr(a.Ptr(), 2<<20))
		require.ErrorIs(t, c.FreePtr(a.Ptr(), -1), cupool.ErrDoubleFree)
		require.NoError(t, c.FreePtr(b.Ptr(), -1))
		require.ErrorIs(t, c.FreePtr(b.Ptr(), 1000), cupool.ErrDoubleFree)
		require.NoError(t, c.FreePtr(0, 0))
		require.NoError(t, c.FreePtr(0, -1))
		require.NoError(t, c.Check())

		require.NoError(t, c.Close())
		require.ErrorIs(t, c.FreePtr(a.Ptr(), -1), cupool.ErrClosed)
		_, err := c.Lookup(a.Ptr())
		require.ErrorIs(t, err, cupool.ErrClosed)
	})
}

// An address that was found in a block is not found in a smaller one that ends there.
func TestLookupBehindASmallerBlock(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	a := pooltest.Alloc(t, c, 4*mib, nil)
	at := a.Ptr() + 2*mib
	require.Equal(t, a, must(c.Lookup(at)))
	require.NoError(t, c.Free(a))
	b := pooltest.Alloc(t, c, 2*mib, nil)
	require.Equal(t, a.Ptr(), b.Ptr())
	_, err := c.Lookup(at)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	require.Equal(t, b, must(c.Lookup(at-1)))
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
}

// Addresses of virtual memory stay reserved when the memory goes back to the device.
func TestLookupWithoutMemory(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM})
	a, b := pooltest.Alloc(t, c, 3*mib, nil), pooltest.Alloc(t, c, 3*mib, nil)
	require.NoError(t, c.Free(a))
	require.NoError(t, c.Free(b))
	require.NoError(t, c.EmptyCache())
	for _, p := range []cupool.Ptr{a.Ptr(), a.Ptr() + 1, b.Ptr(), b.Ptr() + 4*mib} {
		err := c.FreePtr(p, -1)
		require.ErrorIs(t, err, cupool.ErrForeignPointer, "%v", p)
		require.ErrorContains(t, err, "without memory")
		_, err = c.Lookup(p)
		require.ErrorIs(t, err, cupool.ErrForeignPointer, "%v", p)
	}
	require.NoError(t, c.Close())
}

// Blocks that go through magazines are found like others.
func TestLookupWithMagazines(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d).Run("a=1000 free:a a=1000 free:a a=1000")
	a := x.Block("a")
	got, err := c.Lookup(a.Ptr() + 999)
	require.NoError(t, err)
	require.Equal(t, a, got)
	require.NoError(t, c.FreePtr(a.Ptr(), -1))
	_, err = c.Lookup(a.Ptr())
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	require.ErrorIs(t, c.FreePtr(a.Ptr(), -1), cupool.ErrDoubleFree)
	require.ErrorIs(t, c.Free(a), cupool.ErrDoubleFree)
	x.Run("a=1000")
	require.ErrorIs(t, c.FreePtr(a.Ptr(), 1001), cupool.ErrSizeMismatch)
	require.NoError(t, c.FreePtr(a.Ptr(), 1000))
}

// The first question by address enters what is there already, of every stream.
func TestFirstLookup(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	before := c.Stats().MetadataBytes
	x := pooltest.NewScript(t, c, d).Run("a=1000 free:a a=1000 free:a a=1000 b=1000@1 free:b@1 b=1000@1 free:b@1 b=1000@1 c=3M")
	named := c.Stats().MetadataBytes
	require.Less(t, named-before, int64(256<<10), "no map so far")
	for _, name := range []string{"a", "b"} {
		line, _ := poolaccess.Of(c).Home(x.Block(name).Ptr())
		require.NotNil(t, line, "%s is mapped", name)
	}
	require.Greater(t, c.Stats().MetadataBytes, named)
	x.Run("free:a free:b@1 free:c")
}

// A look-up beside allocations and frees of the same addresses finds a block as
// it was handed out, or none.
func TestLookupBesideOthers(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	sizes := []int64{1000, 1024, 3 << 20}
	var addresses []cupool.Ptr
	for _, size := range sizes {
		b := pooltest.Alloc(t, c, size, nil)
		addresses = append(addresses, b.Ptr())
		require.NoError(t, c.Free(b))
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 1000 {
				b, err := c.Alloc(sizes[(i+n)%len(sizes)], nil)
				if !assert.NoError(t, err) {
					return
				}
				got, err := c.Lookup(b.Ptr())
				assert.NoError(t, err)
				assert.Equal(t, b, got)
				for _, p := range addresses {
					if got, err := c.Lookup(p); err == nil {
						assert.Contains(t, sizes, got.Size())
					}
				}
				assert.NoError(t, c.Free(b))
			}
		})
	}
	wg.Wait()
}

// A part of a block is found again, and never in a block that had its address
// before.
func TestLookupOfParts(t *testing.T) {
	atBase(t, func(t *testing.T, c *cupool.Pool, _ *pooltest.Script) {
		const size, part = 8 << 20, 3<<20 + 512
		first := pooltest.Alloc(t, c, size, nil)
		p := first.Ptr() + part
		for range 3 {
			got, err := c.Lookup(p)
			require.NoError(t, err)
			require.Equal(t, first, got)
		}
		require.NoError(t, c.Free(first))
		_, err := c.Lookup(p)
		require.ErrorIs(t, err, cupool.ErrUseAfterFree)

		small, err := c.Alloc(2<<20, nil) // the address lies behind it
		require.NoError(t, err)
		require.Equal(t, first.Ptr(), small.Ptr())
		_, err = c.Lookup(p)
		require.ErrorIs(t, err, cupool.ErrUseAfterFree)
		require.NoError(t, c.Free(small))

		second := pooltest.Alloc(t, c, size, nil)
		require.Equal(t, first.Ptr(), second.Ptr())
		got, err := c.Lookup(p)
		require.NoError(t, err)
		require.Equal(t, second, got)
		require.NotEqual(t, first, got)
		require.NoError(t, c.Free(second))
	})
}

// freedHook is a device that calls a function when memory was freed, before the
// allocator knows.
type freedHook struct {
	*pooltest.Driver
	freed func(p cupool.Ptr)
}

func (d *freedHook) MemFree(p cupool.Ptr) error {
	err := d.Driver.MemFree(p)
	if f := d.freed; f != nil && err == nil {
		d.freed = nil
		f(p)
	}
	return err
}

// TestLookupOfReusedAddress: while the device frees a segment, another block may
// get the same address, small after large or the other way round. What finds
// blocks by address finds that one.
func TestLookupOfReusedAddress(t *testing.T) {
	const little, big = 1000, 20 << 20
	for name, sizes := range map[string]struct{ first, then int64 }{
		"small, then large": {little, big},
		"large, then small": {big, little},
		"small, then small": {little, little},
		"large, then large": {big, big},
	} {
		for what, use := range map[string]func(t *testing.T, c *cupool.Pool, b cupool.Block){
			"FreePtr": func(t *testing.T, c *cupool.Pool, b cupool.Block) {
				require.NoError(t, c.FreePtr(b.Ptr(), b.Size()))
				require.ErrorIs(t, c.Free(b), cupool.ErrDoubleFree)
			},
			"FreePtr of any size": func(t *testing.T, c *cupool.Pool, b cupool.Block) {
				require.NoError(t, c.FreePtr(b.Ptr(), -1))
			},
			"Lookup": func(t *testing.T, c *cupool.Pool, b cupool.Block) {
				got, err := c.Lookup(b.Ptr())
				require.NoError(t, err)
				require.Equal(t, b, got)
				require.NoError(t, c.Free(b))
			},
			"Lookup inside": func(t *testing.T, c *cupool.Pool, b cupool.Block) {
				got, err := c.Lookup(b.Ptr() + cupool.Ptr(b.Size()) - 1)
				require.NoError(t, err)
				require.Equal(t, b, got)
				require.NoError(t, c.Free(b))
			},
		} {
			for _, own := range []bool{false, true} {
				t.Run(name+", "+what+map[bool]string{false: "", true: ", of another stream"}[own], func(t *testing.T) {
					d := &freedHook{Driver: pooltest.NewDriver(1 << 30)}
					c := pooltest.Open(t, cupool.Config{Driver: d, MagazineBytes: -1})
					var s *cupool.Stream
					if own {
						s = pooltest.NewStream(t, c)
					}
					b := pooltest.Alloc(t, c, sizes.first, nil)
					at := b.Ptr()
					require.NoError(t, c.Free(b))
					called := false
					d.freed = func(p cupool.Ptr) {
						called = true
						require.Equal(t, at, p)
						now := pooltest.Alloc(t, c, sizes.then, s)
						require.Equal(t, at, now.Ptr(), "the device has the address to give")
						use(t, c, now)
					}
					require.NoError(t, c.EmptyCache())
					require.True(t, called)
					require.NoError(t, c.Check())
					again := pooltest.Alloc(t, c, sizes.then, s) // the same address once more, with nothing under way
					require.NoError(t, c.FreePtr(again.Ptr(), again.Size()))
					require.NoError(t, c.Check())
					require.NoError(t, c.Close())
				})
			}
		}
	}
}

// TestFreePtrOfPool: a block of a private pool goes back to its magazine by the allocator's FreePtr, too, until
// the pool is retired.
func TestFreePtrOfPool(t *testing.T) {
	c, _ := pooltest.New(t, 64*mib, pooltest.WithMagazines)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	const n = 10
	for range n {
		b := pooltest.Alloc(t, p, 4096, nil)
		require.ErrorIs(t, c.FreePtr(b.Ptr(), 4097), cupool.ErrSizeMismatch)
		require.NoError(t, c.FreePtr(b.Ptr(), 4096))
		require.ErrorIs(t, c.FreePtr(b.Ptr(), -1), cupool.ErrDoubleFree)
	}
	require.GreaterOrEqual(t, p.Stats().MagazineHits, int64(n-4))
	require.Zero(t, p.Stats().LiveBytes)
	b := pooltest.Alloc(t, p, 4096, nil)
	require.NoError(t, p.Retire())
	require.NoError(t, c.FreePtr(b.Ptr(), -1))
	require.NoError(t, c.EmptyCache())
	require.ErrorIs(t, p.Err(), cupool.ErrClosed)
	require.NoError(t, c.Check())
}
