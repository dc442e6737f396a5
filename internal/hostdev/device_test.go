package hostdev_test

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev"
	"github.com/cupool/cupool/internal/testkit/drivertest"
)

func TestOpen(t *testing.T) {
	tests := map[string]struct {
		cfg      hostdev.Config
		name     string
		capacity int64
	}{
		"zero":     {hostdev.Config{}, "host (16 GiB)", 16 << 30},
		"capacity": {hostdev.Config{Capacity: 300 * mib}, "host (300 MiB)", 300 * mib},
		"odd":      {hostdev.Config{Capacity: 1000}, "host (1000 B)", 1000},
		"huge":     {hostdev.Config{Capacity: 4 << 40}, "host (4 TiB)", 4 << 40},
		"named":    {hostdev.Config{Name: "left"}, "left", 16 << 30},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d, err := hostdev.Open(tt.cfg)
			require.NoError(t, err)
			assert.Equal(t, tt.name, d.Name())
			assert.True(t, d.HostAccessible())
			free, total, err := d.MemInfo()
			require.NoError(t, err)
			assert.Equal(t, tt.capacity, total)
			assert.Equal(t, tt.capacity, free)
			require.NoError(t, d.Close())
		})
	}
	_, err := hostdev.Open(hostdev.Config{Capacity: -1})
	require.Error(t, err)
}

// Memory is zeroed, aligned to a page, and to 2 MiB where it has as many; it counts
// until it is freed.
func TestMemAlloc(t *testing.T) {
	d := open(t, 64*mib)
	for size, align := range map[int64]device.Ptr{1: 4096, 2*mib - 1: 4096, 2 * mib: 2 * mib, 6*mib + 1: 2 * mib} {
		for range 2 {
			p := alloc(t, d, size)
			if runtime.GOOS != "windows" {
				require.Zero(t, p%align, "%d bytes at %v", size, p)
			}
			require.Equal(t, int(size), bytes.Count(read(t, d, p, int(size), 0), []byte{0}))
			require.NoError(t, d.Memset(p, 9, size, 0))
			require.NoError(t, d.MemFree(p))
			require.Equal(t, hostdev.Stats{}, d.Stats())
		}
	}
}

// A job that is queued when its memory is freed still runs on real memory.
func TestMemFreeWaitsForAllStreams(t *testing.T) {
	d := open(t, 64*mib)
	p := alloc(t, d, mib)
	s := newStream(t, d)
	release := hold(t, d, s)
	require.NoError(t, d.Memset(p, 1, mib, s))
	freed := make(chan error)
	go func() { freed <- d.MemFree(p) }()
	// The books are clear as soon as it begins: nobody can name the range any more.
	require.Eventually(t, func() bool { return d.Stats().Allocations == 0 }, testkit.Patience, time.Millisecond)
	select {
	case <-freed:
		t.Fatal("MemFree did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	require.ErrorIs(t, d.Memset(p, 1, 1, 0), device.ErrInvalidRange)
	release()
	require.NoError(t, <-freed)
	require.NoError(t, d.SyncStream(s))
}

func TestCloseEndsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	d := open(t, 64*mib)
	drivertest.Calls(t, d) // leaves something of everything
	ran := make([]bool, 8)
	for i := range ran {
		require.NoError(t, d.Launch(newStream(t, d), func() { time.Sleep(time.Millisecond); ran[i] = true }))
	}
	testkit.Finishes(t, "Close", func() { require.NoError(t, d.Close()) })
	for i := range ran {
		require.True(t, ran[i], "Close waits for work")
	}
	requireGoroutines(t, before)
	require.Equal(t, hostdev.Stats{}, d.Stats())
}

// Close may come at any time, from anywhere.
func TestCloseDuringUse(t *testing.T) {
	for range 50 {
		d := open(t, 1<<30)
		p := alloc(t, d, mib)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				b := make([]byte, 100)
				for {
					s, err := d.NewStream()
					for _, e := range []error{err, d.Memset(p, 1, mib, s), d.CopyIn(p, b, s), d.DestroyStream(s)} {
						if e != nil {
							assert.ErrorIs(t, e, device.ErrClosed)
							return
						}
					}
				}
			})
		}
		time.Sleep(time.Millisecond)
		testkit.Finishes(t, "Close", func() { require.NoError(t, d.Close()) })
		testkit.Finishes(t, "a call during Close", wg.Wait)
	}
}
