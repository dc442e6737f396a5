package native_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/native"
)

// dealer is a device whose pools give the address that a test names. What is freed
// stays the test's own.
type dealer struct {
	cupool.Driver
	cuda.NativePools
	next    cupool.Ptr
	refused error  // what a free says
	freeing func() // called in a free
}

func (d *dealer) AllocAsync(int64, cuda.NativePool, cupool.StreamHandle) (cupool.Ptr, error) {
	return d.next, nil
}

func (d *dealer) FreeAsync(cupool.Ptr, cupool.StreamHandle) error {
	if d.freeing != nil {
		d.freeing()
	}
	return d.refused
}

func newDealer(t *testing.T) (*dealer, *native.Allocator) {
	host := pooltest.OpenHost(t)
	d := &dealer{Driver: host, NativePools: host.(cuda.NativePools)}
	n, _ := newNative(t, d, native.Config{})
	return d, n
}

// known is a block that an Allocator knows.
type known struct {
	cupool.Block
	live bool
}

func (k known) end() cupool.Ptr { return k.Ptr() + cupool.Ptr(sizeclass.Round(k.Size())) }

// TestBooks compares what an Allocator says of addresses with a model, while a driver
// gives any of them and refuses frees.
func TestBooks(t *testing.T) {
	const quantum = sizeclass.Quantum
	r := testkit.Rand(t)
	d, n := newDealer(t)
	var all []known // they do not overlap
	live := 0
	var want native.Stats
	pages := 0
	anywhere := func() cupool.Ptr { return cupool.Ptr(1<<20+r.IntN(pages)) * quantum }
	alloc := func() {
		d.next, d.refused = anywhere(), nil
		size := 1 + r.Int64N(3*quantum)
		if r.IntN(16) == 0 {
			d.next = []cupool.Ptr{0, d.next + 1, d.next + quantum/2}[r.IntN(3)]
		}
		b, err := n.Alloc(size, nil)
		overlaps := func(k known) bool { return k.Ptr() < d.next+cupool.Ptr(size) && d.next < k.end() }
		switch {
		case d.next%quantum != 0 || d.next == 0:
			require.ErrorContains(t, err, "no multiple of 512")
		case slices.ContainsFunc(all, func(k known) bool { return k.live && overlaps(k) }):
			require.ErrorContains(t, err, "is live")
		default:
			require.NoError(t, err)
			all = append(slices.DeleteFunc(all, overlaps), known{b, true})
			live++
			want.Allocations++
			want.LiveBytes += size
			want.PeakBytes = max(want.PeakBytes, want.LiveBytes)
		}
	}
	free := func(at int) {
		d.refused = nil
		if r.IntN(8) == 0 {
			d.refused = errors.New("refused")
		}
		k := all[at]
		require.Equal(t, d.refused, errors.Unwrap(n.Free(k.Block)))
		all[at].live = false
		live--
		if len(all)-live > live+1024 {
			all = slices.DeleteFunc(all, func(k known) bool { return !k.live })
		}
		if d.refused != nil {
			all = append(slices.DeleteFunc(all, func(o known) bool { return o.Block == k.Block }), k)
			live++
			return
		}
		want.Frees++
		want.LiveBytes -= k.Size()
	}
	look := func(p cupool.Ptr) {
		i := slices.IndexFunc(all, func(k known) bool { return k.Ptr() <= p && p < k.end() })
		reason, detail := cupool.ErrForeignPointer, "no block of this allocator"
		if i >= 0 {
			switch k := all[i]; {
			case k.live && k.Ptr() == p:
				reason, detail = cupool.ErrSizeMismatch, "were allocated there"
			case k.live:
				reason, detail = cupool.ErrInteriorPointer, "into the block"
			case k.Ptr() == p:
				reason, detail = cupool.ErrDoubleFree, "no block is live there"
			default:
				detail = "memory of this allocator that is not live"
			}
		}
		err := n.FreePtr(p, 1<<40)
		require.ErrorIs(t, err, reason)
		require.ErrorContains(t, err, detail)
	}
	for round := range 20 {
		most := 40
		if pages = 128; round == 10 { // so many that those that were freed are forgotten
			pages, most = 1<<12, 1200
		}
		for live < most {
			alloc()
			look(anywhere() + cupool.Ptr(r.IntN(2)))
		}
		for live > 5 {
			if i := r.IntN(len(all)); all[i].live {
				p := all[i].Ptr()
				free(i)
				look(p)
				look(anywhere())
			}
		}
		st, err := n.Stats()
		require.NoError(t, err)
		want.LiveBlocks = int64(live)
		st.Used, st.UsedHigh, st.Reserved, st.ReservedHigh = 0, 0, 0, 0
		require.Equal(t, want, st)
	}
	d.refused = nil
	for _, k := range all {
		if k.live {
			require.NoError(t, n.Free(k.Block))
		}
	}
}

// TestFreeRefusedTooLate: a free is refused of memory that has been handed out meanwhile,
// which no driver does. The block that has it stays.
func TestFreeRefusedTooLate(t *testing.T) {
	d, n := newDealer(t)
	d.next = 1 << 20
	b := testkit.Must(n.Alloc(5000, nil))
	d.refused = errors.New("refused")
	var heir cupool.Block
	d.freeing = func() { heir = testkit.Must(n.Alloc(7000, nil)) }
	require.ErrorIs(t, n.Free(b), d.refused)
	d.freeing, d.refused = nil, nil
	require.Equal(t, heir, testkit.Must(n.Lookup(1<<20)))
	st := testkit.Must(n.Stats())
	require.Equal(t, []int64{1, 7000, 2, 1}, []int64{st.LiveBlocks, st.LiveBytes, st.Allocations, st.Frees})
	require.NoError(t, n.Free(heir))
}
