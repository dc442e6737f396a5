//go:build capitest

package main

// #cgo CFLAGS: -DCUPOOL_TEST
// #include "internal.h"
import "C"

// cupoolGoPanic panics, for tests, in some ways.
//
//export cupoolGoPanic
func cupoolGoPanic(t *C.thread, how C.int) (st C.cupool_status) {
	defer caught(t, &st)
	var none *gpu
	switch how {
	case 0:
		panic("a test panics")
	case 1:
		none.root = nil
	case 2:
		_ = gpus[how+C.MAX_DEVICES].Load()
	}
	return C.CUPOOL_OK
}
