package limits_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/arena"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// finest is the least unit of blocks.
const finest = 256

// With a MinBlock of 256 blocks lie side by side in units of that. They are found and
// freed by their addresses, and by those inside, whatever their neighbours are.
func TestMinBlockByAddress(t *testing.T) {
	for name, magazines := range map[string]int64{"magazines": 0, "no magazines": -1} {
		t.Run(name, func(t *testing.T) {
			pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) {
				seed := rand.Uint64()
				t.Log("seed", seed)
				f := &fineBlocks{t: t, r: rand.New(rand.NewPCG(seed, 1)), c: c, owner: map[cupool.Ptr]cupool.Block{}}
				for range 4000 {
					f.step()
				}
				require.NotZero(t, f.odd, "addresses that are no multiples of 512")
				require.NoError(t, c.Check())
				for len(f.live) > 0 {
					f.free()
				}
				require.Zero(t, c.Stats().LiveBytes)
			}, func(cfg *cupool.Config) { cfg.MinBlock, cfg.MagazineBytes = finest, magazines })
		})
	}
}

// fineBlocks are the live blocks of an allocator.
type fineBlocks struct {
	t     *testing.T
	r     *rand.Rand
	c     *cupool.Pool
	live  []cupool.Block
	owner map[cupool.Ptr]cupool.Block // by each address that is a multiple of 256
	odd   int                         // blocks between two multiples of 512
}

func (f *fineBlocks) step() {
	switch n := f.r.IntN(8); {
	case n < 4 || len(f.live) == 0:
		f.alloc([]int64{1, 100, finest, finest + 1, 3 * finest, 1000, 1 + f.r.Int64N(5000)}[f.r.IntN(7)])
	case n < 6 || len(f.live) > 300:
		f.free()
	default:
		f.look()
	}
}

func (f *fineBlocks) alloc(size int64) {
	b := pooltest.Alloc(f.t, f.c, size, nil)
	require.Zero(f.t, b.Ptr()%finest, "%v", b)
	f.odd += int(b.Ptr() / finest % 2)
	for p := b.Ptr(); p < b.Ptr()+cupool.Ptr(size); p += finest {
		if other, taken := f.owner[p]; taken {
			require.Fail(f.t, "overlap", "%v lies in %v", b, other)
		}
		f.owner[p] = b
	}
	f.live = append(f.live, b)
}

// free frees one by its address or its handle. An address inside is refused.
func (f *fineBlocks) free() {
	i := f.r.IntN(len(f.live))
	b := f.live[i]
	for p := b.Ptr(); p < b.Ptr()+cupool.Ptr(b.Size()); p += finest {
		if p > b.Ptr() {
			require.ErrorIs(f.t, f.c.FreePtr(p, -1), cupool.ErrInteriorPointer)
		}
		delete(f.owner, p)
	}
	if f.r.IntN(2) == 0 {
		require.NoError(f.t, f.c.Free(b))
	} else {
		require.NoError(f.t, f.c.FreePtr(b.Ptr(), b.Size()))
	}
	require.Error(f.t, f.c.FreePtr(b.Ptr(), b.Size()), "a second free")
	f.live[i] = f.live[len(f.live)-1]
	f.live = f.live[:len(f.live)-1]
}

// look finds a block by an address inside, and the one behind it, if any.
func (f *fineBlocks) look() {
	b := f.live[f.r.IntN(len(f.live))]
	got, err := f.c.Lookup(b.Ptr() + cupool.Ptr(f.r.Int64N(b.Size())))
	require.NoError(f.t, err)
	require.Equal(f.t, b, got)
	behind := (b.Ptr() + cupool.Ptr(b.Size()) + finest - 1) &^ (finest - 1)
	if next, ok := f.owner[behind]; ok {
		got, err = f.c.Lookup(behind)
		require.NoError(f.t, err)
		require.Equal(f.t, next, got)
	}
}

// A small block costs half the memory that it does by default.
func TestMinBlockSaves(t *testing.T) {
	reserved := func(min int64) int64 {
		c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.MinBlock = min })
		for range 32 << 10 {
			pooltest.Alloc(t, c, 200, nil)
		}
		return c.Stats().All.ReservedBytes.Current
	}
	require.EqualValues(t, 16*pooltest.MiB, reserved(0))
	require.EqualValues(t, 8*pooltest.MiB, reserved(finest))
}

// What was freed and not merged serves again whole, each of the small sizes by itself.
func TestMinBlockFastBins(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.MinBlock, cfg.MagazineBytes = finest, 1 })
	var at []cupool.Ptr
	for _, size := range []int64{2 * finest, 3 * finest} { // of one size class by default
		b := pooltest.Alloc(t, c, size, nil)
		pooltest.Alloc(t, c, 1, nil) // no free neighbours
		require.NoError(t, c.Free(b))
		at = append(at, b.Ptr())
	}
	require.Equal(t, at[0], pooltest.Alloc(t, c, 2*finest, nil).Ptr())
	require.Equal(t, at[1], pooltest.Alloc(t, c, 3*finest, nil).Ptr())
}

// Canaries and guards begin where the block of 256 ends.
func TestMinBlockSanitized(t *testing.T) {
	for name, s := range map[string]cupool.Sanitizers{"canaries": {Canaries: 1}, "guard": {Guard: true, Canaries: 1}} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.NewHost(t, func(cfg *cupool.Config) { cfg.MinBlock, cfg.Sanitize = finest, s })
			b := pooltest.Alloc(t, c, 200, nil)
			require.NoError(t, c.Driver().Memset(b.Ptr(), 1, 201, 0))
			require.NoError(t, c.DefaultStream().Sync())
			err := c.Check()
			var e *cupool.CorruptionError
			require.ErrorAs(t, err, &e)
			require.EqualValues(t, 200, e.Offset)
			if s.Guard {
				require.Error(t, c.Driver().Memset(b.Ptr(), 1, finest+1, 0), "the memory ends with the block")
			}
			require.NoError(t, c.Free(b))
		})
	}
}

// An arena over such an allocator keeps its own promise of 512.
func TestMinBlockUnderArena(t *testing.T) {
	c := pooltest.NewHost(t, func(cfg *cupool.Config) { cfg.MinBlock = finest })
	for range 3 {
		pooltest.Alloc(t, c, 1, nil)
	}
	r, err := arena.New(c, arena.Config{Size: finest, Overflow: true})
	require.NoError(t, err)
	for i, align := range []int64{1, finest, 512, 4096, 1, 1 << 16} {
		size := int64(finest * (1 + i))
		b, err := r.AllocAligned(size, align, nil)
		require.NoError(t, err)
		require.Zero(t, b.Ptr()%cupool.Ptr(max(align, 512)))
		from, err := c.Lookup(b.Ptr())
		require.NoError(t, err)
		require.LessOrEqual(t, b.Ptr()+cupool.Ptr(size), from.Ptr()+cupool.Ptr(from.Size()), "it lies in what the allocator gave")
	}
	require.NoError(t, r.Close())
}
