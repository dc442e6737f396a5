package oomhint

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHint(t *testing.T) {
	const mib = 1 << 20
	for want, change := range map[string]func(*Refusal){
		"free at least 2 MiB of the 60 MiB that the program holds": func(r *Refusal) {},
		"the request is larger than the device":                    func(r *Refusal) { r.Rounded = 101 * mib },
		"the request is larger than the quota":                     func(r *Refusal) { r.Limit, r.Room = 9*mib, 9*mib },
		"the device has the memory: raise Quota":                   func(r *Refusal) { r.Limit, r.Room, r.DeviceFree = 70*mib, 9*mib, 50*mib },
		"10 MiB is cached, but in pieces":                          func(r *Refusal) { r.Cached = 10 * mib },
		"the limit leaves 11 MiB, the device is asked for 20 MiB at a time: raise Quota": func(r *Refusal) {
			r.Limit, r.Room, r.DeviceFree, r.Least = 71*mib, 11*mib, 50*mib, 20*mib
		},
		"the device has 12 MiB left and is asked for 20 MiB at a time: free at least 8 MiB":    func(r *Refusal) { r.DeviceFree, r.Least = 12*mib, 20*mib },
		"the device reports enough free memory but refuses it: it may be fragmented or shared": func(r *Refusal) { r.DeviceFree = 12 * mib },
		"free at least 2 MiB of what other pools hold":                                         func(r *Refusal) { r.OtherPools = 80 * mib },
		"free at least 10 MiB of the 60 MiB that the program holds":                            func(r *Refusal) { r.DeviceFree, r.DeviceTotal = -1, -1 },
	} {
		r := Refusal{Rounded: 10 * mib, Live: 60 * mib, DeviceFree: 8 * mib, DeviceTotal: 100 * mib, Room: math.MaxInt64, LimitName: "quota", InPieces: "in pieces", Settings: Settings{Words: &Words{Raise: "Quota"}}}
		change(&r)
		require.Equal(t, want, r.Hint())
	}
}

// What is in pieces has a hint that does not contradict the advice.
func TestHintInPieces(t *testing.T) {
	for want, s := range map[string]struct {
		Settings
		advice string // the first
	}{
		"1 GiB is cached, but for other streams or in pieces too small to be joined: allocate first what lives long": {
			Settings{Virtual: true}, "NewPool for blocks that live long",
		},
		"1 GiB is cached, but in pieces or for other streams: virtual memory would join them": {
			Settings{CanBeVirtual: true}, "Backing: cupool.BackingVMM",
		},
		"1 GiB is cached, but in pieces or for other streams: allocate large blocks first and keep them, or lower MinSplit": {
			Settings{LargeSegment: 1}, "MaxSplit: 10<<20",
		},
	} {
		r := Refusal{Rounded: 10 << 20, Cached: 1 << 30, DeviceTotal: 2 << 30, Room: math.MaxInt64, Settings: s.Settings}
		_, advice, hint := r.Explain()
		require.Equal(t, want, hint)
		require.Equal(t, s.advice, advice[0])
	}
}
