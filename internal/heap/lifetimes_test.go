package heap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/ledger"
)

// TestSpares: of a fragmented heap, sizes are spared large segments for whose blocks
// live while twice as much is served as was ever in use.
func TestSpares(t *testing.T) {
	for name, c := range map[string]struct {
		kept, passing int // blocks of 4 MiB that stay, and that come back
		hits, others  int64
		most          int64
		fragmented    bool
		want          bool
	}{
		"it lives long":            {2, 0, 0, 96 * mib, 48*mib - 1, true, true},
		"as long as what was used": {2, 0, 0, 96 * mib, 48 * mib, true, false},
		"not fragmented":           {2, 0, 0, 96 * mib, 1, false, false},
		"on average":               {2, 2, 0, 96 * mib, 25 * mib, true, false},
		"long enough for all":      {2, 2, 0, 96 * mib, 25*mib - 1, true, true},
		"it just went out":         {1, 0, 0, 0, 1, true, false},
		"none is out":              {0, 9, 0, 96 * mib, 4 * mib, true, false},
		"out of the magazines":     {2, 0, 6, 72 * mib, 24 * mib, true, false},
		"no such size was served":  {0, 0, 0, 0, 0, true, false},
	} {
		l := lifetimes{most: c.most, fragmented: c.fragmented}
		for range c.passing {
			l.began(4 * mib)
			l.ended(4 * mib)
		}
		for range c.kept {
			l.began(4 * mib)
			l.served -= 4 * mib // at the same time
		}
		l.hits(4*mib, c.hits)
		l.hits(64*mib, 1)
		l.served += c.others - 64*mib
		require.Equal(t, c.want, l.spares(4*mib), name)
		require.False(t, l.spares(32*mib), "another size, "+name)
		to := lifetimes{most: c.most, fragmented: c.fragmented, served: 512 * mib}
		to.join(&l)
		require.Equal(t, c.want, to.spares(4*mib), "joined, "+name)
		require.Equal(t, lifetimes{}, l)
	}
}

// TestGrew: a heap is fragmented when it holds half more than was ever in use, and
// stays so.
func TestGrew(t *testing.T) {
	l := lifetimes{out: 200 * mib}
	for _, c := range []struct {
		size, held int64
		want       bool
	}{
		{100 * mib, 450 * mib, false},
		{40 * mib, 450 * mib, false}, // as much was in use before
		{40 * mib, 450*mib + 1, true},
		{900 * mib, 1 << 30, true},
	} {
		l.grew(c.size, c.held)
		require.Equal(t, c.want, l.fragmented, "%+v", c)
	}
}

// TestFitSparing: a block that lives long goes into no large segment, but for one that
// was reserved on purpose, and where the heap cannot grow.
func TestFitSparing(t *testing.T) {
	p := policy
	p.SharedSegment = 20 * mib
	r := newRig(t, 1, false, p)
	h := r.heaps[0]
	r.free(r.alloc(h, 60*mib))
	a := r.alloc(h, 4*mib)
	require.Equal(t, "large [Live 4M][Free 56M]", r.layout(h))
	h.lives.fragmented, h.lives.most = true, mib
	h.lives.served += 60 * mib
	b, c := r.alloc(h, 4*mib), r.alloc(h, 4*mib)
	require.Equal(t, "large [Live 4M][Free 56M], large [Live 4M][Live 4M][Free 12M]", r.layout(h), "small blocks share a segment")
	d := r.alloc(h, 31*mib)
	require.Equal(t, "large [Live 4M][Live 31M][Free 25M], large [Live 4M][Live 4M][Free 12M]", r.layout(h), "none of that size lived long")
	require.EqualValues(t, 20*mib, h.LargestSegment(ledger.Large, 4*mib))
	require.EqualValues(t, 21*mib, h.LargestSegment(ledger.Large, 7*mib))
	require.Greater(t, h.LargestSegment(ledger.Large, 2*mib), int64(1<<40))

	e := r.alloc(h, 12*mib)
	require.Zero(t, h.fit(ledger.Large, 4*mib))
	id, x := h.TakeSpared(4 * mib)
	require.EqualValues(t, 25*mib, x.Size)
	require.NoError(t, h.Slots(1))
	id, _ = h.HandOut(4*mib, 4*mib, id, x, 0)
	r.free(id)
	h.KeepSegment(h.segs[0])
	require.NotZero(t, h.fit(ledger.Large, 4*mib))
	h.lives.fragmented = false
	id, _ = h.TakeSpared(4 * mib)
	require.Zero(t, id, "then Take has found it")
	r.free(a, b, c, d, e)
	r.close()
}

// TestBecomesSparing: the large segments that a heap has count, where it may spare
// some.
func TestBecomesSparing(t *testing.T) {
	for shared, want := range map[int64]bool{20 * mib: true, 0: false} {
		p := policy
		p.SharedSegment = shared
		r := newRig(t, 1, false, p)
		h := r.heaps[0]
		r.free(r.alloc(h, 100*mib))
		small := r.alloc(h, 4*mib)
		require.False(t, h.lives.fragmented)
		large := r.alloc(h, 100*mib)
		require.Equal(t, want, h.lives.fragmented)
		r.free(small, large)
		require.Zero(t, h.lives.out)
		r.close()
	}
}

// TestLifetimesMove: what a heap knows goes along with its blocks.
func TestLifetimesMove(t *testing.T) {
	r := newRig(t, 2, false, policy)
	from, to := r.heaps[0], r.heaps[1]
	a, b := r.alloc(from, 4*mib), r.alloc(to, 8*mib)
	from.MoveAll(to)
	require.EqualValues(t, 12*mib, to.lives.out)
	require.EqualValues(t, 12*mib, to.Served())
	require.Zero(t, from.Served())
	r.free(a, b)
	require.Zero(t, to.lives.out)
	r.close()
}
