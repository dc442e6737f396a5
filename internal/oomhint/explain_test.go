package oomhint

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

func TestExpr(t *testing.T) {
	for n, want := range map[int64]string{8 << 30: "8<<30", 1300 << 20: "1300<<20", 1: "1<<20", 1<<20 + 1: "2<<20"} {
		require.Equal(t, want, Expr(n))
	}
}

// A callback is advised where it could make room.
func TestAdviceOfCallback(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		r    Refusal
		want bool
	}{
		"blocks are held":                 {Refusal{Rounded: 60 * mib, Live: 50 * mib, Reserved: 50 * mib}, true},
		"another pool holds some":         {Refusal{Rounded: 60 * mib, OtherPools: 50 * mib, Holders: []snapshot.Holder{{Pool: "other", Live: 1}}}, true},
		"it is the pool's own limit":      {Refusal{Rounded: 60 * mib, OtherPools: 50 * mib, Holders: []snapshot.Holder{{Pool: "other", Live: 1}}, Settings: Settings{Own: true}}, false},
		"nothing is held":                 {Refusal{Rounded: 60 * mib}, false},
		"the request is above the limit":  {Refusal{Rounded: 60 * mib, Live: mib, Reserved: mib, Limit: 59 * mib}, false},
		"the request is above the device": {Refusal{Rounded: 101 * mib, Live: 50 * mib, Reserved: 50 * mib}, false},
		"others hold what is missing":     {Refusal{Rounded: 60 * mib, Live: mib, Reserved: mib}, false},
		"the device says nothing":         {Refusal{Rounded: 60 * mib, Live: mib, Reserved: mib, DeviceFree: -1}, true},
	} {
		r := c.r
		r.Room, r.DeviceTotal = math.MaxInt64, 100*mib
		if r.DeviceFree == 0 {
			r.DeviceFree = 50 * mib
		}
		require.Equal(t, c.want, r.freeable(), name)
	}
}

// Pictures are taken again when nineteen times their time has passed.
func TestPictures(t *testing.T) {
	var p Pictures
	n := 0
	p.Take(func() {
		n++
		p.Take(func() { t.Error("one is under way") })
	})
	require.Equal(t, 1, n)
	p.next = time.Now().Add(time.Hour)
	p.Take(func() { n++ })
	require.Equal(t, 1, n)
	p.next = time.Now()
	start := time.Now()
	p.Take(func() { time.Sleep(time.Millisecond) })
	require.GreaterOrEqual(t, p.next.Sub(start), 20*time.Millisecond)
}
