package faults_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestDeviceShrinks: another process takes memory of the device. The allocator
// gives back what is idle, says what the device has left, and works again when the
// memory is there again.
func TestDeviceShrinks(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			f := conformance.NewFailing(simdev.New(simdev.Config{Capacity: 256 * pooltest.MiB}))
			c := pooltest.Open(t, cupool.Config{Driver: f, Backing: backing})
			u := pooltest.NewStream(t, c)
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
			live := pooltest.Alloc(t, c, 60*pooltest.MiB, nil)
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 40*pooltest.MiB, u)))
			require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 20*pooltest.MiB, nil), u))
			require.NoError(t, p.Free(pooltest.Alloc(t, p, 40*pooltest.MiB, nil)))
			held := f.Held()

			f.Occupy(256*pooltest.MiB - held) // nothing is left but what the allocator holds
			b := pooltest.Alloc(t, c, 75*pooltest.MiB, nil)
			require.LessOrEqual(t, f.Held(), held)
			_, err := c.Alloc(120*pooltest.MiB, nil)
			var oom *cupool.OOMError
			require.ErrorAs(t, err, &oom)
			require.Equal(t, held-f.Held(), oom.DeviceFree, "what the other process leaves")
			require.EqualValues(t, 256*pooltest.MiB, oom.DeviceTotal)
			require.ErrorContains(t, err, "of 256 MiB")
			require.NoError(t, errors.Join(c.Check(), p.Check()))

			f.Occupy(250 * pooltest.MiB) // more than is free: the device is beyond full
			_, err = c.Alloc(100*pooltest.MiB, nil)
			require.ErrorAs(t, err, &oom)
			require.Zero(t, oom.DeviceFree)
			require.NoError(t, c.Free(b))
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 75*pooltest.MiB, nil)), "what is reserved still serves")
			require.NoError(t, c.Free(live))

			f.Occupy(0)
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 200*pooltest.MiB, nil)))
			require.NoError(t, errors.Join(c.Check(), p.Check(), c.Close()))
			require.Empty(t, f.Leaks())
		})
	}
}

// TestEveryCallAfterLoss: after a device is lost every call that needs it fails with
// ErrDeviceLost, those that need it not go on, none hangs, and Close returns when it has
// asked the device to take everything back.
func TestEveryCallAfterLoss(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			f := conformance.NewFailing(simdev.New(simdev.Config{ManualEvents: true}))
			c := pooltest.Open(t, cupool.Config{Driver: f, Backing: backing, Decay: 50 * time.Millisecond})
			s := pooltest.NewStream(t, c)
			u := pooltest.NewStream(t, c)
			p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
			live, kept, other := pooltest.Alloc(t, c, 5000, s), pooltest.Alloc(t, c, 6000, s), pooltest.Alloc(t, p, 3*pooltest.MiB, s)
			require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 3*pooltest.MiB, s), u)) // pending
			for range 4 {
				require.NoError(t, c.Free(pooltest.Alloc(t, c, 700, s))) // in a magazine
			}
			e, err := u.Record()
			require.NoError(t, err)
			buf, err := cupool.NewBuffer[float32](c, 100, s)
			require.NoError(t, err)

			f.Arm(conformance.Fault{Err: cupool.ErrDeviceLost, Lost: true})
			require.ErrorIs(t, s.Memset(live.Ptr(), 1, 8), cupool.ErrDeviceLost)
			memory := map[cupool.Backing]string{cupool.BackingSegments: "MemFree", cupool.BackingVMM: "MemUnmap"}[backing]
			backs := func() map[string]int { // how often the device was asked to take something back
				return map[string]int{memory: f.Calls(memory), "DestroyStream": f.Calls("DestroyStream"), "DestroyEvent": f.Calls("DestroyEvent")}
			}
			lost, fine, free := cupool.ErrDeviceLost, error(nil), func(b cupool.Block) func() error { return func() error { return c.Free(b) } }
			for _, x := range []struct {
				what string
				call func() error
				want error
			}{
				{"Alloc", func() error { return testkit.Second(c.Alloc(9000, nil)) }, lost},
				{"Alloc of a size that is cached", func() error { return testkit.Second(c.Alloc(700, s)) }, lost},
				{"AllocContext", func() error { return testkit.Second(c.AllocContext(t.Context(), 9000, s)) }, lost},
				{"Alloc of a pool", func() error { return testkit.Second(p.Alloc(9000, s)) }, lost},
				{"Reserve", func() error { return c.Reserve(1<<20, s) }, lost},
				{"NewBuffer", func() error { return testkit.Second(cupool.NewBuffer[byte](c, 10, s)) }, lost},
				{"Buffer.CopyFrom", func() error { return buf.CopyFrom(make([]float32, 100)) }, lost},
				{"Buffer.CopyTo", func() error { return buf.CopyTo(make([]float32, 100)) }, lost},
				{"NewStream", func() error { return testkit.Second(c.NewStream()) }, lost},
				{"Stream.Sync", s.Sync, lost},
				{"Stream.SyncContext", func() error { return s.SyncContext(t.Context()) }, lost},
				{"Stream.Record", func() error { return testkit.Second(s.Record()) }, lost},
				{"Stream.Wait", func() error { return s.Wait(e) }, lost},
				{"Stream.WaitStream", func() error { return s.WaitStream(u) }, lost},
				{"Stream.Copy", func() error { return s.Copy(live.Ptr(), live.Ptr()+512, 8) }, lost},
				{"Stream.CopyIn", func() error { return s.CopyIn(live.Ptr(), make([]byte, 8)) }, lost},
				{"Stream.CopyOut", func() error { return s.CopyOut(make([]byte, 8), live.Ptr()) }, lost},
				{"Stream.Launch", func() error { return s.Launch(func() {}) }, lost},
				{"Stream.Close", s.Close, lost},
				{"Event.Done", func() error { return testkit.Second(e.Done()) }, lost},
				{"Event.Sync", e.Sync, lost},
				{"Event.Close", e.Close, fine},
				{"Sync", c.Sync, lost},
				{"ProcessDeferred", func() error { return testkit.Second(c.ProcessDeferred()) }, lost},
				{"Trim", func() error { return testkit.Second(c.Trim(0)) }, lost},
				{"EmptyCache", c.EmptyCache, lost},
				{"Reclaim", func() error { return testkit.Second(poolaccess.Of(c).Reclaim(1 << 30)) }, lost},
				{"RecordStream", func() error { return c.RecordStream(other, u) }, fine},
				{"Lookup", func() error { return testkit.Second(c.Lookup(live.Ptr())) }, fine},
				{"Free", free(live), fine},
				{"Free of what others use", free(other), fine},
				{"Free again", free(live), cupool.ErrDoubleFree},
				{"Check", func() error { return errors.Join(c.Check(), p.Check()) }, fine},
				{"Retire", p.Retire, lost},
				{"Close of a pool", p.Close, lost},
				{"Close of a pool again", p.Close, cupool.ErrClosed},
				{"Close", c.Close, lost},
				{"Close again", c.Close, cupool.ErrClosed},
				{"Alloc after Close", func() error { return testkit.Second(c.Alloc(9000, nil)) }, cupool.ErrClosed},
			} {
				tried := backs()
				err := x.call()
				if x.what == "Close" {
					for call, n := range backs() {
						require.Greater(t, n, tried[call], call)
					}
				}
				if x.want == nil {
					require.NoError(t, err, x.what)
				} else {
					require.ErrorIs(t, err, x.want, x.what)
				}
				if x.what == "Close" { // lists the live blocks as ever
					var leaks *cupool.LeakError
					require.ErrorAs(t, err, &leaks)
					require.Len(t, leaks.Leaks, 2)
					require.ElementsMatch(t, []cupool.Ptr{kept.Ptr(), buf.Ptr()}, []cupool.Ptr{leaks.Leaks[0].Ptr, leaks.Leaks[1].Ptr})
				}
			}
			require.NoError(t, c.Check())
		})
	}
}
