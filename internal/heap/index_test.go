package heap

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/testkit"
)

// TestIndex compares with a list of segments that come, change their owner and go,
// singly and together, at addresses that were used before.
func TestIndex(t *testing.T) {
	const places, size = 64, 16
	for range testkit.Rounds(24) {
		r := testkit.Rand(t)
		var x Index
		var here [places]*block.Segment // by the place at which the addresses begin
		count := 0
		for range 1500 {
			at := r.IntN(places)
			switch seg := here[at]; {
			case seg == nil:
				n := 1
				for r.IntN(2) == 0 && at+n < places && here[at+n] == nil {
					n++
				}
				seg = &block.Segment{Base: uint64(1000 + at*size), Owner: uint32(r.IntN(9))}
				x.add(seg, int64(n*size))
				for i := range n {
					here[at+i] = seg
				}
				count++
			case r.IntN(3) == 0:
				owner := uint32(r.IntN(9))
				x.setOwner(seg, owner)
				seg.Owner = owner
			default:
				out := []Idle{{Seg: seg}}
				for r.IntN(2) == 0 {
					if o := here[r.IntN(places)]; o != nil && !contains(out, o) {
						out = append(out, Idle{Seg: o})
					}
				}
				if len(out) == 1 {
					x.remove(seg)
				} else {
					x.removeIdle(out)
				}
				count -= len(out)
				for i, o := range here {
					if o != nil && contains(out, o) {
						here[i] = nil
					}
				}
			}
			addr := uint64(990 + r.IntN(places*size+30))
			var want *block.Segment
			if i := (int(addr) - 1000) / size; addr >= 1000 && i < places {
				want = here[i]
			}
			e, ok := x.Find(addr)
			require.Equal(t, want != nil, ok)
			if ok {
				require.Same(t, want, e.Seg)
				require.Equal(t, want.Owner, e.Owner)
			}
			if r.IntN(16) != 0 {
				continue
			}
			n, last := 0, uint64(0)
			for _, e := range x.list {
				if !e.Seg.Gone {
					require.Greater(t, e.base, last)
					n, last = n+1, e.base
				}
			}
			require.Equal(t, count, n)
			require.LessOrEqual(t, x.gone, max(len(x.list)/2, 0), "those that are gone are dropped")
		}
		require.NotZero(t, x.bytes())
	}
}

func contains(out []Idle, seg *block.Segment) bool {
	for _, f := range out {
		if f.Seg == seg {
			return true
		}
	}
	return false
}

// TestIndexAtOnce finds segments while others come and go.
func TestIndexAtOnce(t *testing.T) {
	var x Index
	stays := &block.Segment{Base: 1 << 20}
	x.add(stays, 1<<10)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			for n := range testkit.Rounds(20_000) {
				seg := &block.Segment{Base: uint64((i + 2 + 4*(n%8)) << 20)}
				x.add(seg, 1<<10)
				if e, ok := x.Find(stays.Base + 5); !ok || e.Seg != stays {
					t.Error("a segment that stays is not found")
				}
				x.remove(seg)
			}
		})
	}
	wg.Wait()
	_, ok := x.Find(2 << 20)
	require.False(t, ok)
}
