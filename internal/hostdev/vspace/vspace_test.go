package vspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"

	"github.com/cupool/cupool/device"
)

const (
	g    = Granularity
	base = device.Ptr(1 << 24)
)

func TestCheck(t *testing.T) {
	var s Space
	s.AddAlloc(base, 1000)
	s.AddAlloc(base+4096, 1)
	s.AddReservation(base+device.Ptr(g), 4*g)
	h := s.AddHandle(0, g)
	mapped := base + device.Ptr(2*g)
	require.NoError(t, s.Map(mapped, g, h, nil))
	require.ErrorContains(t, s.Check(mapped, 1), "mapped without access")
	_, err := s.SetAccess(mapped, g, nil)
	require.NoError(t, err)
	tests := map[string]struct {
		p   device.Ptr
		n   int64
		why string // "": valid
	}{
		"all":                  {base, 1000, ""},
		"interior":             {base + 999, 1, ""},
		"nothing, nowhere":     {1, 0, ""},
		"one byte":             {base + 4096, 1, ""},
		"mapping":              {mapped, g, ""},
		"end of mapping":       {mapped + device.Ptr(g) - 1, 1, ""},
		"past the end":         {base + 999, 2, "run past the end of the allocation of 1000 bytes"},
		"huge":                 {base, 1<<63 - 1, "run past the end"},
		"at the end":           {base + 1000, 1, "not inside one allocation"},
		"before all":           {base - 1, 1, "not inside one allocation"},
		"after all":            {^device.Ptr(0), 1, "not inside one allocation"},
		"negative":             {base, -1, "negative size"},
		"before the mapping":   {mapped - 1, 2, "is not mapped"},
		"past the mapping":     {mapped, g + 1, "is not mapped"},
		"past the reservation": {mapped, 4 * g, "not inside one allocation"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := s.Check(tt.p, tt.n)
			if tt.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, device.ErrInvalidRange)
			require.ErrorContains(t, err, tt.why)
		})
	}
}

// A failure of the real thing leaves the books as they were.
func TestFailedDoChangesNothing(t *testing.T) {
	var s Space
	boom := errors.New("boom")
	fail := func() error { return boom }
	p := base
	s.AddReservation(p, 4*g)
	h := s.AddHandle(7, g)
	require.ErrorIs(t, s.Map(p, g, h, func(off int64) error {
		require.EqualValues(t, 7, off)
		return boom
	}), boom)
	require.NoError(t, s.Map(p, g, h, nil))
	_, err := s.SetAccess(p, g, fail)
	require.ErrorIs(t, err, boom)
	require.Error(t, s.Check(p, 1))
	_, err = s.SetAccess(p, g, nil)
	require.NoError(t, err)
	_, _, err = s.Unmap(p, g, fail)
	require.ErrorIs(t, err, boom)
	require.NoError(t, s.Check(p, 1))
	_, _, err = s.Unmap(p, g, nil)
	require.NoError(t, err)
	require.ErrorIs(t, s.RemoveReservation(p, 4*g, fail), boom)
	require.NoError(t, s.RemoveReservation(p, 4*g, nil))
}

func TestManyAllocs(t *testing.T) {
	var s Space
	for _, i := range rand.Perm(1000) {
		s.AddAlloc(base+device.Ptr(i*1000), 900)
	}
	require.NoError(t, s.check())
	for _, i := range rand.Perm(1000) {
		p := base + device.Ptr(i*1000)
		require.NoError(t, s.Check(p+899, 1))
		require.Error(t, s.Check(p+900, 1))
		_, err := s.RemoveAlloc(p + 1)
		require.ErrorIs(t, err, device.ErrInvalidRange)
		size, err := s.RemoveAlloc(p)
		require.NoError(t, err)
		require.EqualValues(t, 900, size)
		require.Error(t, s.Check(p, 1))
	}
	require.Zero(t, s.Counts())
}

// check returns the first rule that does not hold (see Space).
func (s *Space) check() error {
	for i := 1; i < len(s.allocs); i++ {
		if a := s.allocs[i-1]; a.start+device.Ptr(a.size) > s.allocs[i].start {
			return fmt.Errorf("V1: %v overlaps %v", a, s.allocs[i])
		}
	}
	maps, total := map[*handle]int{}, 0
	for i, r := range s.reserved {
		if i > 0 && s.reserved[i-1].start+device.Ptr(s.reserved[i-1].size) > r.start {
			return fmt.Errorf("V1: reservations %d and %d overlap", i-1, i)
		}
		seen := map[*mapping]int64{}
		for at := int64(0); at < r.size/g; at++ {
			if m := r.at(at); m != nil {
				if !m.contains(r.start+device.Ptr(at*g), g) {
					return fmt.Errorf("V2: granule %d points to another's mapping", at)
				}
				seen[m] += g
			}
		}
		for m, covered := range seen {
			if covered != m.size {
				return fmt.Errorf("V2: %d of %d bytes of a mapping are entered", covered, m.size)
			}
			maps[m.handle]++
		}
		if r.mapped != len(seen) {
			return fmt.Errorf("V2: %d mappings, not %d", len(seen), r.mapped)
		}
		total += len(seen)
	}
	for h, n := range maps {
		if h.maps != n {
			return fmt.Errorf("V3: %d mappings of a handle, not %d", n, h.maps)
		}
	}
	for id, h := range s.handles {
		if h.maps != maps[h] || h.released {
			return fmt.Errorf("V3, V4: handle %d", id)
		}
	}
	if total != s.mappings {
		return fmt.Errorf("V3: %d mappings, not %d", total, s.mappings)
	}
	return nil
}

// Random maps against the plainest model: which handle each granule shows.
func TestRandomMapsMatchModel(t *testing.T) {
	rnd := testkit.Rand(t)
	const granules = 2000 // several pages
	var s Space
	s.AddReservation(base, granules*g)
	var shows [granules]uintptr
	var first [granules]bool // a mapping starts here
	sizes, maps := map[uintptr]int{}, map[uintptr]int{}
	live, gone := map[uintptr]bool{}, 0
	var ids []uintptr
	for step := range 5000 {
		if len(ids) < 30 {
			n := 1 + rnd.IntN(8)
			h := s.AddHandle(int64(n), int64(n)*g)
			sizes[h], live[h] = n, true
			ids = append(ids, h)
		}
		k := rnd.IntN(len(ids))
		h, at := ids[k], rnd.IntN(granules)
		n := sizes[h]
		p := base + device.Ptr(at)*device.Ptr(g)
		switch rnd.IntN(8) {
		default: // map
			want := at+n <= granules
			for i := at; want && i < at+n; i++ {
				want = shows[i] == 0
			}
			require.Equal(t, want, s.Map(p, int64(n)*g, h, nil) == nil)
			for i := at; want && i < at+n; i++ {
				shows[i], first[i] = h, i == at
			}
			if want {
				maps[h]++
			}
		case 0, 1, 2: // unmap what is around, up to several mappings
			end := at + 1 + rnd.IntN(12)
			want := end <= granules && first[at]
			for i := at; want && i < end; i++ {
				want = shows[i] != 0
			}
			if want && end < granules {
				want = shows[end] == 0 || first[end]
			}
			_, freed, err := s.Unmap(p, int64(end-at)*g, nil)
			require.Equal(t, want, err == nil, "%v", err)
			freedNow := 0
			for i := at; want && i < end; i++ {
				if first[i] {
					if maps[shows[i]]--; maps[shows[i]] == 0 && !live[shows[i]] {
						freedNow++
					}
				}
				shows[i], first[i] = 0, false
			}
			require.Len(t, freed, freedNow)
			gone += freedNow
		case 3: // release
			mem, now, err := s.Release(h)
			require.NoError(t, err)
			require.Equal(t, Physical{int64(n), int64(n) * g}, mem)
			require.Equal(t, maps[h] == 0, now)
			delete(live, h)
			ids = append(ids[:k], ids[k+1:]...)
		}
		if step%250 == 0 {
			require.NoError(t, s.check())
		}
	}
	require.Positive(t, gone)
}

// The checker sees each rule broken.
func TestCheckerSeesBrokenRules(t *testing.T) {
	broken := map[string]func(s *Space){
		"V1": func(s *Space) { s.AddAlloc(base+1, 1000) },
		"V2": func(s *Space) { s.reserved[0].granules[0][1] = nil },
		"V3": func(s *Space) { s.handles[1].maps++ },
		"V4": func(s *Space) { s.handles[1].released = true },
	}
	for rule, breakIt := range broken {
		var s Space
		s.AddAlloc(base, 1000)
		s.AddReservation(base+device.Ptr(g), 4*g)
		require.NoError(t, s.Map(base+device.Ptr(g), 2*g, s.AddHandle(0, 2*g), nil))
		require.NoError(t, s.check())
		breakIt(&s)
		require.ErrorContains(t, s.check(), rule)
	}
}
