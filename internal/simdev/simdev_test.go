package simdev_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/drivertest"
)

var _ cupool.Driver = (*simdev.Device)(nil)

const (
	mib  = 1 << 20
	gib  = 1 << 30
	gran = 2 * mib
	base = device.Ptr(1) << 40
)

var errBoom = errors.New("boom")

func alloc(t testing.TB, d *simdev.Device, size int64) device.Ptr {
	t.Helper()
	p, err := d.MemAlloc(size)
	require.NoError(t, err)
	return p
}

func newStream(t testing.TB, d *simdev.Device) device.Stream {
	t.Helper()
	s, err := d.NewStream()
	require.NoError(t, err)
	return s
}

func newEvent(t testing.TB, d *simdev.Device) device.Event {
	t.Helper()
	e, err := d.NewEvent()
	require.NoError(t, err)
	return e
}

func TestDefaults(t *testing.T) {
	d := simdev.New(simdev.Config{})
	require.Equal(t, "sim", d.Name())
	require.False(t, d.HostAccessible())
	free, total, err := d.MemInfo()
	require.NoError(t, err)
	require.EqualValues(t, 80*gib, total)
	require.EqualValues(t, 80*gib, free)
	require.Panics(t, func() { simdev.New(simdev.Config{Capacity: -1}) })
}

// The same calls give the same addresses: the lowest that fit, or always new
// ones.
func TestAddresses(t *testing.T) {
	for name, tt := range map[string]struct {
		fresh bool
		want  []device.Ptr // in units of 2 MiB from the base
	}{
		"reused": {false, []device.Ptr{0, 1, 2, 0, 7, 1}},
		"fresh":  {true, []device.Ptr{0, 1, 2, 7, 8, 11}},
	} {
		t.Run(name, func(t *testing.T) {
			d := simdev.New(simdev.Config{FreshAddresses: tt.fresh})
			a, b, c := alloc(t, d, 1), alloc(t, d, gran), alloc(t, d, 5*gran)
			got := []device.Ptr{a, b, c}
			require.NoError(t, d.MemFree(b))
			require.NoError(t, d.MemFree(a))
			got = append(got, alloc(t, d, gran)) // the ABA: a's address again
			got = append(got, alloc(t, d, 3*gran))
			got = append(got, alloc(t, d, gran))
			for i := range got {
				got[i] = (got[i] - base) / gran
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func TestAddressesMerge(t *testing.T) {
	d := simdev.New(simdev.Config{})
	var ps []device.Ptr
	for range 6 {
		ps = append(ps, alloc(t, d, gran))
	}
	for _, i := range []int{1, 3, 2, 0, 5, 4} { // into nothing, both sides, one side
		require.NoError(t, d.MemFree(ps[i]))
	}
	require.Equal(t, base, alloc(t, d, 6*gran))
}

func TestCapacity(t *testing.T) {
	for _, capacity := range []int64{10 * mib, 100 << 40, math.MaxInt64} {
		d := simdev.New(simdev.Config{Capacity: capacity})
		p := alloc(t, d, capacity-1)
		_, err := d.MemAlloc(2)
		require.ErrorIs(t, err, device.ErrOutOfMemory)
		_, err = d.MemCreate(gran)
		require.ErrorIs(t, err, device.ErrOutOfMemory)
		alloc(t, d, 1)
		require.NoError(t, d.MemFree(p))
		free, _, err := d.MemInfo()
		require.NoError(t, err)
		require.Equal(t, capacity-1, free)
		require.Equal(t, capacity, d.Stats().PeakBytes)
	}
}

func TestCostsAndCounts(t *testing.T) {
	us := func(f float64) time.Duration { return time.Duration(f * 1000) }
	tests := map[string]struct {
		call    simdev.Call
		bytes   int64
		handles int
		want    time.Duration
	}{
		"alloc nothing":     {simdev.MemAlloc, 0, 1, us(55)},
		"alloc 1 GiB":       {simdev.MemAlloc, gib, 1, us(81)},
		"free 1 GiB":        {simdev.MemFree, gib, 1, us(300)},
		"free 100 TiB":      {simdev.MemFree, 100 << 40, 1, us(40 + 260*102400)},
		"access 512 MiB":    {simdev.MemSetAccess, gib / 2, 1, us(36.5)},
		"access 10 handles": {simdev.MemSetAccess, 0, 10, us(200)},
		"query":             {simdev.QueryEvent, 0, 1, 165},
	}
	for name, tt := range tests {
		require.Equal(t, tt.want, simdev.Cost(tt.call, tt.bytes, tt.handles), name)
	}
	d := simdev.New(simdev.Config{Capacity: 3 * gib})
	p := alloc(t, d, gib)
	alloc(t, d, gib)
	_, err := d.MemAlloc(2 * gib) // counts, and costs nothing
	require.Error(t, err)
	require.NoError(t, d.MemFree(p))
	require.EqualValues(t, 3, d.Calls(simdev.MemAlloc))
	require.Equal(t, us(462), d.ModelledTotal())
	seen := map[string]bool{}
	for c := range simdev.NumCalls {
		require.False(t, seen[c.String()], "%v", c)
		seen[c.String()] = true
	}
}

// Each call can be made to fail; it then changes nothing and works the next
// time.
func TestFailures(t *testing.T) {
	for c := range simdev.NumCalls {
		t.Run(c.String(), func(t *testing.T) {
			d := simdev.New(simdev.Config{})
			call := drivertest.Calls(t, d)[c.String()]
			before := d.Stats()
			calls := d.Calls(c)
			d.FailNth(c, 1, errBoom)
			err := call()
			require.ErrorIs(t, err, errBoom)
			require.ErrorContains(t, err, c.String())
			require.Equal(t, before, d.Stats())

			d.FailAlways(c, errBoom)
			require.ErrorIs(t, call(), errBoom)
			require.ErrorIs(t, call(), errBoom)
			d.FailAlways(c, nil)
			require.Equal(t, before, d.Stats())
			require.NoError(t, call())
			require.Equal(t, calls+4, d.Calls(c))
		})
	}
}

func TestFailNth(t *testing.T) {
	d := simdev.New(simdev.Config{})
	d.FailNth(simdev.MemInfo, 3, errBoom)
	for i := 1; i <= 6; i++ {
		_, _, err := d.MemInfo()
		require.Equal(t, i == 3, errors.Is(err, errBoom), "call %d", i)
	}
	d.FailNth(simdev.MemInfo, 1, errBoom)
	d.FailNth(simdev.MemInfo, 1, nil) // taken back
	_, _, err := d.MemInfo()
	require.NoError(t, err)
}

func TestLost(t *testing.T) {
	d := simdev.New(simdev.Config{})
	calls := drivertest.Calls(t, d)
	d.Lose("for a test")
	for c, call := range calls {
		err := call()
		require.ErrorIs(t, err, device.ErrDeviceLost, c)
		require.ErrorContains(t, err, "for a test")
	}
	require.NoError(t, d.Close())
	require.Equal(t, 1, d.Stats().Allocations, "what leaked can still be read")
}
