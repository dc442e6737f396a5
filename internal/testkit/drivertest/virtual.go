package drivertest

import (
	"bytes"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// virtual is a device with virtual memory.
type virtual struct {
	*fixture
	cupool.VirtualMemory
	g int64 // its granularity
}

func (f *fixture) virtual() virtual {
	f.t.Helper()
	vm, ok := f.Driver.(cupool.VirtualMemory)
	if !ok || vm.VMMGranularity() == 0 {
		f.t.Skip("the device has no virtual memory")
	}
	return virtual{f, vm, vm.VMMGranularity()}
}

// reserve reserves n pieces of addresses.
func (v virtual) reserve(n int64) cupool.Ptr {
	v.t.Helper()
	p, err := v.AddressReserve(n * v.g)
	require.NoError(v.t, err)
	require.Zero(v.t, p%cupool.Ptr(v.g))
	return p
}

func (v virtual) create(n int64) uintptr {
	v.t.Helper()
	h, err := v.MemCreate(n * v.g)
	require.NoError(v.t, err)
	require.NotZero(v.t, h)
	return h
}

// mapAt maps n pieces with access.
func (v virtual) mapAt(p cupool.Ptr, n int64, h uintptr) {
	v.t.Helper()
	require.NoError(v.t, v.MemMap(p, n*v.g, h))
	require.NoError(v.t, v.MemSetAccess(p, n*v.g))
}

// testAliases: what is written at one address is read at the other, also across the
// border of two handles that are far apart at home.
func testAliases(f *fixture) {
	v := f.virtual()
	f.contents()
	t, g := f.t, cupool.Ptr(v.g)
	home, joined := v.reserve(16), v.reserve(3)
	a, b := v.create(1), v.create(2)
	v.mapAt(home, 1, a)
	v.mapAt(home+8*g, 2, b)
	require.NoError(t, v.MemMap(joined, v.g, a))
	require.NoError(t, v.MemMap(joined+g, 2*v.g, b))
	require.NoError(t, v.MemSetAccess(joined, 3*v.g)) // one call for both
	require.NoError(t, f.CopyIn(joined+g-3, []byte("abcdef"), 0))
	require.Equal(t, "abc", string(f.read(home+g-3, 3, 0)))
	require.Equal(t, "def", string(f.read(home+8*g, 3, 0)))
	require.NoError(t, f.Memset(home+8*g, 'x', 2*v.g, 0))
	require.Equal(t, "abcxxx", string(f.read(joined+g-3, 6, 0)))

	require.NoError(t, f.SyncStream(0)) // MemUnmap does not wait for work
	require.NoError(t, v.MemUnmap(home, v.g))
	require.NoError(t, v.MemRelease(a))
	require.Equal(t, "abcxxx", string(f.read(joined+g-3, 6, 0)), "the first home is gone, the pages live on")
	require.NoError(t, v.MemUnmap(joined, 3*v.g))
	require.Equal(t, "x", string(f.read(home+8*g, 1, 0)))
}

// testMapsUnderWork maps pieces of one range behind each other at another while work on
// them is still to come, as stitching does: no call waits for the work.
func testMapsUnderWork(f *fixture) {
	v := f.virtual()
	t, g, s := f.t, cupool.Ptr(v.g), f.stream()
	home, seam := v.reserve(4), v.reserve(2)
	var hs []uintptr
	for i := range cupool.Ptr(4) {
		hs = append(hs, v.create(1))
		v.mapAt(home+i*g, 1, hs[i])
	}
	release, set := f.busy(s), f.event()
	require.NoError(t, f.Memset(home, 1, 4*v.g, s))
	require.NoError(t, f.RecordEvent(set, s))
	testkit.Finishes(f.t, "mapping", func() {
		assert.NoError(t, v.MemMap(seam, v.g, hs[3]))
		assert.NoError(t, v.MemMap(seam+g, v.g, hs[1]))
		assert.NoError(t, v.MemSetAccess(seam, 2*v.g))
	})
	f.requireDone(set, false)
	release()
	require.NoError(t, f.Memset(seam, 2, 2*v.g, s))
	got := f.read(home, int(4*v.g), s)
	for i, want := range []byte{1, 2, 1, 2} {
		if !f.o.NoContents {
			require.Equal(t, int(v.g), bytes.Count(got[int64(i)*v.g:int64(i+1)*v.g], []byte{want}), "piece %d", i)
		}
	}
	require.NoError(t, v.MemUnmap(seam, 2*v.g))
	require.NoError(t, v.MemUnmap(home, 4*v.g))
}

// testVirtualCapacity: physical memory counts until it is released and mapped
// nowhere.
func testVirtualCapacity(f *fixture) {
	v := f.virtual()
	if f.o.Capacity == 0 {
		f.t.Skip("others use the device's memory")
	}
	t, n := f.t, f.o.Capacity/v.g
	p, h := v.reserve(n), v.create(n)
	require.ErrorIs(t, testkit.Second(v.MemCreate(v.g)), cupool.ErrOutOfMemory)
	require.ErrorIs(t, testkit.Second(f.MemAlloc(1)), cupool.ErrOutOfMemory)
	v.mapAt(p, n, h)
	require.NoError(t, v.MemRelease(h))
	require.ErrorIs(t, testkit.Second(v.MemCreate(v.g)), cupool.ErrOutOfMemory, "mapped memory is still in use")
	require.NoError(t, v.MemUnmap(p, n*v.g))
	v.create(n)
}

func testVirtualErrors(f *fixture) {
	v := f.virtual()
	t, g := f.t, cupool.Ptr(v.g)
	p := v.reserve(8)
	a, b, released := v.create(2), v.create(1), v.create(1)
	v.mapAt(p+2*g, 2, a)
	require.NoError(t, v.MemRelease(released))
	for name, x := range map[string]struct{ err, want error }{
		"reserve an odd size":       {testkit.Second(v.AddressReserve(v.g + 1)), cupool.ErrInvalidRange},
		"reserve nothing":           {testkit.Second(v.AddressReserve(0)), cupool.ErrInvalidRange},
		"create an odd size":        {testkit.Second(v.MemCreate(512)), cupool.ErrInvalidRange},
		"create a negative size":    {testkit.Second(v.MemCreate(-v.g)), cupool.ErrInvalidRange},
		"map part of a handle":      {v.MemMap(p, v.g, a), cupool.ErrInvalidRange},
		"map over a mapping":        {v.MemMap(p+g, 2*v.g, a), cupool.ErrInvalidRange},
		"map unaligned":             {v.MemMap(p+512, v.g, b), cupool.ErrInvalidRange},
		"map outside":               {v.MemMap(p+8*g, v.g, b), cupool.ErrInvalidRange},
		"map past the end":          {v.MemMap(p+7*g, 2*v.g, a), cupool.ErrInvalidRange},
		"map a released handle":     {v.MemMap(p, v.g, released), cupool.ErrInvalidHandle},
		"map no handle":             {v.MemMap(p, v.g, 0), cupool.ErrInvalidHandle},
		"release twice":             {v.MemRelease(released), cupool.ErrInvalidHandle},
		"access where nothing is":   {v.MemSetAccess(p, v.g), cupool.ErrInvalidRange},
		"access half a mapping":     {v.MemSetAccess(p+2*g, v.g), cupool.ErrInvalidRange},
		"access past a mapping":     {v.MemSetAccess(p+2*g, 3*v.g), cupool.ErrInvalidRange},
		"unmap where nothing is":    {v.MemUnmap(p, v.g), cupool.ErrInvalidRange},
		"unmap half a mapping":      {v.MemUnmap(p+3*g, v.g), cupool.ErrInvalidRange},
		"unmap nothing":             {v.MemUnmap(p, 0), cupool.ErrInvalidRange},
		"free a mapped reservation": {v.AddressFree(p, 8*v.g), cupool.ErrInvalidRange},
		"free part of it":           {v.AddressFree(p, v.g), cupool.ErrInvalidRange},
		"free with MemFree":         {f.MemFree(p), cupool.ErrInvalidRange},
		"use what is not mapped":    {f.Memset(p, 0, 1, 0), cupool.ErrInvalidRange},
		"use past a mapping":        {f.Memset(p+4*g-1, 0, 2, 0), cupool.ErrInvalidRange},
	} {
		require.ErrorIs(t, x.err, x.want, name)
	}
	require.NoError(t, v.MemMap(p+4*g, v.g, b))
	require.ErrorIs(t, f.Memset(p+2*g, 0, 3*v.g, 0), cupool.ErrInvalidRange, "the last piece has no access")
	require.NoError(t, v.MemSetAccess(p+2*g, 3*v.g))
	require.NoError(t, f.Memset(p+2*g, 0, 3*v.g, 0))
	require.NoError(t, f.SyncStream(0))
	require.NoError(t, v.MemUnmap(p+2*g, 3*v.g))
	require.NoError(t, v.AddressFree(p, 8*v.g))
	require.ErrorIs(t, v.AddressFree(p, 8*v.g), cupool.ErrInvalidRange)
}

// testRandomMaps: contents follow the handle wherever it is mapped, however often.
func testRandomMaps(f *fixture) {
	v := f.virtual()
	f.contents()
	const slots, handles = 24, 8
	t, rnd := f.t, testkit.Rand(f.t)
	p := v.reserve(slots)
	var hs [handles]uintptr
	var value [handles]byte
	var written [handles]bool
	var at [slots]int // handle index + 1 of each slot
	for i := range hs {
		hs[i] = v.create(1)
	}
	for range 1000 {
		slot := rnd.IntN(slots)
		addr := p + cupool.Ptr(slot)*cupool.Ptr(v.g)
		i := at[slot] - 1
		switch {
		case i < 0:
			i = rnd.IntN(handles)
			v.mapAt(addr, 1, hs[i])
			at[slot] = i + 1
		case rnd.IntN(2) == 0:
			require.NoError(t, f.SyncStream(0))
			require.NoError(t, v.MemUnmap(addr, v.g))
			at[slot] = 0
		default:
			if written[i] {
				require.Equal(t, value[i], f.read(addr+777, 1, 0)[0])
			}
			value[i], written[i] = value[i]+1, true
			require.NoError(t, f.Memset(addr+777, value[i], 1, 0))
		}
	}
}
