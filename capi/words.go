//go:build cgo

package main

import "github.com/cupool/cupool/internal/oomhint"

// words are what an out of memory tells a program to set or to call: keys of settings, and what cupool.h has.
var words = oomhint.Words{
	Raise: "limit or fraction", OtherProcess: "fraction or limit in the other process",
	MinSplit: "min_split", NewPool: "cupool_begin", Sync: "cupool_wait", WaitTimeout: "wait_timeout",
	Limit: "limit:%[2]dM in CUPOOL_ALLOC_CONF, or by cupool_set_limit", OwnLimit: "a limit in cupool_pool_config of %[2]dM", MaxSplit: "max_split:%[2]dM",
	Fraction:   "fraction:%[1]v in CUPOOL_ALLOC_CONF, or by cupool_set_fraction",
	EmptyCache: "cupool_trim of %s", NotIsolated: "CUPOOL_POOL_USE_ON_OOM for %s", UseOnOOM: "CUPOOL_POOL_USE_ON_OOM for %s",
	PoolLimit: "a limit in cupool_pool_config for %s",
	Virtual:   "backing:vmm", VirtualSplit: "backing:vmm with max_split:0",
	Recording: "to see what holds memory, give it names by cupool_label_push",
	NoStacks:  true,
}

// Words implements oomhint.Speaker.
func (d *driver) Words() *oomhint.Words { return &words }
