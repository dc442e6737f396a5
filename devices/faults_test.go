package devices_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/devices"
	"github.com/cupool/cupool/internal/hostdev"
	"github.com/cupool/cupool/internal/leaks"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

var errFault = errors.New("a fault")

// faulty is a host device whose calls fail when a test says so.
type faulty struct {
	*hostdev.Device
	faults *faults
	gpu    bool // its memory is not the host's
}

// faults are those of all devices of a test: of each call, how many succeed
// before one fails, and how.
type faults struct {
	left map[string]int
	err  error
}

func (f *faults) of(call string) error {
	n, ok := f.left[call]
	if !ok {
		return nil
	}
	if f.left[call]--; n == 0 {
		return f.err
	}
	return nil
}

func (d *faulty) HostAccessible() bool { return !d.gpu }

func (d *faulty) CanAccessPeer(device.Peer) error { return nil }

func (d *faulty) EnablePeer(p device.Peer) error {
	if err := d.faults.of("EnablePeer"); err != nil {
		return err
	}
	return d.Device.EnablePeer(p.(*faulty).Device)
}

func (d *faulty) StreamWaitPeerEvent(s device.Stream, e device.Event, p device.Peer) error {
	if err := d.faults.of("StreamWaitPeerEvent"); err != nil {
		return err
	}
	return d.Device.StreamWaitPeerEvent(s, e, p.(*faulty).Device)
}

func (d *faulty) Copy(dst, src device.Ptr, n int64, s device.Stream) error {
	if err := d.faults.of("Copy"); err != nil {
		return err
	}
	return d.Device.Copy(dst, src, n, s)
}

func (d *faulty) RecordEvent(e device.Event, s device.Stream) error {
	if err := d.faults.of("RecordEvent"); err != nil {
		return err
	}
	return d.Device.RecordEvent(e, s)
}

func (d *faulty) NewStream() (device.Stream, error) {
	if err := d.faults.of("NewStream"); err != nil {
		return 0, err
	}
	return d.Device.NewStream()
}

// faultyHosts opens n devices. At the end of the test they must hold nothing.
func faultyHosts(t *testing.T, n int) (*faults, []cupool.Driver) {
	t.Helper()
	f := &faults{err: errFault}
	var all []cupool.Driver
	for i := range n {
		d, err := hostdev.Open(hostdev.Config{Capacity: 64 * mib, Name: fmt.Sprintf("host %d", i)})
		require.NoError(t, err)
		all = append(all, &faulty{Device: d, faults: f})
		t.Cleanup(func() {
			require.Equal(t, leaks.Held{}, d.Held())
			require.NoError(t, d.Check())
			require.NoError(t, d.Close())
		})
	}
	return f, all
}

// TestPeersFail: when peer access fails half way, nothing stays behind.
func TestPeersFail(t *testing.T) {
	for nth := range 6 {
		f, all := faultyHosts(t, 3)
		f.left = map[string]int{"EnablePeer": nth}
		s, err := devices.New(devices.Config{Pool: cupool.Config{InitialSize: mib}}, all...)
		require.ErrorIs(t, err, errFault, nth)
		pair := [][2]int{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}[nth]
		require.ErrorContains(t, err, fmt.Sprintf("of device %d to device %d", pair[0], pair[1]))
		require.Nil(t, s)
		s, err = devices.New(devices.Config{}, all...)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
}

// TestUnreachable: a pair without peer access is told, and copies.
func TestUnreachable(t *testing.T) {
	f, all := faultyHosts(t, 3)
	f.left, f.err = map[string]int{"EnablePeer": 1}, fmt.Errorf("they are far apart: %w", cupool.ErrNotSupported)
	s, err := devices.New(devices.Config{}, all...)
	require.NoError(t, err)
	require.Equal(t, []devices.Pair{{From: 0, To: 2, Err: f.err}}, s.Unreachable())
	src, dst := pooltest.Alloc(t, s.Pool(2), 4096, nil), pooltest.Alloc(t, s.Pool(0), 4096, nil)
	st := s.Pool(0).DefaultStream()
	require.ErrorIs(t, st.Memset(src.Ptr(), 1, 4096), cupool.ErrInvalidRange)
	require.NoError(t, s.Copy(dst.Ptr(), src.Ptr(), 4096, nil, nil))
	require.NoError(t, s.Free(src))
	require.NoError(t, s.Free(dst))
	require.NoError(t, s.Close())
}

// TestNoPeersAtAll: devices without the optional part of a Driver are a set, too.
func TestNoPeersAtAll(t *testing.T) {
	_, all := faultyHosts(t, 2)
	s, err := devices.New(devices.Config{}, struct{ cupool.Driver }{all[0]}, struct{ cupool.Driver }{all[1]})
	require.NoError(t, err)
	require.Len(t, s.Unreachable(), 2)
	b := pooltest.Alloc(t, s.Pool(0), 4096, nil)
	require.ErrorIs(t, s.RecordStream(b, s.Pool(1).DefaultStream()), cupool.ErrForeignStream)
	require.ErrorIs(t, s.Copy(b.Ptr(), b.Ptr(), 1, nil, s.Pool(1).DefaultStream()), cupool.ErrForeignStream)
	require.NoError(t, s.Free(b))
	require.NoError(t, s.Close())
}

// TestCopyFails: whichever call of a copy fails, the blocks may be freed at once
// and nothing stays behind.
func TestCopyFails(t *testing.T) {
	for _, x := range []struct {
		call string
		nth  int
	}{
		{"RecordEvent", 0}, {"StreamWaitPeerEvent", 0}, {"Copy", 0}, {"RecordEvent", 1}, {"StreamWaitPeerEvent", 1},
	} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			f, all := faultyHosts(t, 2)
			s, err := devices.New(devices.Config{}, all...)
			require.NoError(t, err)
			from, to := pooltest.NewStream(t, s.Pool(0)), pooltest.NewStream(t, s.Pool(1))
			src, dst := pooltest.Alloc(t, s.Pool(0), 8*mib, from), pooltest.Alloc(t, s.Pool(1), 8*mib, to)
			require.NoError(t, from.Memset(src.Ptr(), 1, 8*mib))
			f.left = map[string]int{x.call: x.nth}
			require.ErrorIs(t, s.Copy(dst.Ptr(), src.Ptr(), 8*mib, to, from), errFault)
			f.left = nil
			require.NoError(t, s.Free(src))
			require.NoError(t, s.Free(dst))
			require.NoError(t, s.Pool(0).EmptyCache(), "it takes the source away from a copy that still runs")
			require.NoError(t, s.Pool(1).EmptyCache())
			require.NoError(t, s.Close())
		})
	}
}

// TestRecordFails: a block that could not be recorded is still live.
func TestRecordFails(t *testing.T) {
	f, all := faultyHosts(t, 2)
	s, err := devices.New(devices.Config{}, all...)
	require.NoError(t, err)
	b, st := pooltest.Alloc(t, s.Pool(0), 4096, nil), pooltest.NewStream(t, s.Pool(1))
	for _, call := range []string{"NewStream", "RecordEvent", "StreamWaitPeerEvent"} {
		f.left = map[string]int{call: 0}
		require.ErrorIs(t, s.FreeOn(b, st), errFault, call)
		_, err := s.Lookup(b.Ptr())
		require.NoError(t, err, call)
	}
	f.left = map[string]int{"NewStream": 1}
	for range 3 {
		require.NoError(t, s.RecordStream(b, st), "one stream waits for all of another device")
	}
	require.NoError(t, s.FreeOn(b, st))
	require.NoError(t, s.Close())
}
