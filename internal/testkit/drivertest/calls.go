package drivertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// Calls returns every method of a device that can fail, but Close, by name, with
// arguments that are right as long as the device is.
func Calls(t testing.TB, d cupool.Driver) map[string]func() error {
	p, err := d.MemAlloc(10 * mib)
	require.NoError(t, err)
	s, err := d.NewStream()
	require.NoError(t, err)
	e, err := d.NewEvent()
	require.NoError(t, err)
	b := make([]byte, 1)
	calls := map[string]func() error{
		"MemAlloc":        func() error { return testkit.Second(d.MemAlloc(1)) },
		"MemFree":         func() error { return d.MemFree(p) },
		"MemInfo":         func() error { _, _, err := d.MemInfo(); return err },
		"NewStream":       func() error { return testkit.Second(d.NewStream()) },
		"DestroyStream":   func() error { return d.DestroyStream(s) },
		"SyncStream":      func() error { return d.SyncStream(s) },
		"NewEvent":        func() error { return testkit.Second(d.NewEvent()) },
		"DestroyEvent":    func() error { return d.DestroyEvent(e) },
		"RecordEvent":     func() error { return d.RecordEvent(e, s) },
		"QueryEvent":      func() error { return testkit.Second(d.QueryEvent(e)) },
		"SyncEvent":       func() error { return d.SyncEvent(e) },
		"StreamWaitEvent": func() error { return d.StreamWaitEvent(s, e) },
		"Copy":            func() error { return d.Copy(p, p, 1, s) },
		"CopyIn":          func() error { return d.CopyIn(p, b, s) },
		"CopyOut":         func() error { return d.CopyOut(b, p, s) },
		"Memset":          func() error { return d.Memset(p, 0, 1, s) },
	}
	if l, ok := d.(cupool.Launcher); ok {
		calls["Launch"] = func() error { return l.Launch(s, func() {}) }
	}
	vm, ok := d.(cupool.VirtualMemory)
	if !ok || vm.VMMGranularity() == 0 {
		return calls
	}
	g := vm.VMMGranularity()
	at, err := vm.AddressReserve(4 * g)
	require.NoError(t, err)
	unmapped, err := vm.AddressReserve(g)
	require.NoError(t, err)
	h, err := vm.MemCreate(g)
	require.NoError(t, err)
	require.NoError(t, vm.MemMap(at, g, h))
	for name, call := range map[string]func() error{
		"AddressReserve": func() error { return testkit.Second(vm.AddressReserve(g)) },
		"AddressFree":    func() error { return vm.AddressFree(unmapped, g) },
		"MemCreate":      func() error { return testkit.Second(vm.MemCreate(g)) },
		"MemRelease":     func() error { return vm.MemRelease(h) },
		"MemMap":         func() error { return vm.MemMap(at+2*cupool.Ptr(g), g, h) },
		"MemSetAccess":   func() error { return vm.MemSetAccess(at, g) },
		"MemUnmap":       func() error { return vm.MemUnmap(at, g) },
	} {
		calls[name] = call
	}
	return calls
}

// testClosed: after Close every call says so, and what was made is gone.
func testClosed(f *fixture) {
	t := f.t
	calls := Calls(t, f.Driver)
	require.NoError(t, f.Close())
	for name, call := range calls {
		require.ErrorIs(t, call(), cupool.ErrClosed, name)
	}
	require.ErrorIs(t, f.Close(), cupool.ErrClosed)
	require.NotEmpty(t, f.Name())
}
