//go:build cgo

package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/oomhint"
	"github.com/cupool/cupool/snapshot"
)

// An out of memory names what cupool.h has.
func TestWords(t *testing.T) {
	const mib = 1 << 20
	other := []snapshot.Holder{{Pool: "other", Cached: 60 * mib}}
	for name, c := range map[string]struct {
		r    oomhint.Refusal
		want []string
	}{
		"the limit":                             {oomhint.Refusal{Limit: 50 * mib, Settings: oomhint.Settings{Bound: 50 * mib}}, []string{"limit:60M in CUPOOL_ALLOC_CONF, or by cupool_set_limit", "smaller batches"}},
		"pieces that virtual memory would join": {oomhint.Refusal{Cached: 80 * mib, DeviceFree: 10 * mib, Settings: oomhint.Settings{CanBeVirtual: true}}, []string{"backing:vmm"}},
		"the fraction":                          {oomhint.Refusal{Limit: 50 * mib, Settings: oomhint.Settings{Fraction: 0.5}}, []string{"fraction:0.6 in CUPOOL_ALLOC_CONF, or by cupool_set_fraction", "smaller batches"}},
		"a pool's limit":                        {oomhint.Refusal{Limit: 50 * mib, Settings: oomhint.Settings{Own: true}}, []string{"a limit in cupool_pool_config of 60M", "smaller batches"}},
		"freed memory":                          {oomhint.Refusal{Pending: 60 * mib, Settings: oomhint.Settings{WaitTimeout: time.Second}}, []string{"cupool_wait before the allocation", "a wait_timeout above 1s"}},
		"another process":                       {oomhint.Refusal{DeviceFree: 10 * mib}, []string{"end the other process (nvidia-smi lists it)", "fraction or limit in the other process"}},
		"a pool's free memory":                  {oomhint.Refusal{OtherPools: 60 * mib, Holders: other}, []string{`CUPOOL_POOL_USE_ON_OOM for pool "other"`, "smaller batches"}},
		"an isolated pool's": {oomhint.Refusal{OtherPools: 60 * mib, Holders: other, Settings: oomhint.Settings{Isolated: []string{"other"}}},
			[]string{`cupool_trim of pool "other"`, `CUPOOL_POOL_USE_ON_OOM for pool "other"`}},
	} {
		r := c.r
		r.Rounded, r.DeviceTotal, r.Words, r.Callback = 60*mib, 100*mib, &words, true
		switch {
		case r.Limit > 0:
			r.DeviceFree = 100 * mib
		default:
			r.Room = math.MaxInt64
		}
		require.Equal(t, c.want, r.Advice(), name)
	}
}
